#!/usr/bin/env python3
"""Checks that nothing compiled for more than the processor the build is for can be linked into common code.

Usage: check_symbols.py BUILD [--nm NM]. A file with instruction-set flags of its own (-mavx2, -march=...) may not define
weak symbols: of an inline function with external linkage the linker keeps one copy, perhaps the one that not every
processor can run, and all callers get it. Objects that are not built yet are left out.
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

# How an object may define a name that other objects define too: functions, unique data, data.
WEAK = re.compile(r"^[0-9a-fA-F]* ([WwVvuC]) (.*)$")
PERSONALITY = "DW.ref."  # a pointer to the run-time library's handler, the same in every object


def flags_of(entry):
    words = entry.get("arguments") or shlex.split(entry["command"])
    return {word for word in words if re.match(r"-m[a-z]", word)}


def flagged_objects(build):
    """(source, object) of each file with instruction-set flags that not every file has."""
    entries = json.loads((build / "compile_commands.json").read_text())
    everywhere = set.intersection(*map(flags_of, entries)) if entries else set()
    for entry in entries:
        if flags_of(entry) - everywhere:
            words = entry.get("arguments") or shlex.split(entry["command"])
            yield entry["file"], pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]


def check(build, nm="nm"):
    """(problems, objects read)"""
    problems, read = [], 0
    for source, path in flagged_objects(pathlib.Path(build)):
        if not path.exists():
            continue
        read += 1
        listed = subprocess.run([nm, "-C", "--defined-only", str(path)], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            match = WEAK.match(line)
            if match and not match[2].startswith(PERSONALITY):
                problems.append(f"{source}: '{match[2]}' is weak ({match[1]}): give it internal linkage (static, or an "
                                "anonymous namespace), or always_inline")
    return problems, read


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--nm", default="nm")
    arguments = parser.parse_args()
    problems, read = check(arguments.build, arguments.nm)
    print("\n".join(problems) if problems else f"symbols: {read} objects keep theirs to themselves")
    return 1 if problems else 0 if read else 77


if __name__ == "__main__":
    sys.exit(main())
