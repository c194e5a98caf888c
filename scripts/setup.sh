#!/usr/bin/env bash
# Installs the packages that are missing, and nothing else: Debian 12 with apt-get, macOS with Homebrew.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--tests] [--arm64] [--macos] [--list]
  (nothing)  what a build needs
  --tests    also what the sanitizer, fuzz, format and lint runs need
  --arm64    also the cross compiler, the emulator, and arm64 libraries unpacked into build/arm64-sysroot
  --macos    also a cross compiler for macOS (ziglang, from PyPI), headers and sources of libraries, in build/macos-sysroot
  --list     print the package names and install nothing
TEXT
}

build=(cmake ninja-build g++ ccache pkg-config libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libexpected-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libsodium-dev libedit-dev libboost-dev libssl-dev
  libcurl4-openssl-dev libtomlplusplus-dev libgtest-dev libbenchmark-dev python3)
tests=(clang clang-format clang-tidy libclang-rt-14-dev)
arm64=(g++-aarch64-linux-gnu qemu-user)
arm64_libraries=(libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libexpected-dev libpcre2-dev libutf8proc-dev
  libxxhash-dev libsodium-dev libedit-dev libbsd-dev libmd-dev libncurses-dev libgtest-dev libboost-dev libboost1.74-dev
  libssl-dev libssl3 libtomlplusplus-dev)
macos=(python3-venv)
macos_headers=(libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libexpected-dev libsodium-dev libedit-dev
  libboost1.74-dev libtomlplusplus-dev)
macos_sources=(fmtlib libsodium pcre2 utf8proc xxhash)
brew=(cmake ninja ccache pkg-config fmt spdlog nlohmann-json cli11 tl-expected pcre2 utf8proc xxhash libsodium boost openssl@3
  tomlplusplus googletest google-benchmark python)

wanted=("${build[@]}")
list=no
sysroot=no
macos_root=no
for argument in "$@"; do
  case $argument in
    --tests) wanted+=("${tests[@]}") ;;
    --arm64) wanted+=("${arm64[@]}"); sysroot=yes ;;
    --macos) wanted+=("${macos[@]}"); macos_root=yes ;;
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
  if [[ $macos_root == yes ]]; then say "--macos is for Linux; this machine is a Mac"; fi
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
  if [[ $macos_root == yes ]]; then make_macos_root; fi
}

# Sets `apt`: apt-get with its own lists and cache in FOLDER, and its usual signature checks; the system's packages, lists
# and root are left alone. fresh_apt FOLDER OPTION...
fresh_apt() {
  local work=$1
  shift
  rm -rf "$work"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/deb"
  apt=(apt-get -qq -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null
    -o APT::Sandbox::User= "$@")
  "${apt[@]}" update >&2
}

# unpack ROOT FOLDER PACKAGE...: packages as `apt` finds them, downloaded into FOLDER and unpacked into ROOT.
unpack() {
  local root=$1 folder=$2 package
  shift 2
  (cd "$folder" && "${apt[@]}" download "$@" >&2)
  for package in "$folder"/*.deb; do dpkg-deb -x "$package" "$root"; done
}

unpack_arm64() {
  local root=$PWD/build/arm64-sysroot work=$PWD/build/arm64-packages apt
  [[ ! -f $root/complete ]] || return 0
  say "unpacking arm64 libraries into build/arm64-sysroot"
  rm -rf "$root"
  mkdir -p "$root"
  fresh_apt "$work" -o APT::Architecture=arm64 -o APT::Architectures::=arm64
  unpack "$root" "$work/deb" "${arm64_libraries[@]}"
  rm -rf "$work"
  touch "$root/complete"
}

# For macOS: the compiler, folders of headers that hold these packages and nothing else of the system, and the sources of
# what is not header-only, as Debian's archive has them.
make_macos_root() {
  local root=$PWD/build/macos-sysroot work=$PWD/build/macos-packages apt name zig ziglang
  [[ ! -f $root/complete ]] || return 0
  say "a cross compiler for macOS into build/macos-sysroot"
  rm -rf "$root"
  mkdir -p "$root/src" "$root/bin"
  python3 -m venv "$root/venv" >&2
  "$root/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: \
    -r scripts/ziglang.txt >&2
  ziglang=$(sed -n 's/^ziglang==\([0-9.]*\).*/\1/p' scripts/ziglang.txt)
  # The same text in every checkout, so that ccache can tell compilers apart by content.
  zig=$(cd "$root/bin" && ls -d ../venv/lib/python3*/site-packages/ziglang/zig)
  for name in cc:clang c++:clang++; do
    printf '#!/bin/sh\n# ziglang %s\nexec "${0%%/*}/%s" %s -target aarch64-macos.13.0 -mcpu=apple_m1 "$@"\n' "$ziglang" "$zig" \
      "${name%:*}" >"$root/bin/macos-${name#*:}"
  done
  for name in ar ranlib; do printf '#!/bin/sh\nexec "${0%%/*}/%s" %s "$@"\n' "$zig" "$name" >"$root/bin/macos-$name"; done
  chmod +x "$root"/bin/*

  mkdir -p "$work.sources"
  cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list "$work.sources/" 2>/dev/null || true
  sed -i -e 's/^Types: *deb$/Types: deb deb-src/' -e '/^deb /{p;s/^deb /deb-src /}' "$work.sources"/*
  fresh_apt "$work" -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work.sources"
  unpack "$root" "$work/deb" "${macos_headers[@]}"
  # Only the upstream archives are wanted; an update's own small files may be missing on a mirror.
  (cd "$work" && "${apt[@]}" source --download-only "${macos_sources[@]}" >apt.log 2>&1) || true
  for name in "${macos_sources[@]}"; do
    compgen -G "$work/${name}_*.orig.tar.*" >/dev/null || { cat "$work/apt.log" >&2; say "no source of $name"; return 1; }
    mkdir -p "$root/src/$name"
    tar -xf "$work/${name}"_*.orig.tar.* -C "$root/src/$name" --strip-components=1
  done
  rm -rf "$work" "$work.sources"
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
