#!/usr/bin/env python3
"""The bridge proof from outside: what is said, in words and in JSON, when it passes and when there is nothing to prove.

usage: proof_test.py PROGRAM   (then unittest's own options)
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
SMALL = ROOT / "tests" / "data" / "golden" / "dictionary-3m"


class Proof(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        # The model through links, so that its bounds are kept here.
        self.model = pathlib.Path(self.folder.name) / "model"
        self.model.mkdir()
        for file in SMALL.iterdir():
            if file.name != "bounds.json":  # of other tests
                (self.model / file.name).symlink_to(file)
        self.environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(self.folder.name, "cache"))
        self.state = os.path.join(self.folder.name, "s.state")

    def run_baton(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, "run", "-m", str(self.model), "--temp", "0", *arguments], capture_output=True,
                              text=True, timeout=300, env=self.environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def bridge(self, *arguments):
        done = self.run_baton(*arguments, "--json")
        return json.loads(done.stdout)["bridge"], done.stderr

    def test_bounds_are_measured_once_and_printed(self):
        words = ("--prefill", "ref", "--decode", "cpu", "--verify-bridge", "all", "-n", "6", "What is a compiler?")
        bridge, stderr = self.bridge(*words)
        self.assertIn("measuring what honest states differ by, ref -> cpu", stderr)
        self.assertTrue((self.model / "bounds.json").exists())
        self.assertEqual(bridge["level"], "proven")
        self.assertIs(bridge["verified"], True)
        self.assertEqual(bridge["proof"]["result"], "passed")
        self.assertEqual(bridge["proof"]["factor"], 3)
        self.assertGreater(bridge["proof"]["worst"]["bound"], bridge["proof"]["worst"]["value"])
        self.assertLess(bridge["tolerance"], 1, "a measured bound, not a worst case")
        again, stderr = self.bridge(*words)
        self.assertEqual(stderr, "")
        self.assertEqual(again["proof"], bridge["proof"])
        text = self.run_baton(*words).stderr
        for part in ("proven", "passed: ref -> cpu", "3 x the largest honest difference", "allowed", "rows agree"):
            self.assertIn(part, text)
        (self.model / "bounds.json").write_text("{")
        healed, stderr = self.bridge(*words)
        self.assertIn("measured again", stderr)
        self.assertEqual(healed["proof"], bridge["proof"])

    def test_a_saved_state_is_proven_on_the_unit_that_made_it_and_on_another(self):
        self.run_baton("--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        arguments = ("--load-state", self.state, " the source code", "-n", "4", "--verify-bridge", "sample")
        own, stderr = self.bridge(*arguments)
        self.assertEqual(own["level"], "proven")
        self.assertIn("the same steps and bits", own["proof"]["between"])
        self.assertEqual(own["proof"]["worst"]["value"], 0)
        self.assertEqual(own["max_abs_dlogit"], 0)
        self.assertEqual(stderr, "")
        other, _ = self.bridge(*arguments, "--decode", "ref")
        self.assertEqual(other["level"], "proven")
        self.assertIs(other["verified"], True)
        self.assertEqual(other["proof"]["between"], "cpu -> ref")
        self.assertGreater(other["proof"]["worst"]["value"], 0)

    def test_a_state_handed_over_and_saved_is_proven_too(self):
        self.run_baton("--prefill", "ref", "--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        bridge, _ = self.bridge("--load-state", self.state, " the source code", "-n", "2", "--verify-bridge", "all")
        self.assertEqual(bridge["level"], "proven")
        self.assertIn("ref -> cpu", bridge["proof"]["between"])

    def test_nothing_to_prove_is_said(self):
        for arguments, why in ((("What is it?",), "one unit does everything"),
                               (("--prefill", "ref", "--ids", "5"), "the prompt is one token")):
            bridge, stderr = self.bridge(*arguments, "-n", "2", "--verify-bridge", "all")
            self.assertIn("nothing was proven", stderr)
            self.assertIn(why, stderr)
            self.assertIsNone(bridge["verified"])
            self.assertEqual(bridge["level"], "none")
            self.assertIn(why, bridge["unproven"])
        self.assertIn("NOT MADE", self.run_baton("-n", "2", "--verify-bridge", "all", "What is it?").stderr)

    def test_an_alias_is_never_called_sealed(self):
        arguments = ("--strategy", "handoff", "-n", "2", "What is it?")
        bridge, stderr = self.bridge(*arguments)
        self.assertEqual((bridge["kind"], bridge["level"], bridge["verified"]), ("alias", "none", False))
        self.assertEqual(stderr, "")
        self.assertNotIn("sealed:", self.run_baton(*arguments).stderr)
        proven, _ = self.bridge(*arguments, "--verify-bridge", "sample")
        self.assertEqual((proven["kind"], proven["level"], proven["verified"]), ("alias", "proven", True))

    def test_a_maker_that_cannot_run_here_leaves_it_sealed(self):
        self.environment["BATON_CPU_KERNELS"] = "scalar"
        self.run_baton("--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        del self.environment["BATON_CPU_KERNELS"]
        bridge, stderr = self.bridge("--load-state", self.state, " the source", "-n", "2", "--verify-bridge", "sample")
        self.assertEqual(bridge["level"], "sealed")
        self.assertIsNone(bridge["verified"])
        self.assertIn("the state was made by", stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
