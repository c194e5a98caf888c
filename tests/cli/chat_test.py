#!/usr/bin/env python3
"""`baton chat` from outside: at a terminal (a pseudo-terminal of the standard library), and from pipes.

usage: chat_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import tempfile
import termios
import time
import unittest

from chat_program import GOLDEN, LARGER, PATIENCE, PROGRAM, ROOT, SMALL, Terminal, chat, thinking_model, turns


class Editing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.history = str(pathlib.Path(self.folder.name) / "state" / "history")

    def test_arrow_keys_wide_characters_and_history_of_an_earlier_chat(self):
        terminal = Terminal(history=self.history)
        terminal.line("/system h\u00e9\u65e5\u672cx\x7f\x1b[D\x1b[D!")
        self.assertIn("\nh\u00e9!\u65e5\u672c\n", terminal.line("/system"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)
        self.assertEqual(stat.S_IMODE(os.stat(self.history).st_mode), 0o600)
        again = Terminal(history=self.history)
        again.line("\x1b[A\x1b[A?")  # the entry before the last, and a character more
        self.assertIn("\nh\u00e9!\u65e5\u672c?\n", again.line("/system"))
        again.line("/bye", until="\n")
        self.assertEqual(again.leave(), 0)

    def test_a_paste_of_100_kilobytes_is_one_entry(self):
        text = "".join(f"line {i} of what is pasted, with \u00e9 and \u65e5\n" for i in range(2700)) + "/bye"
        self.assertGreater(len(text.encode()), 100_000)
        terminal = Terminal()
        terminal.send(b"/system \x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~")
        terminal.line("", until="> ")
        shown = terminal.line("/system")
        self.assertIn(text, shown)
        # As a question: all of it is counted, as the tokenizer does.
        terminal.line("/system \"\"")
        terminal.send(b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~\r")
        shown = terminal.expect("the question was not sent")
        counted = int(re.search(r"the conversation has (\d+) tokens", shown)[1])
        done = chat(input=text)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"the conversation has {counted} tokens, the context holds 4096", done.stderr)
        terminal.send("\x03")
        terminal.send("\x04")
        terminal.leave()

    def test_quotes_and_pastes_with_crlf_are_several_lines(self):
        terminal = Terminal()
        terminal.line('/system """', until=". ")
        terminal.line("first", until=". ")
        terminal.line('second"""')
        self.assertIn("\nfirst\nsecond\n", terminal.line("/system"))
        terminal.line("/system a\\", until=". ")
        terminal.line("b")
        self.assertIn("\na\nb\n", terminal.line("/system"))
        terminal.send(b"/system \x1b[200~x\r\ny\x1b[201~\r")
        terminal.expect("> ")
        self.assertIn("\nx\ny\n", terminal.line("/system"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_a_paste_that_was_interrupted_leaves_nothing_and_only_utf8_is_taken(self):
        terminal = Terminal()
        terminal.send(b"\x1b[200~half of what")
        time.sleep(0.3)
        terminal.send("\x03")
        terminal.expect("^C")
        terminal.expect("> ")
        terminal.send(b"\x1b[201~")
        self.assertNotIn("no command", terminal.line("/system whole"))
        self.assertIn("\nwhole\n", terminal.line("/system"))
        terminal.send(b"/system caf\xe9 au lait\r")
        self.assertIn("is not UTF-8", terminal.expect("> "))
        self.assertIn("\nwhole\n", terminal.line("/system"))
        terminal.send("/system \ufffd\r")  # a character like others
        terminal.expect("> ")
        self.assertIn("\n\ufffd\n", terminal.line("/system"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_tab_completes_commands(self):
        terminal = Terminal()
        terminal.send("/his\t")
        terminal.expect("tory ")
        terminal.send("\x03")
        terminal.expect("^C")
        terminal.expect("> ")
        terminal.send("/s\t")
        shown = terminal.expect("/system")
        self.assertIn("/save", shown)
        self.assertIn("/set", shown)
        terminal.send("\x03")
        terminal.expect("^C")
        terminal.expect("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_tab_completes_settings_and_files(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "long story.state").touch()
            for name in ("\x1b[2Jevil", "log\nline", "lo ", "lo\t"):
                pathlib.Path(folder, name).touch()
            terminal = Terminal()
            terminal.send("/set min\t")
            terminal.expect("_p ")
            terminal.send("0.1\r")
            terminal.expect("min_p 0.1")
            terminal.expect("> ")
            terminal.send(f"/load {folder}/lo\t")
            terminal.expect("ng story.state ")
            terminal.send("\x03")
            terminal.expect("^C")
            terminal.expect("> ")
            self.assertIn("0.01 to 100", terminal.line("/help set"))
            terminal.send("\x04")
            self.assertEqual(terminal.leave(), 0)

    def test_interrupt_clears_the_line_and_a_resize_keeps_it(self):
        terminal = Terminal()
        terminal.send("/bye")
        terminal.expect("/bye")
        terminal.send("\x03")
        terminal.expect("> ")
        terminal.send("/system a word that is long enough for two rows of a narrow screen")
        terminal.expect("screen")
        terminal.resize(20, 40)
        os.kill(terminal.pid, signal.SIGWINCH)
        terminal.send(" and more\r")
        terminal.expect("more")
        terminal.expect("> ")
        self.assertIn("two rows of a narrow screen and more", terminal.line("/system").replace("\n", ""))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)


    def test_a_signal_that_ends_it_gives_the_terminal_back(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            terminal = Terminal()
            self.assertEqual(termios.tcgetattr(terminal.fd)[3] & (termios.ECHO | termios.ICANON), 0)
            os.kill(terminal.pid, number)
            while not terminal.ended():
                terminal.take(0.05)
            local = termios.tcgetattr(terminal.fd)[3]
            self.assertTrue(local & termios.ECHO and local & termios.ICANON, number)
            self.assertEqual(terminal.leave(), 128 + number)

    def test_a_terminal_that_closes_keeps_the_states(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with tempfile.TemporaryDirectory() as folder:
                terminal = Terminal("-n", "2", "--state-cache", os.path.join(folder, "cache"))
                terminal.line("/system " + "Be brief. " * 12)
                terminal.line("What is a fern?")
                os.kill(terminal.pid, number)
                while not terminal.ended():
                    terminal.take(0.05)
                self.assertEqual(terminal.leave(), 128 + number)
                self.assertGreater(len(os.listdir(os.path.join(folder, "cache"))), 0)

    def test_a_history_that_is_none_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            notes = os.path.join(folder, "notes")
            with open(notes, "w") as file:
                file.write("buy milk\n")
            os.chmod(notes, 0o644)
            terminal = Terminal("-n", "2", history=notes)
            self.assertIn(f"{notes}: is not a history of chats", terminal.begun)
            terminal.line("What is a fern?")
            terminal.send("\x04")
            self.assertEqual(terminal.leave(), 0)
            self.assertEqual((os.stat(notes).st_mode & 0o777, os.path.getsize(notes)), (0o644, 9))

    def test_end_of_input_behind_half_a_line_does_not_send_it(self):
        terminal = Terminal("-n", "2")
        terminal.send("/system kept")
        terminal.expect("kept")
        terminal.send("\x04")
        self.assertEqual(terminal.quiet(0.5).count("\n"), 0)
        self.assertFalse(terminal.ended())
        terminal.send(" whole\r")
        terminal.expect("whole")
        terminal.expect("> ")
        self.assertIn("\nkept whole\n", terminal.line("/system"))
        self.assertIn("turns        0;", terminal.line("/show"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)


class Beginning(unittest.TestCase):
    BUNDLED = ROOT / "models" / "dictionary-3m.Q8_0.gguf"

    def test_the_header_names_the_file_and_a_first_question_is_answered_before_it_asks(self):
        terminal = Terminal(model=str(self.BUNDLED))
        self.assertRegex(terminal.begun,
                         r"[^/]dictionary-3m\.Q8_0\.gguf \(Q8_0\), prefill on cpu, decode on cpu, context 4096 tokens")
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)
        asked = Terminal("-p", "What is a tree?", "-n", "8", "--temp", "0")
        shown = asked.begun + asked.line("/history")
        self.assertIn("user: What is a tree?", shown)
        self.assertIn("turns        1;", asked.line("/show"))
        asked.send("\x04")
        self.assertEqual(asked.leave(), 0)
        alone = chat("-p", "What is a tree?", "-n", "8", input="")
        whole, (answer,) = turns(["What is a tree?"], "-n", "8")
        self.assertEqual((alone.returncode, alone.stdout.rstrip("\n")), (0, answer["text"].rstrip("\n")))


class Commands(unittest.TestCase):
    def test_words_are_parsed_and_never_sent_to_the_model(self):
        terminal = Terminal()
        self.assertIn("no command '/hlep', did you mean /help?", terminal.line("/hlep"))
        self.assertIn("no command '/xyzzy'; /help lists them", terminal.line("  /xyzzy now"))
        self.assertIn("/save FILE", terminal.line("/help save"))
        self.assertIn("repeat_penalty", terminal.line("/help set"))
        self.assertIn("now temp 0.25, ", terminal.line("/set temp 0.25"))
        self.assertIn("the conversation is forgotten\n", terminal.line("/clear"))
        terminal.line("/set top-k = 7")
        self.assertIn("temp 0.25, top_k 7,", terminal.line("/set"))
        self.assertIn("temp takes a number from 0 to 100, not 'hot'", terminal.line("/set temp hot"))
        self.assertIn("no setting 'tmep', did you mean temp?", terminal.line("/set tmep 1"))
        self.assertIn("/clear takes no argument", terminal.line("/clear all"))
        self.assertIn("has no switch for thinking", terminal.line("/think off"))
        shown = terminal.line("/show")
        self.assertIn("turns        0;", shown)
        self.assertIn("0 tokens used, 4096 left of 4096", shown)
        self.assertIn("Q8_0" if SMALL.endswith(".gguf") else "BF16", shown)
        terminal.send(" /quit \r")
        self.assertEqual(terminal.leave(), 0)

    def test_nothing_to_ask_again(self):
        done, _ = turns([{"command": "/retry"}])
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no question to ask again", done.stderr)

    def test_retry_draws_anew_and_undo_takes_back(self):
        done, answers = turns(["What is a tree?", {"command": "/retry"}, {"command": "/undo"}, "What is a tree?"],
                              "-n", "16", "--temp", "1.2", "-s", "5")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second, third = answers
        self.assertNotEqual(first["ids"], second["ids"])
        self.assertEqual(first["prompt_tokens"], second["prompt_tokens"])
        self.assertEqual(first["prompt_tokens"], third["prompt_tokens"])


def being_answered():
    """A chat amid an answer of twenty seconds: a Ctrl-C is in time also where this process is late with it.

    Words of the answer have been seen, as a question that is stopped before them is not kept.
    """
    terminal = Terminal("--ignore-eos", "-n", "3000", "--temp", "0", "--prefill", "ref", "--decode", "ref", model=LARGER)
    terminal.send("What is a tree?\r")
    terminal.expect("tree?")
    terminal.match(rb"[A-Za-z]+ [a-z]+ [a-z]+ ")
    return terminal


class Answers(unittest.TestCase):
    def test_interrupt_stops_the_answer_and_typing_is_not_shown_in_it(self):
        terminal = being_answered()
        terminal.send("/system typed ahead\r")
        time.sleep(0.3)
        terminal.send("\x03")
        answer = terminal.expect("[stopped]")
        self.assertNotIn("typed", answer)
        terminal.expect("/system typed ahead")  # now, at the prompt
        terminal.expect("> ")
        self.assertIn("\ntyped ahead\n", terminal.line("/system"))
        shown = terminal.line("/history")
        self.assertIn("user: What is a tree?\nassistant: ", shown)
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_a_paste_with_crlf_into_an_answer_is_several_lines(self):
        terminal = being_answered()
        terminal.send(b"/system \x1b[200~x\r\ny\x1b[201~\r")
        time.sleep(0.3)
        terminal.send("\x03")
        terminal.expect("[stopped]")
        terminal.expect("the system prompt is set")  # at the prompt
        terminal.expect("> ")
        self.assertIn("\nx\ny\n", terminal.line("/system"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_typing_is_not_shown_behind_a_stop_of_the_program_either(self):
        terminal = being_answered()
        os.kill(terminal.pid, signal.SIGSTOP)
        os.waitpid(terminal.pid, os.WUNTRACED)
        os.kill(terminal.pid, signal.SIGCONT)
        time.sleep(0.5)
        terminal.send("/system typed ahead\r")
        time.sleep(0.3)
        terminal.send("\x03")
        self.assertNotIn("typed", terminal.expect("[stopped]"))
        terminal.expect("/system typed ahead")
        terminal.expect("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    @unittest.skipIf("BATON_TEST_SANITIZED" in os.environ, "half a minute of arithmetic")
    def test_a_long_prefill_shows_how_far_it_is(self):
        terminal = Terminal("-n", "2", "--temp", "0", "--prefill", "ref")
        terminal.send(b"\x1b[200~" + b"What is it? " * 600 + b"\x1b[201~\r")
        self.assertRegex(terminal.expect(" left"), r"prefill \d+/3\d{3}, (\d+ min )?\d+ s left$")
        terminal.send("\x03")
        terminal.expect("[stopped]")
        terminal.expect("> ")
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)
        done = chat("-n", "2", "--prefill", "ref", input="What is it? " * 150)
        self.assertEqual((done.returncode, done.stderr), (0, "[stopped after 2 tokens (-n)]\n"))

    def test_the_answer_is_not_prefilled_again(self):
        done, (first, second, third) = turns(["What is a tree?", "And a leaf?", "And a root?"], "-n", "24")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(first["reused_tokens"], 0)
        for before, after in ((first, second), (second, third)):
            said = before["prompt_tokens"] + len(before["ids"])
            # The last token of an answer that -n cut was never processed.
            self.assertEqual(after["reused_tokens"], said - (before["finish_reason"] == "length"))
            self.assertEqual(after["prefill_tokens"], after["prompt_tokens"] - after["reused_tokens"] - 1)
            self.assertIsNone(after["fallback"])

    def test_the_answer_is_the_same_as_without_states(self):
        with tempfile.TemporaryDirectory() as folder:
            file = str(pathlib.Path(folder) / "c")
            done, (first, second) = turns(["What is a tree?", "And a leaf?"], "-n", "24", "--decode", "ref")
            self.assertEqual(done.returncode, 0, done.stderr)
            done, _ = turns(["What is a tree?"], "-n", "24", "--decode", "ref", "--save-state", file)
            os.remove(file)  # the messages alone: all is prefilled again
            done, (cold,) = turns(["And a leaf?"], "-n", "24", "--decode", "ref", "--load-state", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(cold["reused_tokens"], 0)
            self.assertGreater(second["reused_tokens"], 0)
            self.assertEqual(cold["ids"], second["ids"])

    def test_an_answer_that_is_not_the_tokenizers_own_is_kept(self):
        # Drawn hot, answers are rarely made of the tokens that the tokenizer would choose for their text.
        done, answers = turns(["What is a tree?"] * 6, "-n", "24", "--temp", "3", "--top-k", "0", "--top-p", "1",
                              "--min-p", "0", "-s", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        kept = [after["reused_tokens"] >= before["prompt_tokens"] + len(before["ids"]) - 1
                for before, after in zip(answers, answers[1:])]
        self.assertGreaterEqual(sum(kept), 4, answers)

    def test_piped_input_is_one_turn(self):
        done = chat("-n", "8", input="What is\na tree?\n/bye\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), done.stdout.rstrip("\n").count("\n") + 1)
        whole, (answer,) = turns(["What is\na tree?\n/bye"], "-n", "8")
        self.assertEqual(done.stdout.rstrip("\n"), answer["text"].rstrip("\n"))
        self.assertIn("standard input is empty", chat(input="\n").stderr)
        done, _ = turns([["no turn"]])
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard input, line 1", done.stderr)

    def test_penalties_change_the_answer_and_are_shown(self):
        looping, (plain,) = turns(["What is a tree?"], "-n", "60", "--ignore-eos", "--repeat-penalty", "1")
        done, (varied,) = turns(["What is a tree?"], "-n", "60", "--ignore-eos", "--presence-penalty", "90",
                                "--repeat-last-n", "-1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(set(varied["ids"])), 60)  # no token twice
        self.assertLess(len(set(plain["ids"])), 60)
        self.assertEqual(varied["sampling"]["presence_penalty"], 90)
        self.assertEqual(varied["sampling"]["repeat_last_n"], -1)
        self.assertEqual(plain["sampling"]["repeat_penalty"], 1)


class Counts(unittest.TestCase):
    """Tokens used: those that the next question will have in front of it."""

    def used(self, terminal):
        shown = re.search(r"context +(\d+) tokens used, (\d+) left of (\d+)", terminal.line("/show"))
        used, left, whole = map(int, shown.groups())
        self.assertEqual(used + left, whole)
        return used

    def test_undo_and_an_interrupted_prefill_leave_what_is_there(self):
        terminal = Terminal("-n", "12", "--temp", "0", "--prefill", "ref")
        terminal.line("What is a tree?")
        one = self.used(terminal)
        self.assertGreater(one, 12)
        terminal.line("And a leaf?")
        self.assertGreater(self.used(terminal), one)
        terminal.line("/undo")
        self.assertEqual(self.used(terminal), one)
        terminal.send(b"\x1b[200~" + b"What is it? " * 600 + b"\x1b[201~\r")
        time.sleep(0.5)
        terminal.send("\x03")
        terminal.expect("[stopped]")
        terminal.expect("> ")
        self.assertEqual(self.used(terminal), one)
        shown = terminal.line("/history")
        self.assertEqual(shown.count("user:"), 1)
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_a_retry_that_was_stopped_at_once_keeps_the_answer(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = str(pathlib.Path(folder.name) / "c")
        done, _ = turns(["What is it? " * 600], "-n", "8", "--save-state", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        terminal = Terminal("-n", "8", "--temp", "0.5", "--load-state", file, "--prefill", "ref")
        before = terminal.line("/history")
        used = self.used(terminal)
        terminal.line("/system Be brief.")  # so that /retry has all to prefill
        terminal.send("/retry\r")
        terminal.expect("/retry")
        time.sleep(0.5)
        terminal.send("\x03")
        terminal.expect("[stopped]")
        terminal.expect("> ")
        self.assertEqual(terminal.line("/history").split("user:")[1], before.split("user:")[1])
        terminal.line('/system ""')
        self.assertEqual(self.used(terminal), used)
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_a_full_context_holds_no_more_than_it_can(self):
        _, (answer,) = turns(["What is a tree?"], "-c", "60", "--ignore-eos")
        self.assertLessEqual(answer["context_used"], 60)
        done = subprocess.run([PROGRAM, "run", "-m", SMALL, "-c", "60", "--ignore-eos", "--json", "What is a tree?"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(json.loads(done.stdout)["context_used"], 60)

    def test_a_chat_that_does_not_fit_says_so_when_it_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            file = str(pathlib.Path(folder) / "c")
            done, (answer,) = turns(["What is a tree?"], "-n", "80", "--ignore-eos", "--save-state", file)
            done, _ = turns([], "--load-state", file)
            self.assertEqual(done.stderr, f"1 turn from {file}: {answer['context_used']} of 4096 tokens used\n")
            done, _ = turns([], "--load-state", file, "-c", "64")
            self.assertIn("1 turn from", done.stderr)
            self.assertRegex(done.stderr, r"does not fit into the context.*/drop.*or start with -c \d+")


class JsonLines(unittest.TestCase):
    def test_commands_show_on_stderr_and_a_line_without_an_answer_has_an_error(self):
        lines = ["What is a tree?", *({"command": text} for text in ("/show", "/history", "/set", "/system", "/help")),
                 "What is it? " * 30, {"command": "/nix"}, 5, {"command": "/clear"}, "What is a leaf?"]
        done, answers = turns(lines, "-c", "64", "-n", "4")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([sorted(answer.keys() & {"error", "text"}) for answer in answers],
                         [["text"], ["error"], ["error"], ["error"], ["text"]])
        self.assertIn("the context is full", answers[1]["error"])
        self.assertGreater(answers[1]["prompt_tokens"], answers[1]["context_tokens"])
        self.assertIn("no command '/nix'", answers[2]["error"])
        self.assertIn("line 9", answers[3]["error"])
        for words in ("context      ", "user: What is a tree?", "top_k 40", "no system prompt", "/history"):
            self.assertIn(words, done.stderr)
    def test_objects_that_say_nothing_or_two_things_are_errors(self):
        done, answers = turns([{"role": "user"}, {"role": "user", "content": 5}, {"role": "user", "content": "Hi", "command": "/clear"},
                               {"command": 7}, {}, "What is a tree?"], "-n", "4")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(["text" in answer for answer in answers], [False] * 5 + [True])
        for number, answer in enumerate(answers[:5], 1):
            self.assertIn(f"standard input, line {number}: ", answer["error"])

    def test_plain_text_of_a_pipe_is_told_what_a_pipe_can_do(self):
        done = chat("-c", "64", input="What is it? " * 30)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"-c \d+ +a larger context")
        self.assertNotIn("/", done.stderr)


class FullContext(unittest.TestCase):
    def test_what_cannot_help_is_not_offered_and_loses_nothing(self):
        terminal = Terminal("-c", "64", "-n", "4", "--temp", "0")
        terminal.line("Hi")
        shown = terminal.line("Tell me about " + "cats and dogs and " * 30 + "birds")
        self.assertIn("not sent", shown)
        self.assertNotIn("/drop", shown)
        self.assertRegex(terminal.line("/drop"), r"nothing was forgotten: the question does not fit alone, .* or start with -c \d+")
        self.assertIn("user: Hi", terminal.line("/history"))
        self.assertIn("taken back; 0 turns left", terminal.line("/undo"))
        self.assertIn("the system prompt is set", terminal.line("/system Be brief."))
        terminal.send(b"\x1b[200~one\rtwo\r\x1b[201~\r")
        terminal.expect("[stopped after")
        terminal.expect("> ")
        self.assertIn("user: one\ntwo\nassistant:", terminal.line("/history"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_it_is_said_with_what_there_is_and_dropping_goes_on(self):
        terminal = Terminal("-c", "96", "-n", "20", "--temp", "0", "--ignore-eos")
        shown = ""
        for _ in range(6):
            shown = terminal.line("What is a tree, and what is a leaf of a tree?")
            if "not sent" in shown:
                break
        self.assertRegex(shown, r"the conversation has \d+ tokens, the context holds 96; the question was not sent")
        self.assertIn("/clear", shown)
        self.assertRegex(shown, r"-c \d{3} .*this model: up to 4096")
        shown = terminal.line("Go on, and say what grows on it, in all the words that there are, and then some more.")
        self.assertIn("not sent", shown)  # and it stays usable
        promised = re.search(r"/drop .* prefills what is left, (\d+) tokens", shown)[1]
        self.assertGreater(int(promised), 20)
        shown = terminal.line("/drop")
        self.assertRegex(shown, r"forgot 1 of \d+ turns; the next one prefills what is left: "
                         + promised + " tokens")
        self.assertIn("user: Go on, and", terminal.line("/history"))
        terminal.line("/clear")
        self.assertIn("0 tokens used", terminal.line("/show"))
        terminal.line("What is a tree?")
        self.assertIn("user: What is a tree?", terminal.line("/history"))
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_an_answer_that_it_cuts_says_so(self):
        done = chat("-c", "60", "--ignore-eos", input="What is a tree?")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[the context is full (60 tokens): the answer ends here", done.stderr)
        _, (answer,) = turns(["What is a tree?"], "-c", "60", "--ignore-eos")
        self.assertTrue(answer["context_full"])
        self.assertEqual(answer["context_tokens"], 60)
        _, (answer,) = turns(["What is a tree?"], "-n", "5", "--ignore-eos")
        self.assertFalse(answer["context_full"])


class Saved(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = str(pathlib.Path(self.folder.name) / "talk")

    def test_resumed_it_goes_on_as_if_unbroken(self):
        asked = ["What is a tree?", "And a leaf?", "And a root?"]
        done, unbroken = turns(asked, "-n", "24", "--system", "Be brief.")
        self.assertEqual(done.returncode, 0, done.stderr)
        done, before = turns(asked[:2], "-n", "24", "--system", "Be brief.", "--save-state", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in (self.file, self.file + ".json"):
            self.assertEqual(stat.S_IMODE(os.stat(name).st_mode), 0o600)
        done, after = turns(asked[2:], "-n", "24", "--load-state", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([answer["ids"] for answer in before + after], [answer["ids"] for answer in unbroken])
        self.assertEqual(after[0]["reused_tokens"], unbroken[2]["reused_tokens"])
        self.assertGreater(after[0]["reused_tokens"], 0)
        done, loaded = turns([{"command": f"/load {self.file}"}, *asked[2:]], "-n", "24")
        self.assertEqual([answer["ids"] for answer in loaded], [unbroken[2]["ids"]])
        self.assertIn("2 turns from", done.stderr)

    def test_flags_come_before_what_was_saved(self):
        done, _ = turns(["What is a tree?"], "-n", "4", "--system", "Be brief.", "--save-state", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        for flags, wanted in (((), "Be brief."), (("--system", "Be long."), "Be long.")):
            done, _ = turns([{"command": "/system"}], "--load-state", self.file, *flags)
            self.assertIn(wanted, done.stderr)

    def test_a_key_covers_the_messages(self):
        key = self.file + ".key"
        pathlib.Path(key).write_bytes(os.urandom(32))
        os.chmod(key, 0o600)
        done, _ = turns(["What is a tree?"], "-n", "4", "--state-key", key, "--save-state", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        messages = pathlib.Path(self.file + ".json")
        text = messages.read_text()
        saved = json.loads(text)
        longer = [*saved["messages"], {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]
        for change, words in (({"messages": longer}, "MAC"), ({"system": "Lie."}, "MAC"), ({"state": None}, "MAC"),
                              ({"thinking": True}, "MAC"), ({"mac": saved["mac"][:-1]}, "MAC"), ({"mac": ""}, "MAC"),
                              ({"mac": None}, "carries no MAC")):
            messages.write_text(json.dumps({**saved, **change}))
            done, _ = turns(["And?"], "-n", "4", "--state-key", key, "--load-state", self.file)
            self.assertEqual(done.returncode, 1, change)
            self.assertIn(words, done.stderr)
            self.assertIn(str(messages), done.stderr)
        # Spaces are no part of what was said; and what is covered may go on without its state.
        messages.write_text(json.dumps(saved))
        done, (answer,) = turns(["And?"], "-n", "4", "--state-key", key, "--load-state", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(answer["reused_tokens"], 0)
        pathlib.Path(self.file).unlink()
        done, (again,) = turns(["And?"], "-n", "4", "--state-key", key, "--load-state", self.file)
        self.assertEqual((done.returncode, again["text"], again["reused_tokens"]), (0, answer["text"], 0), done.stderr)
        done, _ = turns(["And?"], "-n", "4", "--load-state", self.file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("without that key (--state-key FILE)", done.stderr)

    def test_a_key_covers_the_state(self):
        key, other = self.file + ".key", self.file + ".other"
        for name in (key, other):
            pathlib.Path(name).write_bytes(os.urandom(32))
            os.chmod(name, 0o600)
        terminal = Terminal("-n", "16", "--temp", "0", "--state-key", key)
        terminal.line("What is a tree?")
        self.assertIn(f"saved in {self.file}", terminal.line(f"/save {self.file}"))
        shown = terminal.line("And a leaf?")
        terminal.send("\x04")
        self.assertEqual(terminal.leave(), 0)
        done, (answer,) = turns(["And a leaf?"], "-n", "16", "--load-state", self.file, "--state-key", key)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(answer["reused_tokens"], 0)
        self.assertIn(" ".join(answer["text"].split()), " ".join(shown.split()))
        for arguments, words in (((), "used without that key (--state-key FILE)"), (("--state-key", other), "another key")):
            for load in (("--load-state", self.file), ()):
                lines = ["And a leaf?"] if load else [{"command": f"/load {self.file}"}]
                done, answers = turns(lines, "-n", "16", *load, *arguments)
                self.assertEqual((done.returncode, [list(answer) for answer in answers]), (1, [] if load else [["error"]]), done.stderr)
                self.assertIn(words, done.stderr)
                self.assertIn(self.file, done.stderr)
        done, _ = turns(["What is a tree?"], "-n", "8", "--save-state", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        done, answers = turns(["And a leaf?"], "-n", "8", "--load-state", self.file, "--state-key", key)
        self.assertEqual((done.returncode, answers), (1, []))
        self.assertIn("carries no MAC", done.stderr)

    def test_what_does_not_belong_together_is_refused(self):
        done, _ = turns(["What is a tree?", {"command": f"/save {self.file}"}], "-n", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = pathlib.Path(self.file + ".json").read_text()

        def refused(change, state=None):
            saved = json.loads(text)
            change(saved)
            pathlib.Path(self.file + ".json").write_text(json.dumps(saved))
            done, _ = turns(["More?"], "-n", "8", "--load-state", self.file)
            self.assertEqual(done.returncode, 1)
            return done.stderr

        self.assertIn("another model (", refused(lambda saved: saved.update(model="00")))
        self.assertIn("another template (", refused(lambda saved: saved.update(template="00")))
        self.assertIn("field 'messages'", refused(lambda saved: saved.update(messages=[1])))
        self.assertIn("is not the state that", refused(lambda saved: saved["state"].update(checksum="00")))
        self.assertIn("do not begin the conversation", refused(lambda saved: saved["messages"][0].update(content="Why?")))
        self.assertIn("not a saved chat", refused(lambda saved: saved.update(baton_chat=9)))
        done, _ = turns(["More?"], "--load-state", self.file + ".none")
        self.assertEqual(done.returncode, 1)
        self.assertIn(".none.json", done.stderr)


class Thinking(unittest.TestCase):
    """A template that writes the thinking into the prompt and drops it from the history, as those of thinking models."""
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = thinking_model(pathlib.Path(self.folder.name))

    def ask(self, *arguments, lines=("What is a tree?", "And a leaf?")):
        done, answers = turns(lines, "-n", "12", "--decode", "ref", *arguments, model=str(self.model))
        self.assertEqual(done.returncode, 0, done.stderr)
        return answers

    def test_flags_change_the_prompt(self):
        on, off = self.ask("--think")[0], self.ask("--no-think")[0]
        self.assertGreater(off["prompt_tokens"], on["prompt_tokens"])
        (switched,) = self.ask(lines=[{"command": "/think off"}, "What is a tree?"])
        self.assertEqual(switched["prompt_tokens"], off["prompt_tokens"])

    def test_the_lasting_part_of_the_prompt_is_kept(self):
        first, second = self.ask("--no-think")
        self.assertGreater(second["reused_tokens"], 0)
        self.assertLess(second["reused_tokens"], first["prompt_tokens"])  # what came behind it was written anew
        self.assertGreater(second["reused_tokens"], first["prompt_tokens"] - 16)

    def test_a_template_without_a_switch_is_said(self):
        done, _ = turns(["What is a tree?"], "-n", "2", "--no-think")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("has no switch for thinking: --no-think changes nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
