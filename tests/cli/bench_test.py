#!/usr/bin/env python3
"""`baton bench`: three numbers without arguments, rows and their fields, load, two configurations in turns, errors.

usage: bench_test.py PROGRAM   (then unittest's own options)
"""
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
LLAMA_BENCH = {"model_filename", "model_type", "model_size", "model_n_params", "backends", "n_threads", "n_prompt", "n_gen",
               "n_depth", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"}
OWN = {"test", "n_sequences", "median_ts", "low_ts", "high_ts", "quality", "prefill", "decode", "bandwidth_percent",
       "peak_percent", "joules_per_token", "energy_reason", "peak_memory_bytes", "tokens_hash", "check"}
# A peer whose speed is known: prints llama-bench's JSON behind some logs.
PEER = """import json, sys
print("loading", file=sys.stderr)
print("build: 1")
print(json.dumps([{"n_prompt": 16, "n_gen": 0, "n_depth": 0, "avg_ts": SPEED, "samples_ts": [SPEED, SPEED]},
                  {"n_prompt": 0, "n_gen": 4, "n_depth": 0, "avg_ts": SPEED * 2}], indent=2))
"""


# Bounds of what honest choices differ by take half a minute in a sanitizer; the tests in C++ measure them there.
measures_bounds = unittest.skipIf("BATON_TEST_SANITIZED" in os.environ, "the tests in C++ do this arithmetic")


def bench(*arguments, timeout=300):
    return subprocess.run([PROGRAM, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=timeout)


def rows(*arguments):
    done = bench("-m", SMALL, "-o", "json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def peer(self, name, speed):
        path = os.path.join(self.folder, name)
        pathlib.Path(path).write_text(PEER.replace("SPEED", str(speed)))
        return f"cmd:{sys.executable} '{path}' -o json"

    def test_without_arguments_three_numbers(self):
        done = bench("-r", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line[:20].strip() for line in lines], ["time to first token", "tokens/s", "joules per token"])
        self.assertGreater(float(lines[0][20:].split()[0]), 0)
        self.assertGreater(float(lines[1][20:].split()[0]), 0)
        if "unknown" in lines[2]:
            self.assertRegex(done.stderr, r"joules per token unknown: no RAPL: .*; no NVML: ")

    def test_rows_have_the_fields_of_llama_bench_and_ours(self):
        tests = rows("-p", "16", "-n", "4", "-pg", "16,4", "-r", "2", "-d", "0,8")
        self.assertEqual([row["test"] for row in tests],
                         ["pp16", "tg4", "pp16+tg4", "pp16 @ d8", "tg4 @ d8", "pp16+tg4 @ d8"])
        for row in tests:
            self.assertLessEqual(LLAMA_BENCH | OWN, row.keys())
            self.assertEqual(len(row["samples_ts"]), 2)
            self.assertEqual(row["quality"], "measured")
            self.assertEqual(row["check"]["status"], "checked", row["check"])
            self.assertLess(row["check"]["lead_max"], 1)
            self.assertEqual(row["joules_per_token"] is None, row["energy_reason"] is not None)
            tokens = row["n_prompt"] + row["n_gen"]
            for speed, nanoseconds in zip(row["samples_ts"], row["samples_ns"]):
                self.assertAlmostEqual(speed, tokens / nanoseconds * 1e9, delta=speed * 1e-3)
            self.assertEqual(row["bandwidth_percent"] is not None, row["n_prompt"] == 0)
        self.assertEqual(tests[0]["decode"], None)
        self.assertEqual(tests[1]["prefill"], None)
        self.assertEqual(tests[2]["decode"]["ran"], "cpu")
        # One token behind the prompt, four of the test; at a depth each is behind another context.
        self.assertEqual([row["check"]["tokens"] for row in tests], [1, 4, 5, 1, 4, 5])

    @measures_bounds
    def test_hashes_do_not_depend_on_threads_and_repetitions(self):
        one, two = (rows("-p", "24", "-n", "6", "-r", runs, "-t", threads, "--no-limits") for runs, threads in ((1, 1), (2, 2)))
        self.assertEqual([row["tokens_hash"] for row in one], [row["tokens_hash"] for row in two])
        self.assertNotEqual(one[0]["tokens_hash"], one[1]["tokens_hash"])
        self.assertEqual([row["n_threads"] for row in one + two], [1, 1, 2, 2])

    def test_sequences_are_summed_and_each_is_checked(self):
        row, = rows("-p", "0", "-n", "4", "--sequences", "3", "-r", "1")
        self.assertEqual((row["test"], row["n_sequences"], row["check"]["tokens"]), ("tg4 x 3", 3, 12))
        self.assertAlmostEqual(row["samples_ts"][0], 12 / row["samples_ns"][0] * 1e9, delta=row["samples_ts"][0] * 1e-3)

    def test_what_was_asked_for_is_told_with_its_options(self):
        flags = ("-m", SMALL, "-p", "8", "-n", "2", "-r", "1", "--no-limits", "--no-check")
        unit = "cuda:driver=emulated,products=f32,batch=tensor,kv=f32"
        for units, asked, line in ((("--unit", unit), (unit, unit), f"asked for: {unit}"),
                                   (("--prefill", unit, "--decode", "cpu"), (unit, "cpu"), f"asked for: {unit}, then cpu"),
                                   (("--unit", "cpu:kv=q8_0"), ("cpu:kv=q8_0", "cpu:kv=q8_0"), ""),
                                   (("--unit", "cpu"), ("cpu", "cpu"), "")):
            prompt, answer = json.loads(bench(*flags, *units, "-o", "json").stdout)
            self.assertEqual((prompt["prefill"]["asked"], answer["decode"]["asked"]), asked)
            lines = bench(*flags, *units).stdout.splitlines()
            self.assertEqual(lines[2], line)
            self.assertEqual(lines[3 if line else 2], "")

    @measures_bounds
    def test_two_units_carry_the_state(self):
        row, = rows("-p", "0", "-n", "0", "-pg", "16,4", "-r", "1", "--prefill-unit", "ref")
        self.assertEqual((row["backends"], row["prefill"]["ran"], row["decode"]["ran"]), ("ref+cpu", "ref", "cpu"))
        self.assertEqual(row["check"]["status"], "checked")
        # Each phase has the limits of its own unit: ref is no vector kernels and no device.
        self.assertIsNone(row["peak_percent"])
        self.assertEqual(row["bandwidth_percent"], row["phase_shares"]["decode"]["bandwidth_percent"])
        self.assertGreater(row["phase_shares"]["decode"]["peak_percent"], 0)
        self.assertIsNone(row["phase_shares"]["prefill"]["peak_percent"])

    @measures_bounds
    def test_measuring_bounds_is_said_and_done_once(self):
        model = shutil.copy(SMALL, self.folder)
        words = [PROGRAM, "bench", "-m", model, "-p", "8", "-n", "0", "-r", "1", "--no-limits"]
        for said in (True, False):
            done = subprocess.run(words, capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "XDG_CACHE_HOME": self.folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("measuring what honest choices differ by" in done.stderr, said)

    def test_a_unit_that_only_prefills_is_measured_at_that(self):
        unit = ("-m", SMALL, "--unit", "coreml:device=emulator", "-r", "1")
        done = bench(*unit, "-p", "8", "-n", "0", "-o", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("only prefills", json.loads(done.stdout)[0]["check"]["why"])
        for prefill in ("0", "8"):  # refused before anything is measured
            done = bench(*unit, "-p", prefill, "-n", "4")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("tg4: the unit only prefills: decode on another one", done.stderr)

    def test_what_units_cost_each_other(self):
        few = ("--interference", "-p", "96", "-n", "8", "-r", "2")
        one = rows(*few, "--prefill", "cpu:threads=1", "--decode", "ref", "--unit", "cpu")
        self.assertEqual((one["prefill"]["unit"], one["decode"]["unit"]), ("cpu:threads=1", "ref"))
        self.assertEqual([(row["strategy"], row["pair"]) for row in one["meanwhile"]],
                         [("alone", "ref"), ("single", "cpu"), ("overlap", "cpu:threads=1+ref")])
        for phase in ("prefill", "decode"):
            for which in ("alone_tps", "together_tps"):
                spread = one[phase]["spread"][which]
                self.assertLessEqual(spread["low"], one[phase][which])
                self.assertLessEqual(one[phase][which], spread["high"])
            self.assertAlmostEqual(one[phase]["share"], one[phase]["together_tps"] / one[phase]["alone_tps"])
        for row in one["meanwhile"]:
            self.assertGreater(row["gaps"], 1)
            self.assertLessEqual(row["p50_ms"], row["p99_ms"])
            self.assertEqual(row["ttft_ms"] is None, row["strategy"] == "alone")
        p99 = {row["strategy"]: row["p99_ms"] for row in one["meanwhile"]}
        self.assertAlmostEqual(one["p99_overlap_of_single"], p99["overlap"] / p99["single"])
        self.assertLessEqual(one["hand_over"]["visible_ms"], one["hand_over"]["move_ms"])
        table = bench("-m", SMALL, *few, "--prefill", "cpu:threads=1", "--decode", "ref").stdout
        self.assertRegex(table, r"\| single \| ref \|")
        for flags, words in ((("--prefill", "cpu", "--decode", "cpu"), "name two units"), (("--pg", "4,4"), "--pg does not go"),
                             (("-o", "csv"), "csv"), (("-p", "8,9"), "one prompt")):
            done = bench("--interference", "-m", SMALL, *flags)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            self.assertIn(words, done.stderr)

    @measures_bounds
    def test_a_conversation_by_every_way(self):
        few = ("--turns", "2", "--input-tokens", "16", "--answer-tokens", "6", "--pause", "400", "-r", "1")
        found = rows("--conversation", *few, "--prefill", "cpu", "--decode", "ref")
        ways = ("single", "single-busy", "handoff", "overlap", "idle-prefill")
        self.assertEqual([(row["strategy"], row["turn"]) for row in found], [(way, turn) for way in ways for turn in (1, 2)])
        for row in found:
            self.assertEqual(row["pair"], "ref" if row["strategy"].startswith("single") else "cpu+ref")
            self.assertEqual(row["quality"], "measured")
            self.assertEqual(row["prompt_tokens"], 16 if row["turn"] == 1 else 38)
            # Of an answer the last token was sampled and never processed.
            held = 0 if row["turn"] == 1 else 21
            if row["turn"] == 2 and row["strategy"] == "idle-prefill":  # all but the last token is taken in before it is sent
                self.assertLessEqual(22, row["cached_tokens"])
                self.assertLessEqual(row["cached_tokens"], 37)
            else:
                self.assertEqual(row["cached_tokens"], held)
            self.assertEqual(row["cached_tokens"] + row["replayed_tokens"], row["prompt_tokens"])
            self.assertGreater(row["ttft_ms"], row["hand_over_ms"])
            self.assertGreater(row["decode_tps"], 0)
        one = rows("--conversation", *few, "--unit", "cpu")
        self.assertEqual({row["strategy"] for row in one}, {"single", "single-busy"})
        emulated = rows("--conversation", *few, "--prefill", "ane", "--decode", "cpu")
        qualities = {row["strategy"]: row["quality"] for row in emulated}
        self.assertEqual((qualities["single"], qualities["handoff"]), ("measured", "emulated"))
        for flags, words in ((("--conversation", "-p", "8"), "--n-prompt"), (("--turns", "2"), "--conversation"),
                             (("--conversation", "-o", "csv"), "csv"),
                             (("--conversation", "-m", SMALL, "--turns", "900"), "the context is")):
            done = bench(*flags)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            self.assertIn(words, done.stderr)

    @measures_bounds
    def test_emulated_unit_says_so_everywhere(self):
        row, = rows("-p", "8", "-n", "0", "-r", "1", "--unit", "ane")
        if "emulated" not in row["prefill"]["evidence"]:
            self.skipTest("this machine has a neural engine")
        self.assertEqual((row["quality"], row["peak_percent"], row["energy_reason"]), ("emulated", None, "the unit is emulated"))
        self.assertIn(" emulated |", bench("-m", SMALL, "-p", "8", "-n", "0", "-r", "1", "--unit", "ane").stdout)

    def test_reference_and_large_tests_are_unchecked_and_say_why(self):
        row, = rows("-p", "8", "-n", "0", "-r", "1", "--unit", "ref")
        self.assertEqual((row["check"]["status"], row["check"]["why"]), ("unchecked", "it is the reference"))
        done = bench("-m", SMALL, "-p", "8", "-n", "0", "-r", "1", "--no-check", "--no-limits", "-o", "json")
        self.assertEqual(json.loads(done.stdout)[0]["check"]["why"], "--no-check")

    def test_table_csv_and_lines(self):
        done = bench("-m", SMALL, "-p", "8", "-n", "2", "-r", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^.*: .* [MG]iB, .* parameters; cpu, \d+ threads$")
        self.assertRegex(lines[1], "^prefill on cpu: .*; decode on the same$")
        head = [cell.strip() for cell in lines[3].strip("|").split("|")]
        self.assertEqual(head, ["test", "t/s", "% bandwidth", "% peak", "J/tok", "tokens"])
        self.assertEqual(len(lines), 7)
        self.assertIn("\u00b1", done.stdout)
        self.assertIn("limit: read of", done.stderr)
        flags = ("-m", SMALL, "-p", "8", "-n", "2", "-r", "1", "--no-limits")
        table = list(csv.DictReader(io.StringIO(bench(*flags, "-o", "csv").stdout)))
        self.assertEqual([row["test"] for row in table], ["pp8", "tg2"])
        self.assertEqual(table[0]["check_status"], "checked")
        lines = bench(*flags, "-o", "jsonl").stdout.splitlines()
        self.assertEqual([json.loads(line)["test"] for line in lines], ["pp8", "tg2"])

    def test_one_run_has_no_spread(self):
        done = bench("-m", SMALL, "-p", "8", "-n", "2", "-r", "1", "--no-limits", "--no-check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\| pp8 +\| +[\d.]+ \|")
        self.assertNotIn("\u00b1", done.stdout)

    def test_load_is_timed_in_a_process_of_its_own(self):
        load, = rows("-p", "0", "-n", "0", "--load", "-r", "2")
        self.assertEqual(load["test"], "load+pp13")
        self.assertEqual(len(load["samples_ms"]), 2)
        self.assertGreater(load["load_ms"], 0)
        self.assertGreater(load["peak_memory_bytes"], os.path.getsize(SMALL) // 2)

    def test_ab_judges_known_speeds(self):
        a, b = self.peer("a.py", 150.0), self.peer("b.py", 100.0)
        for left, right, ratio, verdict in ((a, b, 1.5, "A is faster"), (b, a, 1 / 1.5, "B is faster"),
                                            (a, a, 1, "no difference shown")):
            done = bench("--ab", left, right, "--rounds", "12", "--rest", "0", "-o", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = json.loads(done.stdout)
            self.assertEqual([test["test"] for test in answer["tests"]], ["pp16", "tg4"])
            for test in answer["tests"]:
                self.assertAlmostEqual(test["ratio"], ratio, places=9)
                self.assertEqual(test["verdict"], verdict)
                self.assertEqual(len(test["rounds"]), 12)
        orders = {round["order"] for round in answer["tests"][0]["rounds"]}
        self.assertLessEqual(orders, {"ABBA", "BAAB"})

    def test_ab_labels_emulated_sides_and_judges_none_against_a_measured_one(self):
        emulated = os.path.join(self.folder, "emulated.py")
        pathlib.Path(emulated).write_text(PEER.replace("SPEED", "300.0").replace('"n_depth": 0,', '"quality": "emulated",'))
        emulated = f"cmd:{sys.executable} '{emulated}' -o json"
        measured = self.peer("measured.py", 100.0)
        flags = ("--rounds", "12", "--rest", "0")
        done = bench("--ab", emulated, measured, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| pp16 | 300.00 emulated | 100.00 | - | - | none: A is emulated and B measured |", done.stdout)
        self.assertNotIn("faster", done.stdout)
        self.assertIn("pp16: no verdict: A is emulated and B measured.", done.stderr)
        for test in json.loads(bench("--ab", measured, emulated, *flags, "-o", "json").stdout)["tests"]:
            self.assertEqual((test["a_quality"], test["b_quality"]), ("measured", "emulated"))
            self.assertEqual([test[name] for name in ("ratio", "low", "high", "differs")], [None] * 4)
            self.assertEqual(test["verdict"], "none: B is emulated and A measured")
        row = bench("--ab", measured, emulated, *flags, "-o", "csv").stdout.splitlines()[1]
        self.assertEqual(row, "pp16,100.000,300.000,,,,none: B is emulated and A measured,measured,emulated")
        done = bench("--ab", emulated, emulated, *flags)
        self.assertIn("| pp16 | 300.00 emulated | 300.00 emulated | 1.0000 | 1.0000 to 1.0000 | no difference shown (emulated) |",
                      done.stdout)

    def test_ab_of_flags_shows_no_difference_between_equals(self):
        # One comparison of a thousand is meant to be wrong; two in a row are not.
        for _ in range(2):
            done = bench("--ab", "", "--threads=1", "-m", SMALL, "-t", "1", "-p", "16", "-n", "0", "-r", "1", "--rest", "0", "--rounds", "11")
            self.assertEqual(done.returncode, 0, done.stderr)
            if "| no difference shown |" in done.stdout:
                break
        self.assertIn("| no difference shown |", done.stdout)
        self.assertIn("11 rounds of four runs, interval at 99.9 %", done.stdout)

    def test_usage_errors_are_2_and_say_what_is_wrong(self):
        peer = self.peer("peer.py", 10.0)
        for arguments, words in (
                (("-m", SMALL, "--unit", "tpu"), "no unit named 'tpu'"),
                (("-m", SMALL, "-p", "x"), "n-prompt"),
                (("-m", SMALL, "-p", "0", "-n", "0"), "no test"),
                (("-m", SMALL, "--pg", "512"), "--pg 512: two counts"),
                (("-m", SMALL, "--pg", "512,0"), "two counts"),
                (("-m", SMALL, "-p", "100000", "-n", "0"), "context"),
                (("-m", SMALL, "-p", "0", "-n", "1", "--sequences", "1000"), "sequences in one step"),
                (("-o", "xml"), "output"),
                (("--rounds", "9"), "goes with --ab"),
                (("--ab", "-t 1"), "--ab"),
                (("--ab", peer, peer, "--rounds", "6"), "--rounds 6: 2 tests at 99.9 % need 12"),
                (("--ab", "'x", peer), "a quote has no end"),
                (("--ab", "-o json", peer), "cannot be part of a side"),
                (("--ab", "cmd:", peer), "without a command"),
                (("--ab", "-m '" + SMALL + "' -p 5 -n 0", peer), "no test in common")):
            with self.subTest(arguments=arguments):
                done = bench(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_failures_are_1_and_name_what_failed(self):
        peer = self.peer("peer.py", 10.0)
        none = os.path.join(self.folder, "none.gguf")
        for arguments, words in ((("-m", none), "none.gguf"),
                                 (("--load", "-m", none), "none.gguf"),
                                 (("--ab", "cmd:no-such-program", peer), "cannot run no-such-program"),
                                 (("--ab", f"-m {none}", peer), "none.gguf"),
                                 (("--ab", peer, f"cmd:{sys.executable} -c 'raise SystemExit(3)'"), "exit code 3")):
            with self.subTest(arguments=arguments):
                done = bench(*arguments)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
