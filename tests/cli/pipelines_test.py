#!/usr/bin/env python3
"""`baton bench --pipelines`: rows, what is skipped and why, pages, lists of one's own, emulated figures.

usage: pipelines_test.py PROGRAM   (then unittest's own options)
"""
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = str(ROOT / "tests" / "data" / "golden" / "dictionary-3m")
PRESETS = ["gpu", "coreml-hybrid", "ane", "ane-hybrid", "ane-batch"]
FIELDS = {"pipeline", "prefill", "decode", "prompt_tokens", "ttft_ms", "prefill_tps", "decode_tps", "bridge_ms", "bridge_bytes",
          "peak_memory_bytes", "watts", "joules", "quality"}


def bench(*arguments):
    return subprocess.run([PROGRAM, "bench", "--pipelines", *map(str, arguments)], capture_output=True, text=True, timeout=300)


class Tags(html.parser.HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.bars = [], 0

    def handle_starttag(self, tag, attrs):
        self.bars += tag == "i"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


class Pipelines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def check_page(self, path):
        text = pathlib.Path(path).read_text()
        tags = Tags()
        tags.feed(text)
        self.assertEqual(tags.open, [])
        self.assertGreater(tags.bars, 0)
        self.assertNotIn("http", text)

    def test_every_preset_runs_or_says_why_not(self):
        page = self.path("page.html")
        done = bench("-m", SMALL, "-p", "6,20", "-n", "4", "-r", "1", "--json", "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        seen = {row["pipeline"] for row in rows}
        self.assertIn("gpu", seen)
        for name in PRESETS:
            self.assertTrue(name in seen or f"skipped {name}: " in done.stderr, name)
        for row in rows:
            self.assertEqual(set(row), FIELDS)
            self.assertEqual(set(row["prefill"]), {"asked", "ran", "evidence"})
            self.assertEqual(set(row["quality"]), {"time", "energy"})
            self.assertGreater(row["ttft_ms"], 0)
            self.assertGreater(row["decode_tps"], 0)
            self.assertGreater(row["peak_memory_bytes"], 1 << 20)
            self.assertTrue(row["decode"]["ran"] and row["decode"]["evidence"])
            if "emulat" in row["prefill"]["evidence"] + row["decode"]["evidence"]:
                self.assertEqual(row["quality"]["time"], "emulated")
            else:
                self.assertEqual(row["quality"]["time"], "measured")
            self.assertEqual(row["joules"] is None, row["quality"]["energy"] == "unknown")
        self.check_page(page)

    def test_a_list_of_ones_own_crosses_the_bridge(self):
        file = self.path("list.json")
        pathlib.Path(file).write_text(json.dumps([{"name": "check", "prefill": "ref", "decode": "cpu"},
                                                  {"name": "far", "prefill": "elsewhere", "decode": "cpu"}]))
        done = bench("-m", SMALL, "-p", "20,5000", "-n", "4", "-r", "2", "--pipelines-file", file, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = json.loads(done.stdout)
        self.assertEqual((row["pipeline"], row["prefill"]["ran"], row["decode"]["ran"]), ("check", "ref", "cpu"))
        self.assertGreater(row["bridge_bytes"], 0)
        self.assertGreater(row["bridge_ms"], 0)
        self.assertIn("skipped far: no unit named 'elsewhere'", done.stderr)
        self.assertIn("skipped check, 5000 tokens: the model's context", done.stderr)
        self.assertIn("run 2 of 2", done.stderr)

    def test_nonsense_and_nothing_are_failures(self):
        model = pathlib.Path(self.path("model"))
        model.mkdir()
        for file in pathlib.Path(SMALL).iterdir():
            if file.name != "model.safetensors":
                (model / file.name).symlink_to(file)
        data = bytearray((pathlib.Path(SMALL) / "model.safetensors").read_bytes())
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        norm, = (name for name in header if name.endswith("norm.weight") and "layers" not in name)
        begin, end = (8 + size + offset for offset in header[norm]["data_offsets"])
        data[begin:end] = b"\x7f" * (end - begin)  # 3.4e38 in BF16 and F32 alike
        (model / "model.safetensors").write_bytes(data)
        done = bench("-m", str(model), "-p", "6", "-n", "4", "-r", "1", "--only", "gpu", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (1, []), done.stderr)
        self.assertIn("baton: gpu, 6 tokens: ", done.stderr)
        done = bench("-m", SMALL, "-p", "5000", "-n", "4", "-r", "1", "--only", "gpu", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (1, []), done.stderr)
        self.assertIn("baton: nothing was measured", done.stderr)

    def test_text_has_the_tables(self):
        done = bench("-m", SMALL, "-p", "6", "-n", "4", "-r", "2", "--only", "gpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("| gpu | 6 | gpu -> cpu |", "TTFT, ms", "Decode, tokens/s", "| evidence |"):
            self.assertIn(words, done.stdout)

    def test_emulated_figures_are_marked_and_stand_beside_the_published(self):
        page, published = self.path("page.html"), self.path("published.json")
        done = bench("--emulate", "m2-ultra", "--json", "--html", page, "--published", published)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual({row["pipeline"] for row in rows}, set(PRESETS))
        self.assertEqual(len(rows), 5 * 6)
        for row in rows:
            self.assertEqual(set(row), FIELDS)
            self.assertEqual(row["quality"], {"time": "emulated", "energy": "emulated"})
            self.assertIn("emulated", row["prefill"]["evidence"])
        compared = json.loads(pathlib.Path(published).read_text())
        self.assertLessEqual(2 * sum(row["calibrates"] for row in compared), len(compared))
        for row in compared:
            self.assertAlmostEqual(row["deviation"], row["emulated"] / row["published"] - 1)
            if abs(row["deviation"]) > 0.2 and not row["calibrates"]:
                self.assertTrue(row["why"], row)
        self.check_page(page)
        text = bench("--emulate", "m2-ultra").stdout
        self.assertIn("Wrong by more than 20 %", text)
        self.assertIn("All predictions are emulated", text)
        self.assertNotRegex(text, r"\de\+\d")
        lengths = [int(line.split("|")[2]) for line in text.splitlines() if line.startswith("| gpu | ") and line.count("|") == 16]
        self.assertEqual(lengths, [6, 13, 28, 74, 133, 410])
        # The document has the same table.
        document = " ".join((ROOT / "docs" / "pipelines.md").read_text().split())
        summary = [line for line in text.splitlines() if " published rows: " in line or line.startswith("- ")]
        self.assertGreater(len(summary), 5)
        for line in summary:
            self.assertIn(" ".join(line.split()), document)

    def test_other_chips_and_models(self):
        done = bench("--emulate", "m5", "-m", SMALL, "-p", "6", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual([row["pipeline"] for row in rows], ["ane"])
        self.assertIsNone(rows[0]["watts"])
        self.assertEqual(rows[0]["quality"]["energy"], "unknown")
        self.assertIn("GPU is not known", done.stderr)
        self.assertIn("m3-max", bench("--emulate", "m3-max", "-p", "6").stdout)

    def test_usage_errors(self):
        for arguments, words in (
                (("--emulate", "m9"), "there are: m1, m2-ultra"),
                (("--only", "npu", "-m", SMALL), "no pipeline 'npu'; there are: gpu"),
                (("--published", "x"), "--published needs --emulate"),
                (("-p", "0", "-m", SMALL), "a pipeline needs a prompt")):
            with self.subTest(arguments=arguments):
                done = bench(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")
        alone = subprocess.run([PROGRAM, "bench", "--emulate", "m1"], capture_output=True, text=True, timeout=60)
        self.assertEqual(alone.returncode, 2)
        bad = self.path("bad.json")
        pathlib.Path(bad).write_text("[{}]")
        for arguments in (("-m", SMALL, "--pipelines-file", self.path("none")), ("-m", self.path("none.gguf"), "--only", "gpu")):
            self.assertEqual(bench(*arguments).returncode, 1)
        refused = bench("-m", SMALL, "--pipelines-file", bad)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("'name' is missing", refused.stderr)


if __name__ == "__main__":
    unittest.main()
