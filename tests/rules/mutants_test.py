#!/usr/bin/env python3
"""scripts/mutants.py without a build: what it reads, refuses, draws and counts."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import mutants  # noqa: E402

BLOCK = "id: {0}\nfile: {1}\nold: a < b\nnew: a <= b\ntest: baton_base_test --gtest_filter=X.*\n"


class Mutants(unittest.TestCase):
    def test_blocks_are_read(self):
        found, problems = mutants.parse("# all\n" + BLOCK.format("A1", "baton/base/a.cc") + "\n\nid: A2\n"
                                        "file: baton/unit/cpu/b.cc\nold: x: y\nnew: \nequivalent: no reader: none\n")
        self.assertEqual(problems, [])
        self.assertEqual([(m.id, m.old, m.new, m.test != "") for m in found],
                         [("A1", "a < b", "a <= b", True), ("A2", "x: y", "", False)])
        self.assertEqual([m.folder() for m in found], ["baton/base", "baton/unit/cpu"])

    def test_bad_blocks_are_refused(self):
        for text, words in (("id: A\nfile: f\nold: x\nnew: y\n", "one of test and equivalent"),
                            (BLOCK.format("A", "f") + "equivalent: both\n", "one of test and equivalent"),
                            ("id: A\nfile: f\ntest: t_test\n", "needs id"), ("what: x\n", "not a field"),
                            (BLOCK.format("A", "f") + "old: again\n", "twice in it"),
                            (BLOCK.format("A", "f") + "\n" + BLOCK.format("A", "f"), "A is there twice")):
            self.assertIn(words, " ".join(mutants.parse(text)[1]), text)

    def test_a_fault_must_fit_exactly_once(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "f").write_text("if (a < b) x;\n")
            (root / "g").write_text("a < b; a < b;\n")
            (root / "tests").mkdir()
            (root / "tests" / "x_test.cc").write_text("")
            make = lambda name, **more: mutants.Mutant("A", name, "a < b", "a <= b", **{"test": "x_test", **more})  # noqa: E731
            self.assertEqual(mutants.check(root, [make("f")]), [])
            self.assertIn("2 times", mutants.check(root, [make("g")])[0])
            self.assertIn("there is no h", mutants.check(root, [make("h")])[0])
            for test in ("rm x", "y_test", "baton_base_test", "ctest cli.y_test", "python tests/cli/y_test.py"):
                self.assertIn("no such test", mutants.check(root, [make("f", test=test)])[0])
            self.assertEqual(mutants.plant(make("f"), "if (a < b) x;\n")[0], "if (a <= b) x;\n")

    def test_the_draw_is_of_the_seed(self):
        many = [mutants.Mutant(str(i), "f", "x", "y", *(("t_test",) if i % 4 else ("", "why"))) for i in range(200)]
        first = [m.id for m in mutants.draw(many, 5, "abc")]
        self.assertEqual(first, [m.id for m in mutants.draw(many, 5, "abc")])
        self.assertNotEqual(first, [m.id for m in mutants.draw(many, 5, "abd")])
        self.assertTrue(all(m.test for m in mutants.draw(many, 150, "abc")))

    def test_the_score_counts_by_folder(self):
        three = [mutants.Mutant("A", "baton/base/a.cc", "x", "y", "t_test"),
                 mutants.Mutant("B", "baton/base/b.cc", "x", "y", "t_test"),
                 mutants.Mutant("C", "baton/unit/cpu/c.cc", "x", "y", "", "why")]
        table = mutants.score(three, {"A": (True, ""), "B": (False, "")})
        self.assertEqual(table, [("baton/base", 2, 1, 0), ("baton/unit/cpu", 0, 0, 1), ("all", 2, 1, 1)])

    def test_a_filter_that_meets_nothing_is_seen(self):
        self.assertTrue(mutants.ran_nothing("[==========] Running 0 tests from 0 test suites.\n"))
        self.assertFalse(mutants.ran_nothing("[==========] Running 10 tests from 1 test suite.\n"))


if __name__ == "__main__":
    unittest.main()
