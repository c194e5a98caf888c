#!/usr/bin/env python3
"""Writes the state files of other projects that baton/tools/foreign_test.cc reads and compares, byte by byte, from the
layouts in docs/state_format.md and nothing else.

The model: layer 0 linear (1 key head, 2 value heads, key 2, value 3, 4 taps: C = 2 * 1 * 2 + 2 * 3 = 10 channels), layer
1 full (2 heads of 4); hidden 8, vocab 6. Three tokens: 3, 1, 4. Values count from 1 in canonical order: convolution
[3 columns, 10 channels] 1 to 30, recurrent [2, 2, 3] 31 to 42, keys [2 heads, 3 tokens, 4] 43 to 66, values 67 to 90;
logits 0.5 to 5.5. In the rotated files the rings begin elsewhere and unused rows hold 999.
"""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
TAPS, CHANNELS, HV, DK, DV, HKV, D, TOKENS, VOCAB = 4, 10, 2, 2, 3, 2, 4, 3, 6
COLUMNS = TAPS - 1


def conv(column, channel):
    return 1 + column * CHANNELS + channel


def recurrent(head, key, value):
    return 31 + (head * DK + key) * DV + value


def row(base, head, token, i):
    return base + (head * TOKENS + token) * D + i


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def conv_ring(oldest):
    """[channel][column]; column `oldest` holds the first."""
    return floats([conv((slot - oldest) % COLUMNS, channel) for channel in range(CHANNELS) for slot in range(COLUMNS)])


def state():
    return floats([recurrent(h, k, v) for h in range(HV) for k in range(DK) for v in range(DV)])


def rows(base, capacity, start, unused):
    """[row][head][i]; row `start` holds token 0."""
    out = []
    for slot in range(capacity):
        token = (slot - start) % capacity
        for head in range(HKV):
            out += [row(base, head, token, i) if token < TOKENS else unused for i in range(D)]
    return floats(out)


def anelms(capacity, conv_pos, kv_start, unused):
    out = b"ANELMS\0\0" + struct.pack("<14I", 1, 2, 8, VOCAB, HKV, D, HV, 1, DK, DV, CHANNELS, TAPS, capacity, TOKENS)
    out += struct.pack("<II", 0, conv_pos) + state() + conv_ring(conv_pos)
    out += struct.pack("<III", 1, TOKENS, kv_start)
    out += rows(43, capacity, kv_start, unused) + rows(67, capacity, kv_start, unused)
    return out + floats([0.5 + i for i in range(VOCAB)])


def anelm_cache(conv_pos):
    header = json.dumps({"num_layers": 2, "prompt_len": TOKENS, "num_kv_heads": HKV, "head_dim": D, "lin_num_val_heads": HV,
                         "lin_key_dim": DK, "lin_val_dim": DV, "lin_qkv_dim": CHANNELS, "conv_kernel": TAPS},
                        separators=(",", ":")).encode()
    out = b"ANELM_CACHE\n" + bytes(4) + struct.pack("<I", len(header)) + header
    out += struct.pack("<Bi", 0, conv_pos) + conv_ring(conv_pos) + state()
    return out + struct.pack("<B", 1) + rows(43, TOKENS, 0, 0) + rows(67, TOKENS, 0, 0)


def mlx():
    arrays = {
        "0.0": ([1, COLUMNS, CHANNELS], [conv(j, c) for j in range(COLUMNS) for c in range(CHANNELS)]),
        "0.1": ([1, HV, DV, DK], [recurrent(h, k, v) for h in range(HV) for v in range(DV) for k in range(DK)]),
        "1.0": ([1, HKV, TOKENS, D], [row(43, h, t, i) for h in range(HKV) for t in range(TOKENS) for i in range(D)]),
        "1.1": ([1, HKV, TOKENS, D], [row(67, h, t, i) for h in range(HKV) for t in range(TOKENS) for i in range(D)]),
    }
    header = {"__metadata__": {"0.0": "", "0.1": "", "1.baton_tokens": "3,1,4", "2.0": "ArraysCache", "2.1": "KVCache"}}
    data = b""
    for name, (shape, values) in arrays.items():
        begin = len(data)
        data += floats(values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * ((8 - len(text) % 8) % 8)
    return struct.pack("<Q", len(text)) + text + data


for name, data in {"anelms.bin": anelms(4, 0, 0, 0), "anelms_rotated.bin": anelms(5, 2, 4, 999), "anelm_cache.bin": anelm_cache(0),
                   "anelm_cache_rotated.bin": anelm_cache(1), "mlx.safetensors": mlx()}.items():
    (HERE / name).write_bytes(data)
