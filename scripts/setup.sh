#!/usr/bin/env bash
# Installs the packages that are missing, and nothing else: Debian 12 with apt-get, macOS with Homebrew.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--tests] [--arm64] [--list]
  (nothing)  what a build needs
  --tests    also what the sanitizer, fuzz, format and lint runs need
  --arm64    also the cross compiler, the emulator, and arm64 libraries unpacked into build/arm64-sysroot
  --list     print the package names and install nothing
TEXT
}

build=(cmake ninja-build g++ ccache pkg-config libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libexpected-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libgtest-dev libbenchmark-dev python3)
tests=(clang clang-format clang-tidy libclang-rt-14-dev)
arm64=(g++-aarch64-linux-gnu qemu-user)
arm64_libraries=(libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libexpected-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev libgtest-dev)
brew=(cmake ninja ccache pkg-config fmt spdlog nlohmann-json cli11 tl-expected pcre2 utf8proc xxhash googletest
  google-benchmark python)

wanted=("${build[@]}")
list=no
sysroot=no
for argument in "$@"; do
  case $argument in
    --tests) wanted+=("${tests[@]}") ;;
    --arm64) wanted+=("${arm64[@]}"); sysroot=yes ;;
    --list) list=yes ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

say() { echo "setup: $*" >&2; }

setup_macos() {
  if [[ $list == yes ]]; then printf '%s\n' "${brew[@]}"; return; fi
  command -v brew >/dev/null || { say "install Homebrew (https://brew.sh), then run this again"; return 1; }
  local name missing=() installed
  installed=" $(brew list --formula -1 | tr '\n' ' ') "
  for name in "${brew[@]}"; do
    [[ $installed == *" $name "* || $installed == *" $name@"* ]] || missing+=("$name")
  done
  if [[ ${#missing[@]} -gt 0 ]]; then
    say "brew install ${missing[*]}"
    brew install "${missing[@]}" >&2
  fi
  if [[ $sysroot == yes ]]; then say "--arm64 is for x86-64 Debian; this machine builds arm64 by itself"; fi
}

# apt-get install as root or through sudo; without either, says what to run.
install() {
  local run=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || {
      say "not root and no sudo here; as root run: apt-get install --no-install-recommends $*"
      return 1
    }
    run=(sudo --)
  fi
  say "installing $*"
  ${run[@]+"${run[@]}"} env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@"' sh "$@" >&2
}

setup_debian() {
  if [[ $list == yes ]]; then printf '%s\n' "${wanted[@]}"; return; fi
  local name missing=() installed
  installed=$'\n'$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)$'\n'
  for name in "${wanted[@]}"; do
    [[ $installed == *$'\n'"installed $name"$'\n'* ]] || missing+=("$name")
  done
  if [[ ${#missing[@]} -gt 0 ]]; then install "${missing[@]}"; fi
  if [[ $sysroot == yes ]]; then unpack_arm64; fi
}

# arm64 -dev packages, downloaded with apt's own signature checks into a private folder: the system's packages, their
# architecture list and root are left alone.
unpack_arm64() {
  local root=$PWD/build/arm64-sysroot work=$PWD/build/arm64-packages
  [[ ! -f $root/complete ]] || return 0
  say "unpacking arm64 libraries into build/arm64-sysroot"
  rm -rf "$root" "$work"
  mkdir -p "$root" "$work/lists/partial" "$work/cache/archives/partial" "$work/deb"
  local apt=(apt-get -qq -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=)
  "${apt[@]}" update >&2
  (cd "$work/deb" && "${apt[@]}" download "${arm64_libraries[@]}" >&2)
  local package
  for package in "$work"/deb/*.deb; do dpkg-deb -x "$package" "$root"; done
  rm -rf "$work"
  touch "$root/complete"
}

if [[ $(uname -s) == Darwin ]]; then
  setup_macos
elif command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  setup_debian
elif [[ $list == yes ]]; then
  printf '%s\n' "${wanted[@]}"
elif ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
  say "no apt-get and no Homebrew here; install what these Debian packages hold: ${wanted[*]}"
  exit 1
fi
