#!/usr/bin/env python3
"""Packages of `baton export coreml`, read and run without any of this project's code.

coremltools loads the specification through its package library, rebuilds the program with its own shape inference and
reads every weight with its own blob reader. The program is then executed op by op in numpy (f32) and compared with
vectors of Hugging Face transformers. Skipped (77) when coremltools is not there: scripts/fetch_coremltools.sh.

usage: coreml_test.py PROGRAM   (then unittest's own options)
"""
import contextlib
import io
import json
import logging
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
sys.path.insert(0, str(ROOT / "build" / "coremltools"))

try:
    logging.disable(logging.WARNING)  # coremltools warns that it cannot predict off a Mac
    with contextlib.redirect_stderr(io.StringIO()):
        import numpy as np
        import coremltools as ct
        from coremltools.converters.mil.frontend.milproto.load import load as load_program
        from coremltools.libmilstoragepython import _BlobStorageReader as BlobReader
except Exception as error:  # an import can fail in many ways: nothing here needs more than the reason
    print(f"skipped: coremltools cannot be imported ({error}); run scripts/fetch_coremltools.sh")
    sys.exit(77)

FP16, FP32, INT32, BOOL, STRING = 10, 11, 23, 1, 2
OPS = {"const", "conv", "matmul", "add", "sub", "mul", "real_div", "minimum", "exp", "relu", "silu", "sigmoid", "softmax",
       "concat", "slice_by_size", "reshape", "transpose", "layer_norm"}


def export(model, out, *flags):
    done = subprocess.run([PROGRAM, "export", "coreml", str(model), str(out), "--json", *flags], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["run_on_apple_hardware"] is False
    return report["packages"]


def read_tensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    out = {}
    for name, info in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        raw = data[8 + size + info["data_offsets"][0]:8 + size + info["data_offsets"][1]]
        if info["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "I32": "<i4", "F16": "<f2"}[info["dtype"]])
        out[name] = values.reshape(info["shape"])
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Program:
    """One package: its specification as coremltools reads it, and its execution in numpy."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.spec = ct.utils.load_spec(str(path))
        self.weights = self.path / "Data" / "com.apple.CoreML" / "weights"
        function = self.spec.mlProgram.functions["main"]
        self.inputs = {value.name: dims(value.type) for value in function.inputs}
        self.block = function.block_specializations[function.opset]
        self.opset = function.opset

    def constant(self, op):
        value = op.attributes["val"]
        kind, shape = value.type.tensorType.dataType, dims(value.type)
        if value.WhichOneof("value") == "blobFileValue":
            assert value.blobFileValue.fileName == "@model_path/weights/weight.bin"
            bits = BlobReader(str(self.weights / "weight.bin")).read_fp16_data(value.blobFileValue.offset)
            return np.frombuffer(bits.tobytes(), np.float16).astype(np.float32).reshape(shape)
        tensor = value.immediateValue.tensor
        if kind == FP16:
            return np.frombuffer(tensor.bytes.values, np.float16).astype(np.float32).reshape(shape)
        if kind == STRING:
            return tensor.strings.values[0]
        values = tensor.bools.values if kind == BOOL else tensor.ints.values
        return np.array(values, bool if kind == BOOL else np.int64).reshape(shape)

    def run(self, inputs):
        values = {name: np.asarray(inputs[name], np.float32).reshape(shape) for name, shape in self.inputs.items()}
        for op in self.block.operations:
            out = op.outputs[0]
            if op.type == "const":
                values[out.name] = self.constant(op)
                continue
            arguments = {key: [values[item.name] for item in argument.arguments] for key, argument in op.inputs.items()}
            result = execute(op.type, {key: item if key == "values" else item[0] for key, item in arguments.items()})
            assert list(result.shape) == dims(out.type), (op.type, out.name, result.shape, dims(out.type))
            assert np.isfinite(result).all(), out.name
            values[out.name] = result
        return {name: values[name] for name in self.block.outputs}


def dims(value_type):
    return [dim.constant.size for dim in value_type.tensorType.dimensions]


def execute(op, a):
    """The op as coremltools documents it, in f32."""
    if op == "conv":
        x, w, groups = a["x"], a["weight"], int(a["groups"])
        assert a["pad_type"] == "valid" and list(a["strides"]) == [1, 1] and list(a["dilations"]) == [1, 1]
        assert x.shape[0] == 1 and x.shape[2] == 1 and w.shape[2] == 1
        if groups == 1:
            assert w.shape[3] == 1
            return np.matmul(w[:, :, 0, 0], x[0, :, 0, :])[None, :, None, :]
        assert groups == x.shape[1] == w.shape[0] and w.shape[1] == 1
        width = x.shape[3] - w.shape[3] + 1
        return sum(x[..., j:j + width] * w[:, 0, :, j][None, :, :, None] for j in range(w.shape[3]))
    if op == "matmul":
        x = np.swapaxes(a["x"], -1, -2) if a["transpose_x"] else a["x"]
        y = np.swapaxes(a["y"], -1, -2) if a["transpose_y"] else a["y"]
        return np.matmul(x, y)
    if op in ("add", "sub", "mul", "real_div", "minimum"):
        name = {"sub": "subtract", "mul": "multiply", "real_div": "divide"}.get(op, op)
        return getattr(np, name)(a["x"], a["y"])
    if op == "softmax":
        e = np.exp(a["x"] - a["x"].max(axis=int(a["axis"]), keepdims=True))
        return e / e.sum(axis=int(a["axis"]), keepdims=True)
    if op == "layer_norm":
        axes = tuple(int(axis) for axis in a["axes"])
        centred = a["x"] - a["x"].mean(axis=axes, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(axis=axes, keepdims=True) + a["epsilon"])
    if op == "concat":
        assert not a["interleave"]
        return np.concatenate(a["values"], axis=int(a["axis"]))
    if op == "slice_by_size":
        return a["x"][tuple(slice(b, b + n) for b, n in zip(a["begin"], a["size"]))]
    if op == "reshape":
        return a["x"].reshape([int(n) for n in a["shape"]])
    if op == "transpose":
        return a["x"].transpose([int(n) for n in a["perm"]])
    x = a["x"]
    return {"exp": np.exp, "relu": lambda v: np.maximum(v, 0), "sigmoid": sigmoid, "silu": lambda v: v * sigmoid(v)}[op](x)


def inputs_for(program, ids, table, rotary, theta, position=0, padding=None):
    """hidden, keep and angles for a prompt that stands at the right."""
    seq = program.inputs["keep"][3]
    pad = seq - len(ids)
    hidden = np.zeros((table.shape[1], seq), np.float32)
    if padding is not None:
        hidden[:, :pad] = padding.normal(size=(table.shape[1], pad))
    hidden[:, pad:] = table[list(ids)].T
    keep = np.array([0.0] * pad + [1.0] * len(ids))
    at = np.maximum(np.arange(seq) - pad, 0) + position
    angles = np.outer(theta ** (-np.arange(0, rotary, 2) / rotary), at)
    return {"hidden": hidden.astype(np.float16).astype(np.float32), "keep": keep, "rope_cos": np.cos(angles),
            "rope_sin": np.sin(angles)}


def chain(programs, inputs):
    """All chunks in order: every state, and the stream behind the last layer."""
    states, hidden = {}, inputs["hidden"]
    for program in programs:
        outputs = program.run({**inputs, "hidden": hidden})
        hidden = outputs.pop("hidden_out")
        states.update(outputs)
    return states, hidden[0, :, 0, :]


def relative(got, wanted):
    return float(np.sqrt(np.mean((got - wanted) ** 2) / np.mean(np.asarray(wanted) ** 2)))


class Packages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name)

    def open(self, model, *flags):
        return [Program(item["path"]) for item in export(GOLDEN / model, self.out, *flags)]

    def test_coremltools_reads_and_rebuilds_every_package(self):
        packages = export(GOLDEN / "tiny-qwen3.5", self.out, "--seq", "64,128", "--chunks", "2")
        packages += export(GOLDEN / "tiny-qwen3.5", self.out, "--seq", "24", "--past", "40", "--chunks", "3")
        packages += export(GOLDEN / "tiny-llama", self.out, "--seq", "64", "--chunks", "1")
        self.assertEqual(len(packages), 8)
        for item in packages:
            program = Program(item["path"])
            spec, block = program.spec, program.block
            self.assertEqual(spec.specificationVersion, 7)
            self.assertEqual(program.opset, "CoreML6")
            self.assertLessEqual({op.type for op in block.operations}, OPS)
            described = {f.name: list(f.type.multiArrayType.shape) for f in spec.description.input}
            self.assertEqual(described, program.inputs)
            made = {op.outputs[0].name: dims(op.outputs[0].type) for op in block.operations}
            results = {f.name: list(f.type.multiArrayType.shape) for f in spec.description.output}
            self.assertEqual(list(results), list(block.outputs))
            self.assertEqual(results, {name: made[name] for name in block.outputs})
            for feature in [*spec.description.input, *spec.description.output]:
                self.assertEqual(feature.type.multiArrayType.dataType, 65552, feature.name)
            # coremltools rebuilds the program: its types must be the declared ones.
            rebuilt = load_program(spec, specification_version=spec.specificationVersion,
                                   file_weights_dir=str(program.weights)).functions["main"]
            inferred = {var.name: list(var.shape) for op in rebuilt.operations for var in op.outputs}
            for op in block.operations:
                if op.type != "const":
                    self.assertEqual(inferred[op.outputs[0].name], dims(op.outputs[0].type), op.outputs[0].name)
            self.assertEqual([var.name for var in rebuilt.outputs], list(block.outputs))
            # Every constant of a layer's weight is in the file, and the file is nothing else.
            used = sum(2 * int(np.prod(dims(op.outputs[0].type))) for op in block.operations
                       if op.type == "const" and op.attributes["val"].WhichOneof("value") == "blobFileValue")
            size = (program.weights / "weight.bin").stat().st_size
            self.assertEqual(size, item["weight_bytes"])
            self.assertLess(size - used, 64 + 128 * len(block.operations))

    def test_the_same_bytes_each_time(self):
        first = {p["path"]: pathlib.Path(p["path"]) for p in export(GOLDEN / "tiny-llama", self.out, "--seq", "16,64")}
        before = {path: [f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()] for path, folder in first.items()}
        export(GOLDEN / "tiny-llama", self.out, "--seq", "16,64")
        after = {path: [f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()] for path, folder in first.items()}
        self.assertEqual(before, after)
        self.assertEqual(len(next(iter(before.values()))), 3)

    def test_states_are_those_of_transformers(self):
        golden = read_tensors(GOLDEN / "dictionary-3m" / "golden.safetensors")
        tensors = read_tensors(GOLDEN / "dictionary-3m" / "model.safetensors")
        table = next(value for name, value in tensors.items() if name.endswith("embed_tokens.weight"))
        programs = self.open("dictionary-3m", "--seq", "128", "--chunks", "2")
        ids = golden["len65.ids"]
        inputs = inputs_for(programs[0], ids, table, 16, 1e7)
        states, _ = chain(programs, inputs)
        for layer in range(3):
            kept = golden[f"len65.state.{layer}.conv_states.0"][:, 1:].T
            self.assertLess(relative(states[f"layer_{layer}_conv_out"][0, 0], kept), 5e-3, layer)
            kept = golden[f"len65.state.{layer}.recurrent_states.0"]
            self.assertLess(relative(states[f"layer_{layer}_recurrent_out"][0], kept), 5e-3, layer)
        for word in ("keys", "values"):
            rows = states[f"layer_3_{word}_out"][0][:, -len(ids):]
            self.assertLess(relative(rows, golden[f"len65.state.3.{word}"]), 5e-3, word)
        # What padding holds changes nothing: not even one bit of a state.
        noisy, _ = chain(programs, inputs_for(programs[0], ids, table, 16, 1e7, padding=np.random.default_rng(1)))
        for name, value in states.items():
            pad = 128 - len(ids) if name.endswith(("keys_out", "values_out")) else 0
            np.testing.assert_array_equal(noisy[name][:, :, pad:], value[:, :, pad:], name)

    def logits(self, model, seq, rotary, theta, chunks):
        golden = read_tensors(GOLDEN / model / "golden.safetensors")
        tensors = read_tensors(GOLDEN / model / "model.safetensors")
        find = lambda ending: next((v for k, v in tensors.items() if k.endswith(ending)), None)
        table, head = find("embed_tokens.weight"), find("lm_head.weight")
        norm = next(v for k, v in tensors.items() if k.endswith(".norm.weight") and ".layers." not in k)
        programs = self.open(model, "--seq", str(seq), "--chunks", str(chunks))
        ids = golden["ids"]
        _, hidden = chain(programs, inputs_for(programs[0], ids, table, rotary, theta))
        rows = hidden[:, -len(ids):].T
        normed = rows / np.sqrt((rows ** 2).mean(axis=1, keepdims=True) + 1e-6)
        normed = normed * (norm + (1 if "qwen" in model else 0))
        return normed @ (table if head is None else head).T, golden["logits"]

    def test_logits_are_those_of_transformers(self):
        for model, seq, rotary, theta, chunks in (("tiny-llama", 40, 16, 1e4, 2), ("tiny-qwen3.5", 192, 8, 1e7, 3)):
            with self.subTest(model=model):
                got, wanted = self.logits(model, seq, rotary, theta, chunks)
                self.assertLess(relative(got, wanted), 0.01)


if __name__ == "__main__":
    unittest.main()
