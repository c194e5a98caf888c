#!/usr/bin/env bash
# Installs what is missing, builds the release program when something changed, and runs it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
  cat <<'TEXT'
usage: scripts/run.sh [COMMAND [ARGUMENTS]]
  (nothing)            the main job: one question, prefill on one unit, decode on another, and the figures of it; with
                       SmolLM2-135M-Instruct when it is there or can be fetched (98 MB), else with the bundled model
  serve                answer over HTTP on 127.0.0.1:8080, as OpenAI's interface has it, with a page at /; --help tells more
  chat                 talk to the bundled model; /bye ends it
  run -m MODEL "text"  another model: a Hugging Face folder or a GGUF file
  units                the compute units of this machine
  inspect MODEL        what a model is made of, and whether it fits
  COMMAND --help       what a command takes
Everything after scripts/run.sh goes to build/release/baton, which you can also call directly.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
say() { echo "run: $*" >&2; }

"$root/scripts/setup.sh"

build=$root/build/release
log=$root/build/run.log
targets=(baton_program libbaton.a)  # the library: what cmake --install needs, made of the program's objects
mkdir -p "$root/build"
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null || true; }
has_nvcc() { [[ $(cached BATON_NVCC) == /* && $(cached BATON_CUDA) != OFF ]]; }
configure() {
  say "configuring build/release${1:+: $1}"
  (cd "$root" && cmake --preset release "${@:2}") >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
}

# Where CMake looks for it, and as new as it must be (baton/unit/cuda/build.cmake).
new_enough() { [[ $("$1" --version 2>/dev/null) =~ V([0-9]+)\. && ${BASH_REMATCH[1]} -ge 12 ]]; }
installed_nvcc() {
  local file
  for file in "${CUDA_HOME:-}/bin/nvcc" "${CUDA_PATH:-}/bin/nvcc" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [[ $file == /?* && -x $file ]] && new_enough "$file"; then echo "$file"; return; fi
  done
}

# A build that is configured keeps what CMake found then, so it is asked again where the machine or the wish has changed.
architectures=${BATON_CUDA_ARCHITECTURES:-}
if [[ ! -f $build/build.ninja ]]; then
  configure ""
elif [[ $(uname -s) == Linux && $(cached BATON_CUDA) != OFF ]]; then
  if has_nvcc || [[ -n $(installed_nvcc) ]]; then
    if [[ -n $architectures && $architectures != "$(cached BATON_CUDA_ARCHITECTURES)" ]]; then
      configure "kernels for $architectures, which take some minutes" "-DBATON_CUDA_ARCHITECTURES=$architectures"
    elif ! has_nvcc; then
      configure "there is $(installed_nvcc) now; kernels take some minutes"
    fi
  fi
fi

if [[ $(uname -s) == Linux ]]; then
  if has_nvcc; then
    say "kernels for NVIDIA cards are built in ($(cached BATON_CUDA_ARCHITECTURES))"
  elif [[ $(cached BATON_CUDA) == OFF ]]; then
    say "no kernels for NVIDIA cards: build/release was configured with BATON_CUDA=OFF"
  elif [[ -e /proc/driver/nvidia/version ]]; then
    say "no kernels for this machine's NVIDIA card: there is no nvcc of version 12 or later; install it and run this again (docs/cuda.md)"
  else
    say "no kernels for NVIDIA cards: there is no nvcc of version 12 or later, and no such card here (docs/cuda.md)"
  fi
fi
if [[ -x $build/baton ]]; then
  ninja -C "$build" --quiet "${targets[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
else
  say "building build/release/baton (some minutes, once)"
  ninja -C "$build" "${targets[@]}" >&2
fi

if [[ $# -gt 0 ]]; then exec "$build/baton" "$@"; fi

cd "$root"
# Questions that these models answer well: small models know little.
if model=$("$root/scripts/fetch_smollm2.sh"); then
  question='What is the capital of France?'
  set -- run -m "$model" --prefill ref --decode cpu "$question"
else
  say "SmolLM2 could not be fetched: the bundled model answers instead, which knows dictionary words and little else"
  question='What is a fern?'
  set -- run --prefill ref --decode cpu "$question"
fi
say "${model:-bundled model}: $question"
exec "$build/baton" "$@"
