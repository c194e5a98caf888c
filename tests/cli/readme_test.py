#!/usr/bin/env python3
"""Every command of README.md runs as it stands there.

Fenced blocks marked `sh` are one shell session, from top to bottom, in the repository's root. Lines that begin with
./scripts/ install and build: here they are only asked for their --help. Blocks marked `bash` need a network and are not run. What README shows as output is marked `text`
and must come from a command above it: its first words are looked for among what the session printed.

usage: readme_test.py PROGRAM   (then unittest's own options)
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SECONDS_MAX = 400  # 12 s of processor time; the rest is for busy machines


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def session():
    lines = []
    for line in "".join(blocks("sh")).splitlines():
        script = re.match(r"(\./scripts/\S+)", line)
        lines.append(f"{script.group(1)} --help >/dev/null" if script else line)
    return "\n".join(lines) + "\n"


class Readme(unittest.TestCase):
    def test_commands_run_as_written(self):
        with tempfile.TemporaryDirectory() as folder:
            # `baton` is the program under test, whatever README's own PATH line says of where it was built.
            link = pathlib.Path(folder) / "baton"
            link.symlink_to(PROGRAM)
            environment = {**os.environ, "TMPDIR": folder, "HOME": folder, "BATON_MODELS": str(ROOT / "models")}
            script = session().replace('PATH="$PWD/build/release:$PATH"', f'PATH="{folder}:$PATH"')
            done = subprocess.run(["bash", "-c", "set -euxo pipefail\n" + script], cwd=ROOT, env=environment,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            warnings = [line for line in done.stderr.splitlines() if line.startswith("baton: warning")]
            self.assertEqual([line for line in warnings if "the machine was busy" not in line], [])
            for name in re.findall(r"`(baton [a-z]+)`", README):
                self.assertEqual(subprocess.run([PROGRAM, name.split()[1], "--help"], capture_output=True).returncode, 0, name)

    def test_without_a_network_a_first_run_ends_in_an_answer(self):
        script = (ROOT / "scripts" / "run.sh").read_text()
        fallback = script[script.index("bundled model answers instead"):]
        question = re.search(r"question='(.*?)'", fallback)[1]
        words = re.search(r'set -- (.*) "\$question"', fallback)[1]
        done = subprocess.run([PROGRAM, *words.split(), question], cwd=ROOT, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?i)\bfern.*\b(fronds?|leaves|plants?)\b")

    def test_every_sub_command_is_shown(self):
        listed = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True).stdout
        names = re.findall(r"^  ([a-z]+) ", listed[listed.index("Subcommands:"):], re.M)
        self.assertGreater(len(names), 8)
        for name in names:
            self.assertRegex(session() + "".join(blocks("bash")), rf"(?m)^baton {name}\b", f"README shows no example of {name}")

    def test_one_form_of_the_program(self):
        self.assertNotIn("build/release/baton", README)
        self.assertIn('PATH="$PWD/build/release:$PATH"', README)

    def test_links_lead_somewhere(self):
        for target in re.findall(r"\]\(([^)#]+)\)", re.sub(r"```.*?```", "", README, flags=re.S)):
            if not target.startswith("http"):
                self.assertTrue((ROOT / target).exists(), target)
        for target in re.findall(r"\bdocs/[a-z_]+\.md", README):
            self.assertTrue((ROOT / target).exists(), target)


if __name__ == "__main__":
    unittest.main()
