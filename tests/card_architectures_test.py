#!/usr/bin/env python3
"""cmake/card_architectures.cmake: capabilities that kernels are compiled for, by what nvidia-smi says of the machine.

usage: card_architectures_test.py   (then unittest's own options)
"""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "cmake" / "card_architectures.cmake"
KNOWN = "75;80;86;89;90;100;120"


class CardArchitectures(unittest.TestCase):
    def asked(self, says, code=0, usual="90a;80", known=KNOWN):
        """What is compiled for where nvidia-smi says that; None: there is none."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "cmake").symlink_to(shutil.which("cmake"))
            if says is not None:
                program = folder / "nvidia-smi"
                program.write_text("#!/bin/sh\n"
                                   '[ "$*" = "--query-gpu=compute_cap --format=csv,noheader" ] || exit 6\n'
                                   f"printf '{says}'\nexit {code}\n")
                program.chmod(0o755)
            done = subprocess.run([folder / "cmake", f"-DUSUAL={usual}", f"-DKNOWN={known}", "-P", SCRIPT],
                                  env={**os.environ, "PATH": str(folder)}, capture_output=True, text=True, check=True)
            return done.stderr.strip()

    def test_cards_that_have_machine_code(self):
        for says in ("8.0\\n", "8.6\\n", "8.9\\n8.9\\n", "9.0\\n", "9.0\\n8.6\\n"):
            self.assertEqual(self.asked(says), "90a;80", says)

    def test_cards_that_have_none_come_first(self):
        """The last one's code is PTX, too, and that is for cards that nobody has named."""
        self.assertEqual(self.asked("12.0\\n"), "120;90a;80")
        self.assertEqual(self.asked("12.0\\n12.0\\n9.0\\n"), "120;90a;80")
        self.assertEqual(self.asked("10.0\\r\\n12.0\\r\\n"), "120;100;90a;80")
        self.assertEqual(self.asked("8.0\\n", usual="90a;86"), "80;90a;86")
        self.assertEqual(self.asked("9.0\\n", usual="80"), "90;80")
        self.assertEqual(self.asked("9.1\\n", usual="90a;80", known="80;90;91"), "91;90a;80")
        self.assertEqual(self.asked("12.1\\n", usual="120;80", known=KNOWN + ";121"), "120;80")
        self.assertEqual(self.asked("12.1\\n", known=KNOWN + ";121"), "121;90a;80")

    def test_the_newest_of_the_generation_where_its_own_is_not_known(self):
        self.assertEqual(self.asked("12.1\\n"), "120;90a;80")
        self.assertEqual(self.asked("10.3\\n12.1\\n"), "120;100;90a;80")
        self.assertEqual(self.asked("10.3\\n", known="80;90;101;103;105"), "103;90a;80")

    def test_a_line_that_is_none_hides_no_other(self):
        self.assertEqual(self.asked("[Not;Found\\n12.0\\n"), "120;90a;80")

    def test_what_no_kernel_or_compiler_knows_is_left_out(self):
        for says in ("7.5\\n", "13.0\\n", "[N/A]\\n", "", "Field \"compute_cap\" is not a valid field to query.\\n"):
            self.assertEqual(self.asked(says), "90a;80", says)

    def test_a_machine_without_a_driver(self):
        self.assertEqual(self.asked(None), "90a;80")
        self.assertEqual(self.asked("12.0\\n", code=9), "90a;80")


if __name__ == "__main__":
    unittest.main()
