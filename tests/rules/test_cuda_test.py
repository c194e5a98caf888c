#!/usr/bin/env python3
"""test_cuda.sh with programs made by hand: what it takes for passed, and what for failed."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "test_cuda.sh"
# Stands for compute-sanitizer: puts $SAYS into the log, runs the program unless it is to be ended before, ends with $CODE.
SANITIZER = """#!/bin/bash
while [[ $1 == --* ]]; do
  case $1 in --log-file) log=$2 ;; esac
  shift 2
done
printf '%b' "$SAYS" >"$log"
"$@"
exit "${CODE:-0}"
"""
CLEAN = "========= COMPUTE-SANITIZER\\n========= ERROR SUMMARY: 0 errors\\n"
CLEAN_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\\n"


def race(write, read):
    return (f"========= Error: Race reported between Write access at {write}+0x10\\n"
            f"=========     and Read access at {read}+0x20 [32 hazards]\\n========= \\n")


class TestCuda(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        (self.root / "tests").mkdir()
        self.program("baton", "echo 'cuda  available'; echo '4 tokens'")
        for name in ("step_on", "cuda_soak", "cuda_tiles", "state_contract"):
            self.program(f"tests/{name}_test", "echo '[  PASSED  ] 3 tests.'")
        self.program("compute-sanitizer", SANITIZER)

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, text):
        path = self.root / name
        path.write_text(text if text.startswith("#!") else "#!/bin/bash\n" + text + "\n")
        path.chmod(0o755)

    def run_script(self, *arguments, **environment):
        path = f"{self.root}:{os.environ['PATH']}"
        return subprocess.run(["bash", SCRIPT, *arguments], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "BATON_BUILD": str(self.root), "PATH": path, **environment})

    def check(self, code, *arguments, **environment):
        outcome = self.run_script(*arguments, **environment)
        self.assertEqual(outcome.returncode, code, outcome.stdout + outcome.stderr)
        return outcome.stdout + outcome.stderr

    def test_a_slice_that_passes(self):
        said = self.check(0, "--only", "state_contract")
        self.assertIn("ok: state_contract", said)
        self.assertIn("all passed", said)

    def test_a_program_that_fails_or_runs_nothing(self):
        self.program("tests/state_contract_test", "echo '[  PASSED  ] 3 tests.'; echo 'why it failed'; exit 1")
        self.assertIn("why it failed", self.check(1, "--only", "state_contract"))
        self.program("tests/state_contract_test", "echo '[  PASSED  ] 0 tests.'")
        self.assertIn("nothing passed", self.check(1, "--only", "state_contract"))

    def test_a_slice_that_takes_too_long(self):
        self.program("tests/state_contract_test", "echo begun; sleep 60")
        self.assertIn("begun", self.check(1, "--only", "state_contract", "--limit", "1"))

    def test_wrong_usage(self):
        for arguments in (["--what"], ["--only"], ["--soak", "long"], ["--only", "no such slice"]):
            self.check(2, *arguments)

    def test_no_card(self):
        self.program("baton", "echo 'cuda  not available: no driver'")
        self.assertIn("no driver", self.check(1, "--only", "state_contract"))

    def test_memcheck(self):
        arguments = ("--only", "memcheck", "--soak", "0", "--memcheck", "1")
        self.check(0, *arguments, SAYS=CLEAN)
        self.check(1, *arguments, SAYS="========= ERROR SUMMARY: 1 error\\n", CODE="9")
        said = self.check(1, *arguments, SAYS="========= Invalid __global__ read of size 4 bytes\\n")
        self.assertIn("no summary", said)
        self.assertIn("with 1 reports", said)
        self.program("tests/cuda_soak_test", "echo '[  PASSED  ] 0 tests.'")
        self.assertIn("nothing ran", self.check(1, *arguments, SAYS=CLEAN))

    def test_soak(self):
        def soak(*settings):
            lines = [f"echo '{'behind the last' if i + 1 == len(all) else f'before round {i}'}: "
                     f"the driver says {mib << 20} bytes are free'" for all in settings for i, mib in enumerate(all)]
            self.program("tests/cuda_soak_test", "\n".join([*lines, "echo '[  PASSED  ] 3 tests.'"]))
            return "--only", "soak"

        # As seen on a card, in MiB.
        rests = [142629, 142527, 142525, 142521, 142521, 142521, 142521, 142521, 142521]
        late = [142629, *7 * [142569], 142567]
        said = self.check(0, *soak(rests, [142629, 142575, 142573], late))
        self.assertIn("2 settings at rest but for a piece, 0 not; 1 with too few rounds", said)
        leaks = [142629 - 2 * i for i in range(9)]
        self.assertIn("at rest but for a piece, 1 not", self.check(1, *soak(leaks, rests)))
        self.assertIn("at rest but for a piece, 1 not", self.check(1, *soak(rests, leaks)))
        for end in ([90, 88, 86], [90, 90, 86], [90, 90, 89], [90, 90, 92], [90, 88, 90]):
            self.check(1, *soak([*6 * [90], *end]))
        self.check(1, *soak([90, 90, 90, 88, 88, 88, 88, 86, 86]))
        self.check(1, *soak())

    def test_initcheck(self):
        self.check(0, "--only", "initcheck", SAYS=CLEAN)
        self.check(1, "--only", "initcheck", SAYS=CLEAN, CODE="9")

    def test_racecheck(self):
        self.check(0, "--only", "racecheck", SAYS=CLEAN_RACE)
        # Copies in bulk are not what it follows, and decide nothing; all else does.
        feeder = race("$baton_list$_ZN5baton4cuda9feed_listE", "baton_list")
        said = self.check(0, "--only", "racecheck", SAYS=feeder + CLEAN_RACE, CODE="9")
        self.assertIn("1 reports of copies in bulk, 0 others", said)
        other = race("baton_list_plain", "baton_list_plain")
        said = self.check(1, "--only", "racecheck", SAYS=feeder + other + CLEAN_RACE, CODE="9")
        self.assertIn("1 reports of copies in bulk, 1 others", said)
        self.check(1, "--only", "racecheck", SAYS=feeder)  # no summary
        self.check(1, "--only", "racecheck", SAYS=CLEAN_RACE, CODE="1")


if __name__ == "__main__":
    if len(sys.argv) > 1 and "/" in sys.argv[1]:  # the program, which mutants.py names
        del sys.argv[1]
    unittest.main()
