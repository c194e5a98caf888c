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


def values_of(seal):
    """Tokens and sections, without the header: who made the state is another matter."""
    data = pathlib.Path(seal).read_bytes()
    return data[int.from_bytes(data[64:72], "little"):]


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
        self.ok("run", "-m", model, "--raw", *prompt, "-q", "-n", "0", "--save-state", self.path(name), "--dump-logits", self.path("logits"))
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
        self.assertEqual(values_of(self.path("mlx.seal")), values_of(seal))
        self.assertIn("foreign (mlx): mixed", self.ok("state", "show", self.path("mlx.seal")))

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
        self.ok("run", "-q", "-m", LLAMA, "--ids", IDS, "-n", "0", "--save-state", self.path("seal"))
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
        count = json.loads(self.ok("state", "show", seal, "--json"))["position"]
        others = run("state", "convert", seal, out, "-m", SMALL, "--to", "mlx", "--ids", ",".join(["7"] * count))
        self.assertEqual(others.returncode, 1, others.stdout)
        self.assertIn("names other tokens than the prompt given", others.stderr)
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
        text = self.ok("state", "show", seal)
        self.assertIn("recurrent", text)
        ids = [str(id) for id in listed["tokens"]]
        shown = " ".join(ids if len(ids) <= 12 else [*ids[:8], "...", *ids[-4:]])
        self.assertRegex(text, rf"(?m)^tokens +{len(ids)}: {shown}$")
        self.assertLessEqual(max(map(len, text.splitlines())), 110)
        damaged = bytearray(pathlib.Path(seal).read_bytes())
        damaged[90] ^= 1
        pathlib.Path(seal).write_bytes(damaged)
        refused = run("state", "show", seal)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("header checksum", refused.stderr)

    def test_a_seal_says_who_made_it(self):
        seal = self.path("seal")
        prompt = "What is a bridge?"
        self.ok("run", "-q", "-m", SMALL, "--raw", prompt, "--prefill", "ref", "--decode", "cpu", "-n", "0", "--save-state", seal)
        listed = json.loads(self.ok("state", "show", seal, "--json"))
        self.assertEqual([maker["unit"] for maker in listed["makers"]], ["ref", "cpu"])
        self.assertEqual([maker["tokens"] for maker in listed["makers"]], [listed["position"] - 1, 1])
        for maker in listed["makers"]:
            self.assertRegex(maker["arithmetic"], rf"^{maker['unit']}/\S+/[0-9a-f]{{8}}$")
        self.assertEqual([line.split(": ")[1] for line in listed["steps"]], [f"prefill {listed['position'] - 1}", "decode 1"])
        script = subprocess.run([sys.executable, ROOT / "scripts" / "show_state.py", seal], capture_output=True, text=True)
        self.assertIn(f"step 0: ref prefill {listed['position'] - 1} x1\nstep 1: cpu decode 1 x1\n", script.stdout)
        # Going on from it elsewhere adds to the list.
        more = self.path("more")
        self.ok("run", "-q", "-m", SMALL, "--load-state", seal, " Only one", "--decode", "ref", "-n", "0", "--save-state", more)
        makers = json.loads(self.ok("state", "show", more, "--json"))["makers"]
        self.assertEqual([maker["unit"] for maker in makers], ["ref", "cpu"])
        self.assertEqual(sum(maker["tokens"] for maker in makers), json.loads(self.ok("state", "show", more, "--json"))["position"])
        self.assertEqual(makers[1]["tokens"], 1)

    def test_states_with_a_key(self):
        key, other, seal, out = (self.path(name) for name in ("key", "other", "seal", "out"))
        for path in (key, other):
            pathlib.Path(path).write_bytes(os.urandom(32))
            os.chmod(path, 0o600)
        plain = self.save(SMALL, "plain", "What is water?")
        self.ok("run", "-q", "-m", SMALL, "--raw", "What is water?", "-n", "0", "--save-state", seal, "--state-key", key)
        self.assertEqual(os.path.getsize(seal), os.path.getsize(plain) + 32)
        go_on = ("run", "-m", SMALL, " And", "-n", "3", "--json", "--load-state")
        expected = json.loads(self.ok(*go_on, plain))["ids"]
        self.assertEqual(json.loads(self.ok(*go_on, seal, "--state-key", key))["ids"], expected)
        changed = bytearray(pathlib.Path(seal).read_bytes())
        changed[-40] ^= 1
        pathlib.Path(out).write_bytes(changed)
        for arguments, words in (((seal,), "used without that key (--state-key FILE)"), ((seal, "--state-key", other), "another key"),
                                 ((plain, "--state-key", key), "nobody vouching for it"),
                                 ((out, "--state-key", key), "another key, or changed")):
            with self.subTest(arguments=arguments):
                done = run(*go_on, *arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertIn(words, done.stderr)
        os.chmod(key, 0o644)
        done = run(*go_on, seal, "--state-key", key)
        self.assertEqual(done.returncode, 0)
        self.assertIn("chmod 600", done.stderr)
        os.chmod(key, 0o600)
        pathlib.Path(other).write_bytes(b"short")
        done = run(*go_on, seal, "--state-key", other)
        self.assertEqual(done.returncode, 1)
        self.assertIn("32 to 4096", done.stderr)
        self.assertEqual(run("run", "-m", SMALL, "x", "--state-key", key).returncode, 2)
        # Shown as far as it goes without the key; converted with it.
        self.assertIn("not checked", json.loads(self.ok("state", "show", seal, "--json"))["mac"])
        self.assertEqual(json.loads(self.ok("state", "show", seal, "--json", "--state-key", key))["mac"], "right")
        self.assertEqual(json.loads(self.ok("state", "show", plain, "--json"))["mac"], "none")
        self.assertEqual(run("state", "show", out, "--state-key", key).returncode, 1)
        done = run("state", "convert", seal, out, "-m", SMALL, "--to", "mlx")
        self.assertEqual(done.returncode, 1)
        self.assertIn("(--state-key FILE)", done.stderr)
        self.ok("state", "convert", seal, out, "-m", SMALL, "--to", "mlx", "--type", "as-is", "--state-key", key)
        self.assertEqual(run("state", "convert", out, self.path("back"), "-m", SMALL, "--state-key", key).returncode, 0)
        self.assertEqual(json.loads(self.ok(*go_on, self.path("back"), "--state-key", key))["ids"], expected)

    def test_a_key_is_put_on_a_state_without_one(self):
        key, keyed = self.path("key"), self.path("keyed")
        pathlib.Path(key).write_bytes(os.urandom(32))
        os.chmod(key, 0o600)
        plain = self.save(SMALL, "plain", "What is water?")
        done = run("state", "convert", plain, keyed, "-m", SMALL, "--state-key", key)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{plain} carries no MAC: nobody vouches for what was read", done.stderr)
        self.assertEqual(json.loads(self.ok("state", "show", keyed, "--json", "--state-key", key))["mac"], "right")
        self.assertEqual(values_of(keyed)[:-32], values_of(plain))
        made_by = lambda seal: json.loads(self.ok("state", "show", seal, "--json"))["steps"]
        self.assertEqual(made_by(keyed), made_by(plain))
        foreign = self.path("foreign")
        self.ok("state", "convert", plain, foreign, "-m", SMALL, "--to", "mlx", "--type", "as-is")
        done = run("state", "convert", foreign, keyed, "-m", SMALL, "--state-key", key)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{foreign} carries no MAC: nobody vouches for what was read", done.stderr)
        go_on = ("run", "-m", SMALL, " And", "-n", "3", "--json", "--load-state")
        self.assertEqual(json.loads(self.ok(*go_on, keyed, "--state-key", key))["ids"], json.loads(self.ok(*go_on, plain))["ids"])
        # One that has a MAC is held to it, and for other formats none is made: there a key is only a demand.
        changed = bytearray(pathlib.Path(keyed).read_bytes())
        changed[-40] ^= 1
        pathlib.Path(keyed).write_bytes(changed)
        for arguments, words in (((keyed,), "another key, or changed"), ((plain, "--to", "mlx"), "carries no MAC")):
            refused = run("state", "convert", arguments[0], self.path("out"), "-m", SMALL, *arguments[1:], "--state-key", key)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(words, refused.stderr)
            self.assertFalse(os.path.exists(self.path("out")))


class Cache(unittest.TestCase):
    """--state-cache: a folder that prompts find their beginnings in."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cache = os.path.join(self.folder.name, "states")
        self.text = "The compiler reads the source code and writes a program. " * 14

    def ask(self, end, *flags, warned=""):
        """Figures of an answer, and what was said on stderr."""
        done = run("run", "-m", SMALL, "--raw", self.text + end, "-n", "12", "--temp", "0", "--json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(bool(done.stderr), bool(warned), done.stderr)
        self.assertIn(warned, done.stderr)
        return json.loads(done.stdout)

    def states(self):
        return sorted(os.listdir(self.cache))

    def test_a_prompt_goes_on_from_what_it_begins_with(self):
        plain = {end: self.ask(end) for end in ("A leaf", "The sea")}
        self.assertEqual(plain["A leaf"]["cached_tokens"], 0)
        first = self.ask("A leaf", "--state-cache", self.cache)
        self.assertEqual((first["cached_tokens"], first["ids"]), (0, plain["A leaf"]["ids"]))
        self.assertEqual(len(self.states()), 1)
        for end in ("A leaf", "The sea"):
            again = self.ask(end, "--state-cache", self.cache)
            self.assertEqual(again["ids"], plain[end]["ids"])
            self.assertGreater(again["cached_tokens"], 0)
            self.assertEqual(again["cached_tokens"] % 64, 0)
            self.assertEqual(again["cached_tokens"] + again["prefill_tokens"] + 1, again["prompt_tokens"])
        self.assertEqual(len(self.states()), 1, "the same state is there once")
        # Another arithmetic makes other bits: nothing of it is used, and its own are kept beside.
        other = self.ask("A leaf", "--state-cache", self.cache, "--decode", "cpu:kernels=scalar")
        self.assertEqual(other["cached_tokens"], 0)
        self.assertEqual(len(self.states()), 2)
        figures = run("run", "-m", SMALL, "--raw", self.text, "-n", "2", "--state-cache", self.cache).stderr
        self.assertIn("from a cached state", figures)
        shown = json.loads(run("state", "show", os.path.join(self.cache, self.states()[0]), "--json").stdout)
        self.assertEqual(shown["position"] % 64, 0)

    def test_what_does_not_hold_is_not_used(self):
        plain = self.ask("A leaf", "--state-cache", self.cache)
        file = os.path.join(self.cache, self.states()[0])
        whole = pathlib.Path(file).read_bytes()
        for at in (len(whole) - 1, len(whole) // 2):
            pathlib.Path(file).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            damaged = self.ask("A leaf", "--state-cache", self.cache, warned=os.path.basename(file))
            self.assertEqual((damaged["ids"], damaged["cached_tokens"]), (plain["ids"], 0))
            self.assertEqual(self.ask("A leaf", "--state-cache", self.cache)["cached_tokens"], plain["prefill_tokens"] // 64 * 64)
            [file] = [os.path.join(self.cache, name) for name in self.states()]
        for broken in (whole[:-200], whole[:60], b""):
            pathlib.Path(file).write_bytes(broken)
            torn = self.ask("A leaf", "--state-cache", self.cache)  # its head says so: it is none
            self.assertEqual((torn["ids"], torn["cached_tokens"]), (plain["ids"], 0))
            [file] = [os.path.join(self.cache, name) for name in self.states()]

    def test_under_a_key(self):
        keys = []
        for i in range(2):
            keys.append(os.path.join(self.folder.name, f"key{i}"))
            pathlib.Path(keys[i]).write_bytes(bytes(range(i, 32 + i)))
            os.chmod(keys[i], 0o600)
        with_cache = ("--state-cache", self.cache)
        plain = self.ask("A leaf", *with_cache, "--state-key", keys[0])
        self.assertGreater(self.ask("A leaf", *with_cache, "--state-key", keys[0])["cached_tokens"], 0)
        theirs = self.states()
        # Who has another key, or none, finds nothing of it, and leaves it.
        for flags in ((), ("--state-key", keys[1])):
            others = self.ask("A leaf", *with_cache, *flags)
            self.assertEqual((others["ids"], others["cached_tokens"]), (plain["ids"], 0))
        self.assertEqual(len(self.states()), 3)
        self.assertIn(theirs[0], self.states())
        # What was changed behind the key's back is not used.
        file = pathlib.Path(self.cache, theirs[0])
        whole = file.read_bytes()
        file.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
        changed = self.ask("A leaf", *with_cache, "--state-key", keys[0], warned=theirs[0])
        self.assertEqual((changed["ids"], changed["cached_tokens"]), (plain["ids"], 0))

    def test_folders_and_flags_that_cannot_be(self):
        file = os.path.join(self.folder.name, "file")
        pathlib.Path(file).write_text("mine")
        for folder in (file, os.path.join(self.folder.name, "a", "b")):
            done = run("run", "-m", SMALL, "hi", "--state-cache", folder)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn(folder, done.stderr)
        self.assertEqual(pathlib.Path(file).read_text(), "mine")
        for flags, word in ((("--state-cache", ""), "--state-cache"), (("--state-cache-bytes", "1G"), "--state-cache"),
                            (("--state-cache", self.cache, "--state-cache-bytes", "0"), "--state-cache-bytes"),
                            (("--state-cache", self.cache, "--state-cache-bytes", "much"), "--state-cache-bytes"),
                            (("--state-cache", self.cache, "--load-state", file), "--load-state"),
                            (("--state-cache", self.cache, "--verify-bridge", "all"), "--verify-bridge")):
            done = run("run", "-m", SMALL, "hi", *flags)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (flags, done.stderr))
            self.assertIn(word, done.stderr)
        self.assertFalse(os.path.exists(self.cache))
        # No room, and a folder that nobody may write to: the answer is there.
        small = self.ask("A leaf", "--state-cache", self.cache, "--state-cache-bytes", "100")
        self.assertEqual((len(small["ids"]), self.states()), (12, []))


if __name__ == "__main__":
    unittest.main()
