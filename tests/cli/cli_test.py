#!/usr/bin/env python3
"""The program from outside: exit codes, what goes to stdout and stderr, JSON fields, interrupts, files.

usage: cli_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
SMALL = str(GOLDEN / "dictionary-3m")
CONTRACT = {"text", "ids", "prompt_tokens", "ttft_ms", "prefill_tps", "decode_tps", "prefill", "decode", "bridge", "fallback"}


def run(*arguments, **options):
    options.setdefault("timeout", 120)
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, **options)


def golden(folder):
    data = (GOLDEN / folder / "golden.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    out = {}
    for name, info in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            kind = "f" if info["dtype"] == "F32" else "i"
            out[name] = struct.unpack(f"<{(end - begin) // 4}{kind}", data[8 + size + begin:8 + size + end])
    return out


BUNDLED = ROOT / "models" / "dictionary-3m.Q8_0.gguf"
HOSTILE = b"\x1b[2J\x1b]0;x\x07\r\xc2\x9b"  # clears the screen, names the window, and more: as long as the name


class HostileNames(unittest.TestCase):
    """What a model or an argument calls itself goes to a terminal as text, never as commands."""
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = os.path.join(folder.name, "m.gguf")

    def named(self, key, value):
        """The bundled model with another text of the same length in a field."""
        data = bytearray(BUNDLED.read_bytes())
        at = data.index(key) + len(key) + 4
        size, = struct.unpack_from("<Q", data, at)
        data[at + 8:at + 8 + size] = value[:size].ljust(size, b"x")
        pathlib.Path(self.model).write_bytes(data)

    def shown(self, code, *arguments):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        text = done.stdout + done.stderr
        for raw in (b"\x1b", b"\x07", b"\r", b"\xc2\x9b"):
            self.assertNotIn(raw, text, arguments)
        return text

    def test_a_models_name(self):
        self.named(b"general.name", HOSTILE)
        self.assertIn(b"\\x1b[2J", self.shown(0, "inspect", self.model))
        self.shown(0, "inspect", self.model, "--json")
        self.shown(0, "run", "-m", self.model, "--temp", "0", "-n", "2", "What is a tree?")
        self.assertIn(b"x1b[2J", self.shown(0, "run", "-m", self.model, "--json", "-n", "2", "What is a tree?"))
        self.shown(0, "bench", "-m", self.model, "-p", "8", "-n", "0", "-r", "1", "--no-limits", "--no-check")

    def test_an_error_about_a_model(self):
        self.named(b"general.architecture", HOSTILE)
        for command in (("inspect", self.model), ("run", "-m", self.model, "hi"), ("bench", "-m", self.model)):
            self.assertIn(b"\\x1b[2J", self.shown(1, *command))

    def test_an_error_about_an_argument(self):
        name = HOSTILE.decode()
        for code, command in ((1, ("run", "-m", name, "hi")), (1, ("inspect", name)), (2, ("run", "--decode", name, "-m", SMALL, "hi")),
                              (2, (name,)), (2, ("run", "-n", name, "hi"))):
            self.assertIn(b"\\x1b[2J", self.shown(code, *command))


class Run(unittest.TestCase):
    def test_main_job_on_the_bundled_model(self):
        done = run("run", "--prefill", "ref", "--decode", "cpu", "--temp", "0", "What is a compiler?")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1, "the answer alone: " + done.stdout)
        for word in ("first token", "prefill", "ran on ref as asked", "ran on cpu as asked", "bridge ", "context ", "ended by"):
            self.assertIn(word, done.stderr)
        quiet = run("run", "-q", "--prefill", "ref", "--decode", "cpu", "--temp", "0", "What is a compiler?")
        self.assertEqual((quiet.stdout, quiet.stderr), (done.stdout, ""))

    def test_the_ordinary_case_is_said_once(self):
        figures = run("run", "-m", SMALL, "--temp", "0", "-n", "4", "--ignore-eos", "What is a tree?").stderr
        self.assertRegex(figures, r"(?m)^model +" + re.escape(pathlib.Path(SMALL).name) + "$")
        self.assertEqual(figures.count("cpu"), 1, figures)
        self.assertIn("4 tokens, ended by the limit of -n", figures)

    def test_parts_of_the_first_token_add_up(self):
        for arguments in ((), ("--prefill", "ref"), ("--prefill", "ref", "--verify-bridge", "all")):
            answer = json.loads(run("run", "-m", SMALL, "--temp", "0", "-n", "4", "--json", *arguments, "What is a tree?").stdout)
            self.assertAlmostEqual(sum(answer["first_token"].values()), answer["ttft_ms"], places=3)
            self.assertGreater(answer["load_ms"], 0)
            self.assertEqual(answer["context_used"], answer["prompt_tokens"] + answer["generated_tokens"])

    def test_what_is_not_known_is_null(self):
        done = run("run", "-m", SMALL, "--json", "-n", "0", "What is a tree?")
        answer = json.loads(done.stdout)
        for name in ("ttft_ms", "first_token", "decode_tps"):
            self.assertIsNone(answer[name], name)
        self.assertEqual(answer["ended"], "token_limit")
        one = json.loads(run("run", "-m", SMALL, "--json", "-n", "1", "--ignore-eos", "What is a tree?").stdout)
        self.assertIsNone(one["decode_tps"])
        self.assertGreater(one["ttft_ms"], 0)
        self.assertIsNone(json.loads(run("run", "-m", SMALL, "--json", "-n", "1", "--ids", "1").stdout)["prefill_tps"])

    def test_why_it_ended(self):
        def ended(*arguments):
            return json.loads(run("run", "-m", SMALL, "--temp", "0", "--json", *arguments, "What is a tree?").stdout)["ended"]
        self.assertEqual(ended("-n", "3", "--ignore-eos"), "token_limit")
        self.assertEqual(ended("-c", "20", "--ignore-eos"), "context_full")
        self.assertEqual(ended(), "end_token")
        self.assertEqual(ended("--stop", "a"), "stop_string")
        text = run("run", "-m", SMALL, "--temp", "0", "-c", "20", "--ignore-eos", "What is a tree?").stderr
        self.assertIn("the context of 20 tokens is full", text)
        self.assertIn("of 20 tokens used", text)

    def test_json_has_the_promised_fields(self):
        done = run("run", "-m", SMALL, "--prefill", "ref", "--decode", "cpu", "--temp", "0", "-n", "8", "--json",
                   "--ignore-eos", "--verify-bridge", "sample", "What is a compiler?")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertLessEqual(CONTRACT, answer.keys())
        self.assertEqual(answer["prefill"]["asked"], "ref")
        self.assertEqual(answer["prefill"]["ran"], "ref")
        self.assertEqual(answer["decode"]["ran"], "cpu")
        self.assertTrue(answer["bridge"]["verified"])
        self.assertGreater(answer["bridge"]["bytes"], 0)
        self.assertEqual(answer["bridge"]["agreement"], 1.0)
        self.assertLessEqual(answer["bridge"]["max_abs_dlogit"], answer["bridge"]["tolerance"])
        self.assertIsNone(answer["fallback"])
        self.assertEqual(len(answer["ids"]), 8)

    def test_a_relay_says_who_decoded_what(self):
        arguments = ("run", "-m", SMALL, "--ids", "1,2,3,4", "-n", "24", "--ignore-eos", "--json")
        alone = json.loads(run(*arguments, "--decode", "cpu").stdout)
        done = run(*arguments, "--prefill", "cpu:threads=1", "--via", "cpu", "--decode", "cpu:threads=2", "-t", "1",
                   "--verify-bridge", "sample")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["strategy"], answer["ids"]), ("relay", alone["ids"]))
        self.assertEqual((answer["via"]["ran"], answer["via"]["tokens"]), ("cpu", 16))
        self.assertEqual(answer["bridge"]["proof"]["states"], 2)
        self.assertNotIn("via", alone)

    def test_ids_in_logits_and_greedy_out(self):
        for folder in ("tiny-qwen3.5", "tiny-llama", "dictionary-3m"):
            vectors = golden(folder)
            prompt = "len65." if folder.startswith("dictionary") else ""
            ids, greedy = vectors[prompt + "ids"], vectors[prompt + "greedy"]
            logits = vectors[prompt + "last_logits"] if prompt else vectors["logits"][-256:]
            with tempfile.TemporaryDirectory() as folder_name:
                file = os.path.join(folder_name, "logits.f32")
                done = run("run", "-m", str(GOLDEN / folder), "--decode", "ref", "--ids", ",".join(map(str, ids)), "--temp", "0",
                           "--ignore-eos", "-n", str(len(greedy)), "--dump-logits", file, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(done.stdout)["ids"], list(greedy))
                data = pathlib.Path(file).read_bytes()
                written = struct.unpack(f"<{len(data) // 4}f", data)
                self.assertEqual(len(written), len(logits))
                self.assertLess(max(abs(a - b) for a, b in zip(written, logits)), 2e-3)

    def test_ids_of_a_model_without_a_tokenizer_are_a_line(self):
        model = os.path.join(ROOT, "tests", "data", "golden", "tiny-llama")
        done = run("run", "-m", model, "--ids", "1,2,3", "-n", "3", "-q", "--ignore-eos")
        self.assertRegex(done.stdout, r"\A\d+,\d+,\d+\n\Z")

    def test_a_stop_text_keeps_the_state_and_the_logits(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("a.state", "a.f32", "b.state", "b.f32")]
            arguments = ("run", "-m", SMALL, "--temp", "0", "--ignore-eos", "-n", "200", "--json", "Define water.")
            whole = run(*arguments, "--save-state", paths[0], "--dump-logits", paths[1])
            self.assertEqual(whole.returncode, 0, whole.stderr)
            for at in (0, 5):  # the first token's text, and later
                stop = json.loads(whole.stdout)["text"].strip()[at:at + 2]
                cut = run(*arguments, "--stop", stop, "--save-state", paths[2], "--dump-logits", paths[3])
                self.assertEqual(cut.returncode, 0, cut.stderr)
                self.assertEqual(json.loads(cut.stdout)["ended"], "stop_string")
                for a, b in ((paths[0], paths[2]), (paths[1], paths[3])):
                    self.assertEqual(pathlib.Path(a).read_bytes(), pathlib.Path(b).read_bytes())
                    os.unlink(b)

    def test_prompts_through_pipes_and_files(self):
        def ids(*arguments, **options):
            done = run("run", "-m", SMALL, "--temp", "0", "-n", "6", "--json", *arguments, **options)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["ids"]
        wanted = ids("What is a tree?")
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "prompt.txt")
            pathlib.Path(file).write_text("What is a tree?\n")
            for arguments in ((), ("-",), ("-p", "-"), ("-f", "-"), ("-f", "/dev/stdin")):
                self.assertEqual(ids(*arguments, input="What is a tree?\n"), wanted, arguments)
            self.assertEqual(ids("-f", file), wanted)
            with open(file) as opened:
                self.assertEqual(ids(stdin=opened), wanted)
            if os.path.exists("/proc/self/cmdline"):  # of size 0 by stat
                self.assertTrue(ids("--raw", "-f", "/proc/version"))
            empty = os.path.join(folder, "empty.txt")
            open(empty, "w").close()
            for arguments, code, words in ((("-f", empty), 1, "empty.txt: is empty"), (("-p", ""), 2, "the prompt is empty"),
                                           (("-f", "-"), 2, "standard input is empty"), (("-f", folder), 1, folder)):
                done = run("run", "-m", SMALL, *arguments, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(words, done.stderr)

    def test_a_pipe_beside_a_prompt_is_read_when_asked_for(self):
        """A loop's input stays the loop's; -f - puts it behind the prompt."""
        few = ("-m", SMALL, "--temp", "0", "-n", "4")
        for command in (("run", "-q", *few, "What is"), ("chat", *few, "-p", "What is")):
            piped, ours = os.pipe()
            os.write(ours, b"a tree?\r\n")
            done = run(*command, stdin=piped)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("pipe is not read", done.stderr)
            self.assertIn("-f -", done.stderr)
            self.assertEqual(os.read(piped, 100), b"a tree?\r\n")
            os.close(ours)
            closed = run(*command, stdin=piped)
            os.close(piped)
            self.assertNotIn("pipe is not read", closed.stderr)
            both = run(*command, "-f", "-", input="a tree?\r\n")
            self.assertNotIn("pipe is not read", both.stderr)
            whole = run(*command[:-1], "What is\n\na tree?", stdin=subprocess.DEVNULL)
            self.assertEqual(both.stdout, whole.stdout)
        ids = [json.loads(run("run", *few, "--json", *arguments, input="a tree?\n").stdout)["prompt_tokens"]
               for arguments in (("What is", "-f", "-"), ("What is\n\na tree?",))]
        self.assertEqual(*ids)

    def test_the_bundled_model_says_that_it_answers(self):
        arguments = ("run", "-n", "2", "--temp", "0", "What is a fern?")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("dictionary-28m.Q8_0.gguf", "dictionary-3m.Q8_0.gguf"):
                os.symlink(ROOT / "models" / name, os.path.join(folder, name))
            here = {**os.environ, "BATON_MODELS": folder}
            self.assertIn("no -m: the bundled dictionary-28m.Q8_0.gguf answers", run(*arguments, env=here).stderr)
        for quiet in (("-q",), ("--json",), ("-m", SMALL)):
            self.assertNotIn("bundled", run(*arguments, *quiet).stderr)
        none = run(*arguments, "-q", env={**os.environ, "BATON_MODELS": str(BUNDLED)})
        self.assertEqual(none.stderr, f"baton: warning: BATON_MODELS: {BUNDLED} is no folder; the bundled model is looked for elsewhere\n")

    def test_a_better_model_beside_the_bundled_one_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("dictionary-28m.Q8_0.gguf", "smollm2-135m-instruct.Q4_1.gguf"):
                pathlib.Path(folder, name).write_bytes(BUNDLED.read_bytes())
            done = run("run", "-n", "2", "What is a fern?", env={**os.environ, "BATON_MODELS": folder})
            self.assertIn(f"-m {os.path.join(os.path.realpath(folder), 'smollm2-135m-instruct.Q4_1.gguf')}\n", done.stderr)

    def test_a_model_in_the_place_of_a_question(self):
        for arguments in (("run", str(BUNDLED)), ("run", str(BUNDLED), "hi"), ("run", "-p", SMALL), ("run", "hi", SMALL),
                          ("chat", SMALL), ("chat", "-p", SMALL)):
            done = run(*arguments, stdin=subprocess.DEVNULL)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn("is a model, not a question: give it with -m", done.stderr)

    def test_what_the_context_holds_and_what_it_cut(self):
        done = run("run", "-m", SMALL, "-c", "64", "word " * 300)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"has (\d+) tokens, the context holds 64: shorten it, or -c \d+ \(this model: up to 4096\)")
        cut = run("run", "-q", "-m", SMALL, "-c", "24", "--ignore-eos", "What is a fern?")
        self.assertEqual(cut.returncode, 0)
        self.assertIn("the context of 24 tokens is full: the answer ends here; more with -c 48", cut.stderr)
        self.assertEqual(run("run", "-q", "-m", SMALL, "--n-predict", "2", "What is a fern?").stderr, "")

    def test_outputs_go_where_they_were_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe, link, real = (os.path.join(folder, name) for name in ("pipe", "link", "real"))
            os.mkfifo(pipe)
            os.symlink("real", link)
            arguments = ("run", "-m", SMALL, "--raw", "Hello there", "-n", "0", "-q")
            reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
            done = run(*arguments, "--save-state", link, "--dump-logits", pipe)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(len(reader.communicate(timeout=20)[0]), 1000)
            self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
            self.assertTrue(os.path.islink(link))
            self.assertEqual(stat.S_IMODE(os.stat(real).st_mode), 0o600)
            self.assertEqual(sorted(os.listdir(folder)), ["link", "pipe", "real"])
            full = run(*arguments, "--save-state", "/dev/full")
            self.assertEqual(full.returncode, 1)
            self.assertIn("/dev/full: cannot write: No space left on device", full.stderr)
            state = os.path.join(folder, "grown")
            grown = run(*arguments, "--save-state", state, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50 << 10, 50 << 10)))
            self.assertEqual(grown.returncode, 1, grown.stderr)
            self.assertIn(f"{state}: cannot write: File too large", grown.stderr)
            self.assertFalse(os.path.exists(state))
            missing = run("convert", SMALL, "/nosuch/x.gguf")
            self.assertEqual(missing.returncode, 1)
            self.assertIn("/nosuch/x.gguf: there is no folder /nosuch", missing.stderr)
            self.assertNotIn(".tmp", missing.stderr)
            converted = run("convert", SMALL, "/dev/null")
            self.assertEqual(converted.returncode, 0, converted.stderr)
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
            gguf = os.path.join(folder, "m.gguf")
            self.assertEqual(run("convert", SMALL, gguf, preexec_fn=lambda: os.umask(0o022)).returncode, 0)
            self.assertEqual(stat.S_IMODE(os.stat(gguf).st_mode), 0o644)

    def test_output_that_is_lost_is_a_failure(self):
        reports = (("run", "-m", SMALL, "-n", "3", "Hi"), ("run", "-m", SMALL, "-n", "3", "--json", "Hi"), ("units",),
                   ("inspect", SMALL), ("inspect", "--json", SMALL), ("--help",), ("chat", "-m", SMALL, "-n", "3"))
        for arguments in reports:
            with self.subTest(arguments=arguments):
                with open("/dev/full", "w") as full:
                    done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, input=b"Hi\n", timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(b"standard output: cannot write: No space left on device", done.stderr)
                closed = subprocess.run([PROGRAM, *arguments], stderr=subprocess.PIPE, input=b"Hi\n", timeout=60,
                                        preexec_fn=lambda: os.close(1))
                self.assertEqual(closed.returncode, 1, closed.stderr)
                self.assertIn(b"standard output: cannot write", closed.stderr)
                self.assertNotIn(b"ended by an interrupt", done.stderr + closed.stderr)

    def test_a_reader_that_leaves_ends_the_work(self):
        program = subprocess.Popen([PROGRAM, "run", "--decode", "ref", "--ignore-eos", "-n", "4000", "--temp", "0", "What is a tree?"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertNotEqual(program.stdout.read(4), b"")
        start = time.monotonic()
        program.stdout.close()
        self.assertEqual(program.wait(timeout=20), 141)
        program.stderr.close()
        self.assertLess(time.monotonic() - start, 5)

    def test_system_prompt_needs_the_template(self):
        for arguments in (("--raw", "x"), ("--load-state", "none.state", "x"), ("--ids", "1")):
            done = run("run", "-m", SMALL, "--system", "Be brief.", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--system", done.stderr)
            self.assertIn(arguments[0], done.stderr)

    def test_what_was_asked_for_and_cannot_be_had_is_said(self):
        done = run("run", "-m", SMALL, "-n", "1", "-c", "100000", "-t", str(os.cpu_count() + 1), "Hi")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("-c 100000: the model was made for", done.stderr)
        self.assertIn("more threads than that are slower", done.stderr)
        self.assertNotIn("warning", run("run", "-m", SMALL, "-n", "1", "Hi").stderr)

    @unittest.skipIf("BATON_TEST_SANITIZED" in os.environ, "a sanitizer takes terabytes of address space")
    def test_little_memory_and_few_threads_are_errors(self):
        ends = set()
        # Below the size of the program itself the system ends it.
        program = os.path.getsize(PROGRAM) // (1 << 20) + 16
        for megabytes in list(range(max(16, program), 200, 16)) + list(range(200, 1400, 300)):
            done = run("run", "-m", SMALL, "-n", "2", "-t", "4", "-q", "Hi",
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20)))
            self.assertIn(done.returncode, (0, 1, 127), f"{megabytes} MB: {done.returncode} {done.stderr}")  # 127: the loader
            self.assertTrue(done.returncode == 0 or done.stderr, megabytes)
            self.assertNotIn("terminate", done.stderr)
            ends.add(done.returncode)
        self.assertLessEqual({0, 1}, ends)

    def test_same_seed_same_answer(self):
        answers = [json.loads(run("run", "-m", SMALL, "--temp", "1", "--seed", "7", "-n", "12", "--json", "Define water.").stdout)
                   for _ in range(2)]
        self.assertEqual(answers[0]["ids"], answers[1]["ids"])
        self.assertEqual(answers[0]["seed"], 7)

    def test_state_saved_and_gone_on_from(self):
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "s.state")
            first, second = "The compiler reads", " the source code and"
            done = run("run", "-m", SMALL, "--raw", first, "-n", "0", "--save-state", state, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            whole = json.loads(run("run", "-m", SMALL, "--raw", first + second, "--temp", "0", "-n", "10", "--json").stdout)
            resumed = run("run", "-m", SMALL, "--load-state", state, second, "--temp", "0", "-n", "10", "--json")
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
            self.assertEqual(json.loads(resumed.stdout)["ids"], whole["ids"])
            damaged = bytearray(pathlib.Path(state).read_bytes())
            damaged[len(damaged) // 2] ^= 4
            pathlib.Path(state).write_bytes(damaged)
            refused = run("run", "-m", SMALL, "--load-state", state, second, "-n", "4")
            self.assertEqual(refused.returncode, 1)
            self.assertIn(state, refused.stderr)
            self.assertEqual(refused.stdout, "")

    def test_what_continues_a_state_gets_no_bos(self):
        with tempfile.TemporaryDirectory() as folder:
            state, source = os.path.join(folder, "s.state"), pathlib.Path(folder, "m")
            source.mkdir()
            for file in (GOLDEN / "dictionary-3m").iterdir():
                if file.name != "tokenizer_config.json" and not file.name.startswith("golden"):
                    (source / file.name).symlink_to(file)
            config = json.loads((GOLDEN / "dictionary-3m/tokenizer_config.json").read_text())
            config.update(add_bos_token=True, add_eos_token=True, bos_token="<|im_start|>")
            (source / "tokenizer_config.json").write_text(json.dumps(config))
            first, second = "A long document", " A question"
            done = run("run", "-m", str(source), "--raw", first, "-n", "0", "--save-state", state, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            whole = run("run", "-m", str(source), "--raw", first + second, "--temp", "0", "-n", "5", "--json")
            resumed = run("run", "-m", str(source), "--load-state", state, second, "--temp", "0", "-n", "5", "--json")
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
            whole, resumed = json.loads(whole.stdout), json.loads(resumed.stdout)
            self.assertEqual(resumed["prompt_tokens"], whole["prompt_tokens"])
            self.assertEqual(resumed["ids"], whole["ids"])

    def test_state_of_another_model_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "s.state")
            self.assertEqual(run("run", "-m", SMALL, "--raw", "Hello there", "-n", "0", "--save-state", state).returncode, 0)
            refused = run("run", "--load-state", state, "and more", "-n", "4")
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, "model")

    def test_usage_errors_are_2_and_say_what_there_is(self):
        for arguments, words in (
                ((), "no command; there are: run, chat"),
                (("run",), "no prompt"),
                (("runn", "hi"), "no command 'runn'; did you mean run?"),
                (("What is a tree?",), 'baton run "What is a tree?"'),
                (("run", "-hf", "Qwen/Qwen3.5-0.8B", "hi"), "no flag '-hf' here: `baton pull OWNER/NAME:TYPE` fetches"),
                (("run", "-ngl", "99", "hi"), "no flag '-ngl' here: --prefill and --decode"),
                (("run", "--tempp", "1", "hi"), "no flag '--tempp'; did you mean --temp?"),
                (("embed", "-m", "x", "-ngl", "9", "hi"), "no flag '-ngl' here: --unit chooses the unit"),
                (("perplexity", "-ngl", "9"), "no flag '-ngl' here: --unit chooses the unit"),
                (("imatrix", "-ngl", "9"), "no flag '-ngl' here: --unit chooses the unit"),
                (("run", "--unit", "cuda", "hi"), "no flag '--unit' here: --prefill and --decode"),
                (("run", "-fit", "on", "hi"), "no flag '-fit' here: --prefill and --decode"),
                (("run", "-mg", "0", "hi"), "no flag '-mg' here: --prefill and --decode"),
                (("run", "-md", "x", "hi"), "no flag '-md' here: no second model"),
                (("batch", "-b", "512", "x"), "no flag '-b' here: --step-tokens"),
                (("serve", "-np", "4"), "no flag '-np' here: --parallel"),
                (("chat", "-st"), "no flag '-st' here: the command `baton run`"),
                (("run", "--json-schema", "{}", "hi"), "(docs/constrained.md)"),
                (("run", "--lora-scaled", "x", "1", "hi"), "no flag '--lora-scaled' here: --lora PATH=SCALE"),
                (("run", "--keep", "5", "hi"), "no flag '--keep' here: nothing is shifted out"),
                (("embed", "-m", "x", "--embd-normalize", "2", "hi"), "with --raw they are as they come"),
                (("run", "--keek", "hi"), "no flag '--keek'\n"),
                (("chat", "--expert-stats"), "no flag '--expert-stats' here: `baton run` has it"),
                (("run", "-n", "-5", "hi"), "-n (--predict): -5 is not from -1"),
                (("run", "--predict", "-5", "hi"), "baton: --predict: -5 is not from -1"),
                (("run", "--temp", "abc", "hi"), "'abc' is not a number"),
                (("run", "--temp", "101", "hi"), "101 is not from 0 to 100"),
                (("run", "two", "words"), "put a prompt of several words in quotes"),
                (("chat", "words"), "a first question is given with -p"),
                (("pull", "../x"), "no name of a model"),
                (("list",), "see ls for models"),
                (("bench", "--ab", "x"), "--ab: takes at least 2 values, not 1"),
                (("run", "-f", "x", "-"), "more than one prompt"),
                (("run", "-s", "-2", "hi"), "--seed"),
                (("run", "-s", "9223372036854775808", "hi"), "--seed"),
                (("run", "-c", "-1", "hi"), "ctx-size"),
                (("run", "--ids", "1,2,x"), "'x' is not a token id"),
                (("run", "--strategy", "single", "--prefill", "ref", "--decode", "cpu", "-m", "/nosuch.gguf", "x"), "strategy 'single'"),
                (("quantize", "a.gguf", "b.gguf", "Q4KM"), "Q4_K_M"),
                (("convert", "a", "b", "--type", "Q4_K_M"), "no such type"),
                (("convert", "a", "b", "--type", "IQ2_XXS"), "is not written"),
                (("quantize", "a", "b", "IQ3_M"), "is not written"),
                (("quantize", "a", "b", "TQ1_0"), "--tensor-type '.*=TQ1_0'"),
                (("run", "--decode", "tpu", "x"), "no unit named 'tpu'; there are: ref, cpu"),
                (("inspect", "--decode", "tpu", SMALL), "no unit named 'tpu'"),
                (("inspect", "--unit", "tpu", SMALL), "no unit named 'tpu'"),
                (("run", "--strategy", "magic", "x"), "strategy 'magic' does not exist"),
                (("run", "--strategy", "relay", "x"), "needs a via unit"),
                (("run", "--strategy", "handoff", "--via", "ref", "x"), "goes straight to the decode unit"),
                (("run", "--via", "npu", "x"), "npu"),
                (("run", "--verify-bridge", "maybe", "x"), "sample"),
                (("run", "--temp", "-1", "x"), "temp"),
                (("run", "--top-p", "2", "x"), "top-p"),
                (("run", "-n", "many", "x"), "predict"),
                (("run", "--ids", "1,x"), "x"),
                (("run", "--ids", "1", "text"), "more than one prompt"),
                (("frobnicate",), "no command 'frobnicate'"),
                (("run", "--no-such-flag", "x"), "no-such-flag")):
            with self.subTest(arguments=arguments):
                done = run(*arguments, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_failures_are_1_and_name_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = os.path.join(folder, "empty.gguf")
            open(empty, "w").close()
            for arguments, words in (
                    (("run", "-m", os.path.join(folder, "none.gguf"), "x"), "none.gguf"),
                    (("run", "-m", "llama3", "x"), "baton pull OWNER/NAME"),
                    (("run", "-m", empty, "x"), "empty.gguf"),
                    (("run", "-m", folder, "x"), folder),
                    (("inspect", "/dev/zero"), "/dev/zero"),
                    (("run", "-m", str(GOLDEN / "tiny-llama"), "text"), "tokenizer.json"),
                    (("run", "-m", SMALL, "--ids", "99999"), "99999"),
                    (("run", "-m", SMALL, "--raw", "word " * 3000, "-c", "64"), "64"),
                    (("run", "-m", SMALL, "x", "--load-state", empty), "empty.gguf")):
                with self.subTest(arguments=arguments):
                    done = run(*arguments)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn(words, done.stderr)
                    self.assertEqual(done.stdout, "")

    def test_what_is_saved_in_a_models_place_is_called_so(self):
        with tempfile.TemporaryDirectory() as place:
            file = pathlib.Path(place) / "m.gguf"
            for content, words in ((b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs"),
                                   (b"\n<!DOCTYPE html><html></html>", "HTML page"),
                                   (b"something else", "not a GGUF file")):
                file.write_bytes(content)
                done = run("inspect", str(file))
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
            for method in ("bitsandbytes", "hqq", "aqlm", "unheard-of"):
                folder = pathlib.Path(place) / method
                shutil.copytree(ROOT / "tests" / "data" / "golden" / "tiny-llama", folder)
                config = json.loads((folder / "config.json").read_text())
                (folder / "config.json").write_text(json.dumps({**config,
                                                                "quantization_config": {"quant_method": method}}))
                done = run("inspect", str(folder))
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"quant_method is '{method}'", done.stderr)

    def test_help_and_version(self):
        for arguments in (("--help",), ("run", "--help"), ("--version",)):
            done = run(*arguments)
            self.assertEqual(done.returncode, 0)
            self.assertNotEqual(done.stdout, "")
        for words in ("BATON_MODELS", "exit codes:", "130 interrupted"):
            self.assertIn(words, run("--help").stdout)
        for command in ("run", "chat", "batch", "bench", "perplexity", "quantize", "ladder", "imatrix", "inspect", "state"):
            self.assertNotRegex(run(command, "--help").stdout, r"INT in \[|FLOAT in \[|:INT|UINT")
        self.assertIn("N (-1 or more) [-1]", run("run", "--help").stdout)
        self.assertIn("echo \"What is a tree?\" |", run("run", "--help").stdout)
        self.assertIn("--repeat-penalty 1.1, as chat has it", run("run", "--help").stdout)

    def test_stop_string_ends_the_answer(self):
        whole = json.loads(run("run", "-m", SMALL, "--temp", "0", "-n", "24", "--json", "Define water.").stdout)["text"]
        stop = whole[len(whole) // 2:][:3]
        cut = json.loads(run("run", "-m", SMALL, "--temp", "0", "-n", "24", "--json", "--stop", stop, "Define water.").stdout)
        self.assertEqual(cut["text"], whole[:whole.index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")

    def test_interrupt_keeps_what_was_answered_and_exits_130(self):
        program = subprocess.Popen([PROGRAM, "run", "--decode", "ref", "--ignore-eos", "-n", "4000", "--temp", "0", "What is a tree?"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertNotEqual(program.stdout.read(4), b"")
        start = time.monotonic()
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=20)
        self.assertEqual(program.returncode, 130)
        self.assertLess(time.monotonic() - start, 3)

    def test_interrupt_while_a_prompt_is_read_or_encoded(self):
        with tempfile.TemporaryDirectory() as folder:
            waits = subprocess.Popen([PROGRAM, "run", "-m", SMALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            long = os.path.join(folder, "long.txt")
            pathlib.Path(long).write_text("a b\u0315\u0323 " * 8000000)
            encodes = subprocess.Popen([PROGRAM, "run", "-m", SMALL, "--raw", "-f", long], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(1)
            for program in (encodes, waits):
                program.send_signal(signal.SIGINT)
                program.communicate(timeout=10)
                self.assertEqual(program.returncode, 130)


class Reports(unittest.TestCase):
    def test_units(self):
        report = json.loads(run("units", "--json").stdout)
        names = {unit["name"]: unit for unit in report["units"]}
        self.assertTrue(names["ref"]["available"])
        self.assertTrue(names["cpu"]["available"])
        self.assertIn("linear", names["cpu"]["ops"])
        self.assertGreater(report["machine"]["memory_bytes"], 1 << 28)
        text = run("units").stdout
        self.assertIn("cpu", text)
        # With the card's facts, or with the reason that there is none.
        cuda = names["cuda"]
        if cuda["available"]:
            self.assertRegex(" ".join(cuda["features"]), r"\d-GiB sm_\d+ CUDA-\d+\.\d")
        else:
            self.assertRegex(cuda["reason"], "NVIDIA|built without CUDA")
            self.assertIn(f"cuda  not available: {cuda['reason']}\n", text)

    def test_inspect(self):
        report = json.loads(run("inspect", "--json").stdout)
        self.assertEqual(report["architecture"], "qwen3_5")
        self.assertIn("Q8_0", report["tensor_types"])
        self.assertEqual(report["program"][0]["op"], "embed")
        self.assertEqual(report["program"][-1]["op"], "head")
        self.assertGreater(report["state"]["cpu"]["bytes_per_token"], 0)
        self.assertTrue(all(segment["kind"] in ("copy", "convert", "transpose") for segment in report["bridge"]))
        text = run("inspect", str(GOLDEN / "tiny-qwen3.5-multimodal")).stdout
        self.assertIn("vision tower: 21 tensors skipped", text)
        self.assertIn("--all", text)
        self.assertNotIn("delta_rule", text)
        self.assertLess(len(text.splitlines()), 20, text)
        everything = run("inspect", "--all", str(GOLDEN / "tiny-qwen3.5-multimodal")).stdout
        self.assertTrue(everything.startswith(text.split("\n--all")[0]), everything)
        for part in ("delta_rule", "fingerprint_model", "tensor types", "state on cpu", "bridge plan ref -> cpu"):
            self.assertIn(part, everything)
        asked = run("inspect", "--fingerprint", SMALL).stdout
        self.assertRegex(asked, r"fingerprint_quantization +[0-9a-f]{16}\n")

    def test_inspect_of_a_card_tells_of_its_memory(self):
        card = "cuda:driver=emulated"
        text = run("inspect", "--prefill", card, "--decode", card, SMALL).stdout
        self.assertRegex(text, r"fits +yes: [0-9.]+ [GM]B of [0-9.]+ GB are free now on emulated card")
        self.assertRegex(text, r"by --kv +f16 [0-9]+, bf16 [0-9]+ bytes per token\n")
        report = json.loads(run("inspect", "--prefill", "cpu", "--decode", card, "--json", SMALL).stdout)
        self.assertEqual(report["summary"]["memory_available_bytes"], 16 << 30)
        loaded = json.loads(run("inspect", "--decode", "cpu:kv=f16", "--json", SMALL).stdout)
        self.assertEqual(report["state"]["cuda"], loaded["state"]["cpu"])

    def test_inspect_shows_what_a_unit_makes_of_a_model(self):
        plan = json.loads(run("inspect", "--unit", "ane", "--json", SMALL).stdout)
        count = sum(item["count"] for item in plan["programs"])
        self.assertTrue(any(note.startswith(f"{count} kernels in {len(plan['programs'])} shapes") for note in plan["notes"]))
        self.assertTrue(all(0 < item["weight_bytes"] <= item["all_bytes"] for item in plan["programs"]))
        text = run("inspect", "--unit", "ane", SMALL).stdout
        self.assertIn("not yet run on Apple hardware", text)
        few = run("inspect", "--unit", "ane:kernels=5", SMALL).stdout
        self.assertIn("on the host", few)
        none = run("inspect", "--unit", "cpu", SMALL)
        self.assertEqual(none.returncode, 1)
        self.assertRegex(none.stderr, "makes no programs.*; for the memory that it takes: --prefill (\\S+) --decode \\1")

    def test_neural_engine_is_emulated_and_says_so(self):
        arguments = ("run", "-m", SMALL, "--temp", "0", "-n", "8", "--json", "--ignore-eos", "What is a compiler?")
        answer = json.loads(run(*arguments, "--prefill", "ane", "--decode", "cpu").stdout)
        self.assertEqual(answer["prefill"]["ran"], "ane")
        self.assertIn("not yet run on Apple hardware", answer["prefill"]["evidence"])
        sequential = "ane:dispatch=sequential,device=emulator"
        again = json.loads(run(*arguments, "--prefill", sequential, "--decode", "cpu").stdout)
        self.assertEqual(again["prefill"]["asked"], "ane:device=emulator,dispatch=sequential")
        self.assertIn("one token a call", again["prefill"]["evidence"])
        self.assertEqual(again["ids"], answer["ids"])

    def test_convert_says_what_is_not_kept_and_ids_need_no_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            file, source = os.path.join(folder, "m.gguf"), pathlib.Path(folder, "m")
            source.mkdir()
            (source / "model.safetensors").symlink_to(GOLDEN / "tiny-llama/model.safetensors")
            config = json.loads((GOLDEN / "tiny-llama/config.json").read_text())
            (source / "config.json").write_text(json.dumps({**config, "eos_token_id": [2, 3, 4, 5]}))
            done = run("convert", str(source), file, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("no tokenizer.json", "".join(json.loads(done.stdout)["lost"]))
            self.assertIn("no tokenizer.json", done.stderr)
            answer = run("run", "-m", file, "--ids", "5,6,7", "-n", "4", "--json")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertEqual(len(json.loads(answer.stdout)["ids"]), 4)
            refused = run("run", "-m", file, "--raw", "text")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("the file has no tokenizer", refused.stderr)

    def test_convert_gives_the_same_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "m.gguf")
            done = run("convert", SMALL, file, "--type", "BF16")
            self.assertEqual(done.returncode, 0, done.stderr)
            arguments = ("--temp", "0", "-n", "16", "--decode", "ref", "--json", "What is a compiler?")
            before = json.loads(run("run", "-m", SMALL, *arguments).stdout)
            after = json.loads(run("run", "-m", file, *arguments).stdout)
            self.assertEqual(before["ids"], after["ids"])


if __name__ == "__main__":
    unittest.main()
