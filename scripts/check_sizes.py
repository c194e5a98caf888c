#!/usr/bin/env python3
"""Checks how long functions and files of C++ are: 70 and 400 lines, but for those with a reason below.

Usage: check_sizes.py [--root DIR] [--all N]. A function counts from its first line to its last brace; a lambda counts to
the function it is in, one in a table by itself. Tests may have longer files (check_tree.py has a limit for all), not
longer functions. --all N lists the N longest of both, whatever the limits.
"""
import argparse
import pathlib
import re
import sys

import check_tree

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
REASONS = {  # of a file, or of a function as file:name
    "baton/bench/ladder.cc": "quantising, comparing and measuring are steps of one rung",
    "baton/bench/ladder_report.cc:ladder_json": "the fields of a document, in their order",
    "baton/cli/chat_session.cc": "one class: what a turn does with the terminal, the engine and the file",
    "baton/engine/engine.cc": "one class: the threads, and what each of them may touch",
    "baton/model/mlx_weights_test.cc:TEST(MlxWeights, DamagedPartsAreRefusedByName)": "a table of cases",
    "baton/text/jinja/evaluate.cc": "one switch over the kinds of expressions",
    "baton/text/jinja/expressions.cc": "one grammar, by precedence",
    "baton/text/jinja/globals.cc:format_date": "one switch over the letters of strftime",
    "baton/text/jinja/methods.cc": "a table of methods",
    "baton/text/jinja/runtime.cc": "one switch over the kinds of statements",
    "baton/text/tokenizer_json_test.cc:TEST(TokenizerJson, BadFilesAreRefusedByName)": "a table of cases",
    "baton/unit/apple/driver_apple.cc": "one driver: calls of one private framework",
    "baton/unit/apple/driver_emulator.cc": "one driver: what that framework does, imitated",
    "baton/unit/apple/mil_check.cc": "the checks of one language, in the order of its grammar",
    "baton/unit/apple/mil_ops.cc": "a table of ops with the check of each",
    "baton/unit/apple/mil_parser.cc": "one grammar",
    "baton/unit/apple/mlpackage/prefill_delta.cc:PrefillLowering::delta_operands": "a straight line of ops, as the math has them",
    "baton/unit/apple/rule_test.cc:add_call_cases": "a table of cases",
    "baton/unit/apple/rule_test.cc:add_op_cases": "a table of cases",
    "baton/unit/apple/runner.cc": "the ops of mil_ops.cc, computed",
    "baton/unit/cpu/small_model_test.h:SmallModel": "a model written out, tensor by tensor",
    "tests/bad_model_test.cc:TEST(BadModel, EachWrongConfigurationIsNamed)": "a table of cases",
}
BRANCH = re.compile(r"\s*#\s*(if|el|endif)")
TOKEN = re.compile(r"[{};()]|\n")
SCOPE = re.compile(r"\b(namespace|extern)\b[^()=]*$|\b(class|struct|union|enum)\b(?![^<]*>\s*\w+\s*\()[^()=]*(\balignas\s*\([^()]*\)[^()=]*)?$")
BODY = re.compile(r"\)\s*((const|noexcept|override|final|mutable|constexpr|try|BATON_\w+|&&?)\s*)*(->[^;{}]*|:[^;]*[)}])?$")
NAME = re.compile(r"((?:[\w~]+::)*(?:operator\s*[^\s(]+|operator\(\)|~?\w+))\s*\(")
NO_NAME = re.compile(r"__attribute__\s*\(\(.*?\)\)|\btemplate\s*<[^()]*?>\s*\n|\balignas\s*\([^()]*\)")


def code_of(text):
    """Without comments, strings and preprocessor lines, line for line; of the branches of an #if the first."""
    lines, taken, continued = [], [], False
    for line in check_tree.strip(text).splitlines():
        branch = None if continued else BRANCH.match(line)
        if branch and branch[1] == "if":
            taken.append(True)
        elif branch and taken:
            taken[-1:] = [False] if branch[1] == "el" else []
        directive = continued or re.match(r"\s*#", line) is not None
        continued = directive and line.endswith("\\")
        lines.append("" if directive or not all(taken) else line)
    return "\n".join(lines)


def name_of(head):
    """Of a function; with its arguments for a macro, TEST(Seal, Holds); "lambda" without one."""
    name = NAME.search(head)
    if name and re.fullmatch(r"[A-Z_]{3,}", name[1]):
        return re.sub(r"\s+", " ", head[name.start():])
    return name[1] if name else "lambda"


def functions(text):
    """(name, first line, last line) of every function, in the order of their ends."""
    code, found, line, round_depth = code_of(text), [], 1, 0
    blocks = []  # open braces: whether a function's body, its name, whether in one, first line; round_depth, start before
    start = 0    # of what stands before the next brace
    for token in TOKEN.finditer(code):
        mark = token[0]
        inside = bool(blocks) and blocks[-1][2]
        if mark == "\n":
            line += 1
        elif mark in "()":
            round_depth += 1 if mark == "(" else -1
        elif mark == ";" and round_depth == 0:
            start = token.end()
        elif mark == "{":
            before = code[start:token.start()]
            head = before.strip()
            scope = SCOPE.search(head) is not None
            body = not inside and not scope and BODY.search(head) is not None
            name = name_of(NO_NAME.sub("", head)) if body else ""
            first = line - before.lstrip().count("\n")
            blocks.append((body, name, inside or body, first, round_depth,
                           None if scope or body else start))
            round_depth, start = 0, token.end()
        elif mark == "}" and blocks:
            body, name, _, first, round_depth, before_it = blocks.pop()
            start = token.end() if before_it is None else before_it  # an initializer is a part of what it stands in
            if body:
                found.append((name, first, line))
    return found


def check(root, reasons=None):
    root, reasons = pathlib.Path(root), REASONS if reasons is None else reasons
    problems, needed = [], set()

    def over(key, where, what):
        needed.add(key)
        if key not in reasons:
            problems.append(f"{where}: {what}: split it, or give a reason in scripts/check_sizes.py")

    for name, text in sources(root):
        lines = text.count("\n")
        if lines > FILE_LINES_MAX and not check_tree.TESTS.search(name):
            over(name, f"{name}:{FILE_LINES_MAX}", f"{lines} lines, more than {FILE_LINES_MAX}")
        for function, first, last in functions(text):
            if last - first >= FUNCTION_LINES_MAX:
                over(f"{name}:{function}", f"{name}:{first}",
                     f"{function} has {last - first + 1} lines, more than {FUNCTION_LINES_MAX}")
    problems += [f"scripts/check_sizes.py: {key} needs no reason" for key in reasons if key not in needed]
    return problems


def sources(root):
    for name in check_tree.tracked(root):
        if pathlib.Path(name).suffix in check_tree.CPP and not name.startswith("tests/data/"):
            yield name, (root / name).read_text(errors="replace")


def longest(root, count):
    files, all_functions = [], []
    for name, text in sources(root):
        files.append((text.count("\n"), name))
        all_functions += [(last - first + 1, f"{name}:{first} {function}") for function, first, last in functions(text)]
    for rows in (files, all_functions):
        for lines, name in sorted(rows, reverse=True)[:count]:
            print(f"{lines:5} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--all", type=int, metavar="N")
    arguments = parser.parse_args()
    if arguments.all:
        longest(arguments.root, arguments.all)
        return 0
    problems = check(arguments.root)
    print("\n".join(problems) if problems else "sizes: nothing to mend")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
