#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests; the last thing printed is ctest's summary of the release run.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/test.sh [--asan] [--tsan] [--fuzz SECONDS] [--mutants N] [--arm64] [--macos] [--lint [COMMIT]] [--all]
                       [--minutes N] [--advisory]
  (nothing)       every test, release build
  --asan          also all tests under address and undefined-behaviour sanitizers, at smoke size
  --tsan          also the tests of everything with threads under the thread sanitizer, at smoke size
  --fuzz SECONDS  also every fuzz target for that long each
  --mutants N     also N of the planted faults of tests/mutants.txt, drawn by the commit: the tests must notice each
  --arm64         also a cross build for arm64; its quant, text, state and kernel tests run in an emulator
  --macos         also a cross build for arm64 macOS: the libraries of the neural engine's path and baton-apple-check
  --lint [COMMIT] also clang-tidy: every file, or those that differ from COMMIT
  --all           all of these; fuzz targets for 10 seconds each, 5 planted faults
  --advisory      what is beside the release build and its tests is named when it fails, and changes no exit status
  --minutes N     what is beside the release build and its tests ends N minutes from the start: for a runner with a limit.
                  Sanitizers and cross builds begin with another of them at each commit, as all may not have time
The exit status is not 0 when any part fails; what failed, and what had no time, is named.
TEXT
}

asan=no tsan=no arm64=no macos=no lint=no lint_since='' fuzz=0 mutants=0 minutes=0 advisory=no
while [[ $# -gt 0 ]]; do
  case $1 in
    --asan) asan=yes ;;
    --tsan) tsan=yes ;;
    --arm64) arm64=yes ;;
    --macos) macos=yes ;;
    --fuzz)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
      fuzz=$2; shift ;;
    --mutants)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
      mutants=$2; shift ;;
    --advisory) advisory=yes ;;
    --minutes)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
      minutes=$2; shift ;;
    --lint)
      lint=yes
      if [[ -n ${2:-} && $2 != -* ]]; then lint_since=$2; shift; fi ;;
    --all) asan=yes tsan=yes arm64=yes macos=yes lint=yes fuzz=10 mutants=5 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

jobs=$(getconf _NPROCESSORS_ONLN)
export jobs
failed=() unfinished=()

# Which tests a stage's command failed, as ctest noted them: " (cli.chat_test api.Generator.Ends)"; of others nothing.
failed_tests() {
  local noted=build/${2:-}/Testing/Temporary/LastTestsFailed.log
  if [[ $1 == build_and_test && -s $noted ]]; then echo " ($(cut -d: -f2- "$noted" | xargs))"; fi
}

# stage NAME COMMAND...: runs it, notes a failure and goes on.
stage() {
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  if [[ $status -eq 0 ]]; then echo "== $name: passed in $((SECONDS - start)) s"; else
    failed+=("$name$(failed_tests "$@")")
    echo "== $name: FAILED after $((SECONDS - start)) s"
  fi
}

# The same for what may be left out when time is short (--minutes): it is not begun too late, and ended when time is up.
timed_stage() {
  local name=$1 start=$SECONDS left=$((minutes * 60 - SECONDS)) status=0
  if [[ $minutes -eq 0 ]]; then stage "$@"; return; fi
  shift
  if [[ $left -lt 30 ]]; then unfinished+=("$name"); echo "== $name: NOT RUN, no time is left"; return; fi
  echo "== $name (at most $left s)"
  timeout --kill-after=10 "$left" bash -c '"$@"' stage "$@" || status=$?
  case $status in
    0) echo "== $name: passed in $((SECONDS - start)) s" ;;
    124 | 137) unfinished+=("$name"); echo "== $name: NOT FINISHED after $((SECONDS - start)) s" ;;
    *) failed+=("$name$(failed_tests "$@")"); echo "== $name: FAILED after $((SECONDS - start)) s" ;;
  esac
}

setup() {
  local options=(--tests)
  if [[ $arm64 == yes ]]; then options+=(--arm64); fi
  if [[ $macos == yes ]]; then options+=(--macos); fi
  scripts/setup.sh "${options[@]}"
}

build() {
  local log=build/configure-$1.log
  mkdir -p build
  cmake --preset "$1" >"$log" 2>&1 || { cat "$log"; return 1; }
  NINJA_STATUS="[$1 %f/%t] " cmake --build --preset "$1"
}

# Thread and address sanitizers want the usual address-space layout; some kernels spread it too far for them.
run_tests() {
  local fixed=()
  if [[ $1 != release && $1 != arm64 ]] && setarch "$(uname -m)" -R true 2>/dev/null; then fixed=(setarch "$(uname -m)" -R); fi
  ${fixed[@]+"${fixed[@]}"} ctest --preset "$1" -j "$jobs" --progress
}

build_macos() { build macos-cross && scripts/check_macho.py build/macos-cross/*.a build/macos-cross/baton-apple-check; }

# What an earlier run noted as failed is not this one's.
build_and_test() { rm -f "build/$1/Testing/Temporary/LastTestsFailed.log" && build "$1" && run_tests "$1"; }
export -f build run_tests build_macos build_and_test

setup
stage 'release build' build release
if [[ ${#failed[@]} -gt 0 ]]; then exit 1; fi
if [[ $lint == yes ]]; then timed_stage lint scripts/lint.sh ${lint_since:+--since "$lint_since"}; fi
# The fuzz preset has the same sanitizers, with clang: one build serves both.
sanitized=asan-ubsan
if [[ $fuzz -gt 0 ]]; then sanitized=fuzz; fi
if [[ $mutants -gt 0 ]]; then
  timed_stage mutants scripts/mutants.py --sample "$mutants" --seed "$(git rev-parse HEAD 2>/dev/null || echo none)"
fi
stages=()
if [[ $asan == yes ]]; then stages+=(asan); fi
if [[ $tsan == yes ]]; then stages+=(tsan); fi
if [[ $macos == yes ]]; then stages+=(macos); fi
if [[ $arm64 == yes ]]; then stages+=(arm64); fi
run_stages() {
  local name
  for name in "$@"; do
    case $name in
      asan) timed_stage asan-ubsan build_and_test "$sanitized" ;;
      macos) timed_stage macos build_macos ;;
      *) timed_stage "$name" build_and_test "$name" ;;
    esac
  done
}
if [[ ${#stages[@]} -gt 0 ]]; then
  first=0
  if [[ $minutes -gt 0 ]]; then first=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % ${#stages[@]})); fi
  run_stages "${stages[@]:first}" "${stages[@]:0:first}"
fi
if [[ $fuzz -gt 0 ]]; then timed_stage fuzz scripts/fuzz.sh "$fuzz"; fi

if [[ ${#unfinished[@]} -gt 0 ]]; then echo "NO TIME for, or not to the end of: ${unfinished[*]}"; fi
if [[ $advisory == yes && ${#failed[@]} -gt 0 ]]; then
  echo "FAILED, for information only: ${failed[*]}"
  failed=()
fi
echo "== release tests"
status=0
run_tests release || status=$?
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "FAILED before the release tests: ${failed[*]}"
  exit 1
fi
exit "$status"
