#!/usr/bin/env python3
"""What turns of `baton chat` begin from, and what is prefilled before they come.

usage: chat_reuse_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from chat_program import PATIENCE, PROGRAM, SMALL, Terminal, thinking_model, turns


class Replayed(unittest.TestCase):
    def test_only_what_changed_is_replayed(self):
        lines = ["What is a tree? " * 4, "And a leaf? " * 4, {"command": "/retry"}, {"command": "/undo"}, "And a root? " * 5]
        done, (first, second, retried, other) = turns(lines, "-n", "40", "--decode", "ref")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = first["prompt_tokens"] + len(first["ids"])
        for answer, least in ((second, said - 1), (retried, second["prompt_tokens"] - 16), (other, said - 12)):
            self.assertGreaterEqual(answer["cached_tokens"], least)
            self.assertEqual(answer["cached_tokens"], answer["reused_tokens"])
            self.assertEqual(answer["cached_tokens"] + answer["replayed_tokens"], answer["prompt_tokens"])
        # Hits are as fine as 16 tokens, of answers as a token.
        self.assertEqual(retried["cached_tokens"], (second["prompt_tokens"] - 1) // 16 * 16)
        self.assertEqual(other["cached_tokens"] % 16, 0)
        plain, answers = turns(lines, "-n", "40", "--decode", "ref", "--no-reuse")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual([answer["ids"] for answer in answers], [answer["ids"] for answer in (first, second, retried, other)])
        self.assertEqual([answer["reused_tokens"] for answer in answers], [0] * 4)

    def test_a_cache_outlives_the_chat_but_not_what_was_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            cache, file = os.path.join(folder, "cache"), os.path.join(folder, "talk")
            common = ("-n", "8", "--decode", "ref", "--system", "Be brief, and say no more than there is to say. " * 4)
            plain, (_, wanted) = turns(["What is a tree?", "And a leaf?"], *common)
            done, (first,) = turns(["What is a tree?"], *common, "--state-cache", cache, "--save-state", file)
            self.assertEqual((done.returncode, first["cached_tokens"]), (0, 0), done.stderr)
            self.assertTrue(os.listdir(cache))
            again, answers = turns(["What is a tree?", "And a leaf?"], *common, "--state-cache", cache)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertGreaterEqual(answers[0]["cached_tokens"], first["prompt_tokens"] - 16)
            self.assertEqual([answer["ids"] for answer in answers], [first["ids"], wanted["ids"]])
            held = sorted(os.listdir(cache))
            done, (loaded,) = turns(["And a root?"], "-n", "8", "--decode", "ref", "--load-state", file, "--state-cache", cache)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(loaded["reused_tokens"], 0)
            self.assertEqual(loaded["cached_tokens"], 0)
            self.assertEqual(sorted(os.listdir(cache)), held)
            for flag, words in (("--no-reuse", "leave one out"), ("--verify-bridge=all", "leave one of them out")):
                done, _ = turns([], flag, "--state-cache", cache)
                self.assertEqual(done.returncode, 2)
                self.assertIn(words, done.stderr)

    def test_checkpoints_of_half_the_bytes(self):
        asked = ["What is a tree? " * 4, "And a leaf?"]
        with tempfile.TemporaryDirectory() as folder:
            sizes = {}
            for dtype in ("f32", "bf16"):
                cache = os.path.join(folder, dtype)
                os.mkdir(cache)
                done, answers = turns(asked, "-n", "24", "--checkpoint-dtype", dtype, "--state-cache", cache)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(answers[1]["cached_tokens"], answers[0]["prompt_tokens"] - 16)
                for name, answer in (("kept_rounding", answers[0]), ("kept_rounding", answers[1]), ("cached_rounding", answers[1])):
                    if dtype == "f32":
                        self.assertIsNone(answer[name])
                        continue
                    self.assertEqual(answer[name]["type"], "bf16")
                    self.assertGreater(answer[name]["max_abs"], 0)
                    self.assertLess(answer[name]["max_rel"], 1 / 256)
                self.assertIsNone(answers[0]["cached_rounding"])
                files = sorted(pathlib.Path(cache).glob("*.state"))
                shown = [subprocess.run([PROGRAM, "state", "show", str(file)], capture_output=True, text=True).stdout for file in files]
                self.assertTrue(shown)
                for text in shown:
                    self.assertEqual("+bf16" in text, dtype == "bf16")
                    self.assertEqual(len(re.findall(r"(?:conv|recurrent) +BF16", text)) > 0, dtype == "bf16")
                sizes[dtype] = sum(file.stat().st_size for file in files)
            self.assertLess(sizes["bf16"], 0.7 * sizes["f32"])
        done, _ = turns([], "--no-reuse", "--checkpoint-dtype", "bf16")
        self.assertEqual(done.returncode, 2)
        self.assertIn("leave one out", done.stderr)

    def test_what_began_with_a_loaded_chat_goes_on_from_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "talk")
            done, (first,) = turns(["What is a tree? " * 5], "-n", "24", "--save-state", file)
            done, (second, third) = turns(["And a leaf?", "And a root?"], "-n", "24", "--load-state", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((second["cached_tokens"], second["bridge"]["kind"]), (0, "open"))
            self.assertGreaterEqual(second["reused_tokens"], first["prompt_tokens"] + len(first["ids"]) - 1)
            self.assertGreaterEqual(third["cached_tokens"], second["prompt_tokens"] + len(second["ids"]) - 1)

    def test_a_long_conversation_replays_less_than_100_tokens(self):
        words = "It grows slowly, and its leaves fall. " * (50 if "BATON_SMOKE" in os.environ else 340)
        asked = ["I read this: " + words + "What is it?", "And what is a leaf, and what is a root?"]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for template in (True, False):
            model = str(thinking_model(pathlib.Path(folder.name))) if template else SMALL
            done, (first, second) = turns(asked, "-n", "24", model=model)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(first["replayed_tokens"], len(words) / 5)
            self.assertLess(second["replayed_tokens"], 100)
            self.assertLess(second["replayed_tokens"], 64 if template else 32)


class IdlePrefill(unittest.TestCase):
    """While nothing is asked, what is certain of the next turn is prefilled. How fast is no part of these tests."""
    COMMON = ("-n", "12", "--prefill", "cpu", "--decode", "ref", "--strategy", "idle-prefill")

    def talk(self, *arguments, model=SMALL):
        self.process = subprocess.Popen([PROGRAM, "chat", "-m", model, "--temp", "0", "--json", *arguments], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.process.communicate)

    def send(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")

    def ask(self, line):
        self.send(line)
        return json.loads(self.process.stdout.readline())

    def spent(self, above):
        """Tokens since the last answer, as soon as they are more than that and nothing is left to do."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.send({"command": "/show"})
            while not (found := re.match(r"idle-prefill +(\d+) tokens since the last answer, (.*)", self.process.stderr.readline())):
                pass
            if found[2] == "nothing left" and int(found[1]) > above:
                return int(found[1])
            time.sleep(0.1)
        raise AssertionError("idle-prefill does not end")

    def test_a_turn_begins_with_what_was_certain_of_it(self):
        asked = ["What is a tree, and what grows on it?", "And what is a leaf, and what is a root of it?"]
        plain, (first, second) = turns(asked, "-n", "12", "--prefill", "cpu", "--decode", "ref")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertIsNone(second["idle"])
        self.talk(*self.COMMON)
        self.assertEqual(self.ask(asked[0])["ids"], first["ids"])
        of_the_answer = self.spent(0)
        self.send({"typing": asked[1][:40]})
        self.spent(of_the_answer + 4)
        answer = self.ask(asked[1])
        self.assertEqual(answer["ids"], second["ids"])
        self.assertGreater(answer["cached_tokens"], second["cached_tokens"] + 4)
        self.assertLess(answer["replayed_tokens"], second["replayed_tokens"] - 4)
        self.assertGreater(answer["idle"]["tokens"], 0)

    def test_a_question_that_stands_is_prefilled_whole(self):
        asked = ["What is a tree, and what grows on it?", "And what is a leaf, and what is a root of it?"]
        self.talk(*self.COMMON)
        self.ask(asked[0])
        replayed, wait, end = 0, 0.5, time.monotonic() + PATIENCE
        while replayed != 1 and time.monotonic() < end:  # a busy machine may need longer
            self.send({"typing": asked[1]})
            time.sleep(wait)
            replayed, wait = self.ask(asked[1])["replayed_tokens"], 2 * wait
            self.send({"command": "/undo"})
        self.assertEqual(replayed, 1)

    def test_what_is_not_sent_goes_into_no_folder(self):
        typed = "and my password is what nobody has to know of, ever"
        with tempfile.TemporaryDirectory() as folder:
            for sent in (False, True):
                cache = str(pathlib.Path(folder) / str(sent))
                self.talk(*self.COMMON, "--state-cache", cache)
                self.ask("What is a tree?")
                before = self.spent(0)
                self.send({"typing": typed})
                self.spent(before + 4)
                time.sleep(1)
                self.send({"typing": ""})
                if sent:
                    self.ask(typed)
                self.send({"command": "/bye"})
                self.process.communicate()
                again = turns(["What is a tree?", typed], *self.COMMON[:6], "--state-cache", cache)[1][1]
                (self.assertGreater if sent else self.assertLess)(again["cached_tokens"], again["prompt_tokens"] - 8)

    def test_what_does_not_fit_turns_nothing_off(self):
        self.talk(*self.COMMON, "-c", "96")
        self.ask("What is a tree?")
        self.send({"typing": "a leaf, " * 100})
        time.sleep(0.5)
        self.send({"typing": "And what is a root, and "})
        self.spent(4)
        self.send({"command": "/clear"})
        self.assertNotIn("error", self.ask("And what is a root, and what is a leaf?"))

    def test_an_answer_is_prefilled_while_it_decodes(self):
        """At last: a machine may give the unit that prefills no time before an answer has ended."""
        with tempfile.TemporaryDirectory() as folder:
            model = str(thinking_model(pathlib.Path(folder)))
            self.talk("-n", "150", "--ignore-eos", "--prefill", "cpu", "--decode", "ref", "--strategy", "idle-prefill", "--no-think",
                      model=model)
            end, number, best = time.monotonic() + PATIENCE, 0, 0
            self.assertEqual(self.ask("What is a tree?")["idle"]["while_decoding"], 0)
            while best < 64 and time.monotonic() < end:
                number += 1
                self.send({"command": "/clear"})
                idle = self.ask(f"And what are {number} leaves?")["idle"]
                self.assertLessEqual(idle["while_decoding"], idle["tokens"])
                best = max(best, idle["while_decoding"])
            self.assertGreaterEqual(best, 64)

    def test_text_at_the_terminal_is_prefilled_as_it_is_typed(self):
        terminal = Terminal("-n", "4", "--temp", "0", "--strategy", "idle-prefill", "--figures")
        end = time.monotonic() + PATIENCE
        best, wait = 0, 0.3
        while best < 20 and time.monotonic() < end:
            terminal.line("/clear")
            terminal.send("What is a tree, and what is a leaf, and what is a root, and what is a branch, and what is a ")
            terminal.quiet(wait)
            best, wait = int(re.search(r"idle-prefill +(\d+) tokens", terminal.line("flower?"))[1]), 2 * wait
        self.assertGreaterEqual(best, 20)
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_flags_that_do_not_go_together_are_refused(self):
        for flags, words in ((("--no-reuse",), "leave one of them out"), (("--verify-bridge", "all"), "leave one of them out")):
            done, _ = turns([], "--strategy", "idle-prefill", *flags)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
        done, _ = turns([], "--idle-tokens", "64")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--strategy idle-prefill", done.stderr)
        done, _ = turns([], "--strategy", "idle-prefill", "--idle-joules", "5")
        if done.returncode != 0:  # where nothing measures joules
            self.assertIn("cannot be read (no RAPL", done.stderr)


if __name__ == "__main__":
    unittest.main()
