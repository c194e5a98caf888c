#!/usr/bin/env python3
"""`--kv` from outside: run, perplexity, inspect, batch, bench and a server's file, sealed states, refusals.

usage: kv_test.py PROGRAM   (then unittest's own options)
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
MODEL = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
TEXT = str(ROOT / "tests" / "data" / "golden" / "heldout.txt")
TYPES = ("f16", "bf16", "q8_0", "q4_0")


def baton(*arguments, stdin=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300, input=stdin)


def answer(*arguments):
    done = baton("run", "-m", MODEL, "-n", "12", "--temp", "0", "--json", *arguments, "a small lamp")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Kv(unittest.TestCase):
    def test_inspect_tells_the_bytes_of_each_type(self):
        told = json.loads(baton("inspect", "-m", MODEL, "--json").stdout)
        sizes = told["summary"]["kv_bytes_per_token"]
        values = 2 * (told["layers"] // 4) * told["kv_heads"]  # every fourth layer attends
        blocks = (told["head_dim"] + 31) // 32
        self.assertEqual(sizes, {"f16": values * told["head_dim"] * 2, "bf16": values * told["head_dim"] * 2,
                                 "q8_0": values * blocks * 34, "q4_0": values * blocks * 18})
        for kv in TYPES:
            told = json.loads(baton("inspect", "-m", MODEL, "--json", "--kv", kv).stdout)
            self.assertEqual([state["bytes_per_token"] for state in told["state"].values()], [sizes[kv]] * 2)
        text = baton("inspect", "-m", MODEL).stdout
        self.assertIn(", ".join(f"{kv} {sizes[kv]}" for kv in TYPES), text)

    def test_answers_are_of_the_type(self):
        plain = answer()
        self.assertEqual(plain["text"], answer("--kv", "f16")["text"])
        for kv in TYPES[1:]:
            told = answer("--kv", kv)
            self.assertIn(f"keys and values in {kv.upper()}", json.dumps(told))
            self.assertGreater(len(told["text"]), 0)
        self.assertIn("Q8_0", json.dumps(answer("--kv", "q4_0", "--decode", "cpu:kv=q8_0")))

    def test_proven_hand_overs(self):
        for source, target in (("ref:kv=q8_0", "cpu:kv=q8_0"), ("ref", "cpu:kv=q8_0"), ("cpu:kv=q8_0", "cpu"),
                               ("ref:kv=q4_0", "cpu:kv=q4_0"), ("cpu:kv=bf16", "ref:kv=bf16")):
            told = answer("--prefill", source, "--decode", target, "--verify-bridge", "all")
            self.assertTrue(told["bridge"]["verified"], (source, target, told["bridge"]))
            self.assertFalse(told.get("fallback"), (source, target))

    def test_states_in_files_carry_their_type(self):
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "a.state")
            for kv in TYPES:
                answer("--kv", kv, "--save-state", state)
                listed = json.loads(baton("state", "show", state, "--json").stdout)
                types = {section["type"] for section in listed["sections"] if section["kind"] in ("keys", "values")}
                self.assertEqual(types, {kv.upper()})
                for other in TYPES:
                    told = answer("--kv", other, "--load-state", state)
                    self.assertGreater(len(told["text"]), 0)
                os.remove(state)

    def test_perplexity_measures_what_a_type_costs(self):
        costs = {}
        for kv in TYPES:
            done = baton("perplexity", "-m", MODEL, "-f", TEXT, "-w", "128", "--chunks", "4", "--kv", kv,
                         "--reference-kv", "f16", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual((told["kv"], told["reference"]["kv"]), (kv, "f16"))
            costs[kv] = told["kld_mean"]
        self.assertEqual(costs["f16"], 0)
        self.assertTrue(0 < costs["bf16"] < costs["q4_0"] and 0 < costs["q8_0"] < costs["q4_0"], costs)
        for unit, other in (("cpu:kv=q8_0", "f16"), ("cpu:kv=f16", "q4_0")):
            done = baton("perplexity", "-m", MODEL, "-f", TEXT, "-w", "128", "--chunks", "4", "--unit", unit,
                         "--reference-kv", other, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual((told["kv"], told["reference"]["kv"]), (unit.split("=")[1], other))
            self.assertGreater(told["kld_mean"], 0)
        two = baton("perplexity", "-m", MODEL, "-m", MODEL, "-f", TEXT, "--reference-kv", "f16")
        self.assertEqual(two.returncode, 2)

    def test_batch_and_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = pathlib.Path(folder, "in.jsonl")
            lines.write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions",
                                         "body": {"model": "m", "prompt": "a lamp", "max_tokens": 4}}) + "\n")
            out = os.path.join(folder, "out.jsonl")
            done = baton("batch", "-m", MODEL, "--kv", "q8_0", str(lines), out)
            self.assertEqual(done.returncode, 0, done.stderr)
        done = baton("bench", "-m", MODEL, "--kv", "q8_0", "-p", "16", "-n", "4", "-r", "1", "--no-limits", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_any_case_and_the_head_of_bench(self):
        for kv, head in (("Q8_0", ", 1 threads, KV q8_0\n"), ("F16", ", 1 threads\n")):
            done = baton("bench", "-m", MODEL, "--kv", kv, "-p", "8", "-n", "2", "-r", "1", "-t", "1", "--no-limits",
                         "--no-check")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(head, done.stdout)

    def test_a_servers_file(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "baton.toml")
            for kv, code in (("q8_0", 0), ("q5_0", 2)):
                config.write_text(f'[[models]]\nname = "m"\npath = "{MODEL}"\nkv = "{kv}"\n')
                done = baton("serve", "--config", str(config), "--check-config")
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn("f16|bf16|q8_0|q4_0", done.stdout + done.stderr)

    def test_refusals_name_what_there_is(self):
        done = baton("run", "-m", MODEL, "--kv", "q5_0", "x")
        self.assertEqual(done.returncode, 2)
        for kv in TYPES:
            self.assertIn(kv, done.stderr)
        done = baton("run", "-m", MODEL, "--kv", "q8_0", "--prefill", "ane", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unit 'ane' has no choice of the type of keys and values", done.stderr)
        self.assertIn("ref, cpu; as an option", done.stderr)
        done = baton("inspect", "-m", MODEL, "--kv", "q8_0", "--unit", "ane")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unit 'ane' has no choice of the type of keys and values", done.stderr)

    def test_a_unit_with_other_types_says_how_each_is_written(self):
        for command in (("run", "-m", MODEL, "--decode", "cuda:driver=emulated", "x"),
                        ("inspect", "-m", MODEL, "--unit", "cuda:driver=emulated"),
                        ("bench", "-m", MODEL, "--unit", "cuda:driver=emulated", "-p", "8", "-n", "0")):
            done = baton(*command, "--kv", "q8_0")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--kv q8_0: unit 'cuda' has no such keys and values; --kv f16|bf16 is for it, and as an option cuda:kv=f32\n",
                          done.stderr)
            done = baton(*command, "--kv", "F32")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--kv: F32 is an option of the unit: cuda:kv=f32\n", done.stderr)
        unit = "cuda:driver=emulated"
        for flags, kind in ((("--kv", "bf16", "--decode", unit), "BF16"), (("--decode", unit + ",kv=f32"), "F32")):
            self.assertIn(f"keys and values in {kind}", json.dumps(answer(*flags)))


if __name__ == "__main__":
    unittest.main()
