#!/usr/bin/env python3
"""`baton embed` from outside: vectors, texts from standard input, ranks, JSON fields, errors.

usage: embed_test.py PROGRAM   (then unittest's own options)
"""
import json
import math
import pathlib
import shutil
import string
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
BERT = ROOT / "tests" / "data" / "golden" / "tiny-bert"
DECODER = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")


def run(*arguments, stdin=""):
    return subprocess.run([PROGRAM, "embed", *arguments], capture_output=True, text=True, timeout=120, input=stdin)


class Embed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name) / "tiny"
        path.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(BERT / name, path)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"]
        words += [c for c in string.ascii_lowercase] + ["##" + c for c in string.ascii_lowercase]
        (path / "vocab.txt").write_text("\n".join(words) + "\n")
        cls.model = str(path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_line_for_each_text(self):
        done = run("-m", self.model, "hello world", "abc")
        self.assertEqual(done.returncode, 0, done.stderr)
        vectors = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([len(vector) for vector in vectors], [96, 96])
        for vector in vectors:
            self.assertAlmostEqual(math.fsum(x * x for x in vector), 1, places=5)
        self.assertEqual(run("-m", self.model, stdin="hello world\n\nabc\n").stdout, done.stdout)

    def test_json(self):
        done = run("-m", self.model, "hello", "--ids", "2,5,6,3", "--dimensions", "8", "--unit", "cpu", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["unit"], answer["placed"], answer["pooling"], answer["normalized"]), ("cpu", "cpu: as asked", "mean", True))
        self.assertEqual((answer["tokens"], answer["dimensions"], answer["tokens_max"]), (7, 8, 128))
        self.assertEqual([item["tokens"] for item in answer["embeddings"]], [3, 4])
        self.assertEqual([item["index"] for item in answer["embeddings"]], [0, 1])
        self.assertEqual([len(item["embedding"]) for item in answer["embeddings"]], [8, 8])

    def test_small_encoders_are_placed_by_size(self):
        answer = json.loads(run("-m", self.model, "hello", "--json").stdout)
        self.assertEqual(answer["unit"], "ane")
        self.assertTrue(answer["placed"].startswith("ane: a small encoder"), answer["placed"])
        self.assertTrue(answer["emulated"])
        exact = json.loads(run("-m", self.model, "hello", "--json", "--unit", "ref").stdout)
        pairs = zip(answer["embeddings"][0]["embedding"], exact["embeddings"][0]["embedding"])
        self.assertLess(max(abs(a - b) for a, b in pairs), 2e-3)

    def test_decoders_by_their_last_token(self):
        answer = json.loads(run("-m", DECODER, "a word", "--json").stdout)
        self.assertEqual((answer["unit"], answer["placed"], answer["pooling"]), ("cpu", "cpu: a decoder", "last"))

    def test_ranks(self):
        done = run("-m", self.model, "--query", "hello", "world", "hello", "--json", "--unit", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(done.stdout)["results"]
        self.assertEqual([item["index"] for item in results], [1, 0])
        self.assertAlmostEqual(results[0]["relevance_score"], 1, places=5)
        self.assertRegex(run("-m", self.model, "--query", "hello", "world", "--unit", "cpu").stdout, r"^-?\d\.\d{4}  world\n$")

    def test_errors(self):
        cases = (((), "--model"), (("-m", self.model, "--ids", "2,x"), "x"), (("-m", self.model, "--ids", "999"), "token 999"),
                 (("-m", self.model, "a", "--dimensions", "97"), "dimensions 97"), (("-m", self.model, "a", "--prompt", "q"), "prompt 'q'"),
                 (("-m", self.model, "a", "--unit", "gpu9"), "gpu9"), (("-m", self.model, "a", "--pooling", "max"), "max"),
                 (("-m", self.model), "no texts"), (("-m", self.model, "a " * 200), "202 tokens: the model takes 128"))
        for arguments, word in cases:
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
            self.assertIn(word, done.stderr)
        self.assertEqual(run("-m", self.model, "a " * 200, "--truncate", "--unit", "cpu").returncode, 0)

    def test_other_commands_name_it(self):
        done = subprocess.run([PROGRAM, "run", "-m", self.model, "hello"], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("baton embed", done.stderr)
        shown = subprocess.run([PROGRAM, "inspect", self.model], capture_output=True, text=True, timeout=60)
        self.assertEqual(shown.returncode, 0, shown.stderr)


if __name__ == "__main__":
    unittest.main()
