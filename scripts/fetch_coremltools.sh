#!/usr/bin/env bash
# Fetches coremltools 9.0 (BSD) and what it needs from PyPI into build/coremltools: about 50 MB to download, 200 MB
# unpacked, the files of scripts/coremltools.txt and no others (Python 3.10 to 3.13). Only tests/cli/coreml_test.py uses it, as an independent reader of exported packages; that test is skipped
# without it. Does nothing when it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

package=coremltools==9.0
folder=$PWD/build/coremltools

say() { echo "fetch_coremltools: $*" >&2; }
works() { PYTHONPATH=$folder python3 -c 'import coremltools' >/dev/null 2>&1; }

if [[ -d $folder ]] && works; then echo "$folder"; exit 0; fi

if ! python3 -m pip --version >/dev/null 2>&1; then
  run=()
  if [[ $(id -u) -ne 0 ]]; then run=(sudo --); fi
  command -v "${run[0]:-env}" >/dev/null && command -v apt-get >/dev/null || {
    say "pip, which fetches coremltools, is missing; on Debian, as root: apt-get install --no-install-recommends python3-pip"
    exit 1
  }
  say "installing python3-pip, which fetches coremltools"
  ${run[@]+"${run[@]}"} env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-pip' >&2
fi

mkdir -p build
work=$(mktemp -d "$PWD/build/coremltools-part-XXXXXX")
trap 'rm -rf "$work"' EXIT
say "downloading $package and what it needs"
python3 -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --target "$work" \
  -r scripts/coremltools.txt >&2 || { say "$package cannot be fetched as scripts/coremltools.txt has it"; exit 1; }
rm -rf "$folder"
mv "$work" "$folder"
works || { say "$package is installed in build/coremltools but cannot be imported by $(command -v python3)"; exit 1; }
echo "$folder"
