#!/usr/bin/env python3
"""Checks every #include against layers.txt: its own folder, or one that its folder uses. Usage: check_layers.py [root]"""
import dataclasses
import pathlib
import re
import sys

SUFFIXES = {".h", ".cc", ".inc", ".cu", ".cuh", ".mm"}
# Written by CMake into the build folder.
GENERATED = {"baton/unit_list.inc", "baton/unit/source_digest.inc", "baton/serve/page_data.inc",
             "baton/unit/cuda/kernel_list.inc"}


@dataclasses.dataclass
class Layer:
    rank: int
    uses: list    # folders that may be included
    links: list   # and those that are only linked
    shared: bool  # a line ending in /*, which stands for more than one folder


def read_layers(root):
    """{folder: Layer} and what is wrong with the lines; a line that ends in /* is for every folder there without its own."""
    layers, patterns, problems = {}, {}, []
    for number, line in enumerate((root / "layers.txt").read_text().splitlines(), 1):
        match = re.match(r"(baton/[a-z0-9_/]+?)(/\*)? +(\d+)((?: +\[?[a-z0-9_/*]+\]?)*) *$", line)
        if match:
            words = match[4].split()
            layer = Layer(int(match[3]), ["baton/" + word for word in words if word[0] != "["],
                          ["baton/" + word[1:-1] for word in words if word[0] == "["], match[2] is not None)
            (patterns if match[2] else layers)[match[1]] = layer
        elif line and not line.startswith("#"):
            problems.append(f"layers.txt:{number}: not a line of folder, rank and uses: {line}")
    for parent, layer in patterns.items():
        for path in sorted((root / parent).glob("*")):
            if path.is_dir():
                layers.setdefault(f"{parent}/{path.name}", layer)
    for name, layer in layers.items():
        for other in layer.uses + layer.links:
            low = layers.get(other) or other in layer.links and patterns.get(other.removesuffix("/*"))
            if not low:
                problems.append(f"layers.txt: {name} uses {other}, which has no line")
            elif low.rank >= layer.rank:
                problems.append(f"layers.txt: {name} (rank {layer.rank}) may not use {other} (rank {low.rank}); only lower ranks")
    return layers, problems


def folder_of(path, layers):
    """The folder of layers.txt a file belongs to: its own, or the parent when the parent has no listed sub-folders."""
    own = str(pathlib.PurePosixPath(path).parent)
    if own in layers:
        return own
    parent = str(pathlib.PurePosixPath(own).parent)
    divided = any(other.startswith(parent + "/") for other in layers)
    return parent if parent in layers and not divided else None


def check(root):
    root, used = pathlib.Path(root), set()
    layers, problems = read_layers(root)
    problems += [f"layers.txt: there is no folder {name}" for name in layers if not (root / name).is_dir()]
    for file in sorted((root / "baton").rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        name = file.relative_to(root).as_posix()
        own = folder_of(name, layers)
        if own is None:
            problems.append(f"{name}: its folder is not in layers.txt; give it a line there")
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            quoted = re.match(r'\s*#\s*(?:include|import)\s*"([^"]+)"', line)
            if not quoted or quoted[1] in GENERATED:
                continue
            target, where = quoted[1], f"{name}:{number}"
            if target.startswith("tests/") and re.search(r"_(test|bench)\.(cc|cu|mm)$", name):
                continue
            other = folder_of(target, layers) if target.startswith("baton/") else None
            used.add((own, other))
            if other is None:
                problems.append(f'{where}: "{target}" is not a path from the root into a folder of layers.txt')
            elif not (root / target).is_file():
                problems.append(f'{where}: "{target}" does not exist')
            elif other != own and other not in layers[own].uses:
                problems.append(f"{where}: {own} may not include {other}: layers.txt does not say that it uses it")
    problems += [f"layers.txt: {name} includes nothing of {other}: strike it" for name, layer in layers.items()
                 if not layer.shared for other in layer.uses
                 if (name, other) not in used and other in layers and layers[other].rank > 0]
    return problems


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    print("\n".join(found) if found else "layers: every #include goes where layers.txt says")
    sys.exit(1 if found else 0)
