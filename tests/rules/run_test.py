#!/usr/bin/env python3
"""run.sh with programs made by hand in place of cmake, ninja, nvcc and baton: when it configures, and what it says of kernels."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run.sh"
NVCC = pathlib.Path("/usr/local/cuda/bin/nvcc")


@unittest.skipUnless(sys.platform == "linux", "kernels are built on Linux")
class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.build = self.root / "build" / "release"
        self.asked = self.root / "asked"
        self.build.mkdir(parents=True)
        (self.root / "scripts").mkdir()
        shutil.copy(SCRIPT, self.root / "scripts")
        self.program("scripts/setup.sh", "")
        self.program("bin/ninja", "")
        self.program("bin/cmake", f'echo "$@" >>"{self.asked}"; touch "{self.build}/build.ninja"')
        self.program("build/release/baton", 'echo "baton $*"')

    def program(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + text + "\n")
        path.chmod(0o755)
        return path

    def configured(self, nvcc, architectures="90a;80", cuda="AUTO"):
        (self.build / "build.ninja").touch()
        (self.build / "CMakeCache.txt").write_text(f"BATON_CUDA:STRING={cuda}\nBATON_NVCC:FILEPATH={nvcc}\n"
                                                   f"BATON_CUDA_ARCHITECTURES:STRING={architectures}\n")

    def run_script(self, **environment):
        """What it says, and what it asked of cmake."""
        self.asked.unlink(missing_ok=True)
        kept = {name: value for name, value in os.environ.items()
                if name not in ("CUDA_HOME", "CUDA_PATH", "BATON_CUDA_ARCHITECTURES")}
        path = f"{self.root}/bin:/usr/bin:/bin"
        done = subprocess.run(["bash", self.root / "scripts" / "run.sh", "units"], capture_output=True, text=True, timeout=60,
                              env={**kept, "PATH": path, **environment})
        self.assertEqual((done.returncode, done.stdout), (0, "baton units\n"), done.stderr)
        return done.stderr, self.asked.read_text().splitlines() if self.asked.exists() else []

    def test_the_first_time(self):
        said, asked = self.run_script()
        self.assertEqual(asked, ["--preset release"])
        self.assertIn("run: no kernels for ", said)

    def test_what_is_configured_is_left(self):
        self.configured(self.program("bin/nvcc", ""))
        for environment in ({}, {"BATON_CUDA_ARCHITECTURES": "90a;80"}):
            said, asked = self.run_script(**environment)
            self.assertEqual((said, asked), ("run: kernels for NVIDIA cards are built in (90a;80)\n", []))

    def test_a_toolkit_that_came_later(self):
        nvcc = self.program("toolkit/nvcc", "echo Cuda compilation tools, release 12.0, V12.0.140")
        self.configured("BATON_NVCC-NOTFOUND")
        said, asked = self.run_script(PATH=f"{self.root}/bin:{nvcc.parent}:/usr/bin:/bin")
        self.assertEqual(asked, ["--preset release"])
        self.assertIn(f"there is {nvcc} now", said)

    def test_a_toolkit_that_is_too_old(self):
        nvcc = self.program("toolkit/nvcc", "echo Cuda compilation tools, release 11.8, V11.8.89")
        self.configured("BATON_NVCC-NOTFOUND")
        said, asked = self.run_script(PATH=f"{self.root}/bin:{nvcc.parent}:/usr/bin:/bin")
        self.assertNotIn(str(nvcc), said)
        if not NVCC.exists():
            self.assertEqual(asked, [])
            self.assertIn("no nvcc of version 12 or later", said)

    @unittest.skipIf(NVCC.exists() or shutil.which("nvcc", path="/usr/bin:/bin"), "this machine has a toolkit")
    def test_without_a_toolkit(self):
        self.configured("BATON_NVCC-NOTFOUND")
        said, asked = self.run_script(BATON_CUDA_ARCHITECTURES="90a")
        self.assertEqual(asked, [])
        self.assertRegex(said, "^run: no kernels for .*there is no nvcc.*docs/cuda.md\\)\n$")

    def test_other_cards(self):
        self.configured(self.program("bin/nvcc", ""))
        said, asked = self.run_script(BATON_CUDA_ARCHITECTURES="86;120")
        self.assertEqual(asked, ["--preset release -DBATON_CUDA_ARCHITECTURES=86;120"])
        self.assertIn("kernels for 86;120", said)

    def test_off_is_off(self):
        self.program("bin/nvcc", "")
        self.configured("BATON_NVCC-NOTFOUND", cuda="OFF")
        said, asked = self.run_script(BATON_CUDA_ARCHITECTURES="86")
        self.assertEqual((said, asked), ("run: no kernels for NVIDIA cards: build/release was configured with BATON_CUDA=OFF\n", []))


if __name__ == "__main__":
    if len(sys.argv) > 1 and "/" in sys.argv[1]:  # the program, which mutants.py names
        del sys.argv[1]
    unittest.main()
