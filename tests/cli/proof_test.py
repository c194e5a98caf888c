#!/usr/bin/env python3
"""The bridge proof from outside: what is said, in words and in JSON, when it passes and when there is nothing to prove.

usage: proof_test.py PROGRAM   (then unittest's own options)
"""
import array
import ctypes
import ctypes.util
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
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
        return self.bridge_of(done), done.stderr

    @staticmethod
    def bridge_of(done):
        return json.loads(done.stdout)["bridge"]

    def test_bounds_are_measured_once_and_printed(self):
        words = ("--prefill", "ref", "--decode", "cpu", "--verify-bridge", "all", "-n", "6", "What is a compiler?")
        bridge, stderr = self.bridge(*words)
        self.assertIn("measuring what honest states differ by, ref -> cpu, once for this model: it is kept\n", stderr)
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

    def test_measuring_shows_its_time_and_can_be_stopped(self):
        command = [PROGRAM, "run", "-m", str(self.model), "--prefill", "ref", "--verify-bridge", "all", "-t", "1", "Why?"]
        leader, follower = pty.openpty()
        measuring = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower, env=self.environment)
        os.close(follower)
        seen = b""
        # Nothing is shown in the first half second, and a quick machine has ended by then: it may run for a twentieth of
        # the time until it is seen.
        while not re.search(rb"ref -> cpu \d+ %, \d+ s left", seen):
            measuring.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            measuring.send_signal(signal.SIGCONT)
            if select.select([leader], [], [], 0.005)[0]:
                seen += os.read(leader, 65536)  # an error at the end
        measuring.send_signal(signal.SIGINT)
        while b"interrupted\r\n" not in seen:
            seen += os.read(leader, 65536)
        self.assertEqual(measuring.wait(timeout=60), 130)
        os.close(leader)
        self.assertFalse((self.model / "bounds.json").exists())

    # Elsewhere than on a terminal too, where it takes long: here it stands still for a while.
    def test_measuring_says_how_far_it_is_now_and_then(self):
        units = ("--prefill", "cuda:driver=emulated", "--decode", "cpu")
        command = [PROGRAM, "run", "-m", str(self.model), *units, "--verify-bridge", "sample", "-t", "1", "-n", "1", "Why?"]
        self.assertNotIn(" %", self.run_baton(*units, "--verify-bridge", "off", "-n", "1", "Why?").stderr)
        measuring = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.environment)
        said = measuring.stderr.readline()
        self.assertEqual(said, "baton: measuring what honest states differ by, cuda (emulated) -> cpu, once for this model: it is kept\n")
        time.sleep(0.05)  # it has begun
        measuring.send_signal(signal.SIGSTOP)
        time.sleep(5.2)
        measuring.send_signal(signal.SIGCONT)
        rest = measuring.communicate(timeout=300)[1]
        self.assertEqual(measuring.returncode, 0, rest)
        self.assertRegex(rest.splitlines()[0], r"^baton: measuring cuda \(emulated\) -> cpu \d+ %, .* left$")

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

    # Where a unit is emulated a proof is of what emulates it, and says so wherever a unit is named.
    def test_an_emulated_unit_is_named_as_one(self):
        for unit in ("cuda:driver=emulated", "ane:device=emulator"):
            with self.subTest(unit):
                name = unit.split(":")[0]
                bridge, stderr = self.bridge("--prefill", unit, "-n", "2", "--verify-bridge", "sample", "What is a compiler?")
                self.assertEqual((bridge["level"], bridge["proof"]["between"]), ("proven", f"{name} (emulated) -> cpu"))
                self.assertIn(f"differ by, {name} (emulated) -> cpu, once", stderr)
                bridge, _ = self.bridge("--decode", unit, "--strategy", "handoff", "-n", "2", "--verify-bridge", "sample", "Why?")
                self.assertEqual(bridge["proof"]["between"], f"{name} (emulated) -> {name} (emulated), the same bits")
        pairs = json.loads((self.model / "bounds.json").read_text())["pairs"]
        self.assertTrue(all(pair["from"].split("/")[1].startswith("emulated") for pair in pairs), pairs)

    def shown(self, *arguments):
        done = subprocess.run([PROGRAM, "state", "show", self.state, *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_state_of_an_emulated_card_is_none_of_a_card(self):
        self.run_baton("--decode", "cuda:driver=emulated", "--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        self.assertIn("cuda (emulated, cuda/emulated/", self.shown())
        maker = json.loads(self.shown("--json"))["makers"][0]
        self.assertEqual((maker["unit"], maker["emulated"]), ("cuda", True))
        loads = ("--load-state", self.state, " the source code", "-n", "2", "--verify-bridge", "sample")
        # The maker needs no card to run here.
        bridge, stderr = self.bridge(*loads)
        self.assertEqual((bridge["level"], bridge["proof"]["between"]), ("proven", "cuda (emulated) -> cpu"), stderr)
        bridge, _ = self.bridge(*loads, "--decode", "cuda:driver=emulated")
        self.assertEqual(bridge["proof"]["between"], "cuda (emulated) -> cuda (emulated), the same steps and bits")
        # The same state, said to be a card's: nothing that was measured of the emulated one proves it.
        self.rename_maker("cuda/sm_90/0badcafe/01234567")
        self.assertIn("cuda (cuda/sm_90/0badcafe/01234567)", self.shown())
        self.assertFalse(json.loads(self.shown("--json"))["makers"][0]["emulated"])
        for decode in ("cpu", "cuda:driver=emulated"):
            bridge, stderr = self.bridge(*loads, "--decode", decode)
            self.assertEqual((bridge["level"], bridge["verified"], bridge["proof"]), ("sealed", None, None), stderr)
            self.assertIn("warning: ", stderr)
            self.assertNotIn("(emulated) cannot", stderr)

    # What the unit between made alone is held to its own bounds: the prefill unit had no hand in it.
    def test_a_relay_of_one_token_names_who_made_its_state(self):
        bridge, stderr = self.bridge("--prefill", "ref", "--via", "cpu", "--decode", "cpu:kernels=scalar", "--ids", "5", "-n", "20",
                                     "--ignore-eos", "--verify-bridge", "sample")
        self.assertEqual(bridge["level"], "proven")
        self.assertEqual(bridge["proof"]["between"], "cpu -> cpu:kernels=scalar")
        self.assertNotIn("ref", stderr)
        bridge, stderr = self.bridge("--prefill", "ref", "--ids", "5", "-n", "2", "--verify-bridge", "sample")
        self.assertIn("the prompt is one token", bridge["unproven"])
        self.assertNotIn("measuring", stderr)

    # Neither where it was opened nor at a hand-over: then nothing is measured for it either.
    def test_a_start_that_is_handed_over_twice_is_said_not_to_be_proven(self):
        self.run_baton("--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        arguments = ("--load-state", self.state, " the source code", "-n", "20", "--ignore-eos", "--prefill", "ref", "--via", "cpu",
                     "--decode", "cpu:kernels=scalar", "--verify-bridge", "sample")
        bridge, stderr = self.bridge(*arguments)
        words = "a starting state that is handed over twice is not compared"
        self.assertEqual((bridge["level"], bridge["verified"], bridge["unproven"], bridge["proof"]), ("sealed", None, words, None))
        self.assertIn(f"nothing was proven: {words}", stderr)
        self.assertNotIn("measuring", stderr)
        self.assertIn(f"NOT MADE: {words}", self.run_baton(*arguments).stderr)

    def test_a_state_handed_over_and_saved_is_proven_too(self):
        self.run_baton("--prefill", "ref", "--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        bridge, _ = self.bridge("--load-state", self.state, " the source code", "-n", "2", "--verify-bridge", "all")
        self.assertEqual(bridge["level"], "proven")
        self.assertIn("ref -> cpu", bridge["proof"]["between"])

    # A short state is measured with its maker; where that cannot run (here: kernels this run does not use), the bounds
    # in the model's file serve.
    def test_the_bounds_of_the_file_serve_when_the_maker_cannot_run(self):
        self.run_baton("--decode", "cpu:kernels=scalar", "--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        arguments = ("--decode", "ref", "--load-state", self.state, " the source code", "-n", "2", "--verify-bridge", "all")
        bridge, stderr = self.bridge(*arguments)
        self.assertIn("the state was made by cpu/scalar", stderr)
        self.assertIsNone(bridge["verified"])
        self.bridge("--prefill", "cpu:kernels=scalar", "--decode", "ref", "-n", "1", "--verify-bridge", "all",
                    "What is a compiler?")
        bridge, stderr = self.bridge(*arguments)
        self.assertIn("the state was made by cpu/scalar", stderr)
        self.assertEqual((bridge["level"], bridge["verified"]), ("proven", True))

    def test_a_unit_that_had_the_state_twice_counts_once(self):
        # Long ones: the shorter are measured themselves as well.
        first, more = "The compiler reads the source code. " * 30, "And then it writes another file. " * 10
        handed = ("--prefill", "ref", "-n", "2", "--verify-bridge", "all")
        whole, _ = self.bridge("--raw", first + more, *handed)
        self.run_baton("--raw", first, "--decode", "ref", "-n", "0", "--save-state", self.state)
        bridge, _ = self.bridge("--load-state", self.state, more, *handed)
        self.assertEqual((bridge["level"], bridge["proof"]["states"]), ("proven", 2))
        self.assertEqual(bridge["proof"]["between"], "ref -> cpu")
        self.assertEqual(bridge["tolerance"], whole["tolerance"])

    # A model whose attention's values are `factor` times as large, and as much smaller behind the attention.
    def scale_values(self, factor):
        for file in self.model.iterdir():
            file.unlink()
        llama = SMALL.parent / "tiny-llama"
        (self.model / "config.json").symlink_to(llama / "config.json")
        data = (llama / "model.safetensors").read_bytes()
        begin = 8 + struct.unpack_from("<Q", data)[0]
        weights = bytearray(data)
        for name, tensor in json.loads(data[8:begin]).items():
            by = factor if "v_proj" in name else 1 / factor if "o_proj" in name else None
            if by is None:
                continue
            self.assertEqual(tensor["dtype"], "F32")
            first, end = (begin + at for at in tensor["data_offsets"])
            weights[first:end] = array.array("f", [value * by for value in array.array("f", data[first:end])]).tobytes()
        (self.model / "model.safetensors").write_bytes(weights)

    def test_units_that_do_not_compute_the_same_prove_nothing(self):
        self.scale_values(1e-7)  # most are less than one of F16's smallest steps
        bridge, stderr = self.bridge("--ids", "3,14,15,9,26,5", "--prefill", "cpu", "--decode", "ref", "-n", "4",
                                     "--verify-bridge", "all")
        self.assertRegex(stderr, r"cpu -> ref: honest states .* differ by \d+ % of their size: .* prove nothing")
        self.assertEqual((bridge["level"], bridge["verified"]), ("sealed", None))

    def test_values_that_f16_loses_are_no_answer(self):
        self.scale_values(1e-10)
        ids = ("--ids", "3,14,15,9,26,5", "-n", "4")
        for units in ((), ("--prefill", "ref"), ("--prefill", "ref", "--verify-bridge", "all")):
            stderr = self.run_baton(*ids, *units, code=1).stderr
            self.assertRegex(stderr, "its types do not hold this model's values|is nan|too small for F16", units)
        wanted = json.loads(self.run_baton(*ids, "--decode", "ref", "--json").stdout)["ids"]
        saved = self.run_baton(*ids, "--prefill", "cpu", "--decode", "ref", "--json")
        self.assertEqual(json.loads(saved.stdout)["ids"], wanted, "ref reads the prompt itself then")

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

    def digest(self):
        found = ctypes.util.find_library("xxhash")
        if found is None:
            self.skipTest("no libxxhash to make checksums with")
        digest = ctypes.CDLL(found).XXH3_64bits
        digest.argtypes, digest.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint64
        return digest

    def rename_maker(self, arithmetic):
        """The saved state's one maker is said to compute so; its checksum is made right."""
        digest = self.digest()
        block = bytearray(pathlib.Path(self.state).read_bytes())
        header, sections = struct.unpack_from("<I", block, 12)[0], struct.unpack_from("<I", block, 56)[0]
        at = 88 + 64 * sections + 8 + 32
        self.assertTrue(block[at:].startswith(b"cuda/emulated/"))
        block[at:at + 96] = arithmetic.encode().ljust(96, b"\0")
        block[header - 8:header] = struct.pack("<Q", digest(bytes(block[:header - 8]), header - 8))
        pathlib.Path(self.state).write_bytes(block)

    def forge(self):
        """The saved state's first recurrent section zeroed, every checksum made right, a chat's too."""
        digest = self.digest()
        block = bytearray(pathlib.Path(self.state).read_bytes())
        summed = lambda part: struct.pack("<Q", digest(bytes(part), len(part)))
        header, sections = struct.unpack_from("<I", block, 12)[0], struct.unpack_from("<I", block, 56)[0]
        entry = next(at for at in range(88, 88 + 64 * sections, 64) if struct.unpack_from("<I", block, at)[0] == 3)
        begin, size = struct.unpack_from("<QQ", block, entry + 40)
        block[begin:begin + size] = bytes(size)
        block[entry + 56:entry + 64] = summed(block[begin:begin + size])
        block[header - 8:header] = summed(block[:header - 8])
        pathlib.Path(self.state).write_bytes(block)
        chat = pathlib.Path(self.state + ".json")
        if chat.exists():
            saved = json.loads(chat.read_text())
            saved["state"]["checksum"] = f"{digest(bytes(block), len(block)):016x}"
            chat.write_text(json.dumps(saved))

    def test_a_run_whose_proof_failed_does_not_end_well(self):
        self.run_baton("--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        loads = ("--load-state", self.state, " the source code", "-n", "2", "--verify-bridge", "sample")
        self.run_baton(*loads)
        self.forge()
        for arguments in ((), ("--json",), ("-q",)):
            done = self.run_baton(*loads, *arguments, code=1)
            self.assertIn("the bridge proof failed", done.stderr)
            self.assertTrue(done.stdout, "the answer is there all the same")
        self.assertIs(self.bridge_of(self.run_baton(*loads, "--json", code=1))["verified"], False)

    def test_a_chat_whose_proof_failed_does_not_end_well(self):
        chat = [PROGRAM, "chat", "-m", str(self.model), "--temp", "0", "-n", "2"]
        options = dict(capture_output=True, text=True, timeout=300, env=self.environment)
        first = subprocess.run([*chat, "--save-state", self.state], input="What is it?", **options)
        self.assertEqual(first.returncode, 0, first.stderr)
        loads = [*chat, "--load-state", self.state, "--verify-bridge", "sample"]
        honest = subprocess.run([*loads, "--json"], input='"And then?"\n', **options)
        self.assertEqual(honest.returncode, 0, honest.stderr)
        self.forge()
        for arguments, question in (((), "And then?"), (("--json",), '"And then?"\n')):
            done = subprocess.run([*loads, *arguments], input=question, **options)
            self.assertIn("the bridge proof failed", done.stderr)
            self.assertEqual(done.returncode, 1)
        # At a terminal the chat goes on, and its end tells.
        script = subprocess.Popen([*loads, "--history", ""], stdin=(end := pty.openpty())[1], stdout=end[1],
                                  stderr=subprocess.PIPE, text=True, env=dict(self.environment, TERM="dumb"))
        os.write(end[0], b"And then?\n/bye\n")
        self.assertIn("the bridge proof failed", script.communicate(timeout=300)[1])
        self.assertEqual(script.returncode, 1)

    def test_a_maker_that_cannot_run_here_leaves_it_sealed(self):
        self.run_baton("--decode", "cpu:kernels=scalar", "--raw", "The compiler reads", "-n", "0", "--save-state", self.state)
        bridge, stderr = self.bridge("--load-state", self.state, " the source", "-n", "2", "--verify-bridge", "sample")
        self.assertEqual(bridge["level"], "sealed")
        self.assertIsNone(bridge["verified"])
        self.assertIn("the state was made by", stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
