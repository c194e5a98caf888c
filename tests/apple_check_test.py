#!/usr/bin/env python3
"""baton-apple-check on the emulator: apple_check_test.py PROGRAM. Every probe gives one JSON line, one that hangs or crashes
costs its own line only, and what hardware is reported to refuse is found."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = None


def check(*arguments):
    done = subprocess.run([PROGRAM, "--emulate", *arguments], capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done, {line["probe"]: line for line in lines}


class AppleCheck(unittest.TestCase):
    def test_a_whole_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.jsonl")
            done, lines = check("--quick", "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as file:
                self.assertEqual(file.read(), done.stdout)
        self.assertIn("all kernels agree", lines["verdict"]["text"])
        self.assertIn("(emulated)", done.stderr)
        self.assertTrue(lines["system"]["emulated"])
        for name in ("head-ios16-bare", "head-ios18-bare", "start-up", "width-64", "surface-16384", "surface-65536",
                     "bank", "kernel-ffn_small", "coreml-cpu", "coreml-ane", "host"):
            self.assertTrue(lines[name]["ok"], lines[name])
        # What the emulator does as hardware is reported to do.
        self.assertFalse(lines["width-16"]["ok"])
        self.assertTrue(lines["width-16"]["all_zero"])
        self.assertFalse(lines["surface-8192"]["ok"])
        self.assertIn("surface-small", lines["surface-8192"]["error"])
        self.assertNotEqual(lines["bank"]["procedure_1"]["input_index"], 0)
        self.assertEqual(lines["numerics"]["profile"], "modern")
        self.assertTrue(lines["numerics"]["products_below_2_to_minus_14_kept"])
        # Tables that are off are seen, and within the bound.
        ffn = lines["kernel-ffn_small"]
        self.assertLess(ffn["equal_values"], ffn["values"])
        self.assertGreater(lines["host"]["plain_f32_gflop_s"], 0)
        self.assertTrue(lines["coreml-cpu"]["emulated"])

    def test_what_hangs_or_crashes_costs_one_line(self):
        start = time.monotonic()
        done, lines = check("--only", "hang", "--only", "crash", "--only", "numerics")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(lines["hang"]["timed_out_after_s"], 1)
        if "BATON_TEST_SANITIZED" not in os.environ:  # which ends the process itself
            self.assertEqual(lines["crash"]["signal"], 11)
        self.assertTrue(lines["numerics"]["ok"])
        self.assertIn("some probes", lines["verdict"]["text"])

    def test_usage(self):
        done = subprocess.run([PROGRAM, "--fast"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage", done.stderr)
        done, _ = check("--only", "host", "--json", "/no/such/folder/x")
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
