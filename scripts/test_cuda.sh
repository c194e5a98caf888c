#!/usr/bin/env bash
# The tests of the cuda unit on this machine's card: its own, those that every unit is held to, hand-overs with the other
# units; and the first of them again under compute-sanitizer, where that is installed. Needs a release build with kernels.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
unit=cuda
[[ -x $build/baton ]] || { echo "there is no $build/baton: run scripts/run.sh, or cmake --build --preset release" >&2; exit 1; }
reason=$("$build/baton" units | sed -n "s/^$unit  not available: //p")
[[ -z $reason ]] || { echo "no card to test on: $reason" >&2; exit 1; }

failed=()
run() {
  local name=$1
  shift
  echo "== $name"
  "$@" --gtest_brief=1 || failed+=("$name")
}
run "kernels' bodies, states, weights" "$build/baton_unit_cuda_test"
for name in conformance golden state_contract step_on rewind layer_watch logprobs; do
  run "$name" "$build/tests/${name}_test" --gtest_filter="*$unit*"
done
run handoff "$build/tests/handoff_test"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    run "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no \
      "$build/tests/step_on_test" --gtest_filter="*$unit*"
  done
fi
if [[ ${#failed[@]} -gt 0 ]]; then echo "FAILED: ${failed[*]}"; exit 1; fi
echo "all passed"
