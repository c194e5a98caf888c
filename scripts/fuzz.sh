#!/usr/bin/env bash
# Fuzzes the readers: builds the fuzz preset and runs each libFuzzer target on its corpus for some seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/fuzz.sh [SECONDS [TARGET...]]
  SECONDS  for each target; default 30
  TARGET   names without _fuzz (gguf, seal, ...); default all of tests/fuzz/*_fuzz.cc
Inputs that fail are left in build/fuzz-artifacts, new inputs that reach new code in build/fuzz-corpus.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
seconds=${1:-30}
[[ $seconds =~ ^[0-9]+$ ]] || { usage >&2; exit 2; }
shift || true
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in tests/fuzz/*_fuzz.cc; do
    [[ -f $source ]] || { echo "fuzz: there are no targets in tests/fuzz" >&2; exit 1; }
    name=$(basename "$source" _fuzz.cc)
    targets+=("$name")
  done
fi

mkdir -p build/fuzz-artifacts
cmake --preset fuzz >build/fuzz-configure.log 2>&1 || { cat build/fuzz-configure.log; exit 1; }
cmake --build --preset fuzz --target "${targets[@]/%/_fuzz}"

failed=()
for name in "${targets[@]}"; do
  found=build/fuzz-corpus/$name
  log=build/fuzz-artifacts/$name.log
  mkdir -p "$found"
  if "build/fuzz/tests/fuzz/${name}_fuzz" "$found" "tests/fuzz/corpus/$name" -max_total_time="$seconds" -timeout=5 \
    -rss_limit_mb=512 -print_final_stats=1 -artifact_prefix="build/fuzz-artifacts/$name-" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(grep -oE 'cov: [0-9]+' "$log" | tail -1)
    echo "fuzz: $name: ${runs:-0} inputs in $seconds s, ${cover:-cov: ?}, nothing found"
  else
    failed+=("$name")
    tail -40 "$log"
    echo "fuzz: $name: FAILED, input in build/fuzz-artifacts, log in $log"
  fi
done
[[ ${#failed[@]} -eq 0 ]] || { echo "fuzz: failed: ${failed[*]}"; exit 1; }
