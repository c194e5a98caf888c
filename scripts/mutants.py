#!/usr/bin/env python3
"""Do the tests notice when the code is wrong? Plants the faults of tests/mutants.txt one after the other in a copy of the
tree, builds the test that must fail, runs it, and prints the score by folder.

A block of tests/mutants.txt, blank lines between blocks, # begins a comment line:

    id: PR1
    file: baton/engine/work.cc
    old: .passed = largest <= tolerance,
    new: .passed = largest <= 2 * tolerance,
    test: baton_engine_test --gtest_filter=Compare.*

`old` is within one line and occurs once in the file. `test` is a GoogleTest program with its arguments, `ctest NAME` for
a test of ctest, or `python SCRIPT ARGUMENT...` for one of tests/cli, which gets the program built. `equivalent: REASON`
in place of `test` says why no test can notice the fault. The exit status is 1 when a fault is not noticed or cannot be
planted, when a test fails without one, or when nothing is chosen; 2 for usage.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = "tests/mutants.txt"
FIELDS = {"id", "file", "old", "new", "test", "equivalent"}
BUILD_SECONDS = 3600
# What a fault leaves unused is no error: the test is to notice it, not the compiler. On the first line, which stays that.
QUIET = " ".join(f'_Pragma("GCC diagnostic ignored \\"-W{kind}\\"")'
                 for kind in ("unused-function", "unused-parameter", "unused-variable", "unused-but-set-variable",
                              "unused-const-variable", "misleading-indentation")) + " "


@dataclasses.dataclass
class Mutant:
    id: str
    file: str
    old: str
    new: str
    test: str = ""
    equivalent: str = ""

    def folder(self):
        parts = pathlib.PurePosixPath(self.file).parts
        depth = 3 if parts[:2] == ("baton", "unit") and len(parts) > 3 else min(2, len(parts) - 1)
        return "/".join(parts[:depth])


def parse(text):
    """(mutants, problems): blocks that cannot be read are problems that name their line."""
    mutants, problems, block, first = [], [], {}, 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            key, colon, value = line.partition(":")
            if not colon or key not in FIELDS or key in block:
                problems.append(f"{LIST}:{number}: not a field of a block, or twice in it: {line}")
                continue
            first = first if block else number
            block[key] = value.removeprefix(" ")
        elif block:
            missing = {"id", "file", "old", "new"} - block.keys()
            if missing or ("test" in block) == ("equivalent" in block):
                problems.append(f"{LIST}:{first}: needs id, file, old, new, and one of test and equivalent")
            else:
                mutants.append(Mutant(**block))
            block = {}
    ids = [mutant.id for mutant in mutants]
    problems += [f"{LIST}: id {name} is there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    return mutants, problems


def plant(mutant, text):
    """The file's text with the fault, or None and why it cannot be planted."""
    if not mutant.old.strip() or mutant.old == mutant.new:
        return None, "old is empty or the same as new"
    count = text.count(mutant.old)
    if count != 1:
        return None, f"old is in {mutant.file} {count} times, not once"
    return text.replace(mutant.old, mutant.new), ""


def is_test(root, test):
    words = test.split()
    if words[0] == "ctest":
        return len(words) == 2 and (not words[1].startswith("cli.") or (root / f"tests/cli/{words[1][4:]}.py").is_file())
    if words[0] == "python":
        return len(words) > 1 and words[1].startswith("tests/") and (root / words[1]).is_file()
    if not re.fullmatch(r"\w+_test", words[0]):
        return False
    folder = root / "baton" / words[0].removeprefix("baton_").removesuffix("_test").replace("unit_", "unit/")
    return (root / "tests" / f"{words[0]}.cc").is_file() or (words[0].startswith("baton_") and any(folder.glob("*_test.cc")))


def check(root, mutants):
    problems = []
    for mutant in mutants:
        path = root / mutant.file
        why = "" if path.is_file() else f"there is no {mutant.file}"
        if not why:
            _, why = plant(mutant, path.read_text())
        if not why and mutant.test and not is_test(root, mutant.test):
            why = f"there is no such test: {mutant.test}"
        if why:
            problems.append(f"{LIST}: {mutant.id}: {why}")
    return problems


def draw(mutants, count, seed):
    """The same for the same list and seed; never one that cannot be noticed."""
    able = [mutant for mutant in mutants if mutant.test]
    return random.Random(seed).sample(able, min(count, len(able)))


class Place:
    """A copy of the tree with a build folder of its own, both kept for the next time."""

    def __init__(self, folder, jobs, seconds, many):
        self.tree, self.jobs, self.seconds = folder, jobs, seconds
        self.build = folder / "build" / "release"
        files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                               check=True, capture_output=True, text=True).stdout.split("\0")
        wanted = {name for name in files if name and (ROOT / name).is_file()}
        for name in wanted:
            self.copy(name)
        for path in self.tree.rglob("*"):
            name = path.relative_to(self.tree).as_posix()
            if path.is_file() and not name.startswith("build/") and name not in wanted:
                path.unlink()
        for name in ("models", "shared"):  # fetched models are not in git
            for path in (ROOT / name).glob("smollm2*") if (ROOT / name).is_dir() else ():
                if not (self.tree / name / path.name).exists():
                    (self.tree / name / path.name).symlink_to(path)
        # Eight files as one build sooner once; one by one they build sooner each time that one has changed.
        self.command(["cmake", "--preset", "release", *(["-DBATON_UNITY=0"] if many else [])], BUILD_SECONDS, self.tree)

    def copy(self, name):
        source, to = ROOT / name, self.tree / name
        data = source.read_bytes()
        if to.is_file() and to.read_bytes() == data:
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
        shutil.copymode(source, to)

    @staticmethod
    def command(words, seconds, folder, env=None):
        """(exit status, output); a status of None: it ran past its time."""
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True)
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return None, process.communicate()[0]

    @staticmethod
    def target(test):
        words = test.split()
        if words[0] == "python" or test.startswith("ctest cli."):
            return "baton_program"
        if words[0] != "ctest":
            return words[0]
        return words[1].removeprefix("fuzz.") + "_fuzz" if words[1].startswith("fuzz.") else "all"

    def make(self, test):
        status, output = self.command(["ninja", "-C", str(self.build), "-j", str(self.jobs), self.target(test)],
                                      BUILD_SECONDS, self.tree)
        return status == 0, output

    def run(self, test):
        words = test.split()
        if words[0] == "ctest":
            command = ["ctest", "--test-dir", str(self.build), "-R", f"^{re.escape(words[1])}$", "--no-tests=error"]
        elif words[0] == "python":
            command = [sys.executable, "-B", words[1], str(self.build / "baton"), *words[2:]]
        else:
            program = next((path for path in (self.build / words[0], self.build / "tests" / words[0]) if path.is_file()),
                           self.build / words[0])
            command = [str(program), *words[1:]]
        return self.command(command, self.seconds, self.tree)


def ran_nothing(output):
    return re.search(r"^\[==========\] Running 0 tests|^\[==========\] 0 tests|^Ran 0 tests", output, re.MULTILINE) is not None


def whole(place, tests):
    """What is wrong with the tests while no fault is planted."""
    problems = []
    for test in tests:
        built, output = place.make(test)
        if not built:
            problems.append(f"{test}: does not build:\n{output[-2000:]}")
            continue
        status, output = place.run(test)
        if status != 0 or ran_nothing(output):
            problems.append(f"{test}: without a fault it " + ("runs no test" if status == 0 else f"fails:\n{output[-2000:]}"))
    return problems


def judge(place, mutant):
    """(noticed, what happened)"""
    path = place.tree / mutant.file
    original = path.read_text()
    text, why = plant(mutant, original)
    if text is None:
        return False, why
    try:
        path.write_text(QUIET + text if path.suffix in (".cc", ".h", ".inc") else text)
        built, output = place.make(mutant.test)
        if not built:
            errors = [line for line in output.splitlines() if re.search(r"\berror: ", line)]
            return False, "does not build: " + (errors or output.splitlines()[-1:] or ["?"])[0]
        status, output = place.run(mutant.test)
        if status is None:
            return True, f"ran for more than {place.seconds} s"
        failed = re.findall(r"^\[  FAILED  \] ([^ ,\n]+)|^(?:FAIL|ERROR): (\w+)", output, re.MULTILINE)
        return status != 0, " ".join(next(("".join(names) for names in failed), f"exit status {status}").split())
    finally:
        path.write_text(original)


def judge_all(places, mutants, report):
    """Mutants of one test follow each other, so that most builds are one file and one link."""
    waiting, results, lock = queue.Queue(), {}, threading.Lock()
    for mutant in sorted(mutants, key=lambda each: (each.test.split()[0], each.file)):
        waiting.put(mutant)

    def work(place):
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            noticed, what = judge(place, mutant)
            with lock:
                results[mutant.id] = (noticed, what)
                report(f"{'noticed ' if noticed else 'SURVIVED'} {mutant.id:<8} {mutant.file} "
                       f"({time.monotonic() - start:.0f} s): {what}")

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def score(mutants, results):
    """Rows of (folder, planted, noticed, equivalent), the sum last."""
    rows = {}
    for mutant in mutants:
        row = rows.setdefault(mutant.folder(), [0, 0, 0])
        if mutant.equivalent:
            row[2] += 1
        elif mutant.id in results:
            row[0] += 1
            row[1] += results[mutant.id][0]
    table = [(folder, *rows[folder]) for folder in sorted(rows)]
    return table + [("all", *(sum(row[i] for row in table) for i in (1, 2, 3)))]


def chosen_of(mutants, arguments):
    if arguments.only:
        unknown = set(arguments.only) - {mutant.id for mutant in mutants}
        if unknown:
            sys.exit(f"mutants: no {', '.join(sorted(unknown))} in {LIST}")
        mutants = [mutant for mutant in mutants if mutant.id in arguments.only]
    if arguments.folder:
        mutants = [mutant for mutant in mutants if mutant.file.startswith(arguments.folder.rstrip("/") + "/")]
    return draw(mutants, arguments.sample, arguments.seed) if arguments.sample else mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only that each can be planted; builds nothing")
    parser.add_argument("--only", action="append", metavar="ID")
    parser.add_argument("--folder", help="those of this folder and below")
    parser.add_argument("--sample", type=int, metavar="N", help="so many, drawn by --seed")
    parser.add_argument("--seed", default="", metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="copies of the tree that work at once")
    parser.add_argument("--timeout", type=int, default=300, metavar="SECONDS", help="of a test; longer counts as noticed")
    parser.add_argument("--place", type=pathlib.Path, default=ROOT / "build" / "mutants", metavar="FOLDER",
                        help="where the copies lie (default: build/mutants)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of the table")
    arguments = parser.parse_args()
    mutants, problems = parse((ROOT / LIST).read_text())
    problems += check(ROOT, mutants)
    if problems or arguments.check:
        print("\n".join(problems) if problems else f"mutants: {len(mutants)} can be planted")
        return 1 if problems else 0
    chosen = chosen_of(mutants, arguments)
    run = [mutant for mutant in chosen if mutant.test]
    if not run:
        print("mutants: nothing is chosen that a test could notice")
        return 1

    def report(line):
        print(line, file=sys.stderr, flush=True)

    cores = os.cpu_count() or 1
    jobs = max(1, min(arguments.jobs, len(run)))
    places = [Place(arguments.place / str(i), max(1, cores // jobs), arguments.timeout, len(run) > 20)
              for i in range(jobs)]
    places[0].jobs = cores  # alone, for now
    problems = whole(places[0], sorted({mutant.test for mutant in run}))
    places[0].jobs = places[-1].jobs if jobs > 1 else cores
    if problems:
        print("\n".join(problems))
        return 1
    results = judge_all(places, run, report)
    survived = sorted(name for name, (noticed, _) in results.items() if not noticed)
    table = score(chosen, results)
    if arguments.json:
        print(json.dumps({"folders": [dict(zip(("folder", "planted", "noticed", "equivalent"), row)) for row in table],
                          "mutants": [{"id": m.id, "file": m.file, "test": m.test, "noticed": results[m.id][0],
                                       "what": results[m.id][1]} for m in run], "survived": survived}, indent=1))
    else:
        print(f"{'folder':<28}{'planted':>8}{'noticed':>8}{'equivalent':>11}")
        for row in table:
            print(f"{row[0]:<28}{row[1]:>8}{row[2]:>8}{row[3]:>11}")
        for name in survived:
            print(f"not noticed: {name}: {results[name][1]}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
