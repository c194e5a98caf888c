#!/usr/bin/env python3
"""Blocks of the formats that this project only reads, and what the PyPI package gguf decodes them to.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0
    /tmp/venv/bin/python scripts/make_type_fixtures.py     writes tests/data/quant/<type>.bin; prints hashes

A file has random blocks of 2048 values, then the values, f32. The hashes (FNV-1a of the decoded f32 of 1024 blocks each,
every index of every grid among them) stand in baton/quant/format_test.cc. gguf does not decode Q1_0 and Q2_0: those
follow their definition in ggml.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/quant"
# values and bytes of a block, and the byte that holds the upper half of its f16 scale
TYPES = {"IQ2_XXS": 1, "IQ2_XS": 1, "IQ2_S": 1, "IQ3_XXS": 1, "IQ3_S": 1, "IQ1_S": 1, "IQ1_M": 55, "NVFP4": None,
         "Q1_0": 1, "Q2_0": 1}
OWN_SIZES = {"Q1_0": (128, 18), "Q2_0": (64, 18)}


def sizes(name):
    return OWN_SIZES.get(name) or GGML_QUANT_SIZES[GGMLQuantizationType[name]]


def random_bytes(seed, count):
    """SplitMix64 of a counter, as in format_test.cc."""
    z = (np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).view(np.uint8)[:count]


def blocks_of(name, count, seed):
    size = sizes(name)[1]
    blocks = random_bytes(seed, count * size).reshape(count, size).copy()
    if TYPES[name] is not None:
        blocks[:, TYPES[name]] &= 0xBF  # the scale is finite
    return blocks


def decode(name, blocks):
    if name not in OWN_SIZES:
        return quants.dequantize(blocks, GGMLQuantizationType[name]).ravel()
    bits = 1 if name == "Q1_0" else 2
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    codes = blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    codes = codes.reshape(len(blocks), -1).astype(np.float32)
    return (d * (2 * codes - 1 if bits == 1 else codes - 1)).ravel()


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def main():
    for name in TYPES:
        blocks = blocks_of(name, 2048 // sizes(name)[0], 1)
        (OUT / f"{name}.bin").write_bytes(blocks.tobytes() + decode(name, blocks).tobytes())
        print(f"{{DType::k{name}, 0x{fnv1a(decode(name, blocks_of(name, 1024, 2)).tobytes()):016x}u}},")


if __name__ == "__main__":
    main()
