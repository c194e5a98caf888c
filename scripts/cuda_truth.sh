#!/usr/bin/env bash
# What a card can do, and what a model gets of it: the limits that percentages are of, shares, joules, clocks and the load,
# each with its unit and how it was measured. MODEL: the first argument, or the bundled one. Needs a release build with
# kernels.
set -euo pipefail
cd "$(dirname "$0")/.."
baton=build/release/baton
model=${1:-models/dictionary-28m.Q8_0.gguf}
[[ -x $baton ]] || { echo "there is no $baton: run scripts/run.sh, or cmake --build --preset release" >&2; exit 1; }
reason=$("$baton" units | sed -n "s/^cuda  not available: //p")
[[ -z $reason ]] || { echo "no card to measure: $reason" >&2; exit 1; }
echo "== units: name, memory, capability, measured read bandwidth"
time "$baton" units | grep -A4 '^cuda'
echo "== prefill and decode on the card; limits on stderr"
"$baton" bench -m "$model" --unit cuda -p 512,2048 -n 128 -r 3 --no-check 2>&1
echo "== prefill on the card, decode on cpu: each phase against its own unit"
"$baton" bench -m "$model" --prefill cuda --decode cpu -p 0 -n 0 --pg 512,32 -r 3 --no-check -o json 2>/dev/null |
  python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)[0]["phase_shares"], indent=1))'
echo "== load, clocks, joules of a row"
"$baton" bench -m "$model" --unit cuda -p 512 -n 0 -r 1 --no-check -o json 2>/dev/null |
  python3 -c 'import json, sys
row = json.load(sys.stdin)[0]
print(row["prefill"]["evidence"])
print(json.dumps({key: row[key] for key in ("energy", "energy_runs", "joules_per_token", "clocks")} | {"load": row["prefill"]["load"]}, indent=1))'
echo "== from a process's start to its first token"
"$baton" bench -m "$model" --unit cuda --load -p 0 -n 0 -r 3 2>&1
