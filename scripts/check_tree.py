#!/usr/bin/env python3
"""Checks the tree file by file: banned words with their replacement, lengths, ASCII, leftovers, and files nobody uses.

Usage: check_tree.py [--root DIR] [--compile-commands FILE]. The files are those git tracks or would track; without git,
all files outside build/. With compile_commands.json, every .cc, .cu and .mm must be compiled by the build.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

CPP = {".h", ".cc", ".inc", ".cu", ".cuh", ".mm"}
CODE = CPP | {".py", ".sh", ".cmake"}
LINES_MAX = 800
COLUMNS_MAX = 120
BYTES_MAX = 1 << 20

PROGRAM = re.compile(r"^(baton/cli/|tests/|examples/)|_test\.(cc|cu|mm)$|_bench\.cc$")  # code that may print and exit
TESTS = re.compile(r"^tests/|_test\.(cc|cu|mm)$|_bench\.cc$")
SEALED = r"const\s+(FileReader|std::vector<std::byte>)"  # what a SealSource and its copies read from
GRAMMAR = r"(const\s+)?(grammar::)?(Grammar|Terminal|Vocabulary|StateMask|TokenConstraint|GrammarConstraint|BehindMarker|FormatCompiler|Compiler)"  # in use when forgotten
PAGES = r"const\s+Checkpoint(Bytes)?"  # pages of states at rest, which those that begin alike share
# In baton/http what runs asynchronously keeps what it works on, and an Exchange goes from thread to thread until answered.
SHARED = (rf"\bshared_ptr\s*<(?!\s*(const\s+Model|GgufArray|Checkpoint|StateArena|(cuda::)?Card|(http::)?Exchange|{SEALED}|{PAGES}|{GRAMMAR})\s*>)|"
          rf"\bmake_shared\s*<(?!\s*((const\s+)?(Model|GgufArray)|CheckpointBytes|StateArena|{SEALED}|{GRAMMAR})\s*>)")

# (pattern in code without comments and strings, files excused, what to write in its place)
BANNED = [(re.compile(pattern), excused and re.compile(excused), remedy) for pattern, excused, remedy in [
    (r"\bstd::(cout|cerr|clog)\b|\b(f|v|vf)?printf\s*\(|\bf?puts\s*\(|\b(fmt|std)::print(ln)?\s*\(|\bspdlog::",
     PROGRAM.pattern + r"|^baton/base/status\.cc$", "libraries never print: return a Result or text to the caller"),
    (r"(?<![.>:\w])(std::|::)?(exit|quick_exit|_Exit|abort|terminate)\s*\(", PROGRAM.pattern + r"|^baton/base/status\.cc$",
     "return a Status; BATON_CHECK for a bug"),
    (r"\busing\s+namespace\b(?!\s+std::[\w:]*literals)", None, "name what is used"),
    (r"\bs?rand\s*\(|\bstd::(mt19937(_64)?|random_device|default_random_engine)\b", None,
     "base/random.h: same numbers on every platform"),
    (r"\b(system|popen)\s*\(", None, "no shell from code"),
    (SHARED, TESTS.pattern + "|^baton/http/", "unique_ptr owns, references borrow; only const Model, GgufArray, what a SealSource reads, checkpoints, memory of states, cards, constraints and compiled grammars are shared"),
    (r"\bv?sprintf\s*\(|\bstr(n?cpy|n?cat)\s*\(|\bgets\s*\(", None, "fmt::format, std::string or a span"),
    (r"\balloca\s*\(", None, "memory with a bound, allocated at load"),
    (r"\bato(i|l|ll|f)\s*\(|\bstrtou?(l|ll|imax|max)\s*\(|\bsto(i|l|ll|ul|ull|f|d)\s*\(", TESTS.pattern,
     "std::from_chars: no locale, no exception, and it reports what it did not read"),
    (r"\bstd::(w?regex|basic_regex)\b", None, "PCRE2 or a few lines: std::regex recurses on its input"),
    (r"(?<!\w)assert\s*\(", None, "BATON_CHECK, which stays in release builds"),
    (r"\bNULL\b", None, "nullptr"),
    (r"\bstd::endl\b", None, "'\\n'"),
    (r"#\s*pragma\s+omp\b", None, "the unit's own thread pool"),
]]
LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(ho" r"me|ro" r"ot|wo" r"rk|Us" r"ers)/")
STRIP = re.compile(r'R"([^()\s]*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
                   r"|//[^\n]*|/\*(?:.|\n)*?\*/")


def strip(text):
    """Code without the contents of comments and strings, line for line; #include paths stay."""
    def blank(match):
        line_start = text.rfind("\n", 0, match.start()) + 1
        if re.match(r"\s*#\s*include\b", text[line_start:match.start() + 1]):
            return match[0]
        return '""' + "\n" * match[0].count("\n") if match[0][0] in "\"'R" else "\n" * match[0].count("\n")
    return STRIP.sub(blank, text)


def tracked(root):
    try:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=True).stdout.decode()
        names = [name for name in out.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
        names = [name for name in names if not re.match(r"(build|\.git)(/|$)|.*__pycache__", name)]
    return sorted({name for name in names if (root / name).is_file()})


def check_cpp(name, text, report):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS_MAX:
            report(name, number, f"{len(line)} columns, more than {COLUMNS_MAX}")
    for number, line in enumerate(strip(text).splitlines(), 1):
        for pattern, excused, remedy in BANNED:
            found = pattern.search(line)
            if found and not (excused and excused.search(name)):
                report(name, number, f"'{found[0].strip()}' is banned; instead: {remedy}")


def first_comment(name, lines):
    """The line that must say what the file is for: the first, or the second after #!."""
    line = lines[1] if lines and lines[0].startswith("#!") and len(lines) > 1 else (lines or [""])[0]
    mark = r"// \S" if pathlib.Path(name).suffix in CPP else r'# \S|"""\S'
    return re.match(mark, line) and len(line) >= 15


def check_text(root, name, text, report):
    path = pathlib.Path(name)
    lines = text.split("\n")
    is_code = path.suffix in CODE or path.name == "CMakeLists.txt"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() and path.suffix != ".patch":
            report(name, number, "space at the end of the line (or a CR)")
        if is_code and "\t" in line:
            report(name, number, "a tab; indent with spaces")
        if is_code and path.suffix != ".py" and not line.isascii():
            report(name, number, "not ASCII; write an escape")
        if LEFTOVER.search(line):
            report(name, number, f"'{LEFTOVER.search(line)[0]}': finish it, or leave it out")
        if MACHINE_PATH.search(line):
            report(name, number, "a path of one machine")
    if text and not text.endswith("\n"):
        report(name, len(lines), "no newline at the end of the file")
    if is_code:
        if len(lines) - 1 > LINES_MAX:
            report(name, LINES_MAX, f"{len(lines) - 1} lines, more than {LINES_MAX}: split the file")
        if not first_comment(name, lines):
            report(name, 1, "the first line must be a comment that says what the file is for")
    script = text.startswith("#!")
    if script != os.access(root / name, os.X_OK):
        report(name, 1, "starts with #! but is not executable" if script else "is executable but does not start with #!")
    if path.suffix == ".py":
        try:
            compile(text, name, "exec")
        except SyntaxError as error:
            report(name, error.lineno or 1, f"does not compile: {error.msg}")
    if script and "bash" in lines[0]:
        outcome = subprocess.run(["bash", "-n", str(root / name)], capture_output=True, text=True)
        if outcome.returncode != 0:
            report(name, 1, f"bash does not accept it: {outcome.stderr.strip()}")


def check_used(texts, report):
    """Headers and lists are included by someone beside their own .cc and test."""
    included = {}
    for name, text in texts.items():
        for target in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.M):
            included.setdefault(target, set()).add(name)
    for name in texts:
        if pathlib.Path(name).suffix in {".h", ".cuh", ".inc"}:
            stem, suffix = name.rsplit(".", 1)
            ends = (".cc", ".cu", ".mm", "_test.cc", "_test.cu", "_test.mm", "_bench.cc")
            own = {stem + end for end in ends} if suffix != "inc" else set()
            users = included.get(re.sub(r"^(tests/fiber/)?include/", "", name), set()) - {name} - own
            if not users:
                report(name, 1, "nobody includes it (its own .cc and test do not count): use it or remove it")


def check_built(root, names, commands, report):
    built = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in json.loads(commands.read_text())}
    for together in [path for path in built if path.parent.name == "unity"]:
        built |= {(root / name).resolve() for name in re.findall(r'^#include "(.*)"$', together.read_text(), re.MULTILINE)}
    for name in names:
        # The examples are built from an installed prefix: tests/library_test.py. Kernels of CUDA are compiled by commands
        # of their own, all of the folder: baton/unit/cuda/build.cmake. They run as fibers on x86-64 only.
        if re.search(r"^examples/|^baton/unit/cuda/kernels/[^/]+\.cu$|^tests/(fiber/|cuda_kernels)[^/]*\.cc$", name):
            continue
        if name.endswith((".cc", ".cu", ".mm")) and (root / name).resolve() not in built:
            report(name, 1, "is not compiled by the build: see baton_library in cmake/baton.cmake")


def check(root, commands=None):
    root, problems, cpp = pathlib.Path(root), [], {}

    def report(name, number, message):
        problems.append(f"{name}:{number}: {message}")

    names = tracked(root)
    for name in names:
        fixture = name.startswith(("tests/data/", "tests/fuzz/corpus/", "models/"))
        data = (root / name).read_bytes() if not fixture else b"\0"
        if b"\0" in data:
            if not fixture:
                report(name, 1, "a binary file outside models/, tests/data/ and tests/fuzz/corpus/")
            continue
        if len(data) > BYTES_MAX:
            report(name, 1, f"{len(data)} bytes, more than {BYTES_MAX}")
        text = data.decode(errors="replace")
        check_text(root, name, text, report)
        if pathlib.Path(name).suffix in CPP:
            cpp[name] = text
            check_cpp(name, text, report)
    check_used(cpp, report)
    if commands:
        check_built(root, cpp, pathlib.Path(commands), report)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--compile-commands")
    arguments = parser.parse_args()
    problems = check(arguments.root, arguments.compile_commands)
    print("\n".join(problems) if problems else "tree: nothing to mend")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
