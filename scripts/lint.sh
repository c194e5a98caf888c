#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) with the flags of the release build, two files at a time or as many as there are cores.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/lint.sh [--all | --since COMMIT | FILE...]
  --all           every .cc of baton/ and tests/ (default)
  --since COMMIT  the .cc files that differ from COMMIT, committed or not, and those that include a changed header
Needs clang-tidy and the packages of a build; configures build/lint, as release but without precompiled
  headers and each file alone.
TEXT
}

sources() { git ls-files --cached --others --exclude-standard -- 'baton/*.cc' 'tests/*.cc'; }

files=()
case "${1:---all}" in
  -h | --help) usage; exit 0 ;;
  --all) mapfile -t files < <(sources) ;;
  --since)
    [[ $# -eq 2 ]] || { usage >&2; exit 2; }
    mapfile -t changed < <({ git diff --name-only --diff-filter=d "$2"; git ls-files --others --exclude-standard; } |
      grep -E '^(baton|tests)/.*\.(cc|h|inc)$' | sort -u)
    for name in "${changed[@]}"; do
      if [[ $name == *.cc ]]; then files+=("$name"); else
        mapfile -t -O "${#files[@]}" files < <(sources | xargs grep -lF "#include \"$name\"" || true)
      fi
    done
    mapfile -t files < <(printf '%s\n' "${files[@]}" | sort -u | sed '/^$/d')
    ;;
  -*) usage >&2; exit 2 ;;
  *) files=("$@") ;;
esac

cmake --preset release -B build/lint -DBATON_PRECOMPILE=OFF -DBATON_UNITY=0 >/dev/null
command -v clang-tidy >/dev/null || { echo "lint: clang-tidy is not installed (scripts/setup.sh --tests)" >&2; exit 2; }

# A file without a compile command (libFuzzer programs, another platform's kernels) cannot be read as it is built.
known=()
for name in "${files[@]}"; do
  if grep -qF "/$name\"" build/lint/compile_commands.json; then known+=("$name"); fi
done
echo "lint: ${#known[@]} files"
[[ ${#known[@]} -gt 0 ]] || exit 0
printf '%s\0' "${known[@]}" |
  xargs -0 -n 1 -P "$(getconf _NPROCESSORS_ONLN)" clang-tidy -p build/lint --quiet --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -vE '^[0-9]+ warnings? generated|^$' >&2)
echo "lint: nothing to mend"
