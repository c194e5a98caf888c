#!/usr/bin/env python3
"""`baton quantize` and `baton imatrix` from outside: files that run, JSON fields, refusals that leave nothing behind.

usage: quantize_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = str(ROOT / "tests" / "data" / "golden" / "dictionary-3m")
HELDOUT = str(ROOT / "tests" / "data" / "golden" / "heldout.txt")


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120)


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.source = os.path.join(cls.folder.name, "bf16.gguf")
        done = run("convert", SMALL, cls.source, "--type", "BF16")
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def quantize(self, *arguments):
        done = run("quantize", *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_file_answers(self):
        out = self.path("q4.gguf")
        report = self.quantize(self.source, out, "Q4_K_M")
        self.assertEqual(report["bytes"], os.path.getsize(out))
        self.assertEqual(sum(report["types"].values()), report["tensors"])
        self.assertEqual(len(report["recipe_hash"]), 16)
        answer = json.loads(run("run", "-m", out, "--temp", "0", "-n", "8", "--ignore-eos", "--json", "What is a compiler?").stdout)
        self.assertEqual(len(answer["ids"]), 8)

    def test_same_recipe_same_file(self):
        first, second = self.path("a.gguf"), self.path("b.gguf")
        one = self.quantize(self.source, first, "H4_K_M", "--threads", "1")
        two = self.quantize(self.source, second, "h4_k_m", "--threads", "2")
        self.assertEqual(one["recipe_hash"], two["recipe_hash"])
        self.assertEqual(pathlib.Path(first).read_bytes(), pathlib.Path(second).read_bytes())

    def test_rules_of_the_user(self):
        out = self.path("rules.gguf")
        report = self.quantize(self.source, out, "Q8_0", "--tensor-type", "ffn_down=Q5_0", "--tensor-type", "blk.0.=F16")
        self.assertEqual(report["types"]["Q5_0"], 4)
        self.assertGreater(report["types"]["F16"], 2)

    def test_importance(self):
        matrix, out = self.path("imatrix.gguf"), self.path("weighted.gguf")
        done = run("imatrix", self.source, "--text", HELDOUT, "-o", matrix, "--chunks", "2", "-w", "64", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        measured = json.loads(done.stdout)
        self.assertEqual(measured["chunks"], 2)
        plain = self.quantize(self.source, self.path("plain.gguf"), "Q4_0")
        weighted = self.quantize(self.source, out, "Q4_0", "--imatrix", matrix)
        self.assertNotEqual(plain["recipe_hash"], weighted["recipe_hash"])
        self.assertIn("token_embd.weight", " ".join(weighted["notes"]))

    def test_refusals(self):
        once = self.path("once.gguf")
        self.quantize(self.source, once, "Q8_0")
        cut = self.path("cut.gguf")
        pathlib.Path(cut).write_bytes(pathlib.Path(once).read_bytes()[:4000])
        out = self.path("refused.gguf")
        cases = [
            ((self.source, out, "Q9"), 2, "Q4_K_M"),
            ((self.source, out, "Q8_0", "--tensor-type", "x=Q9"), 2, "IQ4_XS"),
            ((self.source, out, "Q8_0", "--tensor-type", "nothing"), 2, "PATTERN=TYPE"),
            ((self.source, out, "Q8_0", "--tensor-type", "a(=Q8_0"), 2, "parenthesis"),
            ((self.path("none.gguf"), out, "Q8_0"), 1, "none.gguf"),
            ((once, out, "Q4_K_M"), 1, "--allow-requantize"),
            ((self.source, self.source, "Q8_0"), 2, "another name"),
            ((self.source, out, "Q8_0", "--imatrix", once), 1, "general.type"),
            ((self.source, out, "Q8_0", "--imatrix", cut), 1, "cut.gguf"),
            ((SMALL, out, "Q8_0"), 1, "baton convert"),
        ]
        for arguments, code, part in cases:
            done = run("quantize", *arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assertIn(part, done.stderr)
            if "--imatrix" in arguments:
                self.assertEqual(done.stderr.count(arguments[-1]), 1, done.stderr)
            self.assertFalse(os.path.exists(out), arguments)


if __name__ == "__main__":
    unittest.main()
