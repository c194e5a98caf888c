#!/usr/bin/env python3
"""Prints the header of a sealed state (docs/state_format.md). It checks lengths, not checksums. Usage: show_state.py F"""
import struct
import sys

KINDS, TYPES = ["keys", "values", "conv", "recurrent"], ["F32", "F16", "BF16"]
STEPS = ["prefill", "decode", "mixed"]


def name(names, number):
    return names[number] if number < len(names) else f"unknown {number}"


def text(field):
    return field.split(b"\0")[0].decode("ascii", "replace")


def provenance_lines(data, at, size):
    """Who made the state, one line for each step."""
    if size < 8:
        return ["damaged: no provenance"]
    makers, steps = struct.unpack_from("<II", data, at)
    if makers > 8 or steps > 256 or size != 8 + 128 * makers + 16 * steps:
        return [f"damaged: {makers} makers and {steps} steps in {size} bytes"]
    fields = [data[at + 8 + 128 * i:at + 8 + 128 * (i + 1)] for i in range(makers)]
    units = [text(field[:32]) for field in fields]
    lines = [f"maker {i}: {units[i]} {text(field[32:])}".rstrip() for i, field in enumerate(fields)]
    for i in range(steps):
        maker, kind, shared, tokens, count = struct.unpack_from("<IHHII", data, at + 8 + 128 * makers + 16 * i)
        lines.append(f"step {i}: {name(units, maker)} {name(STEPS, kind)} {tokens} x{count}{' shared' if shared else ''}")
    return lines


def show(data):
    if len(data) < 104 or data[:8] != b"BATONSEQ":
        return "not a sealed state"
    version, header_bytes, total, model, quantization, tokenizer, position, sections, made = struct.unpack_from("<IIQQQQQII", data, 8)
    tokens_offset, digest, mac = struct.unpack_from("<QQI", data, 64)
    if version != 2:
        return f"version {version}: only version 2 is known here"
    if total != len(data) or header_bytes != 96 + 64 * sections + made or header_bytes > total:
        return f"damaged: {len(data)} bytes, the header says {total}, of which {header_bytes} for {sections} sections"
    lines = [f"version {version}, {total} bytes, position {position}, {'keyed' if mac else 'no key'}",
             f"model {model:016x}, quantization {quantization:016x}, tokenizer {tokenizer:016x}"]
    lines += provenance_lines(data, 88 + 64 * sections, made)
    shown = min(position, 8)
    if tokens_offset + 4 * shown > total:
        return "damaged: the tokens are not inside the file"
    ids = " ".join(str(i) for i in struct.unpack_from(f"<{shown}i", data, tokens_offset))
    lines.append(f"tokens at {tokens_offset}, digest {digest:016x}: {ids}{' ...' if position > shown else ''}")
    for i in range(sections):
        kind, layer, dtype, _, d0, d1, d2, offset, size, checksum = struct.unpack_from("<IiIIQQQQQQ", data, 88 + 64 * i)
        lines.append(f"section {i}: layer {layer} {name(KINDS, kind)} {name(TYPES, dtype)} [{d0}, {d1}, {d2}] "
                     f"at {offset}, {size} bytes, checksum {checksum:016x}")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        print(show(file.read()))
