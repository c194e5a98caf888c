#!/usr/bin/env python3
"""Writes mlx.safetensors: one matrix in all 18 affine formats, quantized and dequantized by MLX itself.

    python3 -m venv build/mlx && build/mlx/bin/pip install 'mlx[cpu]==0.32.4'
    build/mlx/bin/python tests/data/quant/make_mlx_fixture.py tests/data/quant/mlx.safetensors

Tensors: "x" F32 [2, 256]; per format "m<bits>_<group>" .weight (U32), .scales, .biases, and .values: MLX's dequantized
floats. Names ending in _bf16 and _f16 have scales and biases of that type; their .values are dequantized after those
were widened to f32, so that nothing is rounded on the way out.
"""

import sys

import mlx.core as mx


def main():
    mx.random.seed(1)
    # Groups of both signs, all positive, all negative, constant, zero, and of very different size.
    x = mx.random.normal((2, 256))
    column = mx.arange(256)
    x = mx.where(column < 32, x, mx.where(column < 64, mx.abs(x) + 1, mx.where(column < 96, -mx.abs(x) * 1e-3, x)))
    x = mx.where((column >= 128) & (column < 192), 0.0, mx.where((column >= 192) & (column < 224), -0.75, x))
    tensors = {"x": x}

    def add(name, values, bits, group):
        weight, scales, biases = mx.quantize(values, group_size=group, bits=bits)
        tensors[name + ".weight"], tensors[name + ".scales"], tensors[name + ".biases"] = weight, scales, biases
        wide = [part.astype(mx.float32) for part in (scales, biases)]
        tensors[name + ".values"] = mx.dequantize(weight, *wide, group_size=group, bits=bits)

    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            add(f"m{bits}_{group}", x, bits, group)
    add("m4_64_bf16", x.astype(mx.bfloat16), 4, 64)
    add("m6_32_f16", x.astype(mx.float16), 6, 32)
    mx.save_safetensors(sys.argv[1], tensors, metadata={"made_with": "mlx " + mx.__version__})


if __name__ == "__main__":
    main()
