#!/usr/bin/env python3
"""`baton perplexity` from outside: windows, JSON fields, comparison with a reference, files per token, errors.

usage: perplexity_test.py PROGRAM   (then unittest's own options)
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
SOURCE = str(GOLDEN / "dictionary-3m")
QUANTIZED = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
TEXT = str(GOLDEN / "heldout.txt")


def run(*arguments):
    return subprocess.run([PROGRAM, "perplexity", *arguments], capture_output=True, text=True, timeout=120)


class Perplexity(unittest.TestCase):
    def test_one_model(self):
        done = run("-m", QUANTIZED, "--text", TEXT, "--window", "64", "--chunks", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\nPPL = \d+\.\d{4} \u00b1 \d+\.\d{4} ")
        self.assertIn("tokens 33 to 63 of each counted: 124", done.stdout)
        self.assertIn("window 4/4 PPL", done.stderr)

    def test_one_token_has_no_error(self):
        arguments = ("-m", QUANTIZED, "--text", TEXT, "-w", "4", "--chunks", "1")
        self.assertRegex(run(*arguments).stdout, r"\nPPL = \d+\.\d{4} \u00b1 unknown\n")
        answer = json.loads(run(*arguments, "--reference", SOURCE, "--json").stdout)
        self.assertEqual(answer["counted"], 1)
        for name in ("ppl", "dppl", "kld_mean", "top1"):
            self.assertIsNotNone(answer[name])
            self.assertIsNone(answer[name + "_error"], name)

    def test_against_a_reference_with_values_per_token(self):
        with tempfile.TemporaryDirectory() as folder:
            lines, table = os.path.join(folder, "t.jsonl"), os.path.join(folder, "t.csv")
            arguments = ("-m", QUANTIZED, "-m", SOURCE, "--reference", SOURCE, "--text", TEXT, "--window", "64", "--chunks", "4")
            done = run(*arguments, "--per-token", lines, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = json.loads(done.stdout)
            self.assertEqual((answer["windows"], answer["counted"], answer["counted_from"]), (4, 124, 33))
            quantized, same = answer["models"]
            for name in ("dppl", "dppl_error", "kld_mean", "kld_p99", "kld_max", "rms_dp"):
                self.assertEqual(same[name], 0, name)
            self.assertEqual((same["top1"], same["ppl_ratio"]), (1, 1))
            self.assertGreater(quantized["kld_mean"], 0)
            self.assertEqual(answer["kld_mean"], quantized["kld_mean"])
            self.assertAlmostEqual(quantized["dppl"], quantized["ppl"] - answer["reference"]["ppl"], places=9)

            rows = [json.loads(line) for line in pathlib.Path(lines).read_text().splitlines()]
            self.assertEqual(len(rows), 2 * 124)
            mine = [row for row in rows if row["model"] == QUANTIZED]
            self.assertEqual([row["token"] for row in mine[:31]], list(range(33, 64)))
            self.assertAlmostEqual(math.exp(sum(row["nll"] for row in mine) / 124), quantized["ppl"], places=6)
            self.assertAlmostEqual(sum(row["kld"] for row in mine) / 124, quantized["kld_mean"], places=9)

            self.assertEqual(run(*arguments, "--per-token", table).returncode, 0)
            head, *body = pathlib.Path(table).read_text().splitlines()
            self.assertEqual(head, "model,window,token,id,nll,nll_reference,kld,same_top")
            self.assertEqual(len(body), 2 * 124)

    def test_an_adapter_that_is_missing_is_named(self):
        done = run("-f", str(TEXT), "-w", "32", "--chunks", "1", "--lora", "/nowhere/adapter")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/adapter: No such file", done.stderr)

    def test_errors(self):
        with tempfile.TemporaryDirectory() as folder:
            short = os.path.join(folder, "short.txt")
            pathlib.Path(short).write_text("Ten words are not enough.\n")
            for arguments, code, words in (
                    (("-m", QUANTIZED), 2, "--text"),
                    (("-m", QUANTIZED, "--text", short), 1, "tokens do not fill a window of 512"),
                    (("-m", QUANTIZED, "--text", os.path.join(folder, "none.txt")), 1, "none.txt"),
                    (("-m", QUANTIZED, "--text", TEXT, "--reference", os.path.join(folder, "none.gguf")), 1, "none.gguf"),
                    (("-m", QUANTIZED, "--text", TEXT, "--reference", str(GOLDEN / "tiny-llama")), 1, "probabilities cannot be"),
                    (("-m", QUANTIZED, "--text", TEXT, "--unit", "tpu"), 2, "tpu"),
                    (("-m", QUANTIZED, "--text", TEXT, "--window", "64", "--count-from", "64"), 2, "--count-from 64"),
                    (("-m", QUANTIZED, "--text", TEXT, "--window", "2"), 2, "--window"),
            ):
                done = run(*arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
