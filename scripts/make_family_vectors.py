#!/usr/bin/env python3
"""Writes tests/data/golden/families/NAME/: a tiny model of random weights and odd shapes for each decoder family, what
transformers computes of it in f32 on the CPU, and the same model as GGUF, with the names of the gguf package and the
conventions of llama.cpp's converter. Folders are bf16 as well, but for those of F32_FOLDERS.

Usage: make_family_vectors.py OUT [NAME...]. Needs torch, transformers (5) and gguf, and for mixtures the folder of
llama.cpp's converter in LLAMA_CPP: their GGUF files are its own. Run it outside the repository's environment. Weights are rounded to bf16, so that the GGUF file's BF16 matrices hold the same values.
"""
import json
import os
import pathlib
import sys

if "LLAMA_CPP" in os.environ:  # the converter goes with its own gguf package
    sys.path[:0] = [os.environ["LLAMA_CPP"], os.path.join(os.environ["LLAMA_CPP"], "gguf-py")]
import gguf
import numpy as np
import torch
import transformers as tf
from safetensors import safe_open
from safetensors.torch import save_file

VOCAB, TOKENS, GREEDY = 96, 70, 24
CHUNK, SCALED = 11, 16  # of llama4, tokens


def common(**more):
    base = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=44, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, head_dim=12, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1,
                eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
    base.update(more)
    return base


def rope(theta=10000.0, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


# name: (configuration, class, GGUF architecture, whether its q and k rows become adjacent pairs in GGUF)
FAMILIES = {
    "qwen2": lambda: (tf.Qwen2Config(**{k: v for k, v in common().items() if k != "head_dim"}),
                      tf.Qwen2ForCausalLM, "qwen2", False),
    "qwen3": lambda: (tf.Qwen3Config(**common(rope_parameters=rope(1e6), tie_word_embeddings=True)),
                      tf.Qwen3ForCausalLM, "qwen3", False),
    "gpt2": lambda: (tf.GPT2Config(vocab_size=VOCAB, n_embd=32, n_head=4, n_layer=3, n_positions=130, n_inner=52,
                                   bos_token_id=1, eos_token_id=2), tf.GPT2LMHeadModel, "gpt2", False),
    "gemma2": lambda: (tf.Gemma2Config(**common(query_pre_attn_scalar=20, sliding_window=11, tie_word_embeddings=True,
                                                attn_logit_softcapping=3.0, final_logit_softcapping=4.0,
                                                hidden_activation="gelu_pytorch_tanh")),
                       tf.Gemma2ForCausalLM, "gemma2", False),
    "gemma3": lambda: (tf.Gemma3TextConfig(**common(query_pre_attn_scalar=12, sliding_window=9, num_hidden_layers=4,
                                                    tie_word_embeddings=True, layer_types=[
                                                        "sliding_attention", "sliding_attention", "full_attention",
                                                        "sliding_attention"],
                                                    rope_parameters={
                                                        "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                                           "rope_theta": 1e6},
                                                        "sliding_attention": rope(10000.0)})),
                       tf.Gemma3ForCausalLM, "gemma3", False),
    "llama3": lambda: (tf.LlamaConfig(**common(rope_parameters={
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64})), tf.LlamaForCausalLM, "llama", True),
    "mistral": lambda: (tf.MistralConfig(**common(sliding_window=13)), tf.MistralForCausalLM, "llama", True),
    "ministral": lambda: (tf.MinistralConfig(**common(sliding_window=66, layer_types=[
        "full_attention", "sliding_attention", "sliding_attention"])), tf.MinistralForCausalLM, "llama", True),
    "smollm3": lambda: (tf.SmolLM3Config(**{k: v for k, v in common(
        num_hidden_layers=5, no_rope_layer_interval=4, use_sliding_window=False,
        tie_word_embeddings=True).items() if k != "head_dim"}), tf.SmolLM3ForCausalLM, "smollm3", True),
    "olmo2": lambda: (tf.Olmo2Config(**{k: v for k, v in common(rope_parameters=rope(500000.0)).items()
                                        if k != "head_dim"}), tf.Olmo2ForCausalLM, "olmo2", False),
    "phi3": lambda: (tf.Phi3Config(**{k: v for k, v in common(
        partial_rotary_factor=0.75, original_max_position_embeddings=32,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                         "original_max_position_embeddings": 32,
                         "short_factor": [1.0, 1.1, 1.3],
                         "long_factor": [1.0, 2.0, 9.0]}).items() if k != "head_dim"}),
                     tf.Phi3ForCausalLM, "phi3", False),
    "granite": lambda: (tf.GraniteConfig(**{k: v for k, v in common(
        embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
        logits_scaling=1.7, tie_word_embeddings=True).items() if k != "head_dim"}),
                        tf.GraniteForCausalLM, "granite", True),
    "lfm2": lambda: (tf.Lfm2Config(**{k: v for k, v in common(
        hidden_size=24, intermediate_size=34, block_auto_adjust_ff_dim=True, block_multiple_of=6,
        block_ffn_dim_multiplier=1.1, conv_L_cache=4, norm_eps=1e-5, layer_types=["conv", "full_attention", "conv"],
        tie_word_embeddings=True).items() if k not in ("head_dim", "rms_norm_eps")}), tf.Lfm2ForCausalLM, "lfm2", False),
    # In layers with a window positions are not scaled.
    "olmo3": lambda: (tf.Olmo3Config(**{k: v for k, v in common(
        hidden_size=24, intermediate_size=22, sliding_window=10, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"], rope_parameters={
            "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "beta_fast": 32.0,
                               "beta_slow": 1.0, "original_max_position_embeddings": 64, "attention_factor": 1.2},
            "sliding_attention": rope(500000.0)}).items() if k != "head_dim"}),
                      tf.Olmo3ForCausalLM, "olmo2", False),
    "ministral3": lambda: (tf.Ministral3Config(**common(
        hidden_size=20, intermediate_size=22, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=10, tie_word_embeddings=True, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 32,
        "max_position_embeddings": 256, "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0,
        "llama_4_scaling_beta": 0.3})), tf.Ministral3ForCausalLM, "mistral3", True),
}
# Mixtures: (configuration, class, whether the folder has the experts of a layer in one tensor, gate and up fused in GGUF).
MIXTURES = {
    "qwen3_moe": lambda: (tf.Qwen3MoeConfig(**common(
        rope_parameters=rope(1e6), num_hidden_layers=2, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=20,
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])), tf.Qwen3MoeForCausalLM, False, False),
    "qwen3_5_moe": lambda: (tf.Qwen3_5MoeTextConfig(**{k: v for k, v in common(
        num_hidden_layers=3, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=28, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_conv_kernel_dim=4, layer_types=[
            "linear_attention", "full_attention", "linear_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5,
                         "mrope_interleaved": True, "mrope_section": [2, 1, 1]}).items() if k != "intermediate_size"}),
        tf.Qwen3_5MoeForCausalLM, True, True),
    "qwen3_next": lambda: (tf.Qwen3NextConfig(**common(
        hidden_size=13, num_attention_heads=2, num_key_value_heads=1, head_dim=12, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=5, shared_expert_intermediate_size=5, norm_topk_prob=True, decoder_sparse_step=1,
        mlp_only_layers=[], linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
        linear_num_value_heads=6, linear_conv_kernel_dim=4, layer_types=[
            "linear_attention", "full_attention", "linear_attention"], tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5})),
        tf.Qwen3NextForCausalLM, False, False),
    # Chunks and factors of queries within the text; layers of a network and of experts in turn.
    "llama4": lambda: (tf.Llama4TextConfig(**common(
        hidden_size=16, intermediate_size=10, intermediate_size_mlp=18, num_hidden_layers=4, num_attention_heads=3,
        num_key_value_heads=1, head_dim=8, num_local_experts=3, num_experts_per_tok=2, interleave_moe_layer_step=2,
        attention_chunk_size=CHUNK, floor_scale=SCALED, attn_scale=0.4, tie_word_embeddings=True, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64})), tf.Llama4ForCausalLM, True, False),
}
F32_FOLDERS = {"ministral3"}
ZERO_CENTRED = {"gemma2", "gemma3"}
ZERO_CENTRED_BUT_GATED = {"qwen3_5_moe", "qwen3_next"}  # the norm of DeltaNet layers is not


def fill(model, name, generator):
    with torch.no_grad():
        for key, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in key.lower() or ".ln_" in key:
                centred = name in ZERO_CENTRED or name in ZERO_CENTRED_BUT_GATED and "linear_attn.norm" not in key
                if key.endswith("bias"):
                    value = 0.2 * noise
                else:
                    value = 0.2 * noise + (0.0 if centred else 1.0)
            elif key.endswith("A_log"):
                value = 0.5 * noise
            elif key.endswith("bias"):
                value = 0.3 * noise
            elif "embed" in key or ".wte" in key or ".wpe" in key:
                value = noise * 0.3
            elif "conv.conv" in key or "conv1d" in key:
                value = 0.5 * noise
            elif key.endswith(("mlp.gate.weight", "shared_expert_gate.weight", "router.weight")):
                value = noise * (4.0 / p.shape[-1] ** 0.5)  # experts that differ in weight
            elif "lm_head" in key:
                value = noise * (1.6 / p.shape[-1] ** 0.5)
            else:
                inputs = p.shape[0] if "c_" in key else p.shape[-1]
                value = noise * (1.1 / inputs ** 0.5)
            p.copy_(value.to(torch.bfloat16).float())


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path, name, config, arch, adjacent, tensors):
    kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    writer = gguf.GGUFWriter(path, arch)
    get = lambda *names: next((getattr(config, n) for n in names if getattr(config, n, None) is not None), None)
    layers, heads = get("num_hidden_layers", "n_layer"), get("num_attention_heads", "n_head")
    hidden = get("hidden_size", "n_embd")
    writer.add_name(f"tiny {name}")
    writer.add_context_length(get("max_position_embeddings", "n_positions"))
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    width = next((t.shape[0] for key, t in tensors.items() if key.endswith("feed_forward.w1.weight")), None)
    writer.add_feed_forward_length(width or get("intermediate_size", "n_inner"))
    writer.add_head_count(heads)
    kv_heads = get("num_key_value_heads") or heads
    if name == "lfm2":
        writer.add_head_count_kv([kv_heads if t == "full_attention" else 0 for t in config.layer_types])
        writer.add_shortconv_l_cache(config.conv_L_cache)
        writer.add_vocab_size(VOCAB)
    elif name != "gpt2":
        writer.add_head_count_kv(kv_heads)
    head_dim = getattr(config, "head_dim", None) or hidden // heads
    if name == "gpt2":
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(get("rms_norm_eps", "norm_eps"))
        parameters = config.rope_parameters
        full = parameters.get("full_attention", parameters)
        writer.add_rope_freq_base(full["rope_theta"])
        if "head_dim" in config.to_dict() and name != "lfm2":
            writer.add_key_length(head_dim)
            writer.add_value_length(head_dim)
        share = full.get("partial_rotary_factor", 1.0)
        if name not in ("gemma2", "gemma3", "lfm2"):
            writer.add_rope_dimension_count(int(head_dim * share))
        if full["rope_type"] == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(full["factor"])
        if full["rope_type"] == "llama3":
            base, low, high = full["original_max_position_embeddings"], full["low_freq_factor"], full["high_freq_factor"]
            factors = []
            for i in range(0, head_dim, 2):
                wavelength = 2 * np.pi * full["rope_theta"] ** (i / head_dim)
                if wavelength < base / high:
                    factors.append(1.0)
                elif wavelength > base / low:
                    factors.append(full["factor"])
                else:
                    smooth = (base / wavelength - low) / (high - low)
                    factors.append(1 / ((1 - smooth) / full["factor"] + smooth))
            writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
        if full["rope_type"] == "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(full["factor"])
            writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
            writer.add_rope_scaling_yarn_beta_fast(full["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(full["beta_slow"])
            if "attention_factor" in full:
                writer.add_rope_scaling_yarn_attn_factor(full["attention_factor"])
            if name == "ministral3":
                writer.add_rope_scaling_yarn_log_mul(full["mscale_all_dim"])
                writer.add_attn_temperature_scale(full["llama_4_scaling_beta"])
        if full["rope_type"] == "longrope":
            original = full["original_max_position_embeddings"]
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_attn_factors(
                float(np.sqrt(1 + np.log(config.max_position_embeddings / original) / np.log(original))))
            writer.add_tensor("rope_factors_long.weight", np.array(full["long_factor"], dtype=np.float32))
            writer.add_tensor("rope_factors_short.weight", np.array(full["short_factor"], dtype=np.float32))
    if name in ("gemma2", "gemma3", "mistral", "ministral", "olmo3"):
        writer.add_sliding_window(config.sliding_window)
    if name in ("gemma3", "ministral", "olmo3"):
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if name == "gemma2":
        writer.add_float32("gemma2.attention.scale", config.query_pre_attn_scalar ** -0.5)
    if name == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    names = gguf.get_tensor_name_map(kind, layers)
    for key, tensor in tensors.items():
        data = tensor.float().numpy()
        if name == "gpt2" and key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            data = data.T
        if adjacent and ".q_proj." in key:
            data = permute(data, heads)
        if adjacent and ".k_proj." in key:
            data = permute(data, kv_heads)
        if name in ZERO_CENTRED and key.endswith("norm.weight"):
            data = data + 1
        if "conv.conv" in key:
            data = data.squeeze(1)
        target = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert target is not None, key
        data = np.ascontiguousarray(data, dtype=np.float32)
        if data.ndim == 1 or "conv" in key or ".wpe." in key:
            writer.add_tensor(target, data)
        else:
            raw = gguf.quants.quantize(data, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(target, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(folder, name, fused):
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    kind = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT), mmproj=False)

    class WithoutTokenizer(kind):
        model_arch = kind.model_arch
        no_mtp = True

        def set_vocab(self):
            self.gguf_writer.add_vocab_size(VOCAB)
            self.gguf_writer.add_bos_token_id(1)
            self.gguf_writer.add_eos_token_id(2)

        def set_gguf_parameters(self):
            super().set_gguf_parameters()
            if name == "llama4":  # llama.cpp takes 8192, 8192 and 0.1
                self.gguf_writer.add_sliding_window(CHUNK)
                self.gguf_writer.add_attn_temperature_length(SCALED)
                self.gguf_writer.add_attn_temperature_scale(self.hparams["attn_scale"])

    with torch.inference_mode():
        WithoutTokenizer(folder, gguf.LlamaFileType.MOSTLY_BF16, folder / "model.gguf",
                         fuse_gate_up_exps=fused).write()


def make(out, name):
    mixture = name in MIXTURES
    if mixture:
        config, kind, stacked, fused = MIXTURES[name]()
    else:
        config, kind, arch, adjacent = FAMILIES[name]()
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(0)
    model = kind(config).float().eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    fill(model, name, generator)
    ids = torch.randint(3, VOCAB, (1, TOKENS), generator=generator)
    with torch.no_grad():
        logits = model(ids).logits[0]
        greedy, text = [], ids
        for _ in range(GREEDY):
            nxt = model(text).logits[0, -1].argmax()
            greedy.append(int(nxt))
            text = torch.cat([text, nxt.reshape(1, 1)], dim=1)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    for extra in ("generation_config.json",):
        (folder / extra).unlink(missing_ok=True)
    save_file({"ids": ids[0].to(torch.int32), "logits": logits.float().contiguous(),
               "greedy": torch.tensor(greedy, dtype=torch.int32)}, folder / "golden.safetensors")
    tensors = {k: v for k, v in model.state_dict().items()
               if not (config.tie_word_embeddings and k == "lm_head.weight") and not k.endswith("attn.masked_bias")}
    if mixture:
        if stacked:
            save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors",
                      metadata={"format": "pt"})
        convert(folder, name, fused)
    else:
        write_gguf(folder / "model.gguf", name, config, arch, adjacent, tensors)
    if name not in F32_FOLDERS:
        with safe_open(folder / "model.safetensors", "pt") as file:
            halves = {k: file.get_tensor(k).to(torch.bfloat16) for k in file.keys()}
        save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    print(name, f"logits std {logits.std():.2f} max {logits.abs().max():.2f}",
          sum(f.stat().st_size for f in folder.iterdir()))


def main():
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or [*FAMILIES, *MIXTURES]:
        make(out, name)


if __name__ == "__main__":
    main()
