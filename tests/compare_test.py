#!/usr/bin/env python3
"""bench/compare.py: the JSON that peers print, its tests, ratios and tables, with engines of known speed.

usage: compare_test.py   (then unittest's own options)
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("compare", ROOT / "bench" / "compare.py")
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)

# An engine: prints rows of llama-bench for the -p, -n, -d and -gp it is given. SPEED is its tg; pp is ten times that.
ENGINE = """#!{python}
import json, sys
words = sys.argv[1:]
for word in words:
    if word in REFUSED:
        sys.exit("error: invalid parameter " + word)
value = lambda flag: words[words.index(flag) + 1] if flag in words else "0"
depth = int(value("-d"))
rows = [{{"n_prompt": int(n), "n_gen": 0, "n_depth": depth, "avg_ts": SPEED * 10}} for n in value("-p").split(",") if n != "0"]
rows += [{{"n_prompt": 0, "n_gen": int(n), "n_depth": depth, "avg_ts": 1, "samples_ts": [SPEED]}}
         for n in value("-n").split(",") if n != "0"]
rows += [{{"n_prompt": int(words[i + 1].split(",")[0]), "n_gen": int(words[i + 1].split(",")[1]), "avg_ts": SPEED}}
         for i, word in enumerate(words) if word == "-gp"]
open(LOG, "a").write(json.dumps(words) + "\\n")
print("warning: asserts enabled")
print(json.dumps(rows, indent=2))
"""


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = compare.main(list(arguments))
        except SystemExit as exit_:
            code = exit_.code
    return code, out.getvalue(), err.getvalue()


class Parsing(unittest.TestCase):
    def test_list_with_logs_around_it(self):
        text = """load_backend: loaded CPU backend
[
  {
    "build_commit": "8337e4cd",
    "n_prompt": 512, "n_gen": 0, "n_depth": 0,
    "avg_ns": 1, "avg_ts": 327.5, "stddev_ts": 1.0,
    "samples_ns": [ 1, 2, 3 ], "samples_ts": [ 300.0, 330.0, 352.2 ]
  },
  {"n_prompt": 0, "n_gen": 64, "avg_ts": 27.0},
  {"n_prompt": 512, "n_gen": 64, "avg_ts": 99.0}
]
main: done
"""
        self.assertEqual(compare.parse_rows(text), {("pp", 512, 0): 330.0, ("tg", 64, 0): 27.0})

    def test_a_row_a_line(self):
        text = 'x\n{"n_prompt": 0, "n_gen": 8, "n_depth": 1024, "avg_ts": 5.5, "samples_ts": []}\n{broken\n'
        self.assertEqual(compare.parse_rows(text), {("tg", 8, 1024): 5.5})

    def test_no_rows_is_said(self):
        for text in ("", "error: no model\n", "[]", "[\n{\"n_prompt\": 5}\n]", "[{\"n_prompt\": 5, \"n_gen\": 0, \"avg_ts\": 0}]"):
            with self.assertRaisesRegex(compare.Failure, "no rows"):
                compare.parse_rows(text)
        with self.assertRaisesRegex(compare.Failure, "ends early"):
            compare.parse_rows('[\n{"n_prompt": 5, "n_gen"')

    def test_tests(self):
        self.assertEqual(compare.parse_tests("pp512,tg64@1024,tg8@d0"), [("pp", 512, 0), ("tg", 64, 1024), ("tg", 8, 0)])
        self.assertEqual(compare.test_name(("tg", 64, 1024)), "tg64 @ d1024")
        for text in ("", "pp", "pp0", "xx5", "pp5@", "pp512;tg64"):
            with self.assertRaises(compare.argparse.ArgumentTypeError):
                compare.parse_tests(text)


class Comparing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.path("m.gguf")
        pathlib.Path(self.model).write_text("x")

    def path(self, name):
        return os.path.join(self.folder, name)

    def engine(self, name, speed, refused=()):
        text = ENGINE.format(python=sys.executable).replace("SPEED", str(speed)).replace("LOG", repr(self.path(name + ".log")))
        pathlib.Path(self.path(name)).write_text(text.replace("REFUSED", repr(refused)))
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def calls(self, name):
        return [json.loads(line) for line in pathlib.Path(self.path(name + ".log")).read_text().splitlines()]

    def compare(self, *arguments):
        return run("--model", self.model, "--rest", "0", "-t", "3", *arguments)

    def test_known_speeds_and_ratios(self):
        own, slow, fast = self.engine("own", 30.0), self.engine("slow", 10.0), self.engine("fast", 20.0)
        code, out, err = self.compare("--baton", own, "--peer", f"slow={slow}", "--peer", f"fast={fast}", "--peer-args", "fast=-rtr 1",
                                      "--tests", "pp64,tg8,tg8@32", "--load", "-o", "json")
        self.assertEqual(code, 0, err)
        answer, = json.loads(out)
        rows = {row["what"]: row for row in answer["rows"]}
        for what, factor in (("pp64", 10), ("tg8", 1), ("tg8 @ d32", 1)):
            row = rows[what]
            self.assertEqual([row["values"][name]["median"] for name in ("baton", "slow", "fast")], [30 * factor, 10 * factor, 20 * factor])
            self.assertEqual((row["better_peer"], row["ratio"], len(row["values"]["slow"]["samples"])), ("fast", 1.5, 5))
        self.assertGreater(rows["load to 13 tokens"]["values"]["fast"]["median"], 0)
        self.assertGreater(rows["peak memory of load"]["values"]["baton"]["median"], 1)
        # Same file and threads; mapping off in the peers; six rounds of two depths and a load, the first not counted.
        self.assertEqual(len(self.calls("fast")), 18)
        for words in self.calls("fast"):
            self.assertEqual(words[:8], ["-m", self.model, "-t", "3", "-o", "json", "-mmp", "0"])
            self.assertIn("-rtr", words)
        self.assertTrue(all(words[0] == "bench" and "-mmp" not in words for words in self.calls("own")))
        self.assertIn(["-r", "1", "-p", "64", "-n", "8"], [words[-6:] for words in self.calls("fast")])
        self.assertIn(["-p", "0", "-n", "8", "-d", "32"], [words[-6:] for words in self.calls("fast")])
        self.assertIn(["-p", "13", "-n", "0", "-r", "1", "--no-warmup"], [words[-7:] for words in self.calls("fast")])

    def test_other_names_of_flags(self):
        peer = self.engine("peer", 10.0, refused=("-mmp", "-d", "--no-warmup"))
        code, out, err = self.compare("--baton", self.engine("own", 30.0), "--peer", f"p={peer}", "--tests", "tg8,tg8@32", "--load",
                                      "-o", "json")
        self.assertEqual(code, 0, err)
        rows = {row["what"]: row for row in json.loads(out)[0]["rows"]}
        self.assertEqual((rows["tg8"]["ratio"], rows["tg8 @ d32"]["ratio"]), (3.0, 3.0))
        self.assertIn(["-p", "0", "-n", "0", "-gp", "32,8"], [words[-6:] for words in self.calls("peer")])
        self.assertTrue(all(words[6:8] == ["-lm", "none"] for words in self.calls("peer")))

    def test_table(self):
        code, out, _ = self.compare("--baton", self.engine("own", 30.0), "--peer", "p=" + self.engine("peer", 1200.0), "--tests", "tg8")
        self.assertEqual(code, 0)
        self.assertIn("### m.gguf\n\n|  | baton | p | ratio to the better peer |\n|---|---:|---:|---:|\n"
                      "| tg8, tok/s | 30.0 (30.0-30.0) | 1200 (1200-1200) | 0.03x |\n", out)
        self.assertIn("3 threads; medians of 5 rounds", out)

    def test_peer_that_cannot_is_left_out_and_said(self):
        code, out, err = self.compare("--baton", self.engine("own", 30.0), "--peer", "p=" + self.engine("peer", 10.0, refused=("-d", "-gp")),
                                      "--tests", "tg8,tg8@32")
        self.assertEqual(code, 0)
        self.assertIn("| tg8, tok/s | 30.0 (30.0-30.0) | 10.00 (10.00-10.00) | 3.00x |", out)
        self.assertIn("| tg8 @ d32, tok/s | 30.0 (30.0-30.0) | - | - |", out)
        self.assertIn("p: left out: ", err)
        self.assertIn("invalid parameter -d", err)

    def test_warm_up_is_left_out_the_way_a_peer_knows(self):
        peer = self.engine("peer", 10.0, refused=("--no-warmup",))
        code, _, err = self.compare("--baton", self.engine("own", 30.0), "--peer", f"p={peer}", "--tests", "tg8", "--load")
        self.assertEqual(code, 0, err)
        self.assertIn(["-w", "0"], [words[-2:] for words in self.calls("peer")])

    def test_errors(self):
        own = self.engine("own", 30.0)
        for arguments, code, words in (((), 2, "--model"),
                                       (("--model", self.model, "-r", "4"), 2, "at least 5"),
                                       (("--model", self.model, "--peer", "x"), 2, "NAME=VALUE"),
                                       (("--model", self.model, "--peer-args", "x=-t 1"), 2, "no such --peer"),
                                       (("--model", self.model, "--tests", "pp"), 2, "a test is"),
                                       (("--model", self.path("none.gguf"), "--baton", own), 1, "none.gguf does not exist"),
                                       (("--model", self.model, "--baton", self.path("none"), "--rest", "0"), 1, "cannot run")):
            with self.subTest(arguments=arguments):
                got, out, err = run(*arguments)
                self.assertEqual((got, out), (code, ""))
                self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main()
