#!/usr/bin/env python3
"""The page at "/" in a headless browser: against a stub, and against the program where it serves.

usage: page_test.py [PROGRAM]   (then unittest's own options)
Skipped (77) without a browser: scripts/fetch_playwright.sh.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from page_browser import ROOT, BrowserTest
from page_stub import SHOWN, Script

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.isfile(sys.argv[1]) else None
REFUSED = "Failed to load resource"  # what the browser says itself of an answer that is an error


def file_of(download):
    return pathlib.Path(download.value.path()).read_text()


class Chat(BrowserTest):
    def test_an_answer_streams(self):
        self.script(Script("One two three four. " * 20, gap=0.01))
        self.send("Count.")
        self.page.wait_for_selector("#stop:visible")
        self.until("document.querySelector('.turn.assistant .what > .text').textContent.length > 20")
        self.assertLess(len(self.last_text()), 300)
        self.answered()
        self.assertEqual(self.last_text().strip(), ("One two three four. " * 20).strip())
        body = self.stub.bodies[0]
        self.assertEqual(body, {"model": "stub-28m", "messages": [{"role": "user", "content": "Count."}], "stream": True,
                                "stream_options": {"include_usage": True}})
        self.assertEqual(self.page.title(), "Count. - baton")

    def test_what_an_answer_took(self):
        turn = self.ask("Hello")
        turn.locator(".plate .strip i").first.wait_for(state="attached")
        text = turn.locator(".plate summary").inner_text()
        for part in ("TTFT", "tok/s", "tokens 5 + 3", "state 4.2 MiB", "energy", "(emulated)", "emulated", "bridge proven"):
            self.assertIn(part, text.replace("\n", " "))
        turn.locator(".plate summary").click()
        for part in ("prefill unit", "on ref (emulated)", "move", "ref -> cpu", "4.2", "hidden ms"):
            self.assertIn(part, turn.locator(".plate .facts").first.inner_text())

    def test_it_is_kept(self):
        self.ask("Keep this.")
        self.page.reload()
        self.page.wait_for_selector(".turn.assistant")
        self.assertEqual(self.last_text(), "An answer.")
        self.assertEqual(self.page.locator("#chats button").count(), 1)
        self.assertIn("Keep this.", self.page.input_value("#title"))

    def test_history_goes_with_the_next_question(self):
        self.script(Script("One.", reasoning="Hm."), Script("Two."))
        self.ask("First")
        self.ask("Second")
        self.assertEqual([each["content"] for each in self.stub.bodies[1]["messages"]], ["First", "One.", "Second"])
        self.assertEqual(set(self.stub.bodies[1]["messages"][1]), {"role", "content"})

    def test_stop(self):
        for how in (lambda: self.page.press("#prompt", "Escape"), lambda: self.page.click("#stop")):
            self.script(Script("word " * 400, gap=0.02))
            gone = self.stub.gone
            self.send("Go on and on.")
            self.until("document.querySelector('.turn.assistant:last-child .what > .text').textContent.length > 10")
            how()
            self.answered()
            self.assertIn("stopped", self.page.locator(".turn.assistant").last.inner_text())
            self.assertTrue(self.last_text().startswith("word"))
            self.page.wait_for_timeout(300)
            self.assertEqual(self.stub.gone, gone + 1)

    def test_regenerate_keeps_both(self):
        self.script(Script("The first."), Script("The second."))
        self.ask("Say.")
        self.page.get_by_label("Regenerate this answer").click()
        self.page.wait_for_selector("text=The second.")
        self.answered()
        self.assertEqual(len(self.stub.bodies[1]["messages"]), 1)
        self.assertEqual(self.page.get_by_label("Version 2 of 2").count(), 1)
        self.page.get_by_label("The version before").click()
        self.assertEqual(self.last_text(), "The first.")
        self.page.get_by_label("The next version").click()
        self.assertEqual(self.last_text(), "The second.")

    def test_edit_a_question(self):
        self.script(Script("A"), Script("B"), Script("C"))
        self.ask("one")
        self.ask("two")
        self.page.locator(".turn.user").first.get_by_label("Edit this message").click()
        field = self.page.get_by_label("Edited message")
        self.assertEqual(field.input_value(), "one")
        field.fill("uno")
        field.press("Enter")
        self.until("document.querySelectorAll('.turn').length === 2")
        self.answered()
        self.assertEqual([each["content"] for each in self.stub.bodies[2]["messages"]], ["uno"])
        self.page.get_by_label("The version before").first.click()
        self.assertEqual(self.page.locator(".turn").count(), 4)
        self.assertEqual(self.last_text(), "B")

    def test_edit_an_answer_and_cancel(self):
        self.ask("one")
        self.page.locator(".turn.assistant").get_by_label("Edit this message").click()
        self.page.get_by_label("Edited message").press("Escape")
        self.assertEqual(self.last_text(), "An answer.")
        self.page.locator(".turn.assistant").get_by_label("Edit this message").click()
        self.page.get_by_label("Edited message").fill("Mine.")
        self.page.get_by_role("button", name="Save").click()
        self.assertEqual(self.last_text(), "Mine.")
        self.assertEqual(len(self.stub.bodies), 1)
        self.ask("two")
        self.assertEqual(self.stub.bodies[1]["messages"][1]["content"], "Mine.")

    def test_reasoning_is_folded(self):
        self.script(Script("Yes.", reasoning="First **this**, then that."))
        turn = self.ask("Think.")
        self.assertEqual(self.last_text(), "Yes.")
        self.assertFalse(turn.locator("details.thinking").evaluate("(element) => element.open"))
        turn.locator("details.thinking summary").click()
        self.assertEqual(turn.locator(".thinking strong").inner_text(), "this")

    def test_tool_calls_and_their_results(self):
        self.script(Script("", calls=[("weather", '{"city": "Oslo"}'), ("clock", "{}")]), Script("Cold."))
        turn = self.ask("How is it in Oslo?")
        self.assertIn("calls weather", turn.inner_text())
        self.assertIn('"city": "Oslo"', turn.locator(".call pre").first.inner_text())
        self.page.get_by_label("Result of weather").fill("-4 C")
        self.page.get_by_label("Result of clock").fill("noon")
        self.page.get_by_role("button", name="Send the results").click()
        self.page.wait_for_selector("text=Cold.")
        self.answered()
        sent = self.stub.bodies[1]["messages"]
        self.assertEqual(sent[1]["tool_calls"][0]["function"], {"name": "weather", "arguments": '{"city": "Oslo"}'})
        self.assertEqual(sent[2:], [{"role": "tool", "tool_call_id": "call_0", "content": "-4 C"},
                                    {"role": "tool", "tool_call_id": "call_1", "content": "noon"}])

    def test_another_conversation_while_one_answers(self):
        self.script(Script("slow " * 60, gap=0.02), Script("Quick."))
        self.send("Slow one")
        self.page.wait_for_selector("#stop:visible")
        self.page.click("#new-chat")
        self.ask("Quick one")
        self.assertEqual(self.last_text(), "Quick.")
        self.until("!document.querySelector('#chats').textContent.includes('answering')")
        self.page.locator("#chats button", has_text="Slow one").click()
        self.assertEqual(self.last_text().strip(), ("slow " * 60).strip())

    def test_settings_go_into_the_request(self):
        self.page.click("#settings-toggle")
        for label, value in {"System prompt": "Be brief.", "Temperature": "0.7", "Top p": "0.9", "Top k": "40", "Min p": "0.05",
                             "Most tokens": "99", "Seed": "7", "Repetition penalty": "1.1", "Presence penalty": "-1",
                             "Frequency penalty": "0.5", "Stop at": "END\n###",
                             "Further fields": '{"response_format": {"type": "json_object"}}'}.items():
            self.page.get_by_label(label, exact=True).fill(value)
        self.page.get_by_label("Reasoning").select_option("off")
        self.page.select_option("#model", "stub-3m")
        self.ask("Go")
        body = self.stub.bodies[0]
        self.assertEqual(body.pop("messages"), [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go"}])
        self.assertEqual(body, {
            "model": "stub-3m", "stream": True, "stream_options": {"include_usage": True}, "temperature": .7, "top_p": .9, "top_k": 40,
            "min_p": .05, "max_tokens": 99, "seed": 7, "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": .5,
            "stop": ["END", "###"], "chat_template_kwargs": {"enable_thinking": False}, "response_format": {"type": "json_object"}})

    def test_models_that_make_vectors_are_not_offered(self):
        options = "() => [...document.getElementById('model').options].map((each) => each.value)"
        self.assertEqual(self.page.evaluate(options), ["stub-28m", "stub-3m"])
        self.stub.models = []
        page = self.open_page(ready=False)
        page.wait_for_selector("#notice:visible")
        self.assertIn("no model that writes", page.locator("#notice").inner_text())

    def test_a_setting_that_cannot_be_sent(self):
        self.page.click("#settings-toggle")
        for label, value, word in (("Temperature", "hot", "number"), ("Temperature", "9", "from 0 to 2"), ("Top k", "1.5", "whole"),
                                   ("Further fields", "{", "JSON"), ("Further fields", "[]", "object"),
                                   ("Further fields", '{"stream": false}', "stream"), ("Stop at", "1\n2\n3\n4\n5", "four")):
            with self.subTest(label=label, value=value):
                field = self.page.get_by_label(label, exact=True)
                field.fill(value)
                self.send("Go")
                self.assertEqual(field.get_attribute("aria-invalid"), "true")
                self.assertTrue(field.evaluate("(element) => element === document.activeElement"))
                self.assertIn(word, self.page.locator(f"#{field.get_attribute('id')}-note").inner_text())
                self.assertIn(label, self.page.locator("#notice").inner_text())
                self.assertEqual(self.page.input_value("#prompt"), "Go")
                field.fill("")
        self.assertEqual(self.stub.bodies, [])

    def test_hostile_answers_and_questions(self):
        text = "<img src=x onerror='window.hacked=1'>\n\n<script>window.hacked=1</script> [x](javascript:window.hacked=1) **b**"
        self.script(Script(text, reasoning=text, calls=[(text, json.dumps({"a": text}))]))
        self.ask(text)
        self.page.fill("#title", text)
        self.page.wait_for_timeout(200)
        self.assertIsNone(self.page.evaluate("window.hacked ?? null"))
        self.assertEqual(self.page.locator("#log img, #log script, #log a, #chats img").count(), 0)
        self.assertIn("<script>window.hacked=1</script>", self.last_text())
        # The policy would stop one, too.
        self.expected = ("Content Security Policy", "TrustedHTML", "TrustedScript")
        self.page.evaluate("""() => { const script = document.createElement('script'); try { script.text = 'window.hacked = 2'; }
          catch {} document.body.append(script); try { document.body.insertAdjacentHTML('beforeend', '<b id=bad>'); } catch {} }""")
        self.assertIsNone(self.page.evaluate("window.hacked ?? null"))
        self.assertEqual(self.page.locator("#bad").count(), 0)


class Errors(BrowserTest):
    def problem(self):
        problem = self.page.locator(".problem").last
        problem.wait_for()
        return problem.inner_text()

    def test_an_error_is_shown_as_it_is_and_tried_again(self):
        error = {"error": {"message": "the queue of this model is full", "type": "overloaded_error", "param": None, "code": "queue_full"}}
        self.expected = (REFUSED,)
        self.script(Script(status=503, error=error, headers=[("Retry-After", "2")]), Script("Now."))
        self.send("Go")
        text = self.problem()
        for part in ("the queue of this model is full", "503", "overloaded_error", "queue_full", "2 s"):
            self.assertIn(part, text)
        self.assertNotIn("param", text)
        self.page.get_by_role("button", name="Try again").click()
        self.page.wait_for_selector("text=Now.")
        self.answered()
        self.assertEqual(self.page.locator(".problem").count(), 0)
        self.assertEqual(self.page.locator(".turn").count(), 2)
        self.assertEqual(len(self.stub.bodies[1]["messages"]), 1)

    def test_what_is_no_json(self):
        self.expected = (REFUSED,)
        self.script(Script(status=502, error=b"<html><b>Bad gateway</b></html>"))
        self.send("Go")
        self.assertIn("<html><b>Bad gateway</b></html>", self.problem())

    def test_an_error_in_a_stream_keeps_what_came(self):
        self.script(Script("Half of an answer that breaks", break_after=3), Script("Whole."))
        self.send("Go")
        self.assertIn("a unit failed at this request", self.problem())
        self.assertIn("Half of an", self.last_text())
        self.page.get_by_role("button", name="Try again").click()
        self.page.wait_for_selector("text=Whole.")
        self.assertEqual(self.page.get_by_label("Version 2 of 2").count(), 1)

    def test_a_stream_that_is_cut(self):
        self.script(Script("Half of an answer that breaks", break_after=3, cut=True))
        self.send("Go")
        self.assertIn("without a finish_reason", self.problem())

    def test_no_server(self):
        self.expected = (REFUSED, "ERR_")
        self.ask("Go")
        self.stub.stop()
        self.send("Again")
        self.assertIn("Is the server running?", self.problem())

    def test_a_key(self):
        self.expected = (REFUSED,)
        self.stub.key = "sk-secret"
        page = self.open_page(ready=False)
        page.wait_for_selector("#notice:visible")
        self.assertIn("needs a key", page.locator("#notice").inner_text())
        page.get_by_label("API key").fill("sk-secret")
        page.get_by_label("API key").press("Tab")
        page.wait_for_selector("#model option", state="attached")
        self.ask("Go", page)
        self.assertEqual(page.evaluate("Object.values(localStorage).join().includes('sk-secret')"), False)
        with page.expect_download() as download:
            page.click("#export-all")
        self.assertNotIn("sk-secret", file_of(download))
        page.reload()
        page.wait_for_selector("#model option", state="attached")
        page.get_by_label("keep it in this browser").check()
        self.assertEqual(page.evaluate("localStorage.getItem('baton.key')"), "sk-secret")
        page.get_by_label("keep it in this browser").uncheck()
        self.assertIsNone(page.evaluate("localStorage.getItem('baton.key')"))

    def test_a_full_storage(self):
        self.page.evaluate("""() => {
          let block = "x".repeat(1 << 20);
          for (let i = 0; block.length > 0; ++i) {
            try { localStorage.setItem(`other${i}`, block); } catch { block = block.slice(0, block.length >> 1); }
          }
        }""")
        self.ask("Go")
        self.assertIn("storage is full", self.page.locator("#notice").inner_text())
        self.assertEqual(self.last_text(), "An answer.")
        self.page.click("#new-chat")
        self.page.locator("#chats button", has_text="Go").click()
        self.assertEqual(self.last_text(), "An answer.")
        with self.page.expect_download() as download:
            self.page.click("#export-json")
        self.assertIn("An answer.", file_of(download))
        self.page.evaluate("() => Object.keys(localStorage).filter((key) => key.startsWith('other')).forEach((key) => localStorage.removeItem(key))")
        self.ask("More")
        self.until("document.querySelector('#notice').hidden")

    def test_a_damaged_storage(self):
        self.ask("Go")
        for damage in ("{", "null", "5", "[]", '[null, {"id": 1}, {"id": "x", "title": "gone", "updated": 1}]', '{"settings": [1]}'):
            with self.subTest(damage=damage):
                self.page.evaluate("""(damage) => { for (const key of Object.keys(localStorage)) localStorage.setItem(key, damage); }""",
                                   damage)
                self.page.reload()
                self.page.wait_for_selector("#model option", state="attached")
                self.ask("Go on")
                self.assertEqual(self.last_text(), "An answer.")
        self.page.evaluate("() => localStorage.setItem('baton.index', '[{\"id\": \"x\", \"title\": \"gone\", \"updated\": 1}]')")
        self.page.reload()
        self.page.locator("#chats button", has_text="gone").click()
        self.assertIn("cannot be read", self.page.locator("#notice").inner_text())

    def test_a_browser_that_keeps_nothing(self):
        context = self.browser.new_context()
        self.addCleanup(context.close)
        context.add_init_script("""Object.defineProperty(window, "localStorage", { get() { throw new DOMException("no", "SecurityError"); } });
          Object.defineProperty(window, "sessionStorage", { get() { throw new DOMException("no", "SecurityError"); } });""")
        page = self.watch(context.new_page())
        page.goto(self.stub.url)
        page.wait_for_selector("#model option", state="attached")
        self.ask("Go", page)
        self.assertEqual(self.last_text(page), "An answer.")
        self.assertIn("SecurityError", page.locator("#notice").inner_text())


class Files(BrowserTest):
    def test_export_and_import(self):
        self.script(Script(SHOWN, reasoning="Because."), Script("Two."))
        self.ask("First")
        self.ask("Second")
        with self.page.expect_download() as download:
            self.page.click("#export-json")
        self.assertEqual(download.value.suggested_filename, "First.json")
        text = file_of(download)
        kept = json.loads(text)["conversations"]
        self.assertEqual(sorted(each["role"] for each in kept[0]["messages"].values()), ["assistant", "assistant", "user", "user"])
        with self.page.expect_download() as download:
            self.page.click("#export-md")
        markdown = file_of(download)
        for part in ("# First", "## You\n\nFirst", "> Because.", "| prefill | arithmetic | `ref` |", "## stub-28m\n\nTwo."):
            self.assertIn(part, markdown)

        other = self.open_page()
        files = {"name": "chats.json", "mimeType": "application/json", "buffer": text.encode()}
        other.set_input_files("#import-file", files)
        other.wait_for_selector(".turn.assistant")
        self.assertEqual(self.last_text(other), "Two.")
        other.set_input_files("#import-file", files)  # once more: another conversation, nothing is written over
        self.until("document.querySelectorAll('#chats button').length === 2", other)
        other.set_input_files("#import-file", {**files, "buffer": b"{}"})
        other.wait_for_selector("#notice:visible")
        self.assertIn("chats.json was not imported", other.locator("#notice").inner_text())

    def test_rename_find_and_delete(self):
        self.ask("First")
        self.page.fill("#title", "About ferns")
        self.page.click("#new-chat")
        self.ask("Second")
        self.page.fill("#find", "fern")
        self.assertEqual(self.page.locator("#chats button").count(), 1)
        self.page.locator("#chats button").click()
        self.page.click("#delete-chat")
        self.page.get_by_role("button", name="Keep").click()
        self.assertEqual(self.page.locator(".turn").count(), 2)
        self.page.click("#delete-chat")
        self.page.locator("#ask").get_by_role("button", name="Delete").click()
        self.page.fill("#find", "")
        self.assertEqual(self.page.locator("#chats button").all_inner_texts()[0].split("\n")[0], "Second")
        self.assertEqual(self.page.locator(".turn").count(), 0)
        self.assertFalse(self.page.evaluate("Object.values(localStorage).join().includes('ferns')"))


class Program(BrowserTest):
    """The page as the program serves it, with a model."""

    def setUp(self):
        if PROGRAM is None or subprocess.run([PROGRAM, "serve", "--help"], capture_output=True).returncode != 0:
            self.skipTest("the program does not serve")
        super().setUp()
        model = ROOT / "tests" / "data" / "golden" / "dictionary-3m"
        self.server = subprocess.Popen([PROGRAM, "serve", "-m", model, "--port", "0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.wait, 60)
        self.addCleanup(self.server.terminate)
        self.url = None
        for line in self.server.stdout:
            found = re.search(r"http://[\d.]+:\d+", line)
            if found:
                self.url = found[0]
                break
        self.assertIsNotNone(self.url, "it did not say where it listens")
        self.page = self.open_page(self.url)

    def test_an_answer_and_its_figures(self):
        turn = self.ask("What is a fern?")
        self.assertNotEqual(self.last_text().strip(), "")
        self.assertIn("tokens", turn.locator(".plate summary").inner_text())
        turn.locator(".plate .strip .c-decode").wait_for(state="attached")
        self.page.click("#as-table")
        self.page.wait_for_selector("#requests tbody tr")
        row = self.page.locator("#requests tbody tr").first.inner_text()
        self.assertIn("dictionary-3m", row)
        self.page.get_by_label("Regenerate this answer").click()
        self.answered()
        self.page.click("#settings-toggle")
        self.page.click("#server summary")
        self.page.wait_for_selector("#props dl")

    def test_stop_and_a_refused_setting(self):
        self.expected = (REFUSED,)
        self.page.click("#settings-toggle")
        self.page.get_by_label("Further fields").fill('{"no_such_field": 1}')
        self.send("Go")
        self.page.wait_for_selector(".problem")
        self.assertIn("no_such_field", self.page.locator(".problem").inner_text())


if __name__ == "__main__":
    unittest.main()
