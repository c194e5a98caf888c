#!/usr/bin/env python3
"""`baton serve` from outside: answers equal to `run`'s, streamed or not, alone or among others; bounds; drain.

usage: serve_test.py PROGRAM   (then unittest's own options)
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
WORDS = ("fern", "tree", "water", "stone", "bird", "river", "letter", "engine", "salt", "king", "iron", "cloud", "ship",
         "glass", "bread", "wool")


class Server:
    """A running `baton serve` on a free port; ended with its scope."""

    def __init__(self, *flags, model=MODEL):
        command = [PROGRAM, "serve", "-m", model, "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on https?://[^:]+:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise AssertionError("".join(self.log))
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body as JSON or text)"""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            text = answer.read()
            kind = answer.getheader("content-type", "")
            return answer.status, dict(answer.getheaders()), json.loads(text) if "json" in kind else text.decode()
        finally:
            connection.close()

    def chat(self, text, **body):
        return self.ask("POST", "/v1/chat/completions", chat(text, **body))

    def stop(self, number=signal.SIGTERM, timeout=30):
        self.process.send_signal(number)
        return self.process.wait(timeout)


def chat(text, **body):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, "temperature": 0, **body}


def events_of(text):
    found = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert found[-1] == "[DONE]", found[-1:]
    return [json.loads(line) for line in found[:-1]]


def streamed_text(text):
    return "".join(choice["delta"].get("content") or "" for event in events_of(text) for choice in event["choices"])


def run(text):
    done = subprocess.run([PROGRAM, "run", "-m", MODEL, "--json", "-n", "24", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", "16")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_equal_to_run_alone_and_among_others(self):
        questions = [f"What is a {word}?" for word in WORDS]
        expected = [run(question) for question in questions[:4]]
        for question, text in zip(questions, expected):
            status, _, body = self.server.chat(question)
            self.assertEqual(status, 200, body)
            self.assertEqual(body["choices"][0]["message"]["content"], text)
            status, headers, stream = self.server.chat(question, stream=True)
            self.assertEqual((status, headers["content-type"]), (200, "text/event-stream"))
            self.assertEqual(streamed_text(stream), text)
        found = [None] * len(questions)

        def ask(number):
            stream = number % 2 == 0
            body = self.server.chat(questions[number], stream=stream)[2]
            found[number] = streamed_text(body) if stream else body["choices"][0]["message"]["content"]
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(questions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found[:4], expected)
        self.assertTrue(all(found))

    def test_form_of_a_whole_answer(self):
        _, _, body = self.server.chat("What is a fern?")
        self.assertRegex(body["id"], r"^chatcmpl-[0-9a-zA-Z]{24}$")
        self.assertEqual((body["object"], body["model"]), ("chat.completion", "dictionary-3m.Q8_0.gguf"))
        self.assertEqual(set(body["usage"]), {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details",
                                              "completion_tokens_details"})
        self.assertIn(body["choices"][0]["finish_reason"], ("stop", "length"))
        self.assertEqual(body["baton"]["decode"]["unit_ran"], "cpu")
        self.assertEqual(body["baton"]["joules"], "unknown")

    def test_form_of_a_stream(self):
        _, _, stream = self.server.chat("What is a fern?", stream=True, stream_options={"include_usage": True})
        events = events_of(stream)
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertTrue(all(event["object"] == "chat.completion.chunk" for event in events))
        self.assertEqual(len({event["id"] for event in events}), 1)
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-2]["choices"][0]["delta"], {})
        self.assertIn(events[-2]["choices"][0]["finish_reason"], ("stop", "length"))
        self.assertTrue(all(event["usage"] is None for event in events[:-1]))
        self.assertGreater(events[-1]["usage"]["completion_tokens"], 0)

    def test_choices_and_seeds(self):
        asked = {"n": 3, "temperature": 1.5, "seed": 7, "top_k": 0, "top_p": 1, "min_p": 0}
        first, second = (self.server.chat("Tell me of birds.", **asked)[2]["choices"] for _ in range(2))
        texts = [choice["message"]["content"] for choice in first]
        self.assertEqual([choice["index"] for choice in first], [0, 1, 2])
        self.assertEqual(texts, [choice["message"]["content"] for choice in second])
        self.assertGreater(len(set(texts)), 1)
        alone = self.server.chat("Tell me of birds.", **{**asked, "n": 1, "seed": 8})[2]["choices"][0]["message"]["content"]
        self.assertEqual(alone, texts[1])

    def test_prefixes_are_reused(self):
        system = {"role": "system", "content": "Answer as a dictionary would, in few words, without examples. " * 12}
        cached = []
        for word in ("fern", "tree"):
            messages = [system, {"role": "user", "content": f"What is a {word}?"}]
            body = self.server.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 4})[2]
            cached.append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertGreaterEqual(cached[1], 64)

    def test_completions(self):
        asked = {"prompt": "A fern is", "max_tokens": 8, "temperature": 0}
        status, _, body = self.server.ask("POST", "/v1/completions", asked)
        self.assertEqual(status, 200, body)
        text = body["choices"][0]["text"]
        stream = self.server.ask("POST", "/v1/completions", {**asked, "stream": True})[2]
        self.assertEqual("".join(event["choices"][0]["text"] for event in events_of(stream)), text)
        echoed = self.server.ask("POST", "/v1/completions", {**asked, "echo": True})[2]
        self.assertEqual(echoed["choices"][0]["text"], "A fern is" + text)
        ids = self.server.ask("POST", "/tokenize", {"prompt": "A fern is"})[2]["tokens"]
        by_ids = self.server.ask("POST", "/v1/completions", {**asked, "prompt": ids})[2]
        self.assertEqual(by_ids["choices"][0]["text"], text)

    def test_several_prompts_are_answered_as_each_alone(self):
        asked = {"max_tokens": 6, "temperature": 1.2, "seed": 5, "n": 2, "logprobs": 0, "echo": True}
        prompts = ["A fern is", self.server.ask("POST", "/tokenize", {"prompt": "The tree"})[2]["tokens"], "A fern is"]
        status, _, body = self.server.ask("POST", "/v1/completions", {**asked, "prompt": prompts})
        self.assertEqual(status, 200, body)
        alone = [self.server.ask("POST", "/v1/completions", {**asked, "prompt": prompt})[2] for prompt in prompts]
        expected = [choice for one in alone for choice in one["choices"]]
        self.assertEqual([choice["index"] for choice in body["choices"]], list(range(6)))
        for choice, other in zip(body["choices"], expected):
            self.assertEqual({**choice, "index": 0}, {**other, "index": 0})
        for count in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(body["usage"][count], sum(one["usage"][count] for one in alone))
        texts = [""] * 3
        stream = self.server.ask("POST", "/v1/completions",
                                 {"prompt": prompts, "max_tokens": 6, "temperature": 0, "stream": True})[2]
        for choice in (choice for event in events_of(stream) for choice in event["choices"]):
            texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, [self.server.ask("POST", "/v1/completions", {
            "prompt": prompt, "max_tokens": 6, "temperature": 0})[2]["choices"][0]["text"] for prompt in prompts])
        for prompt, word in (([["a"]], "prompt"), (["a", []], "prompt"), (["a"] * 65, "prompt"), (["a", [10**6]], "prompt"),
                             (["a", "b" * 100_000], "prompt[1]")):
            refused = self.server.ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1})
            self.assertEqual((refused[0], refused[2]["error"]["param"]), (400, word))

    def test_logprobs_of_prompt_and_answer(self):
        asked = {"prompt": "A fern is a plant", "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": True}
        body = self.server.ask("POST", "/v1/completions", asked)[2]
        found = body["choices"][0]["logprobs"]
        self.assertEqual("".join(found["tokens"]), body["choices"][0]["text"])
        self.assertIsNone(found["token_logprobs"][0])
        self.assertTrue(all(value <= 0 for value in found["token_logprobs"][1:]))
        self.assertEqual(len(found["tokens"]), body["usage"]["prompt_tokens"] + 3)
        self.assertTrue(all(2 <= len(top) <= 3 for top in found["top_logprobs"][1:]))
        _, _, whole = self.server.chat("What is a fern?", logprobs=True, top_logprobs=2, max_tokens=5)
        content = whole["choices"][0]["logprobs"]["content"]
        self.assertEqual("".join(token["token"] for token in content), whole["choices"][0]["message"]["content"])
        self.assertTrue(all(token["logprob"] == token["top_logprobs"][0]["logprob"] for token in content))

    def test_forms_of_answers(self):
        schema = {"type": "object", "properties": {"kind": {"enum": ["plant", "animal"]}, "tall": {"type": "boolean"}},
                  "required": ["kind", "tall"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": schema}}
        for extra in ({}, {"n": 3, "temperature": 1.8, "seed": 3}, {"stream": True}):
            status, _, body = self.server.chat("What is a fern?", response_format=form, max_tokens=60, **extra)
            self.assertEqual(status, 200, body)
            if "stream" in extra:
                texts = [streamed_text(body)]
            else:  # white space may take all the room
                texts = [choice["message"]["content"] for choice in body["choices"] if choice["finish_reason"] == "stop"]
            self.assertTrue(texts)
            for text in texts:
                found = json.loads(text)
                self.assertIn(found["kind"], ("plant", "animal"))
                self.assertIsInstance(found["tall"], bool)
        body = self.server.chat("Is it?", regex="(yes|no), (Anna|Otto)")[2]
        self.assertRegex(body["choices"][0]["message"]["content"], r"^(yes|no), (Anna|Otto)$")
        body = self.server.chat("Is it?", grammar='root ::= "a" [bc]{3}')[2]
        self.assertRegex(body["choices"][0]["message"]["content"], r"^a[bc]{3}$")
        for field, value in (("regex", "(a"), ("grammar", "root ::= x"), ("response_format", {"type": "json_schema"}),
                             ("response_format", {"type": "xml"})):
            status, _, body = self.server.chat("hi", **{field: value})
            self.assertEqual((status, body["error"]["param"].split(".")[0]), (400, field), body)

    def test_stop_strings_and_ids(self):
        text = self.server.chat("What is a fern?")[2]["choices"][0]["message"]["content"]
        word = text.split()[2]
        body = self.server.chat("What is a fern?", stop=["no such text", word])[2]["choices"][0]
        self.assertEqual((body["message"]["content"], body["finish_reason"]), (text[:text.index(word)], "stop"))
        ids = self.server.ask("POST", "/tokenize", {"content": text})[2]["tokens"]
        body = self.server.chat("What is a fern?", stop_token_ids=[ids[3]])[2]["choices"][0]
        self.assertTrue(text.startswith(body["message"]["content"]))
        self.assertLess(len(body["message"]["content"]), len(text))
        banned = self.server.chat("What is a fern?", logit_bias={str(ids[1]): -100})[2]["choices"][0]
        self.assertNotEqual(banned["message"]["content"], text)

    def test_other_interfaces_say_the_same(self):
        text = self.server.chat("What is a fern?")[2]["choices"][0]["message"]["content"]
        messages = chat("What is a fern?")["messages"]
        body = self.server.ask("POST", "/v1/messages", {"model": "dictionary-3m.Q8_0.gguf", "messages": messages,
                                                        "max_tokens": 24, "temperature": 0})[2]
        self.assertEqual(body["content"][0]["text"], text, body)
        body = self.server.ask("POST", "/v1/responses", {"input": "What is a fern?", "max_output_tokens": 24, "temperature": 0})[2]
        self.assertEqual(body["output"][-1]["content"][0]["text"], text, body)
        body = self.server.ask("POST", "/api/chat", {"model": "dictionary-3m.Q8_0.gguf", "messages": messages, "stream": False,
                                                     "options": {"num_predict": 24, "temperature": 0}})[2]
        self.assertEqual(body["message"]["content"], text, body)

    def test_errors_of_anthropics_interface_have_the_requests_id(self):
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            status, headers, body = self.server.ask("POST", path, {"messages": []}, {"x-request-id": "mine-1"})
            self.assertEqual((status, body["type"], body["request_id"]), (400, "error", "mine-1"), body)
            self.assertEqual({name.lower(): value for name, value in headers.items()}["x-request-id"], "mine-1")

    def test_tokens_there_and_back(self):
        status, _, body = self.server.ask("POST", "/tokenize", {"content": "hello w\u00f6rld"})
        self.assertEqual((status, body["count"]), (200, len(body["tokens"])))
        back = self.server.ask("POST", "/detokenize", {"tokens": body["tokens"]})[2]
        self.assertEqual(back["content"], "hello w\u00f6rld")
        prompt = self.server.ask("POST", "/apply-template", {"messages": chat("hi")["messages"]})[2]["prompt"]
        self.assertIn("hi", prompt)

    def test_tokens_as_pieces_and_as_the_vocabulary_has_them(self):
        def tokens(**body):
            status, _, answer = self.server.ask("POST", "/tokenize", body)
            self.assertEqual(status, 200, answer)
            return answer
        plain = tokens(content="hello w\u00f6rld")["tokens"]
        pieces = tokens(content="hello w\u00f6rld", with_pieces=True)["tokens"]
        self.assertEqual([piece["id"] for piece in pieces], plain)
        whole = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
        self.assertEqual(whole.decode().strip(), "hello w\u00f6rld")
        strings = tokens(prompt="A fern", return_token_strs=True)
        self.assertEqual(len(strings["token_strs"]), strings["count"])
        self.assertNotIn("token_strs", tokens(prompt="A fern"))

    def test_fields_of_the_text_side_are_followed_or_refused(self):
        messages = chat("hi")["messages"]
        tool = {"type": "function", "function": {"name": "f"}}
        for path, body, field in (("/tokenize", {"content": "a", "nonsense": 1}, "nonsense"),
                                  ("/tokenize", {"content": "a", "prompt": "b"}, "prompt"),
                                  ("/tokenize", {"content": "a", "messages": messages}, "content"),
                                  ("/tokenize", {"content": "a", "with_pieces": 1}, "with_pieces"),
                                  ("/tokenize", {"content": "a", "add_special_tokens": True}, "add_special_tokens"),
                                  ("/tokenize", {"messages": messages, "nonsense": 1}, "nonsense"),
                                  ("/tokenize", {}, "prompt"),
                                  ("/tokenize", {"content": 5}, "content"),
                                  ("/detokenize", {"tokens": [1], "nonsense": 1}, "nonsense"),
                                  ("/apply-template", {"messages": messages, "nonsense": 1}, "nonsense"),
                                  ("/apply-template", {"messages": messages, "tools": [tool]}, "tools"),
                                  ("/apply-template", {"messages": messages, "add_generation_prompt": 1},
                                   "add_generation_prompt")):
            status, _, answer = self.server.ask("POST", path, body)
            self.assertEqual((status, answer["error"]["param"]), (400, field), (path, body, answer))

    def test_what_is_said_of_the_server(self):
        self.assertEqual(self.server.ask("GET", "/health")[2], {"status": "ok"})
        self.assertEqual(self.server.ask("GET", "/ready")[0], 200)
        models = self.server.ask("GET", "/v1/models")[2]["data"]
        self.assertEqual([model["id"] for model in models], ["dictionary-3m.Q8_0.gguf"])
        self.assertEqual(models[0]["type"], "model")
        self.assertTrue(models[0]["display_name"])
        self.assertRegex(models[0]["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(self.server.ask("GET", "/api/tags")[2]["models"][0]["digest"], r"^[0-9a-f]{64}$")
        self.assertEqual(self.server.ask("GET", "/v1/models/dictionary-3m.Q8_0.gguf")[2]["object"], "model")
        self.server.chat("hi")
        metrics = self.server.ask("GET", "/metrics")[2]
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:time_to_first_token_seconds_bucket",
                     "vllm:generation_tokens_total", "baton_bridge_seconds_count"):
            self.assertIn(name, metrics)
        self.assertEqual(len(self.server.ask("GET", "/slots")[2]), 16)
        props = self.server.ask("GET", "/props")[2]
        self.assertNotIn(str(ROOT), json.dumps(props))
        document = self.server.ask("GET", "/openapi.json")[2]
        self.assertEqual(document, json.loads((ROOT / "docs" / "openapi.json").read_text()))
        shown = subprocess.run([PROGRAM, "ps", "--url", f"http://127.0.0.1:{self.server.port}"], capture_output=True, text=True)
        self.assertIn("running  0 of 16", shown.stdout, shown.stderr)
        shown = subprocess.run([PROGRAM, "ps", "--url", f"https://127.0.0.1:{self.server.port}"], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 2)
        self.assertIn("http://HOST:PORT", shown.stderr)

    def test_timeline(self):
        self.server.chat("What is a timeline?")
        snapshot = self.server.ask("GET", "/v1/timeline?once=1")[2]
        last = [event for event in snapshot["events"] if event["request"] == snapshot["events"][-1]["request"]]
        self.assertEqual([event["event"] for event in last if event["event"] != "tokens"], ["queued", "prefill", "decode", "done"])
        done = last[-1]
        names = [phase["name"] for phase in done["phases"]]
        self.assertEqual((names[-1], "prefill" in names), ("decode", True))
        for before, after in zip(done["phases"], done["phases"][1:]):
            self.assertLessEqual(before["end_ms"], after["start_ms"] + 0.01)
        self.assertGreater(done["state_bytes"], 0)

    def test_bad_bodies(self):
        deep = "[" * 200 + "]" * 200
        cases = [
            ("", None), ("[]", None), ("{", None), ("null", None), ("\ufeff{}", None),
            (b'{"messages": [{"role": "user", "content": "\xff"}]}', None),
            ('{"messages": %s}' % deep, None),
            ('{"messages": [], "messages": []}', None),
            ('{"messages": [{"role": "user", "content": "a\\u0000b"}]}', None),
            ('{"messages": [{"role": "user", "content": "\\ud800"}]}', None),
            (chat("hi", temperature=-1), "temperature"), (chat("hi", temperature="warm"), "temperature"),
            ('{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}', None),
            (chat("hi", max_tokens=0), "max_tokens"), (chat("hi", max_tokens=-1), "max_tokens"),
            (chat("hi", max_tokens=2**63), "max_tokens"), (chat("hi", max_tokens="5"), "max_tokens"),
            (chat("hi", n=0), "n"), (chat("hi", n=10**9), "n"), (chat("hi", best_of=2), "best_of"),
            (chat("hi", top_p=2), "top_p"), (chat("hi", top_k=-5), "top_k"), (chat("hi", seed=2**70), "seed"),
            (chat("hi", stop=[""]), "stop"), (chat("hi", stop=["x"] * 1000), "stop"), (chat("hi", stop="y" * 2**20), "stop"),
            (chat("hi", logit_bias={"999999999": 1}), "logit_bias"), (chat("hi", logit_bias={"5": 1e38}), "logit_bias"),
            (chat("hi", logit_bias={"x": 1}), "logit_bias"), (chat("hi", top_logprobs=10**6, logprobs=True), "top_logprobs"),
            (chat("hi", top_logprobs=2), "top_logprobs"), (chat("hi", stream="yes"), "stream"),
            (chat("hi", stream_options={"include_usage": True}), "stream_options"),
            (chat("hi", no_such_field=1), "no_such_field"), (chat("hi", chat_template="{{ x }}"), "chat_template"),
            ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({}, "messages"),
            ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}}]}]},
             "messages[0].content[0]"),
            (chat("x" * 100_000), "messages"),
        ]
        for body, param in cases:
            start = time.monotonic()
            status, _, answer = self.server.ask("POST", "/v1/chat/completions",
                                                body.encode() if isinstance(body, str) else body)
            self.assertEqual(status, 400, str(body)[:80])
            self.assertEqual(answer["error"]["param"], param, answer)
            self.assertNotIn(str(ROOT), json.dumps(answer))
            self.assertLess(time.monotonic() - start, 5)
        for model in ("../../x", "http://a/b", "x" * 500, "CON"):
            status, _, answer = self.server.chat("hi", model=model)
            self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"), model[:20])
        for ids in ([-1], [10**6], ["a", 1], [1.5]):
            status, _, answer = self.server.ask("POST", "/v1/completions", {"prompt": ids})
            self.assertEqual((status, answer["error"]["param"]), (400, "prompt"))

    def test_names_of_other_sites(self):
        for host, status in (("evil.example", 403), (f"evil.example:{self.server.port}", 403), ("localhost", 200),
                             (f"127.0.0.1:{self.server.port}", 200), ("[::1]", 200)):
            answer = self.server.ask("GET", "/v1/models", headers={"Host": host, "Origin": "http://" + host})
            self.assertEqual(answer[0], status, host)
        self.assertEqual(self.server.ask("GET", "/v1/models", headers={"Host": "evil.example"})[2]["error"]["code"],
                         "foreign_host")
        self.assertEqual(self.server.ask("GET", "/health", headers={"Host": "evil.example"})[0], 200)
        with Server("--allow-host", "box.example") as server:
            self.assertEqual(server.ask("GET", "/v1/models", headers={"Host": "Box.example:80"})[0], 200)
            self.assertEqual(server.ask("GET", "/v1/models", headers={"Host": "evil.example"})[0], 403)

    def test_paths_and_methods(self):
        self.assertEqual(self.server.ask("GET", "/nothing")[0], 404)
        self.assertEqual(self.server.ask("GET", "/v1/chat/completions")[0], 405)
        self.assertIsInstance(self.server.ask("POST", "/api/nothing", {})[2]["error"], str)
        self.assertEqual(self.server.ask("GET", "/v1/messages/nothing")[2]["type"], "error")
        self.assertEqual(self.server.ask("GET", "/v1/routes?prompt=1")[2]["error"]["param"], "prompt")
        self.assertEqual(self.server.ask("POST", "/v1/chat/completions", chat("hi"), {"Content-Encoding": "gzip"})[0], 415)
        self.assertEqual(self.server.ask("POST", "/v1/chat/completions", chat("hi"), {"Origin": "http://evil.example"})[0], 403)

    def test_a_client_that_leaves_frees_its_sequence(self):
        connection = self.server.connect()
        connection.request("POST", "/v1/chat/completions", json.dumps(chat("Count.", stream=True, max_tokens=3000, ignore_eos=True)))
        connection.getresponse().read(200)
        self.assertGreaterEqual(self.usage()["running"], 1)
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        end = time.monotonic() + 3
        while time.monotonic() < end and (self.usage()["running"] or self.usage()["state_bytes"]):
            time.sleep(0.02)
        self.assertEqual((self.usage()["running"], self.usage()["state_bytes"]), (0, 0))

    def usage(self):
        return self.server.ask("GET", "/props")[2]["usage"]


class Bounds(unittest.TestCase):
    def test_more_than_the_queue_holds_is_refused_at_once(self):
        with Server("--parallel", "1", "--queue", "2") as server:
            statuses, waits = [], []

            def ask():
                start = time.monotonic()
                status, headers, _ = server.chat("Count.", max_tokens=400, ignore_eos=True)
                statuses.append(status)
                if status == 429:
                    waits.append(time.monotonic() - start)
                    self.assertIn("retry-after", {name.lower() for name in headers})
            threads = [threading.Thread(target=ask) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(set(statuses), {200, 429})
            self.assertGreaterEqual(statuses.count(200), 3)
            self.assertLess(max(waits), 2)
            # What cannot be read does not wait behind what runs.
            self.assertEqual(server.chat("hi")[0], 200)

    def test_streams_that_wait_hold_no_thread(self):
        count = 400
        with Server("--parallel", "1", "--queue", "16384") as server:
            def ask(**body):
                data = json.dumps(chat("Count.", stream=True, **body)).encode()
                connection = socket.create_connection(("127.0.0.1", server.port))
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
                return connection

            def waiting():
                return server.ask("GET", "/props")[2]["usage"]["waiting"]

            def until(number):
                end = time.monotonic() + 30
                while waiting() != number and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertEqual(waiting(), number)
            runs = ask(max_tokens=3900, ignore_eos=True)
            runs.recv(10)
            tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
            before = len(list(tasks.iterdir())) if tasks.exists() else 0
            connections = [ask(max_tokens=1) for _ in range(count)]
            until(count)
            self.assertEqual(len(list(tasks.iterdir())) if tasks.exists() else 0, before)
            self.assertIn(b"200", connections[-1].recv(100))
            for connection in connections:
                connection.close()
            until(0)
            runs.close()

    def test_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "keys")
            import hashlib
            path.write_text("# keys\nplain-key weight=2 name=one\nsha256:" + hashlib.sha256(b"hashed-key").hexdigest() + "\n")
            with Server("--api-key-file", str(path)) as server:
                self.assertEqual(server.ask("GET", "/health")[0], 200)
                self.assertEqual(server.chat("hi")[0], 401)
                for key, status in (("plain-key", 200), ("hashed-key", 200), ("plain", 401), ("x" * 10_000, 401)):
                    body = chat("hi", max_tokens=2)
                    answer = server.ask("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})
                    self.assertEqual(answer[0], status, key[:20])
                self.assertEqual(server.ask("GET", "/v1/models", None, {"x-api-key": "hashed-key"})[0], 200)
                ps = [PROGRAM, "ps", "--url", f"http://127.0.0.1:{server.port}"]
                path.write_text("hashed-key weight=2\n")
                shown = subprocess.run([*ps, "--api-key-file", path], capture_output=True, text=True)
                self.assertEqual((shown.returncode, "running" in shown.stdout), (0, True), shown.stderr)
                shown = subprocess.run(ps, capture_output=True, text=True)
                self.assertEqual(shown.returncode, 1)
                self.assertIn("--api-key-file FILE", shown.stderr)
                self.assertNotIn("{", shown.stderr)


class Drain(unittest.TestCase):
    def test_what_runs_is_finished(self):
        with Server("--parallel", "1", "--drain-seconds", "600") as server:
            found = {}

            def ask(name, **body):
                found[name] = server.chat("Count.", **body)
            first = threading.Thread(target=ask, args=("runs",), kwargs={"max_tokens": 3900, "ignore_eos": True})

            def until(what, count):
                while first.is_alive() and server.ask("GET", "/props")[2]["usage"][what] != count:
                    time.sleep(0.01)
            first.start()
            until("running", 1)
            second = threading.Thread(target=ask, args=("waits",))
            second.start()
            until("waiting", 1)
            code = server.stop(timeout=600)
            first.join()
            second.join()
            self.assertEqual(code, 0)
            self.assertEqual(found["runs"][0], 200)
            self.assertEqual(found["runs"][2]["usage"]["completion_tokens"], 3900)
            self.assertEqual(found["waits"][0], 503)

    def test_what_runs_too_long_is_cut_off(self):
        with Server("--parallel", "1", "--drain-seconds", "0") as server:
            connection = server.connect()
            connection.request("POST", "/v1/chat/completions", json.dumps(chat("Count.", stream=True, max_tokens=3000, ignore_eos=True)))
            answer = connection.getresponse()
            answer.read(100)
            start = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - start, 10)
            rest = answer.read().decode()
            self.assertIn("shutting down", rest)
            self.assertNotIn("[DONE]", rest)
            connection.close()

    def test_states_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            system = {"role": "system", "content": "Answer as a dictionary would, in few words. " * 12}
            cached = []
            for _ in range(2):
                with Server("--state-cache", folder) as server:
                    body = {"messages": [system, {"role": "user", "content": "What is a fern?"}], "max_tokens": 4}
                    answer = server.ask("POST", "/v1/chat/completions", body)[2]
                    cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
                    self.assertEqual(server.stop(), 0)
            self.assertEqual(cached[0], 0)
            self.assertGreaterEqual(cached[1], 64)

    def test_states_outlive_a_kill(self):
        with tempfile.TemporaryDirectory() as folder:
            system = {"role": "system", "content": "Answer as a dictionary would, in few words. " * 150}
            turns = [system, {"role": "user", "content": "What is a fern?"}]
            with Server("--state-cache", folder) as server:
                answer = server.ask("POST", "/v1/chat/completions", {"messages": turns, "max_tokens": 4})[2]
                first = answer["id"]
                turns += [answer["choices"][0]["message"], {"role": "user", "content": "And a moss?"}]
                end = time.monotonic() + 30
                while not any(found.stat().st_size > 4096 for found in pathlib.Path(folder).rglob("*.state")):
                    self.assertLess(time.monotonic(), end, "no state was stored")
                    time.sleep(0.05)
                server.process.kill()
                server.process.wait()
            with Server("--state-cache", folder) as server:
                answer = server.ask("POST", "/v1/chat/completions", {"messages": turns, "max_tokens": 4})[2]
            self.assertGreaterEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 1024)
            self.assertNotEqual(answer["id"], first)


if __name__ == "__main__":
    unittest.main()
