#!/usr/bin/env python3
"""Writes tests/data/mlx/gpt2 (4 bits) and tests/data/mlx/lfm2 (bf16): folders as mlx-lm converts them, and the logits
that MLX computes of them in f32. Needs mlx[cpu] and mlx-lm; run it outside the repository's environment.

Usage: make_mlx_folders.py OUT
"""
import json
import pathlib
import shutil
import sys

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

FAMILIES = pathlib.Path(__file__).resolve().parent.parent / "tests/data/golden/families"


def write_gpt2(folder):
    """Random weights with the names and shapes of the first published files: MLX wants networks of four times the
    width."""
    rng = np.random.default_rng(7)
    width, layers, vocab, positions = 32, 2, 96, 80
    tensors = {}

    def add(name, values):
        tensors[name] = mx.array(values.astype(np.float32))

    add("wte.weight", rng.normal(size=(vocab, width)) * 0.3)
    add("wpe.weight", rng.normal(size=(positions, width)) * 0.3)
    for layer in range(layers):
        for norm in ("ln_1", "ln_2"):
            add(f"h.{layer}.{norm}.weight", 1 + 0.2 * rng.normal(size=width))
            add(f"h.{layer}.{norm}.bias", 0.2 * rng.normal(size=width))
        for name, ins, outs in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            add(f"h.{layer}.{name}.weight", rng.normal(size=(ins, outs)) * 1.1 / ins ** 0.5)
            add(f"h.{layer}.{name}.bias", 0.3 * rng.normal(size=outs))
    add("ln_f.weight", 1 + 0.2 * rng.normal(size=width))
    add("ln_f.bias", 0.2 * rng.normal(size=width))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocab, "n_embd": width,
              "n_head": 4, "n_layer": layers, "n_positions": positions, "n_ctx": positions,
              "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return rng.integers(3, vocab, 70).astype(np.int32)


def write_lfm2(folder):
    shutil.copy(FAMILIES / "lfm2/model.safetensors", folder)
    config = json.loads((FAMILIES / "lfm2/config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "block_dim": config["hidden_size"]}))
    return np.array(mx.load(str(FAMILIES / "lfm2/golden.safetensors"))["ids"])


def convert(source, ids, out, bits):
    model, config = load_model(source, lazy=False)
    if bits < 16:
        model, config = quantize_model(model, config, 32, bits)
    else:
        model.set_dtype(mx.bfloat16)
    out.mkdir(parents=True)
    save_model(out, model)
    save_config(config, config_path=out / "config.json")
    (out / "model.safetensors.index.json").unlink()
    again, _ = load_model(out, lazy=False)
    again.set_dtype(mx.float32)
    logits = again(mx.array(ids)[None])[0].astype(mx.float32)
    mx.save_safetensors(str(out / "golden.safetensors"), {"ids": mx.array(ids), "logits": logits})


def main():
    out = pathlib.Path(sys.argv[1])
    for name, write, bits in (("gpt2", write_gpt2, 4), ("lfm2", write_lfm2, 16)):
        source = out / f"source-{name}"
        source.mkdir(parents=True)
        convert(source, write(source), out / name, bits)
        shutil.rmtree(source)


if __name__ == "__main__":
    main()
