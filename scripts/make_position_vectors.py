#!/usr/bin/env python3
"""Reference vectors of models with scaled rotary positions and with biases, from Hugging Face transformers (torch).

    make_position_vectors.py        writes tests/data/positions/{cases.json,vectors.safetensors}

Each case is one of the tiny models in tests/data/golden, with fields of its configuration changed and, where `biased`,
with random bias tensors added (stored here; the rest of the weights is the model's own). Stored: the logits at a few
positions of one random prompt, f32 on the CPU.
"""

import copy
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/data/golden"
OUT = ROOT / "tests/data/positions"
TOKENS = 131
POSITIONS = [0, 3, 40, 130]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SHORT = {"tiny-llama": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0], "tiny-qwen3.5": [1.0, 1.1, 1.3, 1.7]}
LONG = {"tiny-llama": [1.0, 1.3, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0], "tiny-qwen3.5": [1.0, 2.0, 5.0, 9.0]}


def scaled(model):
    def longrope(original):
        return {"rope_type": "longrope", "short_factor": SHORT[model], "long_factor": LONG[model],
                "original_max_position_embeddings": original}

    yield "linear", {"rope_type": "linear", "factor": 4.0}
    yield "linear_old_name", {"type": "linear", "factor": 2.5}
    yield "yarn", YARN
    yield "yarn_no_original", {"rope_type": "yarn", "factor": 8.0}
    yield "yarn_attention", {**YARN, "attention_factor": 0.9}
    yield "yarn_mscale", {**YARN, "mscale": 0.8, "mscale_all_dim": 1.2}
    yield "yarn_ramp", {**YARN, "beta_fast": 8, "beta_slow": 2}
    yield "yarn_not_truncated", {**YARN, "truncate": False}
    yield "llama3", LLAMA3
    yield "longrope_long", longrope(64)   # the prompt of 131 tokens is longer
    yield "longrope_short", longrope(256)  # and here it is not
    yield "longrope_attention", {**longrope(64), "attention_factor": 1.3}


def cases():
    for model in ("tiny-llama", "tiny-qwen3.5"):
        for name, rope in scaled(model):
            yield f"{model}.{name}", model, {"rope_scaling": rope}, False
        yield f"{model}.in_parameters", model, {"rope_parameters": rope_of(model, YARN)}, False
        yield f"{model}.biased", model, {"attention_bias": True}, True
    yield "tiny-llama.biased_mlp", "tiny-llama", {"mlp_bias": True}, True
    yield "tiny-llama.biased_scaled", "tiny-llama", {"attention_bias": True, "mlp_bias": True, "rope_scaling": YARN}, True


def rope_of(model, scaling):
    own = json.loads((GOLDEN / model / "config.json").read_text())["rope_parameters"]
    return {**own, **scaling}


def build(model, changes):
    """The model as transformers makes it from the changed file."""
    config = json.loads((GOLDEN / model / "config.json").read_text())
    config.update(copy.deepcopy(changes))
    if "rope_scaling" in changes:
        # transformers takes one of the two objects; a file has its base frequency beside rope_scaling.
        own = config.pop("rope_parameters")
        config["rope_theta"] = own["rope_theta"]
        if "partial_rotary_factor" in own:
            config["partial_rotary_factor"] = own["partial_rotary_factor"]
        config["rope_scaling"].update({k: v for k, v in own.items() if k.startswith("mrope")})
    kind, network = ((LlamaConfig, LlamaForCausalLM) if model == "tiny-llama" else
                     (Qwen3_5TextConfig, Qwen3_5ForCausalLM))
    config = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "transformers_version")}
    made = network(kind(**config, attn_implementation="eager")).to(torch.float32).eval()
    weights = load_file(GOLDEN / model / "model.safetensors")
    missing, unexpected = made.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    missing = [name for name in missing if not name.endswith("lm_head.weight")]
    assert all(name.endswith("_proj.bias") for name in missing), missing
    return made


def main():
    torch.manual_seed(20)
    OUT.mkdir(exist_ok=True)
    ids = torch.randint(3, 256, (TOKENS,))
    tensors, described = {"ids": ids.to(torch.int32)}, []
    with torch.no_grad():
        base = {model: build(model, {})(ids.reshape(1, -1), use_cache=False).logits[0][POSITIONS]
                for model in ("tiny-llama", "tiny-qwen3.5")}
    for name, model, changes, biased in cases():
        network = build(model, changes)
        biases = []
        for parameter, value in network.named_parameters():
            if not parameter.endswith("_proj.bias"):
                continue
            assert biased
            with torch.no_grad():
                value.copy_(torch.randn_like(value) * 0.3)
            biases.append(parameter)
            tensors[f"{name}.{parameter}"] = value.detach().clone()
        with torch.no_grad():
            logits = network(ids.reshape(1, -1), use_cache=False).logits[0]
        tensors[f"{name}.logits"] = logits[POSITIONS].to(torch.float32).contiguous()
        described.append({"name": name, "model": model, "changes": changes, "biases": biases})
    for item in described:  # a case that changes nothing proves nothing
        difference = (tensors[item["name"] + ".logits"] - base[item["model"]]).abs().max()
        print(f"{item['name']}: {difference:.3f} from the model as it is")
        assert difference > 0.01, item
    save_file(tensors, OUT / "vectors.safetensors")
    text = json.dumps({"positions": POSITIONS, "cases": described}, indent=1)
    (OUT / "cases.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
