#!/usr/bin/env python3
"""Checks that files are what a cross build for macOS should make: Mach-O for arm64, programs or archives of objects, and
that programs need nothing that is not part of the system.

usage: check_macho.py FILE...      prints a line for each; exit status 1 when one is something else
"""
import pathlib
import struct
import sys

MAGIC_64, ARM64 = 0xFEEDFACF, 0x0100000C
TYPES = {1: "object", 2: "program"}
LC_LOAD_DYLIB, LC_BUILD_VERSION = 0xC, 0x32
MACOS = 1


def text_at(data, offset):
    return data[offset:data.index(b"\0", offset)].decode()


def describe(data):
    """Type, oldest system (or None) and libraries of a Mach-O file for arm64; ValueError for anything else."""
    if len(data) < 32 or struct.unpack_from("<I", data)[0] != MAGIC_64:
        raise ValueError("not a 64-bit Mach-O file")
    _, processor, _, kind, commands, commands_size = struct.unpack_from("<6I", data)
    if processor != ARM64:
        raise ValueError(f"for processor {processor:#x}, not arm64")
    if kind not in TYPES:
        raise ValueError(f"file type {kind}")
    at, end, oldest, libraries = 32, 32 + commands_size, None, []
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if size < 8 or at + size > end:
            raise ValueError(f"load command at {at} does not fit")
        if command == LC_LOAD_DYLIB:
            libraries.append(text_at(data, at + struct.unpack_from("<I", data, at + 8)[0]))
        if command == LC_BUILD_VERSION:
            platform, version = struct.unpack_from("<2I", data, at + 8)
            if platform != MACOS:
                raise ValueError(f"for platform {platform}, not macOS")
            oldest = f"{version >> 16}.{version >> 8 & 255}"
        at += size
    return TYPES[kind], oldest, libraries


def members(data):
    """Contents of an archive's objects (BSD or GNU names)."""
    at = 8
    while at + 60 <= len(data):
        name, size = data[at:at + 16].decode().strip(), int(data[at + 48:at + 58])
        body = data[at + 60:at + 60 + size]
        if name.startswith("#1/"):
            length = int(name[3:])
            name, body = body[:length].rstrip(b"\0").decode(), body[length:]
        if name not in ("/", "//", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64"):
            yield name, body
        at += 60 + size + size % 2


def check(path):
    data = pathlib.Path(path).read_bytes()
    if data.startswith(b"!<arch>\n"):
        count = 0
        for name, body in members(data):
            try:
                describe(body)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            count += 1
        if count == 0:
            raise ValueError("an archive without objects")
        return f"archive of {count} arm64 objects"
    kind, oldest, libraries = describe(data)
    foreign = [name for name in libraries if not name.startswith(("/usr/lib/", "/System/Library/"))]
    if foreign:
        raise ValueError(f"needs {', '.join(foreign)}, which no Mac has")
    if kind == "program" and oldest is None:
        raise ValueError("a program without the version of its system")
    return f"arm64 {kind}" + (f", macOS {oldest} or later, needs {', '.join(libraries)}" if kind == "program" else "")


def main(files):
    if not files:
        print(__doc__, file=sys.stderr)
        return 2
    failed = 0
    for file in files:
        try:
            print(f"{file}: {check(file)}")
        except (ValueError, OSError, struct.error) as error:
            print(f"{file}: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
