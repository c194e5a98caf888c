#!/usr/bin/env python3
"""The program without memory for some of its allocations, wherever these come: it answers right, or ends with status 1
and says why; never with a signal, and a batch asks again what found none.

usage: BATON_NO_MEMORY=LIBRARY memory_test.py PROGRAM   (then unittest's own options); LIBRARY: built of no_memory.cc
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
LIBRARY = os.environ.get("BATON_NO_MEMORY")
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
POINTS = 6 if "BATON_SMOKE" in os.environ else 36  # of each command and count
RESERVE = 8  # allocations that the program's own reserve makes good; more than these are seen by what asked
WORDS = ("fern", "tree", "salt", "king", "iron", "cloud")


@unittest.skipIf(LIBRARY is None, "no library of failing allocations was built")
class Memory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_once(self, command, stdin=None, **variables):
        for made in ("out.jsonl", "cache"):
            shutil.rmtree(self.path(made), ignore_errors=True)
            pathlib.Path(self.path(made)).unlink(missing_ok=True)
        return subprocess.run([PROGRAM, *command], input=stdin, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LD_PRELOAD": LIBRARY, **variables})

    def sweep(self, command, shown, stdin=None, begin=0.0):
        """The share that was answered, all and right, of the runs in which one allocation failed; behind it of those in
        which many in a row did."""
        whole = self.run_once(command, stdin, NO_MEMORY_SAY="1")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        right, count = shown(whole), int(whole.stderr.split()[-1])
        shares = []
        for row in (1, 3 * RESERVE):
            answered = 0
            for point in range(POINTS):
                at = int(count * (begin + (1 - begin) * (point + 0.5) / POINTS)) + 1
                done = self.run_once(command, stdin, NO_MEMORY_AT=str(at), NO_MEMORY_COUNT=str(row))
                with self.subTest(command=command[0], at=at, row=row, stderr=done.stderr[-500:]):
                    self.assertIn(done.returncode, (0, 1))
                    answered += done.returncode == 0
                    if done.returncode == 0:
                        self.assertEqual(shown(done), right)
                    else:
                        self.assertIn("memory", done.stderr)
            print(f"{command[0]}: {row} of {count} allocations: {answered} of {POINTS} runs answered all", flush=True)
            shares.append(answered / POINTS)
        return shares

    def test_a_run(self):
        run = ["run", "-m", MODEL, "-q", "-t", "1", "--raw", "-n", "6", "A fern is a plant. " * 20]
        self.assertGreater(self.sweep(run, lambda done: done.stdout)[0], 0.8)
        self.sweep([*run, "--state-cache", self.path("cache")], lambda done: done.stdout)

    def test_a_batch_goes_on(self):
        lines = [{"custom_id": f"q{i}", "method": "POST", "url": "/v1/chat/completions",
                  "body": {"messages": [{"role": "user", "content": f"What is a {WORDS[i % 6]}? " + "Say more. " * i}],
                           "max_tokens": 6}} for i in range(8)]
        pathlib.Path(self.path("in.jsonl")).write_text("".join(json.dumps(line) + "\n" for line in lines))

        def shown(_):
            answers = {}
            for text in pathlib.Path(self.path("out.jsonl")).read_text().splitlines():
                line = json.loads(text)
                self.assertEqual(line["response"]["status_code"], 200, line)
                answers[line["custom_id"]] = line["response"]["body"]["choices"]
            return answers

        batch = ["batch", "-m", MODEL, "-q", "-t", "1", self.path("in.jsonl"), self.path("out.jsonl")]
        # From where the requests begin.
        one, many = self.sweep(batch, shown, begin=0.75)
        self.assertGreater(one, 0.8)
        self.assertGreater(many, 0)

    def test_a_chat(self):
        chat = ["chat", "-m", MODEL, "-t", "1", "--temp", "0", "--json", "--state-cache", self.path("cache")]
        self.sweep(chat, lambda done: re.findall(r'"text":"[^"]*"', done.stdout), '"What is salt?"\n"And a fern?"\n')

    def test_a_list(self):
        self.sweep(["state", "ls", self.folder.name], lambda done: done.stdout)


if __name__ == "__main__":
    unittest.main()
