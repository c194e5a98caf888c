#!/usr/bin/env python3
"""The grids of ggml's IQ types, from the PyPI package gguf, as a table of this project's.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0
    /tmp/venv/bin/python scripts/make_iq_grids.py          writes baton/quant/iq_grids.h

The grids are facts of the format: which groups of magnitudes an index stands for. An entry here has a group's places
among the magnitudes (IQ2, IQ1: eight of two bits; IQ3: four of four bits), the first value lowest.
"""

import pathlib

from gguf import quants

OUT = pathlib.Path(__file__).resolve().parent.parent / "baton/quant/iq_grids.h"
GRIDS = [("kIq2XxsGrid", quants.IQ2_XXS), ("kIq2XsGrid", quants.IQ2_XS), ("kIq2SGrid", quants.IQ2_S),
         ("kIq3XxsGrid", quants.IQ3_XXS), ("kIq3SGrid", quants.IQ3_S), ("kIq1Grid", quants.IQ1_S)]
HEAD = """// The grids of the IQ types, made by scripts/make_iq_grids.py from gguf 0.19.0. Each entry is a group's places among the
// magnitudes: eight of two bits, of IQ3 four of four bits, the first value lowest.
// clang-format off
#pragma once

#include <cstdint>

namespace baton {
"""
A_LINE = 14


def places(of):
    of.init_grid()
    grid = of.grid.reshape(of.grid_shape)
    index = {float(magnitude): place for place, magnitude in enumerate(of.grid_map)}
    bits = 16 // grid.shape[1]
    return [sum(index[float(value)] << (bits * i) for i, value in enumerate(row)) for row in grid]


def main():
    text = HEAD
    for name, of in GRIDS:
        entries = places(of)
        assert len(set(entries)) == len(entries) and max(entries) < 1 << 16
        text += f"\ninline constexpr uint16_t {name}[{len(entries)}] = {{\n"
        for at in range(0, len(entries), A_LINE):
            text += "    " + " ".join(f"0x{entry:04x}," for entry in entries[at:at + A_LINE]) + "\n"
        text += "};\n"
    text += "\n}  // namespace baton\n"
    OUT.write_text(text)
    print(OUT, len(text.splitlines()), "lines")


if __name__ == "__main__":
    main()
