#!/usr/bin/env python3
"""check_macho.py on files made by hand: what it accepts and what it refuses."""
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_macho.py"


def macho(processor=0x0100000C, kind=2, libraries=("/usr/lib/libSystem.B.dylib",), platform=1):
    commands = [struct.pack("<6I", 0x32, 24, platform, 13 << 16, 13 << 16, 0)] if platform else []
    for name in libraries:
        text = name.encode() + b"\0" * (8 - len(name) % 8)
        commands.append(struct.pack("<6I", 0xC, 24 + len(text), 24, 0, 0, 0) + text)
    body = b"".join(commands)
    return struct.pack("<8I", 0xFEEDFACF, processor, 0, kind, len(commands), len(body), 0, 0) + body


def archive(*members):
    out = b"!<arch>\n"
    for name, body in members:
        out += f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    return out


class MachO(unittest.TestCase):
    def check(self, data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return subprocess.run([sys.executable, "-B", str(SCRIPT), file.name], capture_output=True, text=True, check=False)

    def test_programs_and_archives_for_arm64_pass(self):
        done = self.check(macho())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("arm64 program, macOS 13.0 or later, needs /usr/lib/libSystem.B.dylib", done.stdout)
        done = self.check(archive(("a.o/", macho(kind=1)), ("b.o/", macho(kind=1, platform=0)), ("/", b"index")))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("archive of 2 arm64 objects", done.stdout)

    def test_everything_else_is_refused(self):
        for data, words in ((b"", "not a 64-bit Mach-O file"), (b"\x7fELF" + bytes(60), "not a 64-bit Mach-O file"),
                            (macho(processor=0x01000007), "not arm64"), (macho(kind=6), "file type 6"),
                            (macho(platform=2), "not macOS"), (macho(platform=0), "without the version"),
                            (macho(libraries=("/opt/lib/libfmt.dylib",)), "no Mac has"),
                            (macho()[:40], ""), (archive(), "without objects"),
                            (archive(("a.o/", b"\x7fELF" + bytes(60))), "a.o")):
            done = self.check(data)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(words, done.stdout)


if __name__ == "__main__":
    unittest.main()
