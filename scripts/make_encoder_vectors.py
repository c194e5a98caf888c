#!/usr/bin/env python3
"""Writes tests/data/golden/encoders/NAME/: a tiny encoder of random weights and odd shapes for each family, what
transformers computes of it in f32 on the CPU, and the same model as GGUF, with the names of the gguf package and the
conventions of llama.cpp's converter.

Usage: make_encoder_vectors.py OUT [NAME...]. Needs torch, transformers (5) and gguf; run it outside the repository's
environment. Weights are rounded to bf16 and stored so, by the names that transformers gives them in files (those of
the published ones); of Jina's encoder, which transformers lacks, the formulas are here.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

VOCAB, TOKENS = 64, 70


def sizes(**more):
    base = dict(vocab_size=VOCAB, hidden_size=30, intermediate_size=44, num_hidden_layers=3, num_attention_heads=3,
                max_position_embeddings=80, pad_token_id=0)
    base.update(more)
    return base


ROPE = {"rope_type": "default", "rope_theta": 700.0}
FAMILIES = {
    "bert": lambda: (tf.BertConfig(**sizes(hidden_act="gelu_new")), tf.BertModel, "bert"),
    "xlm-roberta": lambda: (tf.XLMRobertaConfig(**sizes(pad_token_id=1, type_vocab_size=1, bos_token_id=0,
                                                        eos_token_id=2, layer_norm_eps=1e-5,
                                                        max_position_embeddings=82)), tf.XLMRobertaModel, "bert"),
    "distilbert": lambda: (tf.DistilBertConfig(vocab_size=VOCAB, dim=30, hidden_dim=44, n_layers=3, n_heads=3,
                                               max_position_embeddings=80), tf.DistilBertModel, "bert"),
    "nomic": lambda: (tf.NomicBertConfig(**sizes(rope_parameters=ROPE)), tf.NomicBertModel, "nomic-bert"),
    "gte": lambda: (tf.GteConfig(**sizes(rope_parameters=ROPE)), tf.GteModel, None),
    "modernbert": lambda: (tf.ModernBertConfig(**sizes(num_hidden_layers=4, local_attention=18, bos_token_id=1,
                                                       eos_token_id=2, cls_token_id=1, sep_token_id=2,
                                                       global_attn_every_n_layers=3, rope_parameters={
                                                           "full_attention": {"rope_type": "default",
                                                                              "rope_theta": 900.0},
                                                           "sliding_attention": {"rope_type": "default",
                                                                                 "rope_theta": 50.0}})),
                           tf.ModernBertModel, "modern-bert"),
    "jina": lambda: (tf.BertConfig(**sizes()), Jina, "jina-bert-v2"),
}


class Jina(torch.nn.Module):
    """BERT without positions, with ALiBi to both sides and GeGLU (JinaBERT, arXiv:2310.19923)."""

    def __init__(self, config):
        super().__init__()
        linear, norm, hidden = torch.nn.Linear, torch.nn.LayerNorm, config.hidden_size
        self.config = config
        dictionary = torch.nn.ModuleDict
        self.embeddings = dictionary({"word_embeddings": torch.nn.Embedding(VOCAB, hidden),
                                      "token_type_embeddings": torch.nn.Embedding(2, hidden),
                                      "LayerNorm": norm(hidden, eps=config.layer_norm_eps)})
        self.encoder = dictionary({"layer": torch.nn.ModuleList(dictionary({
            "attention": dictionary({
                "self": dictionary({"query": linear(hidden, hidden), "key": linear(hidden, hidden),
                                    "value": linear(hidden, hidden)}),
                "output": dictionary({"dense": linear(hidden, hidden),
                                      "LayerNorm": norm(hidden, eps=config.layer_norm_eps)})}),
            "mlp": dictionary({"gated_layers": linear(hidden, 2 * config.intermediate_size, bias=False),
                               "wo": linear(config.intermediate_size, hidden),
                               "layernorm": norm(hidden, eps=config.layer_norm_eps)})})
            for _ in range(config.num_hidden_layers))})

    def slopes(self):
        heads = self.config.num_attention_heads
        power = 2 ** int(np.floor(np.log2(heads)))
        some = [2 ** (-8 / power * (i + 1)) for i in range(power)]
        more = [2 ** (-8 / (2 * power) * (i + 1)) for i in range(2 * power)][0::2]
        return torch.tensor((some + more)[:heads])

    def forward(self, ids):
        x = self.embeddings["word_embeddings"](ids[0]) + self.embeddings["token_type_embeddings"].weight[0]
        x = self.embeddings["LayerNorm"](x)
        heads, at = self.config.num_attention_heads, torch.arange(len(x))
        taken = self.slopes()[:, None, None] * (at[None, :] - at[:, None]).abs()
        for layer in self.encoder["layer"]:
            own, mlp = layer["attention"]["self"], layer["mlp"]
            q, k, v = (own[n](x).reshape(len(x), heads, -1).transpose(0, 1) for n in ("query", "key", "value"))
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 - taken
            mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), -1)
            x = layer["attention"]["output"]["LayerNorm"](x + layer["attention"]["output"]["dense"](mixed))
            gate, up = mlp["gated_layers"](x).chunk(2, -1)
            x = mlp["layernorm"](x + mlp["wo"](torch.nn.functional.gelu(gate) * up))
        return tf.modeling_outputs.BaseModelOutput(last_hidden_state=x[None])


def fill(model, generator):
    with torch.no_grad():
        for key, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in key.lower():
                value = 0.2 * noise + (0.0 if key.endswith("bias") else 1.0)
            elif key.endswith("bias"):
                value = 0.3 * noise
            elif "embeddings" in key:
                value = noise
            else:
                value = noise * (1.4 / p.shape[-1] ** 0.5)
            p.copy_(value.to(torch.bfloat16).float())


def jina_as_gguf(tensors):
    split = {}
    for key, tensor in tensors.items():
        if "gated_layers" in key:
            gate, up = tensor.chunk(2)
            split[key.replace("gated_layers", "gated_layers_w")] = gate
            split[key.replace("gated_layers", "gated_layers_v")] = up
        else:
            split[key] = tensor
    return split


def write_gguf(path, name, config, arch, tensors):
    kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    writer = gguf.GGUFWriter(path, arch)
    distil = name == "distilbert"
    layers = config.n_layers if distil else config.num_hidden_layers
    skipped = config.pad_token_id + 1 if name == "xlm-roberta" else 0
    writer.add_name(f"tiny {name}")
    writer.add_context_length(config.max_position_embeddings - skipped)
    writer.add_embedding_length(30)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(44)
    writer.add_head_count(3)
    writer.add_layer_norm_eps(1e-12 if distil else getattr(config, "norm_eps", None) or config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.CLS if name == "modernbert" else gguf.PoolingType.MEAN)
    if name == "nomic":
        writer.add_rope_freq_base(ROPE["rope_theta"])
    if name == "modernbert":
        writer.add_rope_freq_base(900.0)
        writer.add_float32(f"{arch}.rope.freq_base_swa", 50.0)
        writer.add_sliding_window(config.local_attention)
        writer.add_uint32(f"{arch}.attention.sliding_window_pattern", 3)
        writer.add_vocab_size(VOCAB)
    names = gguf.get_tensor_name_map(kind, layers)
    for key, tensor in tensors.items():
        data = tensor.float().numpy()
        if "position_embeddings" in key:
            data = data[skipped:]
        target = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert target is not None, key
        data = np.ascontiguousarray(data, dtype=np.float32)
        if data.ndim == 1 or "position" in key or "token_type" in key:
            writer.add_tensor(target, data)
        else:
            raw = gguf.quants.quantize(data, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(target, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(out, name):
    config, kind, arch = FAMILIES[name]()
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = (kind(config) if name in ("jina", "nomic", "gte", "modernbert", "distilbert")
             else kind(config, add_pooling_layer=name == "bert")).float().eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    fill(model, generator)
    ids = torch.randint(3, VOCAB, (1, TOKENS), generator=generator)
    with torch.no_grad():
        hidden = model(ids).last_hidden_state[0].float()
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    if name == "jina":
        fields = config.to_dict()
        fields.update(position_embedding_type="alibi", feed_forward_type="geglu", emb_pooler="mean")
        (folder / "config.json").write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n")
        save_file({k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()},
                  folder / "model.safetensors", metadata={"format": "pt"})
    else:
        model.to(torch.bfloat16).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    pooled = hidden[0] if name == "modernbert" else hidden.mean(0)
    save_file({"ids": ids[0].to(torch.int32), "hidden": hidden.contiguous(),
               "embedding": torch.nn.functional.normalize(pooled, dim=0)}, folder / "golden.safetensors")
    if arch is not None:
        held = jina_as_gguf(tensors) if name == "jina" else tensors
        write_gguf(folder / "model.gguf", name, config, arch,
                   {k: v for k, v in held.items() if not k.startswith("pooler.")})
    print(name, f"hidden std {hidden.std():.2f} max {hidden.abs().max():.2f}",
          sum(f.stat().st_size for f in folder.iterdir()))


def main():
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or FAMILIES:
        make(out, name)


if __name__ == "__main__":
    main()
