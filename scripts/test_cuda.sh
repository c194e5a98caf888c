#!/usr/bin/env bash
# The tests of the cuda unit on this machine's card, in slices: its own, those that every unit is held to, hand-overs with
# the other units and their proofs, perplexities beside cpu, a soak of mixed requests; and some again under
# compute-sanitizer, where that is installed. Needs a release build with kernels. racecheck's slice fails on cards it was
# run on: what it names there, and why it is no race, is in docs/cuda_measured.md.
#
# Usage: test_cuda.sh [--only NAME] [--soak SECONDS] [--memcheck SECONDS] [--limit SECONDS] [--jobs N] [--emulated]
#                     [--list]
#   --only NAME         slices that have this in their name; repeatable. --list prints the names
#   --soak SECONDS      how long the soak takes; 0: none (60)
#   --memcheck SECONDS  how long it takes under compute-sanitizer: 600 for a long one (0: none)
#   --limit SECONDS     a slice that takes longer is ended, and has failed; what it said until then is printed (1500)
#   --jobs N            programs at once where a slice has several (a quarter of the processors, 8 at most)
#   --emulated          without a card, on the emulated one: tries the script, and says nothing of a card
# Environment: BATON_BUILD, the folder of the programs (build/release); BATON_LOADER, what stands before each of them where
# they cannot start by themselves (a loader and its options).
# Exit code: 0 all passed, 1 a slice failed or could not be run, 2 wrong usage, 130 or 143 ended.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BATON_BUILD:-build/release}
read -ra loader <<<"${BATON_LOADER:-}"
unit=cuda soak=60 memcheck=0 limit=1500 emulated=0 list=0 only=()
jobs=$(($(nproc) / 4)) && jobs=$((jobs < 1 ? 1 : jobs > 8 ? 8 : jobs))
while [[ $# -gt 0 ]]; do
  case $1 in
    --only | --soak | --memcheck | --limit | --jobs)
      [[ $# -gt 1 ]] || { echo "$1 needs a value: see the head of $0" >&2; exit 2; }
      case $1 in
        --only) only+=("$2") ;; --soak) soak=$2 ;; --memcheck) memcheck=$2 ;; --limit) limit=$2 ;; --jobs) jobs=$2 ;;
      esac
      shift 2 ;;
    --emulated) emulated=1 && shift ;;
    --list) list=1 && shift ;;
    -h | --help) sed -n '2,/^set /p' "$0" | sed 's/^# \{0,1\}//; /^set /d' && exit 0 ;;
    *) echo "$1 is no option: see the head of $0" >&2 && exit 2 ;;
  esac
done
for number in "$soak" "$memcheck" "$limit" "$jobs"; do
  [[ $number =~ ^[0-9]+$ ]] || { echo "$number is no number" >&2; exit 2; }
done

threads=$(($(nproc) / (jobs < 1 ? 1 : jobs))) && threads=$((threads < 1 ? 1 : threads))
given=$unit
[[ $emulated = 0 ]] || given=$unit:driver=emulated
work=$(mktemp -d)
# What a slice started ends with it, however far down.
below() { local p; for p in $(cat /proc/"$1"/task/*/children 2>/dev/null); do echo "$p" && below "$p"; done; }
end_all() { local left; left=$(below $$) && [[ -z $left ]] || kill $left 2>/dev/null || true; }
trap 'end_all; rm -rf "$work"' EXIT
trap 'exit 130' INT
# With what sanitizers and soaks said until then.
trap 'echo "ended from outside after $SECONDS s"; tail -n 30 "$work"/memcheck.* "$work"/racecheck.* "$work"/initcheck.* 2>/dev/null | cut -c1-300; exit 143' TERM

# NAME ARGUMENTS: a program of the build; ended where the slice's time is over, first so that it can say something.
begun=$SECONDS
left() { local l=$((limit - SECONDS + begun)); echo $((l < 1 ? 1 : l)); }
program() {
  local name=$1
  shift
  [[ -e $build/$name ]] || { echo "there is no $build/$name: cmake --build --preset release builds all tests" >&2; return 1; }
  timeout -k 10 "$(left)" ${before[@]+"${before[@]}"} ${loader[@]+"${loader[@]}"} "$build/$name" "$@"
}
before=()  # what is between timeout and the program

# The processors of the i-th of several programs, so that threads of one do not wait for those of others. I COUNT
share_of() {
  taskset -cp $BASHPID | sed 's/.*: //' | tr ',' '\n' | awk -F- -v i="$1" -v count="$2" '
    { for (c = $1; c <= (NF > 1 ? $2 : $1); ++c) all[n++] = c }
    END { each = int(n / count); if (each < 1) each = 1
      for (k = 0; k < each; ++k) printf "%s%s", k ? "," : "", all[(i * each + k) % n] }'
}

# A GoogleTest program: what it says, and its last lines again where it failed. NAME SHARDS ARGUMENTS
tests() {
  local name=$1 shards=$2 status=0 i pids=() before=()
  shift 2
  for ((i = 0; i < shards; ++i)); do
    [[ $shards = 1 ]] || before=(taskset -c "$(share_of $i "$shards")")
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i program "tests/${name}_test" --gtest_brief=1 \
      --gtest_output="xml:$work/$name.xml.$i" "$@" >"$work/$name.out.$i" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < shards; ++i)); do
    local code=0
    wait "${pids[$i]}" || code=$?
    [[ $code = 0 ]] || { echo "shard $i of $name: exit code $code"; status=1; tail -c 6000 "$work/$name.out.$i"; }
  done
  cat "$work/$name".out.* | grep -E '^\[  (PASSED|SKIPPED)|: [0-9]+ answers|proven: |requests:|driver says' |
    grep -v 'SKIPPED.*/' || true
  # None may have been run in all.
  cat "$work/$name".out.* | grep -cE '^\[  PASSED  \] [1-9]' >/dev/null || { echo "nothing passed"; status=1; }
  echo "$(cat "$work/$name".xml.* 2>/dev/null | grep -o 'name="near_ties" value="[0-9]*"' | grep -o '[0-9]*' |
    awk '{ n += $1 } END { print n + 0 }') near ties, each of them explained by its test"
  return $status
}

# All ordered pairs, each of which `handoff_test` must have proven with a model that has recurrent parts; and `baton` with
# the bundled ones, with bounds that are measured here: of the large one with ref or an emulated ane for minutes.
all_units=(ref cpu ane "$unit")
pairs() {
  local from to
  for from in "$@"; do
    for to in "$@"; do [[ $from = "$to" ]] || echo "$from->$to"; done
  done
}
handoff() {
  tests handoff "$jobs" "$@" || return 1
  local pair line
  line=$(cat "$work"/handoff.out.* | grep "^tiny-qwen3.5: every token proven: ") || { echo "nothing was proven"; return 1; }
  for pair in $(pairs "${all_units[@]}"); do
    [[ " $line " == *" $pair "* ]] || { echo "not proven: $pair"; return 1; }
  done
}
# PAIR MODEL TOKENS: one line; its last word is whether it is proven.
verify_pair() {
  local from=${1%->*} to=${1#*->} place=$work/verify.$1
  mkdir -p "$place"
  # So long that states go by all threads of a hand-over, which small ones do not.
  if XDG_CACHE_HOME=$place program baton run --prefill "${from/#$unit/$given}" --decode "${to/#$unit/$given}" \
    --verify-bridge all -m "$2" -n "$3" -t "$threads" -p "$(head -c 1600 README.md)" --json >"$place/answer" 2>"$place/said" &&
    grep -q '"level":"proven","verified":true' "$place/answer"; then
    echo "$1: $(grep -o '"checked":[0-9]*' "$place/answer") rows, $(grep -o '"max_abs_dlogit":[0-9.e-]*' "$place/answer"), proven"
  else
    echo "$1: $(tail -c 400 "$place/said" | tr '\n' ' ') $(head -c 2000 "$place/answer"), NOT"
  fi
}
# MODEL TOKENS UNITS...
verify() {
  local model=$1 tokens=$2 pair count=0
  shift 2
  rm -f "$work"/line.*
  for pair in $(pairs "$@"); do
    while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do wait -n || true; done
    verify_pair "$pair" "$model" "$tokens" >"$work/line.$pair" &
    count=$((count + 1))
  done
  wait
  cat "$work"/line.*
  [[ $(cat "$work"/line.* | grep -c ', proven$') = "$count" ]] || { echo "of $count pairs not all are proven"; return 1; }
}

# Perplexity by types of weights, within 0.1 % of cpu. MODEL CHUNKS TYPES...
perplexity_of() {
  program baton perplexity -m "$1" -f tests/data/golden/heldout.txt --chunks "$2" --count-from 1 --unit "$3" -t "$threads" --json 2>"$work/said.$BASHPID" |
    grep -o '"ppl":[0-9.e+-]*' | head -1 | cut -d: -f2
}
perplexity_type() {
  local model=$1 chunks=$2 type=$3 file=$work/$3.gguf on cpu
  if [[ $type = as_is ]]; then
    file=$model
  else
    program baton quantize "$model" "$file" "$type" --allow-requantize --pure >/dev/null 2>"$work/said.$type" ||
      { echo "$type: not made: $(tail -c 300 "$work/said.$type") NOT"; return; }
  fi
  on=$(perplexity_of "$file" "$chunks" "$given") || on=
  cpu=$(perplexity_of "$file" "$chunks" cpu) || cpu=
  [[ $file = "$model" ]] || rm -f "$file"
  awk -v t="$type" -v a="$on" -v b="$cpu" 'BEGIN { d = b > 0 && a > 0 ? 100 * (a / b - 1) : 100
    printf "%s: %s beside %s on cpu, %+.4f %%%s\n", t, a, b, d, (d < 0.1 && d > -0.1) ? ", within" : " NOT within 0.1" }'
}
perplexity() {
  local model=$1 chunks=$2 type
  shift 2
  rm -f "$work"/ppl.*
  echo "$model, the first $chunks windows of 512 tokens of tests/data/golden/heldout.txt, all tokens but the first of each"
  for type in "$@"; do
    while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do wait -n || true; done
    perplexity_type "$model" "$chunks" "$type" >"$work/ppl.$type" &
  done
  wait
  cat "$work"/ppl.*
  [[ $(cat "$work"/ppl.* | grep -c ', within$') = $# ]] || { echo "not all types are within 0.1 %"; return 1; }
}

# The soak, whose own counts are exact; and that the driver's count of free bytes falls by one piece of 2 MiB at most in the
# second half of a setting's rounds, and by none where it fell in the quarter before. It takes such pieces for kernels when
# they are first used, unless all are loaded at once, and one now and then besides, in any round (not known what for).
# SECONDS. Nobody else may use the card.
soak() {
  CUDA_MODULE_LOADING=EAGER BATON_SOAK_SECONDS=$1 tests cuda_soak 1 || return 1
  [[ $emulated = 1 ]] && return
  grep 'driver says' "$work/cuda_soak.out.0" | awk '
    function judge(  i, early, moved) {
      if (n == 0) return
      for (i = int(n / 4) + 1; i < n; i++) {
        if (free[i] == free[i - 1]) continue
        if (i <= int(n / 2)) early = 1
        else if (free[i - 1] - free[i] != 2097152 || moved + early > 0) moved = 2
        else moved = 1
      }
      if (n < 8) few++; else if (moved > 1) bad++; else good++
      n = 0
    }
    / round 0:/ { judge() }
    { free[n++] = $(NF - 3) }
    END {
      judge()
      printf "free bytes by the driver: %d settings at rest but for a piece, %d not; %d with too few rounds to tell (--soak 60 has enough)\n", good, bad, few
      exit bad > 0 || good + few == 0
    }'
}

# TOOL LOG OPTIONS -- PROGRAM ARGUMENTS under compute-sanitizer: what it reported goes to LOG, also where it is ended.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
sanitize() {
  local tool=$1 log=$2 options=() before
  shift 2
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  before=("$sanitizer" --tool "$tool" --target-processes all --log-file "$log" --print-limit 100000
    --report-api-errors no --error-exitcode 9 ${options[@]+"${options[@]}"})
  [[ $emulated = 0 ]] || before=(env "BATON_NO_SANITIZER=$tool")
  : >"$log"
  program "$@" >"$log.said" 2>&1
}
# LOG CODE: whether the tool came to its end and reported nothing.
judge() {
  grep -vE '^=========\s*$' "$1" | head -60 | cut -c1-300
  grep -E '^\[  (PASSED|FAILED)|requests:| round [0-9]' "$1.said" | tail -40 || true
  [[ $emulated = 0 ]] || { echo "(emulated: no sanitizer ran; exit code $2)"; return "$2"; }
  if ! grep -q 'SUMMARY' "$1"; then
    echo "no summary: it was ended (exit code $2) with $(grep -cE '========= (Error|Invalid|Uninit|Host API|Program hit)' "$1" || true) reports until then"
    tail -c 1500 "$1.said"
    return 1
  fi
  [[ $2 = 0 ]] || { echo "exit code $2"; tail -c 3000 "$1.said"; return 1; }
}
# FILTER SECONDS NAME
memcheck_of() {
  local code=0
  BATON_SOAK_SECONDS=$2 sanitize memcheck "$work/memcheck.$3" --leak-check full -- tests/cuda_soak_test --gtest_filter="$1" || code=$?
  echo "-- $3 ($1), $2 s"
  judge "$work/memcheck.$3" $code || return 1
  grep -q 'PASSED  \] [1-9]' "$work/memcheck.$3.said" || { echo "nothing ran"; return 1; }
}
memcheck() {
  local one two status=0
  memcheck_of "-*Plain*:*Codes*" "$1" f32 >"$work/one" 2>&1 & one=$!
  memcheck_of "*Plain*:*Codes*" "$1" plain >"$work/two" 2>&1 & two=$!
  # Progress, as it is ended from outside perhaps.
  local seconds=0
  while kill -0 $one 2>/dev/null || kill -0 $two 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    [[ $((seconds % 15)) = 0 ]] || continue
    echo "$SECONDS s: $(cat "$work"/memcheck.*.said 2>/dev/null | grep ' round ' | tail -1); $(cat "$work"/memcheck.f32 "$work"/memcheck.plain 2>/dev/null |
      grep -cE '========= (Error|Invalid|Program hit)' || true) reports"
  done
  wait $one || status=1
  wait $two || status=1
  cat "$work/one" "$work/two"
  return $status
}

memcheck_tiles() {
  local code=0
  sanitize memcheck "$work/memcheck.tiles" -- tests/cuda_tiles_test || code=$?
  judge "$work/memcheck.tiles" $code
}

# What racecheck and initcheck see: lists of one row by both kinds of weights, prompts, many rows on tensor cores, and F32.
short_runs() {
  local tool=$1 codes=models/dictionary-3m.Q8_0.gguf values=tests/data/golden/dictionary-3m
  local run=(baton run --prefill "$given" --decode "$given" --raw --ignore-eos -p "A city is a large place where" -n 4)
  local many=(baton bench -p 0 -n 3 -r 1 --no-check --no-limits --no-warmup --unit) together=$given
  [[ $given == *:* ]] && together+=,batch=tensor || together+=:batch=tensor
  local name status=0
  sanitize "$tool" "$work/$tool.codes" -- "${run[@]}" -m $codes & local a=$!
  sanitize "$tool" "$work/$tool.values" -- "${run[@]}" -m $values & local b=$!
  sanitize "$tool" "$work/$tool.together" -- "${many[@]}" "$together" --sequences 8 -m $codes & local c=$!
  sanitize "$tool" "$work/$tool.f32" -- tests/step_on_test --gtest_filter="*HandsOutTheRows*$unit" & local d=$!
  for name in codes:$a values:$b together:$c f32:$d; do
    local code=0
    wait "${name#*:}" || code=$?
    echo "-- $tool, ${name%:*}"
    "judge_$tool" "$work/$tool.${name%:*}" $code || { status=1; echo "FAILED: $tool, ${name%:*}"; }
  done
  return $status
}
judge_initcheck() { judge "$@"; }
# racecheck takes copies in bulk (cp.async.bulk) for writes of the thread that asks for them, and does not follow the
# barriers that end them: what it says of those, all in feed_list and baton_multiply, is counted and decides nothing.
judge_racecheck() {
  if [[ $emulated = 1 ]]; then judge "$@"; return; fi
  grep -q 'RACECHECK SUMMARY' "$1" || { judge "$@"; return 1; }
  awk '/Race reported/ { if (text != "") print text; text = $0; next } /^========= +and / { text = text $0; next }
    { if (text != "") print text; text = "" } END { if (text != "") print text }' "$1" >"$1.reports"
  local known='feed_list|baton_multiply'
  echo "$(grep -cE "$known" "$1.reports" || true) reports of copies in bulk, $(grep -cvE "$known" "$1.reports" || true) others"
  grep -oE 'at [^ ]*\+0x[0-9a-f]+' "$1.reports" | sort | uniq -c | sort -rn | head -12 | cut -c1-200 || true
  grep -vE "$known" "$1.reports" | head -8 | cut -c1-600 || true
  grep -E 'SUMMARY' "$1"
  grep -qE '^\[  PASSED|tokens|tg' "$1.said" || tail -c 1000 "$1.said"
  [[ $(grep -cvE "$known" "$1.reports" || true) = 0 ]] && [[ $2 = 0 || $2 = 9 ]]
}

failed=() ran=0
slice() {
  local name=$1 one wanted=0
  shift
  [[ ${#only[@]} -gt 0 ]] || wanted=1
  for one in ${only[@]+"${only[@]}"}; do [[ $name != *"$one"* ]] || wanted=1; done
  [[ $wanted = 1 ]] || return 0
  ran=$((ran + 1))
  if [[ $list = 1 ]]; then echo "$name"; return 0; fi
  echo "== $name"
  local start=$SECONDS code=0
  begun=$SECONDS
  "$@" || code=$?
  end_all
  if [[ $code = 0 ]]; then echo "ok: $name, $((SECONDS - start)) s"; return 0; fi
  echo "FAILED: $name, $((SECONDS - start)) s"
  failed+=("$name")
}

if [[ $list = 0 ]]; then
  [[ -e $build/baton ]] || { echo "there is no $build/baton: cmake --build --preset release builds all tests" >&2; exit 1; }
  if [[ $emulated = 0 ]]; then
    reason=$(program baton units | sed -n "s/^$unit  not available: //p")
    [[ -z $reason ]] || { echo "no card to test on: $reason" >&2; exit 1; }
  fi
fi
types=(as_is F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K IQ4_NL IQ4_XS MXFP4)
small=models/dictionary-3m.Q8_0.gguf large=models/dictionary-28m.Q8_0.gguf

slice kernels program baton_unit_cuda_test --gtest_brief=1
[[ $emulated = 1 ]] || slice tiles tests cuda_tiles 1
slice conformance tests conformance 1 --gtest_filter="*$unit*"
slice golden tests golden "$jobs" --gtest_filter="*$unit*-*WikiText*"
for name in state_contract step_on rewind layer_watch logprobs; do slice $name tests $name 1 --gtest_filter="*$unit*"; done
slice handoff handoff
slice verify-bridge-3m verify $small 32 "${all_units[@]}"
if [[ $emulated = 0 ]]; then
  slice verify-bridge-28m verify $large 8 cpu "$unit"
  slice perplexity-3m perplexity $small 40 "${types[@]}"
  slice perplexity-28m perplexity $large 24 "${types[@]}"
else
  slice perplexity-3m perplexity $small 2 "${types[@]}"
fi
[[ $soak = 0 ]] || slice soak soak "$soak"
if [[ -n $sanitizer || $emulated = 1 ]]; then
  [[ $memcheck = 0 ]] || slice memcheck memcheck "$memcheck"
  [[ $emulated = 1 ]] || slice memcheck-tiles memcheck_tiles
  slice racecheck short_runs racecheck
  slice initcheck short_runs initcheck
elif [[ $memcheck != 0 ]]; then
  echo "no compute-sanitizer is installed: --memcheck cannot be done"
  failed+=(memcheck)
fi
[[ $ran -gt 0 || ${#failed[@]} -gt 0 ]] || { echo "no slice has \"${only[*]}\" in its name: --list" >&2; exit 2; }
[[ $list = 0 ]] || exit 0
if [[ ${#failed[@]} -gt 0 ]]; then echo "FAILED: ${failed[*]}"; exit 1; fi
echo "all passed"
