#!/usr/bin/env python3
"""`baton ladder` from outside: JSON rows, the page, temporary files after success and interrupts, errors.

usage: ladder_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = str(ROOT / "tests" / "data" / "golden" / "dictionary-3m")
QUANTIZED = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
TEXT = str(ROOT / "tests" / "data" / "golden" / "heldout.txt")
SMALL = ("--window", "64", "--chunks", "12", "-p", "16", "-n", "4", "-r", "2")
PROMISED = {"type", "bytes", "ppl", "dppl", "dppl_error", "kld_mean", "top1", "prefill_tps", "decode_tps", "pareto"}


class Ladder(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "tmp").mkdir()
        self.environment = dict(os.environ, TMPDIR=str(self.folder / "tmp"))

    def tearDown(self):
        self.scratch.cleanup()

    def run_ladder(self, *arguments):
        return subprocess.run([PROGRAM, "ladder", *arguments], capture_output=True, text=True, timeout=120, env=self.environment)

    def left_over(self):
        return list((self.folder / "tmp").iterdir())

    def test_rows_page_and_kept_files(self):
        page, keep = self.folder / "page.html", self.folder / "keep"
        done = self.run_ladder(SOURCE, "--text", TEXT, "--types", "Q8_0,Q4_0", *SMALL, "--json", "--html", str(page), "--keep",
                               str(keep))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual([row["type"] for row in rows], ["BF16", "Q8_0", "Q4_0"])
        for row in rows:
            self.assertLessEqual(PROMISED, row.keys())
            self.assertGreater(row["decode_tps"], 0)
            self.assertEqual(row["windows"], 12)
        source, q8, q4 = rows
        self.assertEqual((source["source"], source["kld_mean"], source["dppl"], source["top1"]), (True, 0, 0, 1))
        self.assertLess(q8["kld_mean"], q4["kld_mean"])
        self.assertTrue(q4["against_next_larger"]["kld_mean"]["differs"])
        self.assertEqual(os.path.getsize(q4["file"]), q4["bytes"])
        self.assertEqual(len(list(keep.iterdir())), 2)
        if sys.platform == "linux":
            self.assertGreater(source["peak_memory_bytes"], source["bytes"])
        self.assertEqual(self.left_over(), [])
        head, body = page.read_text().split("\n", 1)
        self.assertEqual(head, "<!doctype html>")
        root = xml.etree.ElementTree.fromstring(body)
        self.assertEqual(len(root.findall(".//svg")), 1)  # two rounds are no verdict on speed, and no chart of it
        self.assertEqual(len(root.findall(".//table/tr")), 4)

    def test_table_and_verdict_without_speeds(self):
        done = self.run_ladder(SOURCE, "--text", TEXT, "--types", "Q8_0,Q5_0", *SMALL[:-1], "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| BF16 (source) |", done.stdout)
        self.assertIn("On the Pareto front of size, KL divergence (no speeds were measured): BF16, Q8_0, Q5_0.", done.stdout)
        self.assertIn("Speed: not measured.", done.stdout)

    def test_errors(self):
        for arguments, code, words in (
                ((SOURCE,), 2, "--text"),
                ((SOURCE, "--text", TEXT, "--types", "Q8_0,Q9"), 2, "no type named 'Q9'; there are: "),
                ((SOURCE, "--text", TEXT, "--window", "100000"), 1, "do not fill a window"),
                ((SOURCE, "--text", str(self.folder / "none")), 1, "none"),
                ((str(self.folder / "none.gguf"), "--text", TEXT), 1, "none.gguf"),
                ((QUANTIZED, "--text", TEXT, "--types", "Q4_0"), 1, "--allow-requantize"),
                ((SOURCE, "--text", TEXT, "--unit", "tpu"), 2, "tpu"),
        ):
            done = self.run_ladder(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertEqual(self.left_over(), [])

    def test_interrupted_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([PROGRAM, "ladder", SOURCE, "--text", TEXT, "-r", "1000", "--chunks", "2", "--types", "Q8_0"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
            deadline = time.monotonic() + 60
            while not self.left_over() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.3)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, err)
            self.assertEqual(out, "")
            self.assertEqual(self.left_over(), [])

    def test_emulated_speeds_are_labelled_and_judge_nothing(self):
        page = self.folder / "emulated.html"
        arguments = (SOURCE, "--unit", "ane", "--text", TEXT, "--types", "Q8_0", "-w", "16", "--chunks", "2", "-r", "1", "-p", "4",
                     "-n", "2", "--html", str(page))
        text = self.run_ladder(*arguments).stdout
        self.assertIn("| prefill t/s (emulated) | decode t/s (emulated) |", text)
        self.assertIn("(speed takes no part: emulated)", text)
        self.assertIn("<th>decode t/s (emulated)</th>", page.read_text())
        self.assertNotIn("and decode speed", page.read_text())
        row = json.loads(self.run_ladder(*arguments, "--json").stdout)[0]
        self.assertEqual(row["speed_quality"], "emulated")

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        arguments = [PROGRAM, "ladder", SOURCE, "--text", TEXT, "-r", "0", "--chunks", "2", "--types", "Q8_0", "-w", "64"]
        killed = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment)
        while not self.left_over() and killed.poll() is None:
            time.sleep(0.005)
        killed.kill()
        killed.wait()
        self.assertTrue(self.left_over())
        done = subprocess.run(arguments, capture_output=True, text=True, env=self.environment, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.left_over(), [])


if __name__ == "__main__":
    unittest.main()
