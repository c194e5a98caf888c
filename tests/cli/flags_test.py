#!/usr/bin/env python3
"""One set of flag names over the commands; summaries, progress and pages for people.

usage: flags_test.py PROGRAM   (then unittest's own options)
"""
import hashlib
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = str(ROOT / "tests" / "data" / "golden" / "dictionary-3m")
TEXT = str(ROOT / "tests" / "data" / "golden" / "heldout.txt")
BUNDLED = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def on_terminal(*arguments, interrupt_at=None):
    """Exit code and what stood on a terminal that is stderr; stdout is no terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = ""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # the last one closed it
            break
        if not data:
            break
        seen += data.decode(errors="replace")
        if interrupt_at and interrupt_at in seen:
            child.send_signal(signal.SIGINT)
            interrupt_at = None
    child.communicate()
    os.close(ours)
    return child.returncode, seen


def on_terminal_into_a_pipe(*arguments, output):
    """What stood on a terminal and on stdout of work that writes `output`, and the bytes of that: a FIFO whose reader waits after the first
    bytes for longer than the half second in which nothing is shown, so that no machine is too quick."""
    os.mkfifo(output)
    ours, theirs = pty.openpty()
    child = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    with open(output, "rb") as pipe:
        data = pipe.read(1 << 18)
        time.sleep(0.7)
        data += pipe.read()
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(ours)
    told, _ = child.communicate(timeout=60)
    assert child.returncode == 0, seen
    return seen.decode(errors="replace"), told, len(data)


class Flags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.source = cls.path("bf16.gguf")
        assert run("convert", SMALL, cls.source, "--type", "BF16").returncode == 0

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def test_a_model_is_an_argument_or_a_flag(self):
        """(command, what follows the model): both ways do the same."""
        outputs = [self.path("first"), self.path("second")]
        few = ("--text", TEXT, "-w", "64", "--chunks", "2")
        for command, before, after in (
            ("inspect", (), ("--json",)),
            ("perplexity", (), (*few, "--json")),
            ("bench", (), ("-p", "8", "-n", "0", "-r", "1", "--no-limits", "--no-check", "-o", "json")),
            ("imatrix", (), (*few, "-o", None)),
            ("quantize", (), (None, "Q4_0")),
            ("convert", (), (None, "--type", "F16")),
            ("ladder", (), (*few, "--types", "Q8_0", "-r", "0", "--json")),
            ("bench", ("-p", "8", "-n", "0"), ("-r", "1", "--no-limits", "--no-check", "-o", "json")),
        ):
            source = SMALL if command == "convert" else self.source
            results = []
            for name, model in zip(outputs, ((source,), ("-m", source))):
                done = run(command, *before, *model, *(name if word is None else word for word in after))
                self.assertEqual(done.returncode, 0, (command, model, done.stderr))
                results.append(pathlib.Path(name).read_bytes() if None in after else done.stdout)
            if None in after:
                self.assertEqual(results[0], results[1], command)
            elif command == "bench":
                self.assertEqual(*(json.loads(text)[0]["tokens_hash"] for text in results))
            twice = run(command, source, "-m", source, *(outputs[0] if word is None else word for word in after))
            self.assertEqual(twice.returncode, 2, (command, twice.stderr))

    def test_export_takes_the_model_as_a_flag_too(self):
        for model in ((SMALL,), ("-m", SMALL)):
            done = run("export", "coreml", *model, self.path("packages"), "--seq", "64", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(json.loads(done.stdout)["packages"])
        self.assertEqual(run("export", "coreml", SMALL, "-m", SMALL, self.path("packages")).returncode, 2)

    def test_what_is_no_model_says_what_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("no config.json", run("inspect", folder).stderr)
            (pathlib.Path(folder) / "x-Q8_0.gguf").write_bytes(b"x")
            self.assertIn("give one of them: x-Q8_0.gguf", run("inspect", folder).stderr)
            (pathlib.Path(folder) / "adapter_config.json").write_text("{}")
            self.assertIn("a LoRA adapter, not a model: give it with --lora", run("inspect", folder).stderr)
            done = run("run", "-m", SMALL, "--lora", folder + "/none", "hi")
            self.assertIn("none: No such file or directory (of --lora)", done.stderr)

    def test_an_op_that_a_unit_lacks_names_the_units_that_have_it(self):
        gemma = str(ROOT / "tests" / "data" / "golden" / "families" / "gemma2")
        done = run("run", "-m", gemma, "--prefill", "coreml:device=emulator", "--ids", "1,2,3", "-n", "3")
        self.assertIn("no op scale", done.stderr)
        self.assertIn("run it on another (ref, cpu, ane)", done.stderr)
        self.assertNotIn("coreml: coreml", done.stderr)
        self.assertRegex(run("run", "-m", gemma, "--ids", "1,2,3", "-n", "3").stdout, r"\d+(,\d+)*")
        with tempfile.TemporaryDirectory() as folder:
            done = run("export", "coreml", gemma, folder, "--seq", "64")
        self.assertRegex(done.stderr, r"Core ML packages have no op \S+ \(layer \d+\); units that can run the model: ref, cpu")

    def test_inspect_tells_the_memory_of_a_context(self):
        for given, told in ((("-c", "128"), 128), (("-c", "0"), 4096), ((), 4096), (("-c", "9999"), 4096)):
            summary = json.loads(run("inspect", SMALL, "--json", *given).stdout)["summary"]
            self.assertEqual(summary["context"], told, summary)

    def test_a_missing_model_is_a_usage_error(self):
        for arguments in (("imatrix", "--text", TEXT, "-o", "x"), ("ladder", "--text", TEXT), ("quantize", "a", "b"),
                          ("convert", "a"), ("quantize",)):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertRegex(done.stderr, "no model|missing: ")

    def test_threads_and_units_have_the_same_names(self):
        for threads in ("0", "2"):
            for command in (("quantize", self.source, self.path("t.gguf"), "Q4_0"),
                            ("imatrix", self.source, "--text", TEXT, "-w", "64", "--chunks", "1", "-o", self.path("t.dat")),
                            ("perplexity", self.source, "--text", TEXT, "-w", "64", "--chunks", "1"),
                            ("bench", self.source, "-p", "8", "-n", "0", "-r", "1", "--no-limits", "--no-check")):
                done = run(*command, "-t", threads)
                self.assertEqual(done.returncode, 0, (command, done.stderr))
        rows = [json.loads(run("bench", self.source, "-p", "8", "-n", "2", "-r", "1", "--no-limits", "-o", "json", *names).stdout)
                for names in (("--prefill", "ref", "--decode", "cpu"), ("--prefill-unit", "ref", "--decode-unit", "cpu"))]
        self.assertEqual([row["backends"] for row in rows[0]], ["ref+cpu", "ref+cpu"])
        self.assertEqual([row["tokens_hash"] for row in rows[0]], [row["tokens_hash"] for row in rows[1]])

    def test_options_stand_behind_a_units_name(self):
        listed = json.loads(run("units", "--help-options", "--json").stdout)
        self.assertEqual([option["option"] for option in listed["ref"]], ["kv"])
        self.assertEqual([option["option"] for option in listed["cpu"]], ["threads", "kernels", "experts", "experts-mib", "cores", "kv"])
        self.assertTrue(listed["cpu"][1]["values"].endswith("scalar|exact"), listed["cpu"][1]["values"])
        self.assertIn("exact: the first without bf16 products", listed["cpu"][1]["meaning"])
        self.assertEqual(listed["ane"][2], {"option": "columns", "values": "32|64|128", "default": "32",
                                            "meaning": "tokens of a call, compiled into the kernels"})
        self.assertEqual([option["option"] for option in listed["cuda"]], ["device", "driver", "products", "kv", "batch", "times"])
        self.assertIn("  threads=1..1024 ", run("units", "--help-options").stdout)
        text = ("-m", SMALL, "--raw", "The fern", "-n", "3", "--json", "-q")
        plain = json.loads(run("run", *text).stdout)
        one = json.loads(run("run", *text, "--decode", "cpu:threads=1,kernels=scalar", "-t", "2").stdout)
        self.assertEqual((one["decode"]["asked"], one["decode"]["ran"]), ("cpu:kernels=scalar,threads=1", "cpu"))
        self.assertEqual((plain["decode"]["asked"], plain["decode"]["ran"]), ("cpu", "cpu"))
        said = run("run", *[word for word in text if word not in ("--json", "-q")], "--decode", "cpu:threads=1").stderr
        self.assertIn("ran on cpu:threads=1 as asked (", said)
        self.assertRegex(one["decode"]["evidence"], "^scalar kernels, 1 thread$")
        self.assertEqual(one["bridge"]["kind"], plain["bridge"]["kind"])
        self.assertEqual(one["ids"], plain["ids"])
        bench = json.loads(run("bench", self.source, "-p", "8", "-n", "0", "-r", "1", "--no-limits", "--no-check", "-o", "json",
                               "--unit", "cpu:threads=1").stdout)[0]
        self.assertEqual((bench["backends"], bench["n_threads"]), ("cpu", 1))
        done = run("perplexity", self.source, "--text", TEXT, "-w", "64", "--chunks", "1", "--unit", "cpu:kernels=scalar", "--json")
        self.assertEqual(json.loads(done.stdout)["unit"], "cpu")
        self.assertRegex(json.loads(done.stdout)["evidence"], "^scalar kernels")

    # Two executors, each with its own threads: the state crosses the bridge and is proven bit by bit.
    def test_one_unit_with_two_sets_of_options_hands_over(self):
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "s")
            done = run("run", "-m", SMALL, "--raw", "The fern", "-n", "3", "--json", "-q", "--prefill", "cpu:threads=1",
                       "--decode", "cpu:threads=2", "--save-state", state)
            shown = json.loads(run("state", "show", state, "--json").stdout)
        self.assertEqual(done.returncode, 0, done.stderr)
        two = json.loads(done.stdout)
        self.assertEqual((two["prefill"]["asked"], two["prefill"]["ran"]), ("cpu:threads=1", "cpu"))
        self.assertRegex(two["prefill"]["evidence"], "1 thread$")
        self.assertRegex(two["decode"]["evidence"], "2 threads$")
        self.assertEqual(two["bridge"]["kind"], "adopt")
        self.assertEqual({maker["unit"] for maker in shown["makers"]}, {"cpu"})
        same = json.loads(run("run", "-m", SMALL, "--raw", "The fern", "-n", "3", "--json", "-q", "--prefill",
                              "cpu:threads=2,kernels=scalar", "--decode", "cpu:kernels=scalar,threads=2").stdout)
        self.assertNotEqual(same["bridge"]["kind"], "move")
        self.assertEqual(same["ids"], two["ids"])

    def test_units_are_kept_on_cores_of_their_own(self):
        if not hasattr(os, "sched_getaffinity"):
            self.skipTest("this system lets no program choose its cores")
        allowed = sorted(os.sched_getaffinity(0))
        first, last = allowed[0], allowed[-1]
        text = ("-m", SMALL, "--raw", "The fern", "-n", "3", "--json", "-q")
        plain = json.loads(run("run", *text).stdout)
        one = json.loads(run("run", *text, "--decode", f"cpu:cores={last}", "-t", "3").stdout)
        self.assertRegex(one["decode"]["evidence"], f"1 thread on core {last}$")
        self.assertEqual(one["ids"], plain["ids"])
        more = json.loads(run("run", *text, "--decode", f"cpu:cores={last},threads=2").stdout)
        self.assertRegex(more["decode"]["evidence"], f"2 threads on core {last}$")
        if first != last:
            two = run("run", *text, "--prefill", f"cpu:cores={first}", "--decode", f"cpu:cores={last}")
            split = json.loads(two.stdout)
            self.assertEqual(two.stderr, "")
            self.assertEqual((split["prefill"]["asked"], split["decode"]["asked"]), (f"cpu:cores={first}", f"cpu:cores={last}"))
            self.assertRegex(split["prefill"]["evidence"], f"on core {first}$")
            self.assertRegex(split["decode"]["evidence"], f"on core {last}$")
            self.assertEqual((split["bridge"]["kind"], split["ids"]), ("adopt", plain["ids"]))
            listed = json.loads(run("run", *text, "--decode", f"cpu:cores={first},{last},kernels=scalar").stdout)
            self.assertRegex(listed["decode"]["evidence"], "^scalar kernels, 2 threads on cores ")
            held = subprocess.run(["taskset", "-c", str(first), PROGRAM, "run", *text, "--decode", f"cpu:cores={last}"],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(held.returncode, 1, held.stderr)
            self.assertIn(f"cores={last}: this process may not run on core {last}, only on core {first}", held.stderr)
        both = run("run", *text, "--prefill", f"cpu:cores={last},threads=1", "--decode", f"cpu:cores={last}")
        self.assertIn(f"share core {last}", both.stderr)
        self.assertEqual(json.loads(both.stdout)["ids"], plain["ids"])
        none = run("run", *text, "--decode", "cpu:cores=1000-1001")
        self.assertEqual(none.returncode, 1, none.stderr)
        self.assertIn("cpu: cores=1000-1001: this machine has no cores 1000-1001", none.stderr)

    def test_wrong_options_are_named(self):
        for unit, words in (("cpu:thread=4", "has no option 'thread'; it has threads=1..1024 kernels="),
                            ("cpu:threads=0", "threads=0: write threads=1..1024"), ("cpu:threads", "write threads=1..1024"),
                            ("cpu:kernels=abacus", "kernels=abacus: write kernels="), ("cpu:threads=1,threads=2", "twice"),
                            ("cpu:,", "',' has a comma with no option"), ("cpu:threads=2,", "'threads=2,' has a comma"),
                            ("cpu:,threads=2", "',threads=2' has a comma"), ("cpu:", "'cpu:': there is no option behind"),
                            ("cpu:cores=1-0", "cores=1-0: write cores=LIST"), ("cpu:cores=0,,1", "has a comma"),
                            ("cpu:cores=0,0", "cores=0,0: write cores="), ("cpu:kernels=scalar,1", "no option '1'"),
                            ("cpu:threads=01", "threads=01: write threads=1..1024"),
                            ("coreml:device=emulator,lengths=064", "lengths=064"),
                            ("coreml:device=emulator,lengths=64+", "lengths=64+"), ("ref:threads=2", "unit ref has no option 'threads'; it has kv=f16|bf16|q8_0|q4_0"),
                            ("ane:columns=33", "write columns=32|64|128"), ("coreml:device=emulator,lengths=60", "lengths=60"),
                            ("GPU", "; an NVIDIA card is 'cuda'"), ("Cuda:device=1", "; did you mean 'cuda'?"),
                            ("cuda,driver=emulated", "; options stand behind a colon: 'cuda:KEY=VALUE'"),
                            ("tpu:x=1", "no unit named 'tpu'")):
            for command in (("run", "-m", SMALL, "--decode", unit, "hi"), ("bench", SMALL, "--unit", unit),
                            ("perplexity", SMALL, "--text", TEXT, "--unit", unit), ("inspect", SMALL, "--decode", unit),
                            ("imatrix", SMALL, "--text", TEXT, "--unit", unit, "-o", self.path("x.dat"))):
                if command[0] != "run" and unit.startswith("coreml"):
                    continue
                done = run(*command)
                self.assertEqual(done.returncode, 2, (command, done.stderr))
                self.assertIn(words, done.stderr)

    def test_a_unit_that_only_prefills_is_not_asked_to_decode(self):
        for flags, words in ((("--decode", "coreml:device=emulator"), "--decode another one"),
                             (("--decode", "cpu", "--via", "coreml"), "--via another one")):
            for command in (("run", "hi"), ("chat",)):
                done = run(*command, "-m", SMALL, *flags)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(f"unit '{flags[-1]}' only prefills", done.stderr)
                self.assertIn(words, done.stderr)

    def test_variables_change_no_answer(self):
        for name, option in (("BATON_CPU_KERNELS", "cpu:kernels="), ("BATON_ANE", "ane:"), ("BATON_COREML", "coreml:device=emulator"),
                             ("BATON_COREML_SEQ", "coreml:lengths=")):
            done = run("run", "-m", SMALL, "hi", env={**os.environ, name: "scalar"})
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"{name} is set", done.stderr)
            self.assertIn(option, done.stderr)

    def test_types_are_checked_before_work(self):
        done = run("quantize", self.source, self.path("x.gguf"), "Q4KM")
        self.assertEqual(done.returncode, 2)
        self.assertIn("Q4_K_M", done.stderr)
        done = run("convert", SMALL, self.path("x.gguf"), "--type", "Q4_K_M")
        self.assertEqual(done.returncode, 2)
        self.assertIn("baton quantize", done.stderr)
        self.assertFalse(os.path.exists(self.path("x.gguf")))

    def test_imatrix_on_both_units(self):
        outs = {}
        for unit in ("cpu", "ref"):
            out = self.path(f"{unit}.imatrix")
            done = run("imatrix", self.source, "--text", TEXT, "-w", "64", "--chunks", "1", "--unit", unit, "-o", out, "--json")
            self.assertEqual(json.loads(done.stdout)["unit"], unit, done.stderr)
            self.assertEqual(done.stderr, "")
            outs[unit] = os.path.getsize(out)
        self.assertEqual(outs["cpu"], outs["ref"])
        self.assertEqual(run("imatrix", self.source, "--text", TEXT, "--unit", "ane", "-o", "x").returncode, 2)


class Experts(unittest.TestCase):
    model = str(ROOT / "tests" / "data" / "golden" / "families" / "qwen3_moe")

    def run_ids(self, *more):
        return run("run", "-m", self.model, "--ids", ",".join(str(i) for i in range(5, 35)), "-n", "5", "--temp", "0", "--ignore-eos",
                   "--expert-stats", *more)

    def test_loads_are_counted_by_unit_layer_and_expert(self):
        answers = []
        for unit in ("ref", "cpu", "cpu:experts=file"):
            done = self.run_ids("--prefill", unit, "--decode", unit, "--json")
            answer = json.loads(done.stdout)
            self.assertEqual(len(answer["experts"]), 1, done.stderr)
            layers = answer["experts"][0]["layers"]
            self.assertEqual([layer["layer"] for layer in layers], [0, 1])
            for layer in layers:
                # The last one drawn is not fed back. In the last layer `cpu` leaves out the rows that nobody reads.
                read = 34 if unit == "ref" or layer["layer"] < 1 else 5
                self.assertEqual(layer["tokens"], read)
                self.assertEqual(len(layer["rows"]), 7)
                self.assertEqual(sum(layer["rows"]), 3 * layer["tokens"])
                self.assertTrue(all(steps <= rows for steps, rows in zip(layer["steps"], layer["rows"])))
                self.assertTrue(1 <= layer["busy"] <= 7)
            answers.append((answer["ids"], layers))
        self.assertEqual(answers[1], answers[2])
        self.assertEqual(answers[0][0], answers[1][0])

    def test_people_get_a_line_for_each_layer(self):
        done = self.run_ids("--prefill", "ref", "--decode", "cpu", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^experts on ref, 29 tokens:\n")
        self.assertRegex(done.stderr, r"(?m)^experts on cpu, 5 tokens:\n")
        self.assertEqual(len(re.findall(r"layer +\d+: as even as [\d.]+ of 7, busiest \d \([\d.]+ %\), \d idle", done.stderr)), 4)

    def test_a_model_without_experts_is_told_so(self):
        done = run("run", "-m", SMALL, "--ids", "5", "--expert-stats")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--expert-stats: this model has no experts", done.stderr)

    def test_what_a_proof_makes_is_not_counted(self):
        done = self.run_ids("--prefill", "ref", "--decode", "cpu", "--verify-bridge", "all")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--verify-bridge makes more of them: leave one of them out", done.stderr)

    def test_units_without_the_op_name_those_that_have_it(self):
        done = run("run", "-m", self.model, "--ids", "5", "--prefill", "ane", "--decode", "ane")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no op experts", done.stderr)
        self.assertIn("(ref, cpu)" if "(ref, cpu)" in done.stderr else "(cpu, ref)", done.stderr)


class Summary(unittest.TestCase):
    def test_inspect_lists_the_tensors_in_json_too(self):
        report = json.loads(run("inspect", SMALL, "--tensors", "--json").stdout)
        listed = run("inspect", SMALL, "--tensors").stdout
        self.assertGreater(len(report["tensor_list"]), 20)
        for tensor in report["tensor_list"]:
            self.assertRegex(listed, rf"(?m)^  {re.escape(tensor['name'])} +{tensor['dtype']} +\[{tensor['rows']}, {tensor['columns']}\]")
        self.assertNotIn("tensor_list", json.loads(run("inspect", SMALL, "--json").stdout))

    def test_inspect_begins_with_what_one_wants_to_know(self):
        text = run("inspect", BUNDLED).stdout
        head = text.split("\n\n")[0].splitlines()
        self.assertLessEqual(len(head), 12)
        names = [line.split()[0] for line in head]
        self.assertEqual(names, ["model", "architecture", "vocabulary", "parameters", "quantization", "file", "context", "state",
                                 "by", "memory", "fits"])
        fields = {line.split()[0]: line.split(None, 1)[1] for line in head}
        self.assertIn("gated DeltaNet", fields["architecture"])
        self.assertRegex(fields["file"], r"^\d[\d.]* MB$")
        self.assertRegex(fields["state"], r"fixed and .* per token on cpu")
        self.assertIn("estimated", fields["memory"])
        self.assertIn("-c 4096", fields["memory"])
        self.assertTrue(fields["fits"].startswith("yes: "))
        self.assertTrue(all(len(line) <= 110 for line in head), head)

    def test_the_estimate_is_near_what_a_run_takes(self):
        summary = json.loads(run("inspect", BUNDLED, "--json").stdout)["summary"]
        self.assertEqual(summary["fits"], True)
        self.assertEqual(summary["file_bytes"], os.path.getsize(BUNDLED))
        watched = subprocess.Popen([PROGRAM, "run", "-m", BUNDLED, "-n", "4", "-q", "What is a bridge?"], stdout=subprocess.DEVNULL)
        _, watched.returncode, usage = os.wait4(watched.pid, 0)
        self.assertEqual(watched.returncode, 0)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        self.assertLess(peak, 1.3 * summary["memory_bytes_estimated"])
        self.assertGreater(peak, 0.3 * summary["memory_bytes_estimated"])


class ForPeople(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_progress_says_how_long_and_stays_off_a_pipe(self):
        ids = ",".join(str(i % 97) for i in range(3600))
        arguments = ("run", "-m", BUNDLED, "--prefill", "ref", "--ids", ids, "-n", "1", "-q")
        code, seen = on_terminal(*arguments)
        self.assertEqual(code, 0, seen)
        shown = re.findall(r"prefill (\d+)/(\d+), \d+ s left", seen)
        self.assertTrue(shown, seen)
        self.assertTrue(all(int(done) < int(total) == 3599 for done, total in shown), shown)
        self.assertEqual([int(done) for done, _ in shown], sorted(int(done) for done, _ in shown))
        self.assertLess(len(shown), 100)
        self.assertNotIn("prefill ", run(*arguments).stderr)

    def test_long_work_on_files_shows_progress(self):
        source = self.path("bf16.gguf")
        run("convert", SMALL, source, "--type", "BF16")
        code, seen = on_terminal("imatrix", source, "--unit", "ref", "--text", TEXT, "--chunks", "80", "-w", "128", "-o", self.path("m"))
        self.assertEqual(code, 0, seen)
        self.assertRegex(seen, r"chunk \d+/80, \d+ s left")
        code, seen = on_terminal("perplexity", source, "--unit", "ref", "-f", TEXT, "-w", "128", "--chunks", "40")
        self.assertEqual(code, 0, seen)
        self.assertRegex(seen, r"window \d+/40, \d+ s left; PPL \d")
        f16, iq4 = self.path("f16.gguf"), self.path("iq4.gguf")
        for output, command in ((f16, ("convert", SMALL, f16, "--type", "F16")), (iq4, ("quantize", source, iq4, "IQ4_NL", "-t", "1"))):
            seen, told, size = on_terminal_into_a_pipe(*command, output=output)
            self.assertRegex(seen, r"tensor \d+/\d+, \d+ s left", command)
            self.assertIn(f"{size} bytes", told)  # of what was written, though a pipe has no size

    def test_an_interrupted_bench_says_so(self):
        code, seen = on_terminal("bench", "-m", BUNDLED, "-p", "512", "-n", "0", "-r", "1000", interrupt_at="/1000")
        self.assertEqual(code, 130)
        self.assertIn("baton: interrupted", seen)

    def test_tables_fit_a_terminal(self):
        done = run("bench", BUNDLED, "-p", "8", "-n", "2", "-pg", "8,2", "-r", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110, done.stdout)

    def test_pages_are_for_sharing(self):
        for name, command in (("l.html", ("ladder", SMALL, "--text", TEXT, "--types", "Q8_0", "-w", "64", "--chunks", "6", "-r", "0")),
                              ("p.html", ("bench", "--pipelines", "-m", SMALL, "-p", "6", "-n", "2", "-r", "1", "--only", "gpu"))):
            page = self.path(name)
            done = subprocess.run([PROGRAM, *command, "--html", page], capture_output=True, text=True, timeout=120, umask=0o022)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(stat.S_IMODE(os.stat(page).st_mode), 0o644)

    def test_pages_say_where_they_come_from(self):
        page = self.path("page.html")
        done = run("ladder", SMALL, "--text", TEXT, "--types", "Q8_0,Q4_0", "-w", "64", "--chunks", "12", "-r", "0", "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        last = done.stdout.strip().splitlines()[-1]
        self.assertRegex(last, "^(Take|No recommendation)")
        pipelines = self.path("pipelines.html")
        run("bench", "--pipelines", "-m", SMALL, "-p", "6", "-n", "2", "-r", "2", "--only", "gpu", "--html", pipelines)
        for file, command in ((page, f"baton ladder dictionary-3m --text heldout.txt --types Q8_0,Q4_0 -w 64 --chunks 12 -r 0 --html page.html"),
                              (pipelines, "baton bench --pipelines -m dictionary-3m -p 6 -n 2 -r 2 --only gpu --html pipelines.html")):
            text = pathlib.Path(file).read_text()
            self.assertIn(f"<code>{command}</code>", text)
            self.assertRegex(text, r"Made by baton [\d.]+, 20\d\d-\d\d-\d\d \d\d:\d\d UTC")
            self.assertNotIn(self.folder, text)
            self.assertNotIn(str(ROOT), text)
            self.assertIn("width=device-width", text)
            self.assertIn("prefers-color-scheme:dark", text)
        text = pathlib.Path(pipelines).read_text()
        self.assertIn("gpu, ran on cpu", text)
        self.assertNotIn(" emulated</span>", text)


class Paths(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.copy(BUNDLED, "m.gguf")
        self.text = self.copy(TEXT, "t.txt")
        self.hf = str(self.folder / "hf")
        shutil.copytree(SMALL, self.hf)
        self.key = str(self.folder / "key")
        pathlib.Path(self.key).write_bytes(bytes(range(32)))
        os.chmod(self.key, 0o600)

    def copy(self, source, name):
        return shutil.copyfile(source, self.folder / name) and str(self.folder / name)

    def path(self, name):
        return str(self.folder / name)

    def contents(self):
        return {str(path): hashlib.sha256(path.read_bytes()).digest() for path in self.folder.rglob("*") if path.is_file()}

    def refused(self, words, *arguments, **options):
        before = self.contents()
        done = subprocess.run([os.path.abspath(PROGRAM), *arguments], capture_output=True, text=True, timeout=60, **options)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(self.contents(), before, arguments)

    def test_no_output_replaces_an_input(self):
        os.link(self.model, self.path("hard.gguf"))
        os.symlink("m.gguf", self.path("soft.gguf"))
        run_it = ("run", "-m", self.model, "hi", "-n", "2")
        for name in ("m.gguf", "hard.gguf", "soft.gguf", "../" + self.folder.name + "/m.gguf"):
            for flag in ("--save-state", "--dump-logits"):
                self.refused((flag, "--model"), *run_it, flag, self.path(name))
        self.refused(("--save-state", "--state-key"), *run_it, "--save-state", self.key, "--state-key", self.key)
        self.refused(("--save-state", "--file"), "run", "-m", self.model, "-f", self.text, "--save-state", self.text)
        for name in ("model.safetensors", "tokenizer.json"):
            self.refused(("OUT", "SOURCE"), "convert", self.hf, self.hf + "/" + name)
            self.refused(("--dump-logits", "--model"), "run", "-m", self.hf, "hi", "--dump-logits", self.hf + "/" + name)
        self.refused(("OUT", "SOURCE"), "convert", "-m", self.hf, self.hf + "/tokenizer.json")
        self.refused(("OUT", "IN"), "quantize", self.model, self.path("hard.gguf"), "Q4_0")
        self.refused(("OUT", "--imatrix"), "quantize", self.model, self.text, "Q4_0", "--imatrix", self.text)
        for page in (self.model, self.text):
            self.refused(("--per-token",), "perplexity", self.model, "--text", self.text, "--per-token", page)
            self.refused(("--html",), "ladder", self.model, "--text", self.text, "--html", page)
            self.refused(("--out",), "imatrix", self.model, "--text", self.text, "-o", page)
        self.refused(("--html", "MODEL"), "bench", self.model, "--pipelines", "--html", self.model)
        self.refused(("OUT", "IN"), "state", "convert", self.text, self.text)
        self.refused(("--save-state", "the bundled model"), "run", "hi", "--save-state", self.model,
                     env={**os.environ, "BATON_MODELS": str(self.bundled_beside())})
        self.refused(("--save-state", "--model"), "chat", "-m", self.model, "--save-state", self.model)

    def bundled_beside(self):
        os.link(self.model, self.path("dictionary-28m.Q8_0.gguf"))
        return self.folder

    def test_an_export_leaves_whole_packages_only(self):
        out = self.folder / "out"
        export = (PROGRAM, "export", "coreml", self.model, str(out), "--seq", "64")
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        full = subprocess.run(export, capture_output=True, text=True, timeout=120, preexec_fn=limit,
                              restore_signals=False)
        self.assertEqual(full.returncode, 1, full.stderr)
        self.assertFalse(out.exists())
        self.assertEqual(subprocess.run(export, capture_output=True, timeout=120).returncode, 0)
        names = sorted(path.name for path in out.iterdir())
        self.assertTrue(names and all(name.endswith(".mlpackage") for name in names), names)
        gone = subprocess.Popen(["true"])
        gone.wait()
        (out / f"{names[0]}.part-{gone.pid}" / "Data").mkdir(parents=True)
        self.assertEqual(subprocess.run(export, capture_output=True, timeout=120).returncode, 0)
        self.assertEqual(sorted(path.name for path in out.iterdir()), names)

    def test_a_split_of_the_model_is_an_input(self):
        first, second = self.copy(BUNDLED, "s-00001-of-00002.gguf"), self.copy(BUNDLED, "s-00002-of-00002.gguf")
        self.refused(("--save-state", "--model"), "run", "-m", first, "hi", "--save-state", second)

    def test_two_outputs_are_two_files(self):
        run_it = ("run", "-m", self.model, "hi", "-n", "1", "-q")
        self.refused(("--dump-logits and --save-state",), *run_it, "--save-state", self.path("same"), "--dump-logits",
                     self.path("./same"))
        self.refused(("--history",), "chat", "-m", self.model, "--save-state", self.path("c"), "--history", self.path("c.json"))
        done = run(*run_it, "--save-state", "/dev/null", "--dump-logits", "/dev/null")
        self.assertEqual(done.returncode, 0, done.stderr)

    # Neither by its name, nor by another one of the pipe or file that it is.
    def test_no_output_is_mixed_with_what_is_printed(self):
        for flag in ("--save-state", "--dump-logits"):
            self.refused((flag, "standard output"), "run", "-m", self.model, "hi", "-n", "1", flag, "/dev/stdout")
        self.refused(("--out", "standard output"), "imatrix", self.model, "--text", self.text, "-o", "/dev/fd/1")
        self.refused(("OUT", "standard output"), "state", "convert", self.text, "/dev/stdout")
        self.refused(("--per-token", "standard output"), "perplexity", self.model, "--text", self.text, "--per-token", "/dev/stdout")
        with open(self.path("out"), "wb") as out:
            done = subprocess.run([PROGRAM, "run", "-m", self.model, "hi", "-n", "1", "--save-state", out.name], stdout=out,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(os.path.getsize(self.path("out")), 0)
        with open(self.path("out"), "wb") as out:
            done = subprocess.run([PROGRAM, "run", "-q", "-m", self.model, "hi", "-n", "1", "--save-state", f"/dev/fd/{out.fileno()}"],
                                  stdout=subprocess.DEVNULL, pass_fds=(out.fileno(),), timeout=60)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(pathlib.Path(self.path("out")).read_bytes()[:8], b"BATONSEQ")

    def test_an_interrupt_ends_waiting_for_a_reader(self):
        os.mkfifo(self.path("pipe"))
        waiting = subprocess.Popen([PROGRAM, "run", "-q", "-m", self.model, "hi", "-n", "1", "--save-state", self.path("pipe")],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "\n" not in waiting.stdout.readline():
            pass
        time.sleep(1)
        waiting.send_signal(signal.SIGINT)
        _, stderr = waiting.communicate(timeout=60)
        self.assertEqual(waiting.returncode, 130, stderr)
        self.assertIn("pipe: cannot open: Interrupted", stderr)

    def test_a_state_may_go_on_in_its_file(self):
        state = self.path("s.state")
        for more in ((), ("--load-state", state)):
            done = run("run", "-q", "-m", self.model, "--raw", "A leaf", "-n", "1", "--save-state", state, *more)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_chat_saves_over_nothing_it_reads(self):
        before = self.contents()
        for file in (self.model, self.key):
            done = subprocess.run([PROGRAM, "chat", "-m", self.model, "--state-key", self.key, "--json"], text=True,
                                  input=json.dumps({"command": f"/save {file}"}), capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("would replace", done.stderr)
        self.assertEqual(self.contents(), before)

    def test_no_path_is_empty(self):
        for flag in ("--state-key", "--load-state", "--save-state", "--dump-logits", "-m", "-f"):
            word = "--model" if flag == "-m" else "--file" if flag == "-f" else flag
            self.refused((word, "empty"), "run", *(() if flag == "-f" else ("hi",)), flag, "")
        self.refused(("--state-key=",), "run", "-m", self.model, "--state-key=", "hi")
        self.refused(("--state-key", "empty"), "state", "show", self.text, "--state-key", "")
        self.refused(("--state-key", "empty"), "chat", "--state-key", "")
        for flag in ("--per-token", "--reference", "--text"):
            self.refused((flag, "empty"), "perplexity", self.model, *(() if flag == "--text" else ("--text", self.text)), flag, "")
        for flag in ("--html", "--keep"):
            self.refused((flag, "empty"), "ladder", self.model, "--text", self.text, flag, "")
        self.refused(("--imatrix", "empty"), "quantize", self.model, self.path("q"), "Q4_0", "--imatrix", "")

    def test_numbers_are_decimal(self):
        for arguments in (("run", "hi", "-n", "010"), ("run", "hi", "-n08"), ("bench", "-p", "8,010"), ("run", "hi", "--threads=01")):
            self.refused(("begins with 0",), *arguments)
        for value in ("0", "0.5", "00.5"):
            self.assertEqual(run("run", "-m", self.model, "-q", "-n", "1", "hi", "--temp", value).returncode, 0)

    def test_pipelines_have_plain_names_of_their_own(self):
        file = self.path("pipelines.json")
        one = {"name": "a", "prefill": "cpu", "decode": "cpu"}
        for pipelines, words in (([one, one], "twice"), ([{**one, "name": "\x1b[31ma"}], "control"), ([{**one, "name": "a|b"}], "control")):
            with open(file, "w") as out:
                json.dump(pipelines, out)
            self.refused((words,), "bench", "--pipelines", "-m", SMALL, "--pipelines-file", file)

    def test_a_conversation_is_saved_in_files(self):
        for path in ("/dev/null", "."):
            self.refused(("two files",), "chat", "-m", self.model, "-p", "hi", "--save-state", path)

    def test_an_output_needs_its_folder_before_any_work(self):
        for arguments in (("run", "hi", "--save-state"), ("run", "hi", "--dump-logits"), ("chat", "-p", "hi", "--save-state"),
                          ("ladder", "--text", SMALL, "--html"), ("imatrix", "--text", SMALL, "-o")):
            done = run(arguments[0], "-m", "no-such-model", *arguments[1:], "/nosuch/x")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("there is no folder /nosuch", done.stderr)
            self.assertNotIn("no-such-model", done.stderr)

    def test_a_dash_is_no_output(self):
        self.refused(("--save-state", "./-"), "run", "-m", self.model, "hi", "--save-state", "-", cwd=self.folder)

    def test_numbers_are_numbers(self):
        for flag in ("--temp", "--top-p", "--min-p", "--presence-penalty", "--repeat-penalty", "--frequency-penalty"):
            for value in ("nan", "-nan", "inf") + (("0",) if flag == "--top-p" else ()):
                self.refused((flag,), "run", "-m", "no-such-model", "hi", flag, value)
        self.refused(("--stop", "empty"), "run", "-m", "no-such-model", "hi", "--stop", "")
        self.refused(("--stop", "UTF-8"), "run", "-m", "no-such-model", "hi", "--stop", b"\xff")

    def test_no_item_of_a_list_is_empty(self):
        for arguments in (("bench", "-p", "8,,9"), ("bench", "-p8,"), ("bench", "--n-gen=,4"), ("ladder", "--types", "Q8_0,,Q4_0"),
                          ("export", "coreml", "--seq", "64,", SMALL)):
            self.refused(("item with nothing",), *arguments)

    def test_what_would_be_ignored_is_refused(self):
        for flag in (("--unit", "cpu"), ("--pg", "8,8"), ("-d", "4"), ("--load",), ("--ab", "", "-t 1"), ("--no-check",), ("--rounds", "6")):
            self.refused((flag[0] if flag[0] != "-d" else "--n-depth", "does not go with --pipelines"), "bench", "--pipelines", *flag)
        self.refused(("-n",), "bench", "--pipelines", "-n", "4,8")
        self.refused(("-n 0",), "bench", "--pipelines", "-n", "0")
        self.refused(("--emulate",), "bench", "--pipelines", "--emulate", "")
        self.refused(("--unit",), "inspect", self.model, "--unit", "")
        self.refused(("--repetitions", "runs nothing"), "bench", "--pipelines", "--emulate", "m1", "-r", "3")
        for flag in ("--think", "--no-think"):
            self.refused((flag, "--raw"), "run", "-m", self.model, "--raw", "hi", flag)

    def test_values_that_cannot_be_are_usage_errors(self):
        out = self.path("q.gguf")
        self.refused(("--tensor-type", "character"), "quantize", self.model, out, "Q8_0", "--tensor-type", "(=Q8_0")
        self.refused(("--seq", "multiple of 8"), "export", "coreml", SMALL, self.path("p"), "--seq", "7")
        self.refused(("--chunks", "layers"), "export", "coreml", SMALL, self.path("p"), "--chunks", "60")
        self.refused(("--stop", "64"), "run", "-m", self.model, "hi", *(word for i in range(65) for word in ("--stop", str(i))))
        for flag in ("--decode", "--prefill", "--via", "--strategy"):
            self.refused((flag, "empty"), "run", "-m", self.model, "hi", flag, "")
        answers = [run("run", "-m", self.model, "-q", "-n", "3", *words).stdout for words in (("--stop", "zzz", "A leaf"), ("A leaf", "--stop=zzz"))]
        self.assertTrue(answers[0].strip())
        self.assertEqual(*answers)
        done = run("export", "coreml", SMALL, self.path("p"), "--seq", "64,64", "--json")
        self.assertEqual(len(json.loads(done.stdout)["packages"]), len({p["path"] for p in json.loads(done.stdout)["packages"]}))

    def test_arguments_are_named_as_in_the_help(self):
        self.refused(("missing: IN",), "state", "show")
        self.refused(("here: weights are always mapped",), "run", "--no-mmap", "hi")

    def test_nothing_decoded_is_said_once(self):
        done = run("run", "-m", self.model, "--raw", "A leaf", "-n", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("ran on cpu"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
