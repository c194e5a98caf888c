#!/usr/bin/env python3
"""Checks that clang-format would change nothing; with --fix, lets it. Skipped (77) without clang-format 14: others differ.

Usage: check_format.py [--root DIR] [--fix]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import check_tree

VERSION = 14


def find_formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", version):
                return name
    return None


def check(root, formatter, fix=False):
    root = pathlib.Path(root)
    names = [name for name in check_tree.tracked(root) if name.endswith((".h", ".cc", ".cu", ".cuh", ".mm"))]

    # One process for many files: starting it costs more than reading one.
    def some(some_names):
        action = ["-i"] if fix else ["--dry-run", "-Werror"]
        outcome = subprocess.run([formatter, *action, "--style=file", *some_names], cwd=root, capture_output=True, text=True)
        found = dict(reversed(re.findall(r"^(\S+?):(\d+):\d+: (?:error|warning)", outcome.stderr, re.MULTILINE)))
        if outcome.returncode != 0 and not found:
            return [f"{formatter}: {outcome.stderr.strip()[:1000]}"]
        return [f"{name}:{line}: not formatted" for name, line in reversed(found.items())]

    jobs = os.cpu_count() or 1
    parts = [names[i::jobs] for i in range(jobs) if names[i::jobs]]
    with ThreadPoolExecutor(jobs) as pool:
        return sorted(problem for problems in pool.map(some, parts) for problem in problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--fix", action="store_true")
    arguments = parser.parse_args()
    formatter = find_formatter()
    if formatter is None:
        print(f"clang-format {VERSION} is not installed: format not checked")
        return 77
    problems = check(arguments.root, formatter, arguments.fix)
    print("\n".join(problems + ["scripts/check_format.py --fix mends it"]) if problems else "format: nothing to mend")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
