#!/usr/bin/env python3
"""`baton batch` from outside: answers equal to `run`'s, whatever runs beside them; going on after a kill; bad lines; full
disks.

usage: batch_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
LARGER = str(ROOT / "models" / "dictionary-28m.Q8_0.gguf")
WORDS = ("fern", "tree", "water", "stone", "bird", "river", "letter", "engine", "salt", "king", "iron", "cloud")


def chat(custom_id, text, **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": "any", "messages": [{"role": "user", "content": text}], "max_tokens": 16, **body}}


def questions(count, **body):
    return [chat(f"q{i}", f"What is a {WORDS[i % len(WORDS)]}? " + "Say more. " * (i % 7), **body) for i in range(count)]


class Batch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source, self.out = self.path("in.jsonl"), self.path("out.jsonl")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, requests):
        lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
        pathlib.Path(self.source).write_text("".join(line + "\n" for line in lines))

    def command(self, *flags, model=MODEL, source=None, out=None):
        return [PROGRAM, "batch", "-m", model, source or self.source, out or self.out, *flags]

    def batch(self, *flags, code=0, **options):
        names = {name: options.pop(name) for name in ("model", "source", "out") if name in options}
        done = subprocess.run(self.command(*flags, **names), capture_output=True, text=True, timeout=240, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def lines(self, path=None):
        text = pathlib.Path(path or self.out).read_text()
        self.assertTrue(text == "" or text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def answers(self, path=None):
        """By custom_id: text, tokens, and why it ended."""
        found = {}
        for line in self.lines(path):
            self.assertNotIn(line["custom_id"], found)
            self.assertEqual(line["response"]["status_code"], 200, line)
            body = line["response"]["body"]
            choice = body["choices"][0]
            self.assertEqual(list(body["usage"].pop("prompt_tokens_details")), ["cached_tokens"])  # depends on the others
            found[line["custom_id"]] = (choice["message"]["content"], body["usage"], choice["finish_reason"])
        return found

    def test_what_prompts_share_is_prefilled_once(self):
        system = "Answer as a dictionary would, in few words, without examples. " * 12
        requests = [chat(f"q{i}", "", messages=[{"role": "system", "content": system},
                                                {"role": "user", "content": f"What is a {WORDS[i % len(WORDS)]}?" + " More." * i}])
                    for i in range(20)]
        # Two that go on: behind the system's message they are like the others, then like each other.
        talk = [{"role": "user", "content": "What is a fern? " * 30}, {"role": "assistant", "content": "A plant."}]
        for i in range(2):
            requests.append(chat(f"talk{i}", "", messages=[{"role": "system", "content": system}, *talk,
                                                           {"role": "user", "content": f"{i}, and a {WORDS[i]}?"}]))
        self.write(requests)
        found, totals, cached = [], [], []
        for flags in (("--no-reuse", "--parallel", "8"), ("--parallel", "1"), ("--parallel", "6")):
            out = self.path("-".join(flags))
            totals.append(json.loads(self.batch("--json", *flags, out=out).stdout))
            found.append(self.answers(out))
            cached.append({line["custom_id"]: line["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"]
                           for line in self.lines(out)})
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0], found[2])
        self.assertEqual(set(cached[0].values()), {0})
        for one, total in zip(cached, totals):
            self.assertEqual(sum(one.values()), total["cached_tokens"])
            self.assertTrue(all(tokens % 64 == 0 for tokens in one.values()))
        # One at a time: all but the first begin behind the system's message, the second talk behind the first's.
        shared = cached[1]["q1"]
        self.assertGreaterEqual(shared, 128)
        self.assertEqual({cached[1][f"q{i}"] for i in range(1, 20)} - {shared, shared + 64}, set())
        self.assertEqual((cached[1]["q0"], cached[1]["talk0"]), (0, shared))
        self.assertGreaterEqual(cached[1]["talk1"], shared + 128)
        self.assertGreater(totals[2]["cached_tokens"], totals[2]["prompt_tokens"] / 3)

    def test_states_of_half_the_bytes_serve_too(self):
        system = {"role": "system", "content": "Answer as a dictionary would, in few words. " * 12}
        self.write([chat(f"q{i}", "", messages=[system, {"role": "user", "content": f"What is a {WORDS[i]}?"}]) for i in range(4)])
        totals = {}
        for dtype in ("f32", "bf16"):
            out = self.path(dtype)
            totals[dtype] = json.loads(self.batch("--json", "--parallel", "1", "--checkpoint-dtype", dtype, out=out).stdout)
            totals[dtype]["fingerprint"] = {line["response"]["body"]["system_fingerprint"] for line in self.lines(out)}
            self.assertEqual(totals[dtype]["answered"], 4)
        self.assertNotEqual(totals["f32"]["fingerprint"], totals["bf16"]["fingerprint"])
        self.assertIsNone(totals["f32"]["kept_rounding"])
        self.assertGreater(totals["bf16"]["kept_rounding"]["max_abs"], 0)
        self.assertGreaterEqual(totals["bf16"]["cached_tokens"], totals["f32"]["cached_tokens"])
        self.assertGreaterEqual(totals["bf16"]["cached_tokens"], 3 * 64)
        self.assertIn("leave one out", self.batch("--no-reuse", "--checkpoint-dtype", "bf16", code=2).stderr)

    def test_what_a_batch_kept_on_disk_serves_the_next(self):
        system = "Answer as a dictionary would, in few words, without examples. " * 12
        requests = [chat(f"q{i}", "", messages=[{"role": "system", "content": system},
                                                {"role": "user", "content": f"What is a {WORDS[i]}?"}]) for i in range(4)]
        self.write(requests)
        cache = self.path("cache")
        plain = json.loads(self.batch("--json", out=self.path("plain")).stdout)
        first = json.loads(self.batch("--json", "--state-cache", cache, out=self.path("first")).stdout)
        again = json.loads(self.batch("--json", "--state-cache", cache, out=self.path("again")).stdout)
        self.assertEqual(self.answers(self.path("plain")), self.answers(self.path("first")))
        self.assertEqual(self.answers(self.path("plain")), self.answers(self.path("again")))
        self.assertGreater(again["cached_tokens"], first["cached_tokens"])
        self.assertGreaterEqual(again["cached_tokens"], 4 * 128)
        self.assertEqual(plain["requests"], 4)
        # Listed, bounded, removed.
        listed = json.loads(subprocess.run([PROGRAM, "state", "ls", cache, "--json"], capture_output=True).stdout)
        self.assertEqual(sorted(state["state"] for state in listed["states"]), sorted(os.listdir(cache)))
        self.assertEqual(sum(state["bytes"] for state in listed["states"]), listed["bytes"])
        largest = max(state["bytes"] for state in listed["states"])
        self.batch("--state-cache", cache, "--state-cache-bytes", str(largest), out=self.path("small"))
        bound = json.loads(subprocess.run([PROGRAM, "state", "ls", cache, "--json"], capture_output=True).stdout)
        self.assertLessEqual(bound["bytes"], largest)
        self.assertGreater(len(bound["states"]), 0)

        def state(*arguments):
            done = subprocess.run([PROGRAM, "state", *arguments], capture_output=True, text=True)
            return done.returncode, done.stderr
        pathlib.Path(cache, "notes.txt").write_text("mine")
        self.assertEqual(state("rm", cache)[0], 2)
        self.assertEqual((state("rm", cache, "zz")[0], "'zz'" in state("rm", cache, "zz")[1]), (1, True))
        self.assertEqual(state("rm", cache, bound["states"][0]["state"][:16]), (0, ""))
        self.assertEqual(len(os.listdir(cache)), len(bound["states"]))  # one less, and the notes
        self.assertEqual(state("rm", cache, "--all"), (0, ""))
        self.assertEqual(os.listdir(cache), ["notes.txt"])
        self.assertEqual(state("ls", self.path("nowhere"))[0], 1)
        self.assertEqual(self.batch("--state-cache", cache, "--no-reuse", out=self.path("both"), code=2).stdout, "")

    def test_answers_are_those_of_run_alone(self):
        requests = questions(16)
        requests[1]["body"].update(temperature=0.8, seed=11)
        requests[2]["body"].update(temperature=0.8, seed=11, top_p=0.5, top_k=5)
        requests[3]["body"].update(stop=["a"])
        requests[4]["body"].update(messages=[{"role": "system", "content": "Be brief."}, *requests[4]["body"]["messages"]])
        self.write(requests)
        found = []
        for parallel in ("1", "8"):
            self.batch("--parallel", parallel, out=self.path(parallel))
            found.append(self.answers(self.path(parallel)))
        self.assertEqual(*found)
        self.assertEqual(len(found[0]), 16)
        flags = {1: ("--temp", "0.8", "--seed", "11"), 2: ("--temp", "0.8", "--seed", "11", "--top-p", "0.5", "--top-k", "5"),
                 3: ("--stop", "a"), 4: ("--system", "Be brief.")}
        for i, request in enumerate(requests[:8]):
            alone = json.loads(subprocess.run([PROGRAM, "run", "-m", MODEL, "-n", "16", "--json", *flags.get(i, ()),
                                               request["body"]["messages"][-1]["content"]],
                                              capture_output=True, check=True).stdout)
            text, usage, reason = found[0][f"q{i}"]
            self.assertEqual(text, alone["text"])
            self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (alone["prompt_tokens"], alone["generated_tokens"]))
            self.assertEqual(reason, "length" if alone["ended"] == "token_limit" else "stop")

    def test_a_strategy_and_the_totals(self):
        self.write(questions(6))
        self.batch()
        done = self.batch("--prefill", "ref", "--json", out=self.path("two"))
        totals = json.loads(done.stdout)
        self.assertEqual((totals["requests"], totals["answered"], totals["failed"], totals["kept"]), (6, 6, 0, 0))
        self.assertEqual((totals["strategy"], totals["prefill"]["ran"], totals["decode"]["ran"]), ("handoff", "ref", "cpu"))
        self.assertEqual(totals["prefill"]["emulated"], False)
        usages = [usage for _, usage, _ in self.answers(self.path("two")).values()]
        self.assertEqual(totals["prompt_tokens"], sum(usage["prompt_tokens"] for usage in usages))
        self.assertEqual(totals["completion_tokens"], sum(usage["completion_tokens"] for usage in usages))
        self.assertEqual({id: answer[1]["prompt_tokens"] for id, answer in self.answers().items()},
                         {id: answer[1]["prompt_tokens"] for id, answer in self.answers(self.path("two")).items()})

    def test_prompts_through_pipes(self):
        request = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "A tree is", "max_tokens": 8}}
        done = self.batch(source="-", out="-", input=json.dumps(request))
        body = json.loads(done.stdout)["response"]["body"]
        alone = json.loads(subprocess.run([PROGRAM, "run", "-m", MODEL, "-n", "8", "--raw", "--json", "A tree is"],
                                          capture_output=True, check=True).stdout)
        self.assertEqual((body["object"], body["choices"][0]["text"]), ("text_completion", alone["text"]))

    def test_an_answer_comes_while_the_pipe_is_open(self):
        program = subprocess.Popen(self.command("-q", source="-", out="-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("a", "b"):
            program.stdin.write(json.dumps(chat(name, "What is salt?")) + "\n")
            program.stdin.flush()
            self.assertEqual(json.loads(program.stdout.readline())["custom_id"], name)
        program.stdin.close()
        self.assertEqual(program.wait(60), 0)
        program.stdout.close()

    def test_bad_lines_are_answered_with_their_errors(self):
        self.write([chat("good", "What is salt?"), '{"custom_id": "torn", ', chat("good", "again"), "", {"custom_id": 5},
                    {**chat("url", "x"), "url": "/v1/embeddings"}, chat("stream", "x", stream=True), chat("n", "x", n=2),
                    chat("long", "word " * 3000), chat("typo", "x", max_token=5), chat("last", "What is iron?")])
        done = self.batch("-c", "256", code=1)
        self.assertIn("8 of 10 lines have no answer", done.stderr)
        self.assertIn("line 2, byte ", done.stderr)
        lines = self.lines()
        self.assertEqual(len(lines), 10)
        by_number = {int(line["id"].rsplit("_", 1)[1]): line for line in lines}
        for number, code, custom_id in ((2, "invalid_json_line", None), (3, "duplicate_custom_id", "good"),
                                        (5, "missing_required_parameter", None), (6, "invalid_url", "url")):
            line = by_number[number]
            self.assertEqual((line["response"], line["error"]["code"], line["custom_id"]), (None, code, custom_id))
            self.assertIn(f"in.jsonl, line {number}", line["error"]["message"])
        offset = len(json.dumps(chat("good", "What is salt?"))) + 1 + len('{"custom_id": "torn", ')
        self.assertIn(f"byte {offset} of the file", by_number[2]["error"]["message"])
        for number, param, code in ((7, "stream", "unsupported_parameter"), (8, "n", "unsupported_parameter"),
                                    (9, "messages", "context_length_exceeded"), (10, "max_token", "unknown_parameter")):
            line = by_number[number]
            error = line["response"]["body"]["error"]
            self.assertEqual((line["error"], line["response"]["status_code"], error["param"], error["code"]), (None, 400, param, code))
        for number in (1, 11):
            self.assertEqual(by_number[number]["response"]["status_code"], 200)
        before = pathlib.Path(self.out).read_bytes()
        self.batch("-c", "256", code=1)
        self.assertEqual(pathlib.Path(self.out).read_bytes(), before)

    def test_a_mended_line_is_asked(self):
        self.write([chat("a", "What is salt?"), '{"custom_id": "b"'])
        self.batch(code=1)
        self.write([chat("a", "What is salt?"), chat("b", "What is iron?")])
        self.batch()
        self.assertEqual(sorted(str(line["custom_id"]) for line in self.lines()), ["None", "a", "b"])

    def test_a_kill_loses_nothing_that_was_answered(self):
        self.write(questions(40, max_tokens=48))
        self.batch("--ignore-eos", model=LARGER, out=self.path("whole"))
        killed = 0
        for _ in range(20):
            program = subprocess.Popen(self.command("--ignore-eos", model=LARGER), stderr=subprocess.DEVNULL)
            size = os.path.getsize(self.out) if os.path.exists(self.out) else 0
            while program.poll() is None and (not os.path.exists(self.out) or os.path.getsize(self.out) <= size):
                time.sleep(0.005)
            program.kill()
            killed += program.wait() == -signal.SIGKILL
            count = len(self.lines())
            self.assertGreater(count, 0)
            if count > 30:
                break
            with open(self.out, "a") as out:
                out.write('{"id":"batch_req_000000040","custom_id":"q3')
        self.assertGreater(killed, 0)
        kept = pathlib.Path(self.out).read_bytes()
        done = self.batch("--ignore-eos", "--json", model=LARGER)
        self.assertTrue(pathlib.Path(self.out).read_bytes().startswith(kept[:kept.rindex(b"\n") + 1]))
        self.assertEqual(self.answers(), self.answers(self.path("whole")))
        self.assertEqual(json.loads(done.stdout)["kept"], kept.count(b"\n"))

    def test_a_torn_line_is_cut_off_wherever_it_ends(self):
        self.write(questions(3))
        self.batch("--parallel", "1")
        whole = pathlib.Path(self.out).read_bytes()
        last = whole[:-1].rindex(b"\n") + 1
        for end in (last + 1, last + 30, len(whole) - 1):
            pathlib.Path(self.out).write_bytes(whole[:end])
            done = self.batch("--parallel", "1")
            self.assertIn("torn", done.stderr)
            self.assertEqual(len(self.answers()), 3)

    def test_files_of_other_batches_are_left_alone(self):
        self.write(questions(2))
        self.batch()
        whole = pathlib.Path(self.out).read_bytes()
        for flags, names, words in (((), {"model": LARGER}, ("dictionary-3m", "dictionary-28m")),
                                    (("--temp", "0.5"), {}, ("flags", "another OUT")),
                                    (("--prefill", "ref"), {}, ("other units",))):
            done = self.batch(*flags, code=2, **names)
            for word in words:
                self.assertIn(word, done.stderr)
            self.assertEqual(pathlib.Path(self.out).read_bytes(), whole)
        self.write([chat("other", "What is salt?")])
        whole += b'{"id":"batch_'
        pathlib.Path(self.out).write_bytes(whole)
        self.assertIn("does not ask", self.batch(code=2).stderr)
        self.assertEqual(pathlib.Path(self.out).read_bytes(), whole)
        for text in ("Dear reader,\nno newline", "no newline", "{}\n", whole.decode() + "and more\n", whole.decode()[:-13] + "more"):
            pathlib.Path(self.out).write_text(text)
            self.assertIn("no answer of a batch", self.batch(code=2).stderr)
            self.assertEqual(pathlib.Path(self.out).read_text(), text)

    def test_two_batches_do_not_share_a_file(self):
        self.write(questions(2))
        program = subprocess.Popen(self.command("-q", source="-"), stdin=subprocess.PIPE)
        while not os.path.exists(self.out):
            time.sleep(0.01)
        time.sleep(0.2)
        self.assertIn("another batch", self.batch(code=2).stderr)
        program.stdin.close()
        self.assertEqual(program.wait(60), 0)

    def test_an_interrupt_keeps_what_was_answered(self):
        self.write(questions(200, max_tokens=64))
        program = subprocess.Popen(self.command("--ignore-eos", model=LARGER), stderr=subprocess.PIPE, text=True)
        while not os.path.exists(self.out) or os.path.getsize(self.out) == 0:
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        _, stderr = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, stderr)
        self.assertIn("the same command goes on", stderr)
        self.assertTrue(0 < len(self.answers()) < 200)

    def test_a_full_disk_is_a_failure_without_half_a_line(self):
        self.write(questions(30))
        self.assertIn("No space left", self.batch(code=1, out="/dev/full").stderr)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        full = self.batch(code=1, preexec_fn=limit)
        self.assertIn("cannot write: File too large", full.stderr)
        count = len(self.answers())
        self.assertTrue(0 < count < 30)
        totals = json.loads(self.batch("--json").stdout)
        self.assertEqual((totals["kept"], totals["answered"]), (count, 30))
        self.assertEqual(len(self.answers()), 30)

    def test_usage(self):
        self.write(questions(1))
        for flags, names, code, words in ((("--verify-bridge", "all"), {}, 2, "--verify-bridge"),
                                          (("--json",), {"out": "-"}, 2, "--json"),
                                          (("--parallel", "0"), {}, 2, "--parallel"),
                                          ((), {"out": self.source}, 2, "would replace"),
                                          ((), {"source": self.path("none")}, 1, "none"),
                                          ((), {"out": self.path("none/out")}, 1, "no folder"),
                                          ((), {"source": self.folder.name}, 1, "directory")):
            done = self.batch(*flags, code=code, **names)
            self.assertIn(words, done.stderr)
            self.assertFalse(os.path.exists(self.out), flags)


if __name__ == "__main__":
    unittest.main()
