#!/usr/bin/env python3
"""Matrices packed by other quantizers, and what their own code unpacks them to: tests/data/packed.safetensors.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch numpy safetensors compressed-tensors==0.20.0
    pip download --no-deps --no-binary :all: autoawq==0.2.9     # and unpack it: its packing code is one file
    /tmp/venv/bin/python scripts/make_packed_fixtures.py autoawq-0.2.9/awq/utils/packing_utils.py

A case is "<name>.weight" and its parts, with "<name>.wanted", f32; quantization_config of each stands in
baton/model/packed_weights_test.cc. compressed-tensors and AWQ are packed or unpacked by the packages; GPTQ follows the
format's own description (of AutoGPTQ: words down the columns, zero points minus 1), FP8 and NVFP4 that of their numbers.
"""

import importlib.util
import pathlib
import sys

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/packed.safetensors"
ROWS, COLUMNS = 16, 128
RANDOM = np.random.default_rng(5)
TENSORS = {}


def put(case, wanted, **parts):
    for name, value in parts.items():
        TENSORS[f"{case}.{name}"] = (value if torch.is_tensor(value) else torch.from_numpy(value)).contiguous()
    TENSORS[f"{case}.wanted"] = torch.as_tensor(wanted).to(torch.float32).contiguous()


def integers(high, *shape):
    return RANDOM.integers(0, high, shape, dtype=np.int64)


def scales(*shape, dtype=torch.float16):
    return torch.from_numpy(RANDOM.uniform(0.01, 0.1, shape)).to(dtype)


def stream(codes, bits):
    """[n, m] codes to words, n as a stream of bits, lowest first: [words, m]."""
    bits_of = (codes[:, None, :] >> np.arange(bits)[None, :, None]) & 1
    flat = bits_of.reshape(-1, codes.shape[1])
    flat = np.concatenate([flat, np.zeros((-len(flat) % 32, codes.shape[1]), dtype=np.int64)])
    words = (flat.reshape(-1, 32, codes.shape[1]) << np.arange(32)[None, :, None]).sum(1)
    return words.astype(np.uint32).view(np.int32)


def gptq(case, bits, group, version=1, shuffled=False):
    groups = COLUMNS // group
    codes, zeros = integers(1 << bits, COLUMNS, ROWS), integers((1 << bits) - 1, groups, ROWS) + 1
    scale = scales(groups, ROWS)
    g_idx = np.arange(COLUMNS, dtype=np.int32) // group
    if shuffled:
        g_idx = RANDOM.permutation(g_idx)
    kept = zeros - 1 if version == 1 else zeros
    wanted = scale.float().numpy()[g_idx] * (codes - zeros[g_idx])
    put(case, wanted.T.copy(), qweight=stream(codes, bits), qzeros=stream(kept.T, bits).T.copy(), scales=scale, g_idx=g_idx)


def awq(case, group, packing):
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(codes):
        words = codes.reshape(codes.shape[0], -1, 8)[:, :, order] << (4 * np.arange(8))
        return torch.from_numpy(words.sum(-1).astype(np.uint32).view(np.int32))

    groups = COLUMNS // group
    qweight, qzeros = pack(integers(16, COLUMNS, ROWS)), pack(integers(16, groups, ROWS))
    scale = scales(groups, ROWS)
    wanted = packing.dequantize_gemm(qweight, qzeros, scale.float(), 4, group)
    put(case, wanted.T, qweight=qweight, qzeros=qzeros, scales=scale)


def packed(case, bits, group, symmetric, dtype, shuffled=False):
    groups = COLUMNS // group
    middle = 1 << (bits - 1)
    codes = torch.from_numpy(integers(1 << bits, ROWS, COLUMNS) - middle).to(torch.int8)
    zeros = None if symmetric else torch.from_numpy(integers(1 << bits, ROWS, groups) - middle).to(torch.int8)
    scale = scales(ROWS, groups, dtype=dtype)
    parts = {"weight_packed": pack_to_int32(codes, bits), "weight_scale": scale,
             "weight_shape": torch.tensor([ROWS, COLUMNS])}
    assert torch.equal(unpack_from_int32(parts["weight_packed"], bits, codes.shape), codes)
    if zeros is not None:
        parts["weight_zero_point"] = pack_to_int32(zeros, bits, packed_dim=0).contiguous()
    g_idx = None
    if shuffled:
        g_idx = torch.from_numpy(RANDOM.permutation(np.arange(COLUMNS, dtype=np.int32) // group))
        parts["weight_g_idx"] = g_idx
    if g_idx is not None:  # of version 0.12 and before: a column's scale is its group's
        return put(case, codes.float() * scale.float()[:, g_idx.long()], **parts)
    args = QuantizationArgs(num_bits=bits, symmetric=symmetric, **(
        {"strategy": "channel"} if groups == 1 else {"strategy": "group", "group_size": group}))
    put(case, dequantize(codes, scale.float(), zeros, args=args), **parts)


def bytes_of(case, dtype):
    codes = torch.from_numpy(integers(256, ROWS, COLUMNS) - 128).to(torch.int8)
    scale = scales(ROWS, 1, dtype=dtype)
    put(case, codes.float() * scale.float(), weight=codes, weight_scale=scale)


def floats(case, name, scale, block):
    codes = integers(256, ROWS, COLUMNS).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    weight = torch.from_numpy(codes).view(torch.float8_e4m3fn)
    spread = scale.float().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:ROWS, :COLUMNS]
    put(case, weight.float() * spread, **{"weight": weight, name: scale})


def nvfp4(case, model_opt):
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] + [-0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
    codes = integers(16, ROWS, COLUMNS)
    scale = torch.from_numpy(integers(0x7F, ROWS, COLUMNS // 16).astype(np.uint8)).view(torch.float8_e4m3fn)
    pairs = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    d = np.float32(0.0007) if model_opt else np.float32(1024.0)
    factor = d if model_opt else np.float32(1) / d
    wanted = (factor * scale.float().repeat_interleave(16, 1).numpy()) * e2m1[codes]
    if model_opt:
        put(case, wanted, weight=pairs, weight_scale=scale, weight_scale_2=np.array(d), input_scale=np.array(d))
    else:
        put(case, wanted, weight_packed=pairs, weight_scale=scale, weight_global_scale=np.array([d]))


def main():
    spec = importlib.util.spec_from_file_location("packing_utils", sys.argv[1])
    packing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packing)
    gptq("gptq4", 4, 64)
    gptq("gptq4_whole", 4, COLUMNS)
    gptq("gptq4_small", 4, 16)
    gptq("gptq4_order", 4, 32, shuffled=True)
    gptq("gptq_v2", 4, 32, version=2)
    gptq("gptq3", 3, 32)
    gptq("gptq8", 8, 32)
    gptq("gptq2", 2, 64)
    awq("awq", 64, packing)
    packed("ct4", 4, 32, True, torch.bfloat16)
    packed("ct4_zeros", 4, 64, False, torch.float16)
    packed("ct4_order", 4, 32, True, torch.float16, shuffled=True)
    packed("ct3", 3, 32, False, torch.bfloat16)
    packed("ct8", 8, COLUMNS, True, torch.bfloat16)
    bytes_of("int8", torch.bfloat16)
    floats("f8_blocks", "weight_scale_inv", scales(2, 4, dtype=torch.float32), (12, 32))
    floats("f8_odd", "weight_scale_inv", scales(2, 6, dtype=torch.float32), (12, 24))
    floats("f8_rows", "weight_scale", scales(ROWS, 1, dtype=torch.bfloat16), (1, COLUMNS))
    floats("f8_one", "weight_scale", scales(1, 1, dtype=torch.float32), (ROWS, COLUMNS))
    nvfp4("nvfp4_model_opt", True)
    nvfp4("nvfp4_packed", False)
    save_file(TENSORS, OUT)
    print(OUT, OUT.stat().st_size)


if __name__ == "__main__":
    main()
