#!/usr/bin/env bash
# Fetches playwright 1.65.2 (Apache 2.0) from PyPI into build/playwright, about 55 MB to download, the files of
# scripts/playwright.txt and no others, and Debian's chromium, about 100 MB, where no browser is installed that it can
# drive. Only the tests of the server's page use them; they are skipped without. Does nothing when both are there.
set -euo pipefail
cd "$(dirname "$0")/.."

package=playwright==1.65.2
folder=$PWD/build/playwright

say() { echo "fetch_playwright: $*" >&2; }
works() { PYTHONPATH=$folder python3 -c 'import playwright.sync_api' >/dev/null 2>&1; }

# apt-get install as root or through sudo; without either, says what to run.
install() {
  local run=()
  if [[ $(id -u) -ne 0 ]]; then run=(sudo --); fi
  command -v "${run[0]:-env}" >/dev/null && command -v apt-get >/dev/null || {
    say "$* is missing; on Debian, as root: apt-get install --no-install-recommends $*"
    return 1
  }
  say "installing $*"
  ${run[@]+"${run[@]}"} env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@"' sh "$@" >&2
}

if [[ ! -d $folder ]] || ! works; then
  python3 -m pip --version >/dev/null 2>&1 || install python3-pip
  mkdir -p build
  work=$(mktemp -d "$PWD/build/playwright-part-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "downloading $package and what it needs"
  python3 -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --target "$work" \
    -r scripts/playwright.txt >&2 || { say "$package cannot be fetched as scripts/playwright.txt has it"; exit 1; }
  rm -rf "$folder"
  mv "$work" "$folder"
  works || { say "$package is installed in build/playwright but cannot be imported by $(command -v python3)"; exit 1; }
fi

for browser in chromium chromium-browser google-chrome; do
  if command -v "$browser" >/dev/null; then echo "$folder"; exit 0; fi
done
install chromium fonts-dejavu-core
echo "$folder"
