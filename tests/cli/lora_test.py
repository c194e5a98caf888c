#!/usr/bin/env python3
"""--lora in the commands that measure, show and embed: `run` and `perplexity` have tests of their own.

usage: lora_test.py PROGRAM   (then unittest's own options)
"""
import array
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
SMALL = GOLDEN / "dictionary-3m"
BERT = GOLDEN / "encoders" / "bert"
RANK, ALPHA = 2, 5


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def read_tensors(path):
    """Names to shapes and values, of F32 and BF16."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, part in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = part["data_offsets"]
        values = data[8 + length + begin:8 + length + end]
        if part["dtype"] == "BF16":
            values = b"".join(b"\0\0" + values[i:i + 2] for i in range(0, len(values), 2))
        tensors[name] = (part["shape"], array.array("f", values))
    return tensors


def write_tensors(path, tensors):
    header, body = {}, b""
    for name, (shape, values) in tensors.items():
        data = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_adapter(folder, modules):
    """A PEFT folder for modules of these names and shapes; what it adds to each matrix."""
    draw = random.Random(3)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA}))
    tensors, added = {}, {}
    for name, (rows, columns) in modules.items():
        a = [draw.gauss(0, 0.2) for _ in range(RANK * columns)]
        b = [draw.gauss(0, 0.2) for _ in range(rows * RANK)]
        tensors[f"base_model.model.{name}.lora_A.weight"] = ([RANK, columns], a)
        tensors[f"base_model.model.{name}.lora_B.weight"] = ([rows, RANK], b)
        added[name] = [ALPHA / RANK * sum(b[row * RANK + k] * a[k * columns + column] for k in range(RANK))
                       for row in range(rows) for column in range(columns)]
    write_tensors(folder / "adapter_model.safetensors", tensors)
    return added


class Lora(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, True)

    def decoder_adapter(self):
        config = json.loads((SMALL / "config.json").read_text())
        rows = config["num_key_value_heads"] * config["head_dim"]
        write_adapter(self.folder / "adapter", {"model.layers.3.self_attn.v_proj": (rows, config["hidden_size"])})
        return self.folder / "adapter"

    def test_inspect_shows_what_is_in_it(self):
        adapter = self.decoder_adapter()
        done = run("inspect", SMALL, "--lora", f"{adapter}=0.5", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        (shown,) = json.loads(done.stdout)["adapters"]
        self.assertEqual((shown["file"], shown["strength"], shown["ranks"]), (str(adapter), 0.5, [RANK]))
        (tensor,) = shown["tensors"]
        self.assertEqual(tensor["name"], "base_model.model.model.layers.3.self_attn.v_proj.lora_A.weight")
        self.assertEqual((tensor["rank"], tensor["scale"]), (RANK, 0.5 * ALPHA / RANK))
        (matrix,) = tensor["matrices"]
        self.assertTrue(matrix.startswith("layers.3.attn."), matrix)
        self.assertEqual(shown["parameters"], RANK * (tensor["rows"] + tensor["columns"]))
        text = run("inspect", SMALL, "--lora", f"{adapter}=0.5").stdout
        self.assertIn(f"adapter {adapter}: 1 matrices, rank {RANK}", text)
        self.assertIn(matrix, text)
        self.assertNotIn("adapters", json.loads(run("inspect", SMALL, "--json").stdout))

    def test_bench_measures_the_model_with_it(self):
        adapter = self.decoder_adapter()
        words = ("bench", SMALL, "-p", "8", "-n", "4", "-r", "1", "--no-limits", "-t", "1", "-o", "json", "--load")
        done = run(*words, "--lora", adapter)
        self.assertEqual(done.returncode, 0, done.stderr)
        plain = run(*words)
        rows, plain_rows = ([row for row in json.loads(each.stdout) if "model_n_params" in row] for each in (done, plain))
        self.assertEqual(len(rows), 2)
        self.assertTrue(all(row["lora"] == [str(adapter)] for row in rows), rows)
        self.assertGreater(rows[0]["model_n_params"], plain_rows[0]["model_n_params"])
        self.assertNotIn("lora", plain_rows[0])
        done = run("bench", SMALL, "--pipelines", "--lora", adapter)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--lora does not go with --pipelines", done.stderr)

    def test_what_is_no_adapter_is_refused_by_each(self):
        for words in (("bench", SMALL, "-p", "8", "-n", "0", "-r", "1", "--no-limits"), ("inspect", SMALL),
                      ("embed", "-m", BERT, "--ids", "1,2")):
            for path, words_of in ((self.folder / "none", "No such file or directory (of --lora)"),
                                   (f"{self.folder}=much", "behind '=' stands the adapter's scale")):
                done = run(*words, "--lora", path)
                self.assertNotEqual(done.returncode, 0, words)
                self.assertIn(words_of, done.stderr)

    def vector(self, model, *more):
        done = run("embed", "-m", model, "--ids", "1,7,9,33,2", "--unit", "ref", "--pooling", "mean", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_vectors_of_an_encoder_are_those_of_the_merge(self):
        weights = read_tensors(BERT / "model.safetensors")
        modules = {}
        for end in ("attention.self.query", "attention.output.dense", "intermediate.dense"):
            (name,) = [name for name in weights if name.endswith(f"layer.1.{end}.weight")]
            modules[name[:-len(".weight")]] = weights[name][0]
        added = write_adapter(self.folder / "adapter", modules)
        merged = self.folder / "merged"
        merged.mkdir()
        shutil.copy(BERT / "config.json", merged)
        for name, values in added.items():
            shape, old = weights[f"{name}.weight"]
            weights[f"{name}.weight"] = (shape, [x + y for x, y in zip(old, values)])
        write_tensors(merged / "model.safetensors", weights)
        plain, by_adapter, of_merge = self.vector(BERT), self.vector(BERT, "--lora", self.folder / "adapter"), self.vector(merged)
        self.assertLess(max(abs(x - y) for x, y in zip(by_adapter, of_merge)), 1e-4)
        self.assertGreater(max(abs(x - y) for x, y in zip(by_adapter, plain)), 1e-2)
        self.assertEqual(self.vector(BERT, "--lora", f"{self.folder / 'adapter'}=0"), plain)

    def test_an_adapter_of_another_model_is_refused_by_its_tensor(self):
        adapter = self.decoder_adapter()
        done = run("embed", "-m", BERT, "--ids", "1,2", "--lora", adapter)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("v_proj", done.stderr)


if __name__ == "__main__":
    unittest.main()
