#!/usr/bin/env python3
"""`baton state`: the state of a prompt through the files of other projects and back, going on from it, and refusals.

usage: state_test.py PROGRAM   (then unittest's own options)
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
GOLDEN = ROOT / "tests" / "data" / "golden"
STATES = ROOT / "tests" / "data" / "state"
SMALL = str(GOLDEN / "dictionary-3m")
TILED = str(GOLDEN / "tiny-qwen3.5")
LLAMA = str(GOLDEN / "tiny-llama")
IDS = ",".join(str(3 + 7 * i % 200) for i in range(21))


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


class State(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ok(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def save(self, model, name, *prompt):
        self.ok("run", "-m", model, "--raw", *prompt, "-n", "0", "--save-state", self.path(name), "--dump-logits", self.path("logits"))
        return self.path(name)

    def test_through_every_format_and_on_from_there(self):
        first, second = "The compiler reads", " the source code and"
        seal = self.save(SMALL, "seal", first)
        whole = json.loads(self.ok("run", "-m", SMALL, "--raw", first + second, "-n", "12", "--json"))["ids"]
        for to, more in (("anelms", ["--kv-capacity", "64"]), ("anelm-cache", []), ("mlx", ["--type", "as-is"])):
            with self.subTest(to=to):
                out, back = self.path(to), self.path(to + ".seal")
                made = json.loads(self.ok("state", "convert", seal, out, "-m", SMALL, "--to", to, "--json", *more))
                self.assertEqual((made["from"], made["to"], made["bytes"]), ("seal", to, os.path.getsize(out)))
                self.assertEqual(os.stat(out).st_mode & 0o777, 0o600)
                listed = json.loads(self.ok("state", "show", out, "--json"))
                self.assertEqual((listed["format"], listed["position"]), (to, made["position"]))
                self.assertEqual(len(listed["sections"]), made["sections"])
                prompt = [] if to == "mlx" else ["--raw", "-p", first]
                self.ok("state", "convert", out, back, "-m", SMALL, *prompt)
                resumed = json.loads(self.ok("run", "-m", SMALL, "--load-state", back, second, "-n", "12", "--json"))["ids"]
                self.assertEqual(resumed, whole)
        self.assertEqual(pathlib.Path(self.path("mlx.seal")).read_bytes(), pathlib.Path(seal).read_bytes())

    def test_anelms_logits_are_those_of_the_run(self):
        seal = self.save(SMALL, "seal", "What is water?")
        made = json.loads(self.ok("state", "convert", seal, self.path("a"), "-m", SMALL, "--to", "anelms", "--json"))
        self.assertEqual(made["logits"], "computed by cpu")
        self.ok("state", "convert", self.path("a"), self.path("b"), "-m", SMALL, "--raw", "-p", "What is water?", "--dump-logits",
                self.path("dumped"))
        self.assertEqual(pathlib.Path(self.path("dumped")).read_bytes(), pathlib.Path(self.path("logits")).read_bytes())
        self.ok("state", "convert", seal, self.path("c"), "-m", SMALL, "--to", "anelms", "--logits", self.path("logits"))
        self.assertEqual(pathlib.Path(self.path("a")).read_bytes(), pathlib.Path(self.path("c")).read_bytes())

    def test_llama_states_go_to_mlx_only(self):
        self.ok("run", "-m", LLAMA, "--ids", IDS, "-n", "0", "--save-state", self.path("seal"))
        refused = run("state", "convert", self.path("seal"), self.path("out"), "-m", LLAMA, "--to", "anelms")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("gated DeltaNet", refused.stderr)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_refusals_are_1_and_say_why(self):
        seal = self.save(SMALL, "seal", "What is water?")
        anelms = self.path("anelms")
        self.ok("state", "convert", seal, anelms, "-m", SMALL, "--to", "anelms", "--kv-capacity", "16")
        cut = self.path("cut")
        pathlib.Path(cut).write_bytes(pathlib.Path(anelms).read_bytes()[:-4])
        text = self.path("text")
        pathlib.Path(text).write_text("not a state")
        out = self.path("out")
        for arguments, words in (
                ((anelms, out, "-m", SMALL), "do not name their tokens"),
                ((anelms, out, "-m", SMALL, "--ids", "1,2"), "the prompt given has 2"),
                ((anelms, out, "-m", SMALL, "--ids", "1,2,3,4,99999"), "token 99999"),
                ((anelms, out, "-m", TILED, "--ids", "1"), "a state of another model"),
                ((seal, out, "-m", TILED, "--to", "mlx"), "a state of another model"),
                ((cut, out, "-m", SMALL, "--ids", "1"), cut),
                ((text, out, "-m", SMALL), "no state file that is known"),
                ((self.path("none"), out, "-m", SMALL), "none"),
                ((seal, out, "-m", SMALL, "--to", "anelms", "--kv-capacity", "2"), "capacity of 2"),
                ((seal, out, "-m", SMALL, "--to", "anelms", "--logits", text), "f32"),
                ((STATES / "anelms.bin", out, "-m", SMALL, "--ids", "3,1,4"), "num_layers is 2")):
            with self.subTest(arguments=arguments):
                done = run("state", "convert", *arguments)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertFalse(os.path.exists(out))
        self.assertEqual(run("state", "show", cut).returncode, 1)
        self.assertEqual(run("state", "convert", seal, out, "--to", "npz").returncode, 2)
        self.assertEqual(run("state").returncode, 2)

    def test_show_lists_a_seal_and_refuses_a_damaged_header(self):
        seal = self.save(SMALL, "seal", "What is water?")
        listed = json.loads(self.ok("state", "show", seal, "--json"))
        self.assertEqual(listed["format"], "seal")
        self.assertEqual(len(listed["tokens"]), listed["position"])
        self.assertEqual(len(listed["sections"]), 8)
        self.assertIn("recurrent", self.ok("state", "show", seal))
        damaged = bytearray(pathlib.Path(seal).read_bytes())
        damaged[90] ^= 1
        pathlib.Path(seal).write_bytes(damaged)
        refused = run("state", "show", seal)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("header checksum", refused.stderr)


if __name__ == "__main__":
    unittest.main()
