#!/usr/bin/env bash
# Fetches the clients that tests/serve/clients_test.py points at `baton serve`: openai, anthropic, ollama,
# langchain-openai and litellm from PyPI into the virtual environment build/clients (about 60 MB to download, 300 MB
# unpacked; Python 3.11 to 3.13). Versions, and on x86-64 Linux with Python 3.11 files by their sha256, are those of
# scripts/clients.txt. The test is skipped without them. Does nothing when they are there; prints the folder.
set -euo pipefail
case "${1:-}" in
  -h | --help) echo "usage: scripts/fetch_clients.sh   fetches clients into build/clients, prints its path"; exit 0 ;;
esac
cd "$(dirname "$0")/.."

folder=$PWD/build/clients
list=scripts/clients.txt

say() { echo "fetch_clients: $*" >&2; }
works() { "$folder/bin/python" -c 'import openai, anthropic, ollama, langchain_openai, litellm' >/dev/null 2>&1; }

if [[ -f $folder/list.txt ]] && cmp -s "$list" "$folder/list.txt" && works; then echo "$folder"; exit 0; fi

version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || { say "python3 is missing"; exit 1; }
case $version in
  3.11 | 3.12 | 3.13) ;;
  *) say "python3 is $version: the list is for 3.11 to 3.13"; exit 1 ;;
esac
rm -rf "$folder"
python3 -m venv "$folder" >&2 || { say "python3 has no venv: on Debian, apt-get install python3-venv"; exit 1; }
trap 'rm -rf "$folder"' EXIT
say "downloading openai, anthropic, ollama, langchain-openai, litellm and what they need"
pip=("$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --timeout 15
  --retries 2)
if [[ $version == 3.11 && $(uname -sm) == "Linux x86_64" ]]; then
  "${pip[@]}" --require-hashes -r "$list" >&2 || { say "the clients cannot be fetched as $list has them"; exit 1; }
else  # other wheels: the same versions
  sed -E 's/ --hash=.*//' "$list" >"$folder/versions.txt"
  "${pip[@]}" -r "$folder/versions.txt" >&2 || { say "the clients of $list cannot be fetched"; exit 1; }
fi
works || { say "the clients are installed in build/clients but cannot be imported"; exit 1; }
cp "$list" "$folder/list.txt"
trap - EXIT
echo "$folder"
