#!/usr/bin/env python3
"""Each rule of the tree must be able to fail: tiny bad trees in a temporary folder, and what the checks say of them."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import check_format  # noqa: E402
import check_layers  # noqa: E402
import check_sizes  # noqa: E402
import check_symbols  # noqa: E402
import check_tree  # noqa: E402

LAYERS = ("# rooms\nbaton/base 0\nbaton/quant 1 base\nbaton/text 1 base\nbaton/unit 4\nbaton/unit/ref 5 base\n"
          "baton/unit/cpu 5 base\nbaton/cli 9 base [unit/cpu]\n")
FOLDERS = ["baton/base", "baton/quant", "baton/text", "baton/unit/ref", "baton/unit/cpu", "baton/cli"]
PURPOSE = "// What this file is for.\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        self.write("layers.txt", LAYERS)

    def write(self, name, text, mode=0o644):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)

    def expect(self, problems, *parts):
        for part in parts:
            self.assertTrue(any(part in problem for problem in problems), f"'{part}' is not in {problems}")
        if not parts:
            self.assertEqual(problems, [])


class Layers(Tree):
    def check(self, name, line, *parts):
        self.write(name, PURPOSE + line + "\n")
        self.expect(check_layers.check(self.root), *parts)

    def test_down_and_own_folder_pass(self):
        self.write("baton/base/a.h", PURPOSE)
        self.write("baton/quant/b.h", PURPOSE)
        self.check("baton/quant/c.cc", '#include "baton/base/a.h"\n#include "baton/quant/b.h"\n#include <vector>')

    def test_up(self):
        self.write("baton/quant/b.h", PURPOSE)
        self.check("baton/base/a.h", '#include "baton/quant/b.h"', "baton/base/a.h:2: baton/base may not include baton/quant")

    def test_down_where_no_arrow_is(self):
        self.write("baton/quant/b.h", PURPOSE)
        self.check("baton/cli/a.cc", '#include "baton/quant/b.h"', "baton/cli/a.cc:2: baton/cli may not include baton/quant")

    def test_what_is_linked_is_not_included(self):
        self.write("baton/unit/cpu/b.h", PURPOSE)
        self.check("baton/cli/a.cc", '#include "baton/unit/cpu/b.h"', "baton/cli may not include baton/unit/cpu")

    def test_every_kind_of_source(self):
        self.write("baton/text/b.h", PURPOSE)
        for name in ["a.h", "a.cc", "a_list.inc", "a.inl.h", "a.cu", "a.cuh", "a.mm", "a_test.cu"]:
            with self.subTest(name):
                self.check(f"baton/quant/{name}", '#include "baton/text/b.h"',
                           f"baton/quant/{name}:2: baton/quant may not include baton/text")
        self.check("baton/quant/a.mm", '#import "baton/text/b.h"', "a.mm:2: baton/quant may not include baton/text")

    def test_units_do_not_know_each_other(self):
        self.write("baton/unit/ref/b.h", PURPOSE)
        self.check("baton/unit/cpu/a_test.cc", '  #  include "baton/unit/ref/b.h"', "may not include baton/unit/ref")

    def lines(self, text, *parts):
        self.write("layers.txt", text)
        self.expect(check_layers.check(self.root), *parts)

    def test_arrows_go_down(self):
        self.lines("baton/base 0\nbaton/text 1\nbaton/quant 1 base text\n", "baton/quant (rank 1) may not use baton/text (rank 1)")
        self.lines("baton/base 0 [quant]\nbaton/quant 1\n", "baton/base (rank 0) may not use baton/quant (rank 1)")

    def test_arrows_lead_somewhere(self):
        self.lines(LAYERS + "baton/engine 6 bridge\n", "baton/engine uses baton/bridge, which has no line")
        self.lines(LAYERS + "baton/engine\n", "layers.txt:9: not a line of folder, rank and uses: baton/engine")

    def test_an_arrow_for_nothing(self):
        self.write("baton/base/a.h", PURPOSE)
        self.write("baton/cli/a.cc", PURPOSE + '#include "baton/base/a.h"\n')
        self.lines(LAYERS.replace("cli 9 base", "cli 9 base text"), "layers.txt: baton/cli includes nothing of baton/text: strike it")

    def test_unlisted_folder(self):
        self.check("baton/new/a.h", "", "its folder is not in layers.txt")

    def test_unlisted_unit(self):
        self.check("baton/unit/new/a.h", "", "its folder is not in layers.txt")

    def test_star_is_every_folder_without_a_line(self):
        self.write("baton/base/a.h", PURPOSE)
        self.write("baton/quant/a.h", PURPOSE)
        self.write("baton/unit/new/b.h", PURPOSE + '#include "baton/base/a.h"\n#include "baton/quant/a.h"\n')
        self.write("baton/cli/a.cc", PURPOSE + '#include "baton/unit/new/b.h"\n')
        rest = "baton/text 1\nbaton/unit 4\n"
        both = rest + "baton/base 0\nbaton/quant 1\nbaton/unit/* 5 base quant\n"
        self.lines(both + "baton/cli 6 unit/new\n")
        self.lines(both + "baton/cli 6 [unit/*]\n", "baton/cli/a.cc:2: baton/cli may not include baton/unit/new")
        self.lines(both + "baton/cli 6 unit/*\n", "baton/cli uses baton/unit/*, which has no line")
        self.lines(both + "baton/cli 5 [unit/*]\n", "baton/cli (rank 5) may not use baton/unit/* (rank 5)")
        self.lines(both + "baton/unit/new 5 base\nbaton/cli 6 unit/new\n",
                   "baton/unit/new/b.h:3: baton/unit/new may not include baton/quant")

    def test_sub_folder_belongs_to_its_parent(self):
        self.write("baton/base/a.h", PURPOSE)
        self.check("baton/quant/parts/b.h", '#include "baton/base/a.h"')
        self.check("baton/base/a.h", '#include "baton/quant/parts/b.h"', "may not include baton/quant")

    def test_too_deep(self):
        self.check("baton/quant/parts/more/b.cc", "", "its folder is not in layers.txt")

    def test_relative_include(self):
        self.check("baton/base/a.h", '#include "b.h"', "is not a path from the root")

    def test_missing_file(self):
        self.check("baton/base/a.h", '#include "baton/base/gone.h"', "does not exist")

    def test_missing_folder(self):
        self.write("layers.txt", LAYERS + "baton/gone 3\n")
        self.expect(check_layers.check(self.root), "there is no folder baton/gone")

    def test_library_may_not_include_tests(self):
        self.write("tests/support/s.h", PURPOSE)
        self.check("baton/base/a_test.cc", '#include "tests/support/s.h"')
        self.check("baton/base/a.cc", '#include "tests/support/s.h"', "is not a path from the root")


class Words(Tree):
    def code(self, line, *parts, name="baton/base/a.cc"):
        self.write(name, PURPOSE + line + "\n")
        self.expect(check_tree.check(self.root), *parts)

    def test_each_banned_word(self):
        for line in ["std::cout << 1;", "std::cerr << 1;", 'printf("x");', 'std::fprintf(stderr, "x");', 'fmt::print("x");', 'spdlog::warn("x");',
                     "exit(1);", "std::abort();", "::exit(2);", "using namespace std;", "int a = rand();",
                     "std::mt19937 g;", "std::random_device d;", 'system("ls");', "std::shared_ptr<Model> m;",
                     "std::shared_ptr<FileReader> f;",
                     "auto m = std::make_shared<int>(1);", 'sprintf(a, "x");', "strcpy(a, b);", "strncat(a, b, 1);",
                     "int b = atoi(c);", "long d = std::strtol(c, nullptr, 10);", "int e = std::stoi(c);", "std::regex r;",
                     "assert(a);", "int* p = NULL;", "out << std::endl;", "#pragma omp parallel", "alloca(3);"]:
            with self.subTest(line):
                self.code(line, "a.cc:2: '", "is banned; instead: ")

    def test_what_looks_like_them(self):
        self.code('// exit(1) in a comment, std::cout too\nauto s = "printf(";\nauto r = R"x(abort()\n)x";\nplan.exit();\n'
                  "static_assert(true);\nstd::shared_ptr<const Model> m;\nauto n = std::make_shared<const Model>();\n"
                  "const auto f = std::make_shared<const FileReader>();\n"
                  "using namespace std::string_view_literals;\nsnprintf(a, 1, b);\n::_exit(1);\nint big = 1'000'000;\n"
                  "/* rand() */ char c = '\"'; check(c);")

    def test_ban_after_a_character_literal(self):
        self.code("char c = '\"'; exit(1); char d = '\"';", "'exit(' is banned")

    def test_programs_may_print(self):
        self.code('std::fprintf(stderr, "x");\nexit(1);', name="baton/cli/main.cc")
        self.code('printf("x");', name="tests/a_test.cc")
        self.code('printf("x");', "is banned", name="baton/text/b.cc")

    def test_leftovers(self):
        for word in ["TO" "DO", "FIX" "ME", "XX" "X"]:
            self.code(f"// {word}: later", f"'{word}': finish it")

    def test_machine_paths(self):
        for path in ["/ho" "me/me/x", "/ro" "ot/x", "/wo" "rk/x"]:
            self.code(f'// see "{path}"', "a path of one machine")
        self.write("notes.md", "in /ro" "ot/notes\n")
        self.expect(check_tree.check(self.root), "notes.md:1: a path of one machine")

    def test_every_kind_of_source(self):
        for name in ["a.h", "a.cc", "a_list.inc", "a.inl.h", "a.cu", "a.cuh", "a.mm"]:
            with self.subTest(name):
                self.code("exit(1);", f"{name}:2: 'exit(' is banned", name=f"baton/base/{name}")


class Files(Tree):
    def check(self, name, text, *parts, mode=0o644):
        self.write(name, text, mode)
        self.expect(check_tree.check(self.root), *parts)

    def test_good(self):
        self.write("baton/base/a.h", PURPOSE)
        self.check("baton/base/b.cc", PURPOSE + '#include "baton/base/a.h"\n')

    def test_columns(self):
        self.check("baton/base/a.cc", PURPOSE + "// " + "x" * 117 + "\n")
        self.check("baton/base/a.cc", PURPOSE + "// " + "x" * 118 + "\n", "a.cc:2: 121 columns")

    def test_lines(self):
        self.check("baton/base/a.cc", PURPOSE + "//\n" * 799)
        self.check("baton/base/a.cc", PURPOSE + "//\n" * 800, "801 lines, more than 800")

    def test_ascii(self):
        self.check("baton/base/a.cc", PURPOSE + "// \u00e9\n", "a.cc:2: not ASCII")
        self.check("baton/base/a.cc", PURPOSE)
        self.check("README.md", "\u00e9\n")

    def test_spaces(self):
        self.check("baton/base/a.cc", PURPOSE + "int a; \n", "a.cc:2: space at the end")
        self.check("baton/base/a.cc", PURPOSE + "int a;\r\n", "a.cc:2: space at the end")
        self.check("baton/base/a.cc", PURPOSE + "\tint a;\n", "a.cc:2: a tab")
        self.check("baton/base/a.cc", PURPOSE + "int a;", "no newline at the end")

    def test_purpose(self):
        for name, text in [("baton/base/a.cc", "#include <vector>\n"), ("scripts/a.py", "import os\n"),
                           ("cmake/a.cmake", "set(A 1)\n"), ("baton/base/a.cc", "//\n"), ("baton/base/a.cc", "")]:
            with self.subTest(name):
                self.check(name, text, f"{name}:1: the first line must be a comment")

    def test_scripts(self):
        self.check("scripts/a.sh", "#!/usr/bin/env bash\n# What it is for.\ntrue\n", mode=0o755)
        self.check("scripts/a.sh", "#!/usr/bin/env bash\n# What it is for.\ntrue\n", "a.sh:1: starts with #! but is not executable")
        self.check("scripts/a.sh", "# What it is for.\ntrue\n", "a.sh:1: is executable but", mode=0o755)
        self.check("scripts/a.sh", "#!/usr/bin/env bash\n# What it is for.\nif\n", "a.sh:1: bash does not accept it", mode=0o755)

    def test_python_compiles(self):
        self.check("scripts/a.py", "# What it is for.\ndef f(:\n", "a.py:2: does not compile")

    def test_binary_and_large_files(self):
        self.check("models/m.gguf", b"\0" * 2000000)
        self.check("docs/a.bin", b"a\0b", "a binary file outside")
        self.check("docs/a.bin", b"a\n")
        self.check("docs/a.md", "a\n" * 600000, "1200000 bytes, more than")

    def test_dead_header(self):
        self.write("baton/base/a.h", PURPOSE)
        self.write("baton/base/a.cc", PURPOSE + '#include "baton/base/a.h"\n')
        self.write("baton/base/a_test.cc", PURPOSE + '#include "baton/base/a.h"\n')
        self.expect(check_tree.check(self.root), "baton/base/a.h:1: nobody includes it")
        self.write("baton/base/b.cc", PURPOSE + '#include "baton/base/a.h"\n')
        self.expect(check_tree.check(self.root))

    def test_dead_header_of_another_compiler(self):
        self.write("baton/base/a.cu", PURPOSE + '#include "baton/base/a.cuh"\n')
        self.check("baton/base/a.cuh", PURPOSE, "baton/base/a.cuh:1: nobody includes it")

    def test_dead_list(self):
        self.check("baton/base/a_list.inc", PURPOSE, "baton/base/a_list.inc:1: nobody includes it")

    def test_source_that_is_not_built(self):
        self.write("baton/base/a.cc", PURPOSE)
        self.write("baton/base/b_test.cc", PURPOSE)
        self.write("baton/base/c.cu", PURPOSE)
        commands = self.root / "build/compile_commands.json"
        commands.parent.mkdir()
        commands.write_text(json.dumps([{"directory": str(self.root), "file": "baton/base/a.cc"}]))
        problems = check_tree.check(self.root, commands)
        self.expect(problems, "baton/base/b_test.cc:1: is not compiled by the build", "baton/base/c.cu:1: is not compiled")
        self.assertEqual(len(problems), 2)

    def test_git_ignored_files_are_left_alone(self):
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.write(".gitignore", "out/\n")
        self.check("out/a.cc", "bad \n")
        self.check("in/a.cc", "bad \n", "in/a.cc:1: space at the end")


class Sizes(Tree):
    def body(self, lines):
        return "  f();\n" * lines

    def found(self, text):
        return [(name, last - first + 1) for name, first, last in check_sizes.functions(text)]

    def test_files(self):
        self.write("baton/base/a.cc", PURPOSE + "//\n" * 399)
        self.write("baton/base/a_test.cc", PURPOSE + "//\n" * 500)
        self.expect(check_sizes.check(self.root, {}))
        for name in ["a.cc", "a.h", "a.inl.h", "a.cu", "a.mm"]:
            self.write(f"baton/base/{name}", PURPOSE + "//\n" * 400)
            self.expect(check_sizes.check(self.root, {}), f"baton/base/{name}:400: 401 lines, more than 400")

    def test_functions(self):
        self.write("baton/base/a_test.cc", PURPOSE + "int f() {\n" + self.body(68) + "}\n")
        self.expect(check_sizes.check(self.root, {}))
        self.write("baton/base/a_test.cc", PURPOSE + "TEST(A,\n     B) {\n" + self.body(68) + "}\n")
        self.expect(check_sizes.check(self.root, {}), "a_test.cc:2: TEST(A, B) has 71 lines, more than 70")

    def test_reasons(self):
        self.write("baton/base/a.cc", PURPOSE + "int f() {\n" + self.body(400) + "}\n")
        reasons = {"baton/base/a.cc": "one thing", "baton/base/a.cc:f": "one thing"}
        self.expect(check_sizes.check(self.root, reasons))
        self.write("baton/base/a.cc", PURPOSE + "int f() {\n" + self.body(100) + "}\n")
        self.expect(check_sizes.check(self.root, reasons), "baton/base/a.cc needs no reason")

    def test_what_a_function_is(self):
        for head, name in [("int f(int a) {", "f"), ("X::X(int a) : a_(a), b_{a} {", "X::X"), ("X::~X() noexcept {", "X::~X"),
                           ("auto f(A a = {}, B b = {1, {2}}) -> Result<int> {", "f"),
                           ("bool X::operator==(X x) const {", "X::operator=="),
                           ("template <class T, int N>\nvoid f(T (&a)[N]) {", "f"),
                           ("static constexpr auto a = [](int b) {", "lambda"),
                           ("__attribute__((noinline)) void f() {", "f")]:
            text = f"int before;\n{head}\n  if (a) {{\n    g([] {{ return b; }});\n  }}\n}}\n"
            for around in ("{}", "namespace a {{\nclass B : C<int(int)> {{\n{}}};\n}}\n"):
                with self.subTest(head):
                    self.assertEqual(self.found(around.format(text)), [(name, text.count("\n") - 1)])

    def test_what_a_function_is_not(self):
        self.assertEqual(self.found("namespace a {\nstruct alignas(64) B { int c = 1; };\nenum class D { kE };\n"
                                    "constexpr int f[] = {1, 2};\nconst F g = {\"){\", {h(1)}};\n}\n"
                                    "#define M(a) \\\n  if (a) { b(); }\n"), [])

    def test_branches_of_the_preprocessor(self):
        self.assertEqual(self.found("#if A\nint f(int a) {\n#elif B\nint f(long a) {\n#else\nint f() {\n#endif\n  g();\n}\n"),
                         [("f", 8)])


class Format(Tree):
    def test_format(self):
        formatter = check_format.find_formatter()
        if formatter is None:
            self.skipTest("no clang-format 14")
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("baton/base/a.cc", PURPOSE + "int  a ;\n")
        self.expect(check_format.check(self.root, formatter), "baton/base/a.cc:2: not formatted")
        self.write("baton/base/b.cu", PURPOSE + "int  b ;\n")
        self.expect(check_format.check(self.root, formatter), "baton/base/b.cu:2: not formatted")
        self.expect(check_format.check(self.root, formatter, fix=True))
        self.expect(check_format.check(self.root, formatter))


class Symbols(Tree):
    """Two files as one build compiles them; the flags are of compile_commands.json alone, any compiler does."""
    def check(self, flags, text, *parts):
        compiler = shutil.which("c++")
        if compiler is None:
            self.skipTest("no c++")
        entries = []
        for name, of_its_own in [("plain.cc", []), ("wide.cc", flags)]:
            self.write(name, text)
            subprocess.run([compiler, "-std=c++20", "-c", name, "-o", name + ".o"], cwd=self.root, check=True)
            entries.append({"directory": str(self.root), "file": name,
                            "command": " ".join([compiler, "-m64", *of_its_own, "-o", name + ".o", "-c", name])})
        self.write("compile_commands.json", json.dumps(entries))
        problems, read = check_symbols.check(self.root)
        self.assertEqual(read, 1 if flags else 0)
        self.expect(problems, *parts)

    def test_inline_functions_of_wide_files_are_refused(self):
        text = "inline int twice(int x) { return 2 * x; }\nint (*use)(int) = twice;\n"
        self.check(["-mavx2"], text, "wide.cc: 'twice(int)' is weak")
        self.check(["-march=native"], text, "wide.cc: 'twice(int)' is weak")
        self.check([], text)

    def test_templates_and_inline_variables_too(self):
        self.check(["-mavx2"], "template <class T> T twice(T x) { return x + x; }\nint (*use)(int) = twice<int>;\n",
                   "'int twice<int>(int)' is weak")
        self.check(["-mavx2"], "inline constexpr int kTable[] = {1, 2};\nconst int* use = kTable;\n", "'kTable' is weak")

    def test_what_a_file_keeps_to_itself_passes(self):
        self.check(["-mavx2"], "static int twice(int x) { return 2 * x; }\nint (*use)(int) = twice;\n")
        self.check(["-mavx2"], "namespace {\ninline int twice(int x) { return 2 * x; }\n}\nint (*use)(int) = twice;\n")

    def test_objects_that_are_not_built_are_left_out(self):
        self.write("compile_commands.json", json.dumps([
            {"directory": str(self.root), "file": "a.cc", "command": "c++ -mavx2 -o a.o -c a.cc"},
            {"directory": str(self.root), "file": "b.cc", "command": "c++ -o b.o -c b.cc"}]))
        self.assertEqual(check_symbols.check(self.root), ([], 0))


class Programs(Tree):
    def test_exit_status(self):
        self.write("baton/base/a.cc", "#include \"a.h\"\n")
        for script, arguments in [("check_tree.py", ["--root"]), ("check_layers.py", [])]:
            bad = subprocess.run([sys.executable, SCRIPTS / script, *arguments, self.root], capture_output=True, text=True)
            self.assertEqual(bad.returncode, 1, bad.stdout)
        self.write("baton/base/a.cc", PURPOSE)
        self.write("layers.txt", LAYERS)
        good = subprocess.run([sys.executable, SCRIPTS / "check_tree.py", "--root", self.root], capture_output=True, text=True)
        self.assertEqual((good.returncode, good.stdout), (0, "tree: nothing to mend\n"))


if __name__ == "__main__":
    unittest.main()
