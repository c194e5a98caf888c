#!/usr/bin/env bash
# Installs what is missing, builds the release program when something changed, and runs it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
  cat <<'TEXT'
usage: scripts/run.sh [COMMAND [ARGUMENTS]]
  (nothing)            the main job on the bundled model: prefill on the plain f32 unit, decode on the fast one
                       = baton run --prefill ref --decode cpu "What is a compiler?"
  chat                 talk to the bundled model; /bye ends it
  run -m MODEL "text"  another model: a Hugging Face folder or a GGUF file
  units                the compute units of this machine
  inspect MODEL        what a model is made of, its state and its bridge plan
  COMMAND --help       what a command takes
Everything after scripts/run.sh goes to build/release/baton, which you can also call directly.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac

"$root/scripts/setup.sh"

build=$root/build/release
log=$root/build/run.log
mkdir -p "$root/build"
if [[ ! -f $build/build.ninja ]]; then
  echo "configuring build/release" >&2
  (cd "$root" && cmake --preset release) >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
if [[ -x $build/baton ]]; then
  ninja -C "$build" --quiet baton_program >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
else
  echo "building build/release/baton (some minutes, once)" >&2
  ninja -C "$build" baton_program >&2
fi

if [[ $# -eq 0 ]]; then set -- run --prefill ref --decode cpu "What is a compiler?"; fi
exec "$build/baton" "$@"
