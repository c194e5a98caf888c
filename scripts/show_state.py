#!/usr/bin/env python3
"""Prints the header of a sealed state (docs/state_format.md). It checks lengths, not checksums. Usage: show_state.py F"""
import struct
import sys

KINDS, TYPES = ["keys", "values", "conv", "recurrent"], ["F32", "F16", "BF16"]


def name(names, number):
    return names[number] if number < len(names) else f"unknown {number}"


def show(data):
    if len(data) < 88 or data[:8] != b"BATONSEQ":
        return "not a sealed state"
    version, header_bytes, total, model, quantization, tokenizer, position, sections = struct.unpack_from("<IIQQQQQI", data, 8)
    tokens_offset, digest = struct.unpack_from("<QQ", data, 64)
    if version != 1:
        return f"version {version}: only version 1 is known here"
    if total != len(data) or header_bytes != 88 + 64 * sections or header_bytes > total:
        return f"damaged: {len(data)} bytes, the header says {total}, of which {header_bytes} for {sections} sections"
    lines = [f"version {version}, {total} bytes, position {position}",
             f"model {model:016x}, quantization {quantization:016x}, tokenizer {tokenizer:016x}"]
    shown = min(position, 8)
    if tokens_offset + 4 * shown > total:
        return "damaged: the tokens are not inside the file"
    ids = " ".join(str(i) for i in struct.unpack_from(f"<{shown}i", data, tokens_offset))
    lines.append(f"tokens at {tokens_offset}, digest {digest:016x}: {ids}{' ...' if position > shown else ''}")
    for i in range(sections):
        kind, layer, dtype, _, d0, d1, d2, offset, size, checksum = struct.unpack_from("<IiIIQQQQQQ", data, 80 + 64 * i)
        lines.append(f"section {i}: layer {layer} {name(KINDS, kind)} {name(TYPES, dtype)} [{d0}, {d1}, {d2}] "
                     f"at {offset}, {size} bytes, checksum {checksum:016x}")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        print(show(file.read()))
