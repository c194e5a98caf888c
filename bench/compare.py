#!/usr/bin/env python3
"""Compares baton with other engines on the same files: speed, load and memory, as a Markdown table.

    bench/compare.py --model FILE --peer NAME=PATH [--peer-args NAME="..."] ...

PATH is a llama-bench, or any program that takes its flags (-m -t -p -n -d or -gp, -r, -mmp or -lm, -o json) and prints its JSON. All
engines run in turns: in each round each engine once, in an order that is drawn anew, every run a process of its own
with a warm-up, one repetition, the same threads and no memory mapping in the peers (a mapped file is as fast as the
pages it happens to lie on). Figures are medians over the rounds with the lowest and the highest. docs/bench.md.

--load also times a process from its start to its end that prefills 13 tokens once, and takes its peak memory.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
OWN = "baton"
LOAD_TOKENS = 13


class Failure(Exception):
    """What a user is told; the program ends with 1."""


def parse_tests(text):
    """"pp512,tg64@1024" -> [("pp", 512, 0), ("tg", 64, 1024)]."""
    tests = []
    for word in text.split(","):
        match = re.fullmatch(r"(pp|tg)([1-9]\d*)(?:@d?(\d+))?", word.strip())
        if not match:
            raise argparse.ArgumentTypeError(f"'{word}': a test is pp512, tg64 or tg64@1024")
        tests.append((match[1], int(match[2]), int(match[3] or 0)))
    return tests


def test_name(test):
    kind, count, depth = test
    return f"{kind}{count}" + (f" @ d{depth}" if depth else "")


def parse_rows(text, behind=False):
    """The rows of llama-bench's JSON (-o json: a list; -o jsonl: a row a line), whatever logs stand around them.

    behind: rows of both are generation behind a prompt (-gp), the speed that of the generation alone."""
    rows = []
    start = re.search(r"^\[\s*(\{|\])", text, re.MULTILINE)
    if start:
        try:
            rows, _ = json.JSONDecoder().raw_decode(text[start.start():])
        except ValueError as error:
            raise Failure(f"JSON that ends early: {error}")
    else:
        for line in text.splitlines():
            if line.startswith("{"):
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
    speeds = {}
    for row in rows:
        if not isinstance(row, dict) or "n_prompt" not in row or "n_gen" not in row:
            continue
        prompt, generated, depth = row["n_prompt"], row["n_gen"], row.get("n_depth") or 0
        if behind and prompt and generated:
            prompt, depth = 0, prompt
        if bool(prompt) == bool(generated) or row.get("n_sequences", 1) != 1:
            continue
        samples = [value for value in row.get("samples_ts") or [] if value > 0]
        speed = statistics.median(samples) if samples else row.get("avg_ts", 0)
        if speed > 0:
            speeds[("pp", prompt, depth) if prompt else ("tg", generated, depth)] = speed
    if not speeds:
        raise Failure("it printed no rows of llama-bench's JSON")
    return speeds


def run_process(words):
    """(stdout, seconds from start to end, peak resident bytes, CPU seconds). Failure when it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        try:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        except OSError as error:
            raise Failure(f"cannot run {words[0]}: {error.strerror}")
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            errors = err.read().decode(errors="replace").strip()[-1000:]
            raise Failure(f"{shlex.join(words)} ended with {child.returncode}: {errors}")
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return out.read().decode(errors="replace"), seconds, peak, usage.ru_utime + usage.ru_stime


class Engine:
    """A program and the flags it turns out to know: versions of llama-bench differ."""

    MAPPINGS = (["-mmp", "0"], ["-lm", "none"])  # how memory mapping is switched off
    DEPTHS = ("-d", "-gp")  # how generation at a depth is asked for
    WARMUPS = (["--no-warmup"], ["-w", "0"], [])  # how the warm-up is left out

    def __init__(self, name, path, arguments, threads):
        self.name, self.path, self.arguments, self.threads = name, path, arguments, threads
        self.known = {}  # which choice of a kind worked

    def attempt(self, model, kind, choices, words_of):
        """run_process with the first choices that work, kept for the next time: (its results, the choice of `kind`)."""
        mappings = ([],) if self.name == OWN else self.known_or("mapping", self.MAPPINGS)
        failure = None
        for mapping in mappings:
            for choice in self.known_or(kind, choices):
                words = [self.path] + (["bench"] if self.name == OWN else [])
                words += ["-m", model, "-t", str(self.threads), "-o", "json"]
                words += (["--no-limits", "--no-check"] if self.name == OWN else mapping) + self.arguments
                try:
                    result = run_process(words + words_of(choice))
                except Failure as error:
                    failure = failure or error
                    continue
                self.known["mapping"], self.known[kind] = mapping, choice
                return result, choice
        raise failure

    def known_or(self, kind, choices):
        return (self.known[kind],) if kind in self.known else choices

    def speeds(self, model, tests, depth):
        """({test: tok/s}, peak bytes, CPU seconds) of the tests at one depth."""
        tests = [test for test in tests if test[2] == depth]

        def words_of(flag):
            counts = {kind: [str(count) for k, count, _ in tests if k == kind] for kind in ("pp", "tg")}
            if flag == "-gp":
                if counts["pp"]:
                    raise Failure(f"{self.name} cannot prefill at a depth")
                pairs = [word for count in counts["tg"] for word in ("-gp", f"{depth},{count}")]
                return ["-r", "1", "-p", "0", "-n", "0"] + pairs
            words = ["-r", "1", "-p", ",".join(counts["pp"]) or "0", "-n", ",".join(counts["tg"]) or "0"]
            return words + ([flag, str(depth)] if depth else [])

        kind, choices = ("depth", self.DEPTHS) if depth else ("no depth", ("-d",))
        (out, _, peak, cpu), flag = self.attempt(model, kind, choices, words_of)
        speeds = parse_rows(out, behind=flag == "-gp")
        for test in tests:
            if test not in speeds:
                raise Failure(f"no row for {test_name(test)}")
        return {test: speeds[test] for test in tests}, peak, cpu

    def load(self, model):
        """(seconds, peak bytes, CPU seconds) of a process that loads and prefills; finds out how its warm-up is left out."""
        first = "warm-up" not in self.known
        (_, seconds, peak, cpu), choice = self.attempt(
            model, "warm-up", self.WARMUPS, lambda choice: ["-p", str(LOAD_TOKENS), "-n", "0", "-r", "1"] + choice)
        if first and not choice:
            note(f"{self.name} knows no way to leave out its warm-up: its load is late by it")
        return seconds, peak, cpu


def note(text):
    print(f"compare: {text}", file=sys.stderr)


def busy_seconds():
    """CPU seconds all programs used since the start of the system; None: not known."""
    try:
        fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields[:8])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "samples": list(values)}


class Comparison:
    """One model, all engines."""

    def __init__(self, options, engines, model):
        self.options, self.engines, self.model = options, list(engines), model
        self.speeds, self.peaks, self.loads, self.load_peaks = {}, {}, {}, {}
        self.own_cpu = 0.0
        self.failed = {}  # (engine, depth) -> why

    def run(self):
        start, busy = time.monotonic(), busy_seconds()
        order = random.Random(self.options.seed)
        for number in range(self.options.rounds + 1):  # the first fills the page cache and does not count
            turns = [(engine, depth) for engine in self.engines for depth in sorted({test[2] for test in self.options.tests})]
            if self.options.load:
                turns += [(engine, None) for engine in self.engines]
            order.shuffle(turns)
            for engine, depth in turns:
                if (engine.name, depth) in self.failed:
                    continue
                note(f"{os.path.basename(self.model)}: round {number}/{self.options.rounds}, {engine.name}"
                     + (", load" if depth is None else f" @ d{depth}" if depth else ""))
                time.sleep(self.options.rest)
                self.turn(engine, depth, counts=number > 0)
        wall = time.monotonic() - start
        self.foreign = None if busy is None else max(0.0, (busy_seconds() - busy - self.own_cpu) / wall)

    def turn(self, engine, depth, counts):
        try:
            if depth is None:
                seconds, peak, cpu = engine.load(self.model)
                if counts:
                    self.loads.setdefault(engine.name, []).append(seconds)
                    self.load_peaks.setdefault(engine.name, []).append(peak)
            else:
                speeds, peak, cpu = engine.speeds(self.model, self.options.tests, depth)
                if counts:
                    for test, speed in speeds.items():
                        self.speeds.setdefault((engine.name, test), []).append(speed)
                    self.peaks.setdefault(engine.name, []).append(peak)
        except Failure as failure:
            if engine.name == OWN:
                raise
            note(f"{engine.name}: left out: {failure}")
            self.failed[(engine.name, depth)] = str(failure)
            return
        self.own_cpu += cpu

    def rows(self):
        """(what, unit, {engine: spread}, whether more is better)."""
        names = [engine.name for engine in self.engines]
        rows = []
        for test in self.options.tests:
            rows.append((test_name(test), "tok/s", {name: spread(self.speeds[(name, test)]) for name in names
                                                    if (name, test) in self.speeds}, True))
        peaks = {name: spread([value / 2**20 for value in self.peaks[name]]) for name in names if name in self.peaks}
        rows.append(("peak memory of these", "MiB", {name: {**value, "median": value["high"]} for name, value in peaks.items()}, False))
        if self.options.load:
            rows.append((f"load to {LOAD_TOKENS} tokens", "s", {name: spread(self.loads[name]) for name in names
                                                                 if name in self.loads}, False))
            rows.append(("peak memory of load", "MiB", {name: spread([value / 2**20 for value in self.load_peaks[name]])
                                                        for name in names if name in self.load_peaks}, False))
        return rows


def better_peer(values, more):
    peers = {name: value["median"] for name, value in values.items() if name != OWN}
    return (max if more else min)(peers, key=peers.get) if peers else None


def number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def cell(value):
    return "-" if value is None else f"{number(value['median'])} ({number(value['low'])}-{number(value['high'])})"


def markdown(comparison):
    names = [engine.name for engine in comparison.engines]
    peers = len(names) > 1
    head = ["", *names] + (["ratio to the better peer"] if peers else [])
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for what, unit, values, more in comparison.rows():
        cells = [f"{what}, {unit}"] + [cell(values.get(name)) for name in names]
        if peers:
            best = better_peer(values, more)
            cells.append(f"{values[OWN]['median'] / values[best]['median']:.2f}x" if best else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def as_json(comparison):
    rows = []
    for what, unit, values, more in comparison.rows():
        best = better_peer(values, more)
        rows.append({"what": what, "unit": unit, "values": values, "better_peer": best,
                     "ratio": values[OWN]["median"] / values[best]["median"] if best else None})
    return {"model": os.path.basename(comparison.model), "threads": comparison.engines[0].threads,
            "rounds": comparison.options.rounds, "foreign_cores": comparison.foreign,
            "left_out": [{"engine": name, "depth": depth, "why": why} for (name, depth), why in comparison.failed.items()],
            "rows": rows}


def processor():
    try:
        return re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return "unknown processor"


def named(text):
    name, sep, value = text.partition("=")
    if not sep or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, help="a GGUF file (repeatable)")
    parser.add_argument("--peer", action="append", type=named, default=[], metavar="NAME=PATH", help="a llama-bench (repeatable)")
    parser.add_argument("--peer-args", action="append", type=named, default=[], metavar="NAME=ARGS",
                        help='more arguments of a peer: ik="-rtr 1"')
    parser.add_argument("--baton", default=str(ROOT / "build" / "release" / "baton"), help="our program")
    parser.add_argument("--baton-args", default="", help="more arguments of our program")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tests", type=parse_tests, default=parse_tests("pp512,pp128,tg64,tg64@1024"))
    parser.add_argument("-r", "--rounds", type=int, default=5, help="at least 5")
    parser.add_argument("--rest", type=float, default=1.0, help="seconds before each run")
    parser.add_argument("--load", action="store_true", help="also load time and its peak memory")
    parser.add_argument("--seed", type=int, default=None, help="of the order of runs")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    options = parser.parse_args(arguments)
    peers = dict(options.peer)
    if options.rounds < 5:
        parser.error(f"--rounds {options.rounds}: at least 5")
    if options.threads < 1:
        parser.error("--threads: at least 1")
    for name, _ in options.peer_args:
        if name not in peers:
            parser.error(f"--peer-args {name}: no such --peer")
    if OWN in peers or len(peers) != len(options.peer):
        parser.error("--peer: each name once, and not baton")
    return options


def main(arguments=None):
    options = parse_options(arguments)
    more = dict(options.peer_args)
    engines = [Engine(OWN, options.baton, shlex.split(options.baton_args), options.threads)]
    engines += [Engine(name, path, shlex.split(more.get(name, "")), options.threads) for name, path in options.peer]
    done = []
    try:
        for model in options.model:
            if not os.path.exists(model):
                raise Failure(f"{model} does not exist")
            comparison = Comparison(options, engines, model)
            comparison.run()
            done.append(comparison)
            if options.output == "md":
                quiet = "not known" if comparison.foreign is None else f"{comparison.foreign:.2f} cores"
                print(f"### {os.path.basename(model)}\n\n{markdown(comparison)}\n\n{processor()}, {options.threads} threads; "
                      f"medians of {options.rounds} rounds (lowest-highest), engines in turns; CPU use of other programs "
                      f"meanwhile: {quiet}.\n", flush=True)
    except Failure as failure:
        note(str(failure))
        return 1
    if options.output == "json":
        print(json.dumps([as_json(comparison) for comparison in done], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
