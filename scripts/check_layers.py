#!/usr/bin/env python3
"""Checks every #include against layers.txt: own folder or a lower rank. Usage: check_layers.py [root]"""
import pathlib
import re
import sys

GENERATED = {"baton/unit_list.inc", "baton/unit/source_digest.inc"}  # written by CMake into the build folder


def read_layers(root):
    """{folder: rank}; a line that ends in /* gives its rank to every folder there that has no line of its own."""
    ranks, others = {}, {}
    for line in (root / "layers.txt").read_text().splitlines():
        match = re.match(r"(baton/[a-z0-9_/]+?)(/\*)? +(\d+)\s*$", line)
        if match and match[2]:
            others.update({f"{match[1]}/{path.name}": int(match[3]) for path in (root / match[1]).glob("*") if path.is_dir()})
        elif match:
            ranks[match[1]] = int(match[3])
    return others | ranks


def folder_of(path, layers):
    """The folder of layers.txt a file belongs to: its own, or the parent when the parent has no listed sub-folders."""
    own = str(pathlib.PurePosixPath(path).parent)
    if own in layers:
        return own
    parent = str(pathlib.PurePosixPath(own).parent)
    divided = any(other.startswith(parent + "/") for other in layers)
    return parent if parent in layers and not divided else None


def check(root):
    root, problems = pathlib.Path(root), []
    layers = read_layers(root)
    problems += [f"layers.txt: there is no folder {name}" for name in layers if not (root / name).is_dir()]
    for file in sorted((root / "baton").rglob("*")):
        if file.suffix not in {".h", ".cc", ".inc"}:
            continue
        name = file.relative_to(root).as_posix()
        own = folder_of(name, layers)
        if own is None:
            problems.append(f"{name}: its folder is not in layers.txt; give it a rank there")
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            quoted = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if not quoted or quoted[1] in GENERATED:
                continue
            target, where = quoted[1], f"{name}:{number}"
            if target.startswith("tests/") and name.endswith("_test.cc"):
                continue
            other = folder_of(target, layers) if target.startswith("baton/") else None
            if other is None:
                problems.append(f'{where}: "{target}" is not a path from the root into a folder of layers.txt')
            elif not (root / target).is_file():
                problems.append(f'{where}: "{target}" does not exist')
            elif other != own and layers[other] >= layers[own]:
                problems.append(f"{where}: {own} (rank {layers[own]}) may not include {other} (rank {layers[other]}); "
                                "only lower ranks and its own folder")
    return problems


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    print("\n".join(found) if found else "layers: every #include goes down")
    sys.exit(1 if found else 0)
