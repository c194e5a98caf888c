#!/usr/bin/env bash
# The tests of the cuda unit on this machine's card: its own, those that every unit is held to, hand-overs with the other
# units and their proofs, and a soak of mixed requests; and some again under compute-sanitizer, where that is installed.
# Needs a release build with kernels.
#
# Usage: test_cuda.sh [--soak SECONDS] [--memcheck SECONDS] [--only WORD] [--emulated]
#   --soak SECONDS      how long the soak takes; 0: none (60)
#   --memcheck SECONDS  the soak under compute-sanitizer, too: 600 for a long one (0: not)
#   --only WORD         of what this script runs, what has that in its name: "soak", "verify-bridge", "memcheck"
#   --emulated          without a card, on the emulated one: tries the script, and says nothing of a card
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
unit=cuda soak=60 memcheck=0 only="" emulated=0
while [[ $# -gt 0 ]]; do
  case $1 in
    --soak | --memcheck | --only)
      [[ $# -gt 1 ]] || { echo "$1 needs a value: see the head of $0" >&2; exit 2; }
      case $1 in --soak) soak=$2 ;; --memcheck) memcheck=$2 ;; --only) only=$2 ;; esac
      shift 2 ;;
    --emulated) emulated=1 && shift ;;
    -h | --help) sed -n '2,/^set /p' "$0" | sed 's/^# \{0,1\}//; /^set /d' && exit 0 ;;
    *) echo "$1 is no option: see the head of $0" >&2 && exit 2 ;;
  esac
done
for seconds in "$soak" "$memcheck"; do
  [[ $seconds =~ ^[0-9]+$ ]] || { echo "$seconds is no number of seconds" >&2; exit 2; }
done
for program in baton baton_unit_cuda_test tests/cuda_soak_test tests/handoff_test; do
  [[ -x $build/$program ]] || { echo "there is no $build/$program: cmake --build --preset release builds all tests" >&2; exit 1; }
done
given=$unit
if [[ $emulated = 1 ]]; then
  given=$unit:driver=emulated
else
  reason=$("$build/baton" units | sed -n "s/^$unit  not available: //p")
  [[ -z $reason ]] || { echo "no card to test on: $reason" >&2; exit 1; }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=() ran=0
run() {
  local name=$1
  shift
  [[ $name == *"$only"* ]] || return 0
  ran=$((ran + 1))
  echo "== $name"
  "$@" || failed+=("$name")
}
run_test() { run "$@" --gtest_brief=1; }

# All ordered pairs, each of which `handoff_test` must have proven with a model that has recurrent parts; and `baton` with
# one of the bundled ones, with bounds that are measured here.
pairs() {
  local from to
  for from in ref cpu ane "$unit"; do
    for to in ref cpu ane "$unit"; do [[ $from = "$to" ]] || echo "$from->$to"; done
  done
}
handoff() {
  "$build/tests/handoff_test" --gtest_brief=1 | tee "$work/handoff" || return 1
  local pair line
  line=$(grep "^tiny-qwen3.5: every token proven: " "$work/handoff") || { echo "nothing was proven"; return 1; }
  for pair in $(pairs); do
    [[ " $line " == *" $pair "* ]] || { echo "not proven: $pair"; return 1; }
  done
}
verify() {
  # So long that states go by all threads of a hand-over, which small ones do not.
  local pair from to status=0 prompt
  prompt=$(head -c 1600 README.md)
  for pair in $(pairs); do
    from=${pair%->*} to=${pair#*->}
    XDG_CACHE_HOME=$work "$build/baton" run --prefill "${from/#$unit/$given}" --decode "${to/#$unit/$given}" \
      --verify-bridge all -m models/dictionary-3m.Q8_0.gguf -n 32 -p "$prompt" --json \
      >"$work/answer" 2>"$work/said" || { echo "$pair: exit code $?"; cat "$work/said"; status=1; continue; }
    grep -q '"level":"proven","verified":true' "$work/answer" || { echo "$pair: not proven"; cat "$work/answer"; status=1; continue; }
    echo "$pair: $(grep -o '"checked":[0-9]*' "$work/answer") rows, $(grep -o '"max_abs_dlogit":[0-9.e-]*' "$work/answer")"
  done
  return $status
}

run_test "kernels' bodies, states, weights" "$build/baton_unit_cuda_test"
for name in conformance golden state_contract step_on rewind layer_watch logprobs; do
  run_test "$name" "$build/tests/${name}_test" --gtest_filter="*$unit*"
done
run handoff handoff
run verify-bridge verify
if [[ $soak != 0 ]]; then run_test "soak, $soak s" env BATON_SOAK_SECONDS="$soak" "$build/tests/cuda_soak_test"; fi
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    run_test "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no \
      "$build/tests/step_on_test" --gtest_filter="*$unit*"
  done
  # What is left on the card at the end is a report, too.
  if [[ $memcheck != 0 ]]; then
    run_test "memcheck of a soak, $memcheck s" env BATON_SOAK_SECONDS="$memcheck" compute-sanitizer --tool memcheck \
      --leak-check full --error-exitcode 9 --report-api-errors no "$build/tests/cuda_soak_test"
  fi
elif [[ $memcheck != 0 ]]; then
  echo "no compute-sanitizer is installed: --memcheck cannot be done"
  failed+=("memcheck of a soak")
fi
[[ $ran -gt 0 ]] || { echo "nothing here has \"$only\" in its name" >&2; exit 2; }
if [[ ${#failed[@]} -gt 0 ]]; then echo "FAILED: ${failed[*]}"; exit 1; fi
echo "all passed"
