#!/usr/bin/env python3
"""The library as others use it: installed into a prefix of its own, found there by CMake and by pkg-config, its examples
built and run; and added to another project as a folder. Usage: library_test.py BUILD_FOLDER CXX"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent
BUILD, CXX = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-library-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.model = cls.prefix / "share/baton/models/dictionary-28m.Q8_0.gguf"
        cls.examples = cls.folder / "examples"
        run("cmake", "-S", cls.prefix / "share/baton/examples", "-B", cls.examples, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", cls.examples)

    def test_prefix_holds_what_is_promised(self):
        for name in ("bin/baton", "include/baton/baton.h", "include/baton/version.h", "include/baton/api/runtime.h",
                     "share/baton/models/dictionary-28m.Q8_0.gguf", "share/doc/baton/README.md", "share/doc/baton/LICENSE"):
            self.assertTrue((self.prefix / name).is_file(), name)
        headers = {path.name for path in (self.prefix / "include").rglob("*.h")}
        self.assertFalse([name for name in headers if name.endswith("_test.h") or name == "scheduler.h"])

    def test_program_finds_its_model(self):
        environment = {name: value for name, value in os.environ.items() if name != "BATON_MODELS"}
        out = run(self.prefix / "bin/baton", "run", "--raw", "A bridge", "-n", "2", "--ignore-eos", "--json", env=environment)
        self.assertIn('"generated_tokens":2', out.replace(" ", ""))

    def test_version_is_the_projects(self):
        version = re.search(r"project\(baton VERSION (\d+)\.(\d+)\.(\d+)", (SOURCE / "CMakeLists.txt").read_text())
        text = (self.prefix / "include/baton/version.h").read_text()
        for name, number in zip(("MAJOR", "MINOR", "PATCH"), version.groups()):
            self.assertIn(f"#define BATON_VERSION_{name} {number}\n", text)

    def test_chat(self):
        out = run(self.examples / "chat", self.model, input="What is a bridge?\nAnd a river?\n")
        self.assertEqual(len([line for line in out.splitlines() if line.strip()]), len(out.splitlines()), out)
        self.assertGreaterEqual(len(out.splitlines()), 2, out)

    def test_custom_unit(self):
        out = run(self.examples / "custom_unit", self.model)
        self.assertRegex(out, r"^largest difference to ref: \S+ of 0.002\ntoy: this unit has no op bias \(op \d+ of the model\)")
        for prefill, decode in (("toy", "cpu"), ("cpu", "toy")):
            self.assertRegex(out, rf"prefill: {prefill}, decode: {decode}, bridge: move, [1-9]\d+ bytes\n")

    def test_two_processes(self):
        state, key, other = (self.folder / name for name in ("state", "key", "other_key"))
        key.write_bytes(os.urandom(32))
        other.write_bytes(os.urandom(32))
        key.chmod(0o600)
        program, prompt = self.examples / "two_processes", "A bridge is a structure that"
        run(program, "prefill", self.model, state, key, prompt)
        out = run(program, "decode", self.model, state, key, " spans")
        self.assertRegex(out, r"^[1-9]\d* tokens made by ref\n.+")
        refused = subprocess.run([program, "decode", self.model, state, other, " spans"], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("another key", refused.stderr)

    def test_pkg_config(self):
        environment = dict(os.environ, PKG_CONFIG_PATH=str(next(self.prefix.rglob("pkgconfig"))))
        flags = run("pkg-config", "--cflags", "--libs", "baton", env=environment).split()
        source = self.folder / "version.cc"
        source.write_text('#include <baton/baton.h>\n#include <cstdio>\n'
                          'int main() { return std::printf("%zu " BATON_VERSION_STRING, baton::unit_entries().size()) < 0; }\n')
        run(CXX, source, "-o", self.folder / "version", *flags)
        self.assertRegex(run(self.folder / "version"), r"^[1-9]\d* \d+\.\d+\.\d+$")

    def test_readme_section(self):
        text = (SOURCE / "README.md").read_text()
        code = re.search(r"## As a library.*?```cpp\n(.*?)```", text, re.S)
        self.assertTrue(code, "README.md has no C++ under 'As a library'")
        (self.folder / "readme.cc").write_text(code[1])
        environment = dict(os.environ, PKG_CONFIG_PATH=str(next(self.prefix.rglob("pkgconfig"))))
        flags = run("pkg-config", "--cflags", "--libs", "baton", env=environment).split()
        run(CXX, self.folder / "readme.cc", "-o", self.folder / "readme", *flags)
        self.assertTrue(run(self.folder / "readme", self.model).strip())

    def test_as_a_folder_of_another_project(self):
        project = self.folder / "other"
        project.mkdir()
        (project / "main.cc").write_text("#include <baton/baton.h>\nint main() { int unused; }\n")
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES C CXX)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
            f"add_subdirectory({SOURCE} baton)\nadd_executable(other main.cc)\ntarget_link_libraries(other PRIVATE baton::baton)\n"
            "if(TARGET baton_base_test OR TARGET install_baton)\n  message(FATAL_ERROR tests)\nendif()\n")
        run("cmake", "-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={CXX}")
        commands = json.loads((project / "build/compile_commands.json").read_text())
        mine = [each for each in commands if each["file"] == str(project / "main.cc")]
        self.assertEqual(len(mine), 1)
        self.assertNotIn("-Wshadow", mine[0]["command"])  # our warnings are ours
        self.assertFalse([each for each in commands if "-Werror" in each["command"]])
        run(*shlex.split(mine[0]["command"]), cwd=mine[0]["directory"])  # by hand: the target would build the library first


if __name__ == "__main__":
    unittest.main(verbosity=2)
