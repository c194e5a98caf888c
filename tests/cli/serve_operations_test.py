#!/usr/bin/env python3
"""`baton serve` as a service: its access log, traces, pages of other sites, limits of keys, and who starts it.

usage: serve_operations_test.py PROGRAM   (then unittest's own options)
"""
import json
import os
import pathlib
import plistlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from serve_test import MODEL, PROGRAM, ROOT, Server, chat

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def lines_of(path, count, seconds=20):
    """The log's lines as JSON, once there are so many."""
    end = time.monotonic() + seconds
    while True:
        lines = pathlib.Path(path).read_text().splitlines() if pathlib.Path(path).exists() else []
        if len(lines) >= count or time.monotonic() > end:
            assert len(lines) == count, lines
            return [json.loads(line) for line in lines]
        time.sleep(0.02)


def small(headers):
    return {name.lower(): value for name, value in headers.items()}


def raw(port, request):
    """All that is answered until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(request)
        found = b""
        while True:
            more = connection.recv(65536)
            if not more:
                return found.decode()
            found += more


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Units(unittest.TestCase):
    def test_one_that_is_emulated_is_named(self):
        with Server("--prefill", "cuda:driver=emulated", "--decode", "cpu") as server:
            said = [line for line in server.log if "is emulated: its times" in line]
            self.assertEqual(len(said), 1, server.log)
            self.assertIn("cuda", said[0])
        with Server("--prefill", "ref", "--decode", "cpu") as server:
            self.assertFalse(any("is emulated: its times" in line for line in server.log), server.log)

    # Everything that is said of a model whose unit is emulated, and of its answers, carries the word.
    def said_of(self, server, log):
        self.assertEqual(server.chat("What is a fern?", max_tokens=3)[0], 200)
        name = server.ask("GET", "/v1/models")[2]["data"][0]["id"]
        timeline = server.ask("GET", "/v1/timeline?once=1")[2]
        told = {"props": server.ask("GET", "/props")[2]["models"][0],
                "models": server.ask("GET", "/v1/models")[2]["data"][0],
                "model": server.ask("GET", f"/v1/models/{name}")[2],
                "tags": server.ask("GET", "/api/tags")[2]["models"][0],
                "ps": server.ask("GET", "/api/ps")[2]["models"][0],
                "show": server.ask("POST", "/api/show", {"model": name})[2],
                "timeline": timeline["models"][0]}
        events = {event["event"]: event["emulated"] for event in timeline["events"] if "emulated" in event}
        line = next(line for line in lines_of(log, 9) if line["path"] == "/v1/chat/completions")
        return told, events, line, server.ask("GET", "/metrics")[2], server.ask("GET", "/v1/routes")[2]

    def test_emulated_figures_carry_the_word(self):
        for flags, emulated in ((("--prefill", "cuda:driver=emulated"), ["cuda"]),
                                (("--prefill", "ane:device=emulator"), ["ane"]), (("--prefill", "ref"), None)):
            with self.subTest(flags), tempfile.TemporaryDirectory() as folder:
                log = pathlib.Path(folder) / "log"
                with Server(*flags, "--decode", "cpu", "--access-log", str(log), "--access-log-format", "json") as server:
                    told, events, line, metrics, routes = self.said_of(server, log)
                    shown = subprocess.run([PROGRAM, "ps", "--url", f"http://127.0.0.1:{server.port}"], capture_output=True,
                                           text=True, timeout=60).stdout
                is_so = emulated is not None
                unit = emulated[0] if is_so else "ref"
                self.assertEqual({what: of.get("emulated_units") for what, of in told.items()}, dict.fromkeys(told, emulated))
                self.assertEqual(events, {"prefill": is_so, "decode": is_so, "done": is_so})
                self.assertEqual((line["prefill_unit"], line["emulated"]), (unit, is_so))
                self.assertEqual({each["name"]: each["emulated"] for each in routes["units"]}, {unit: is_so, "cpu": False})
                self.assertIn(f"prefill {unit} (emulated), decode cpu," if is_so else "prefill ref, decode cpu,", shown)
                label = 'emulated="true"'
                for series in ("vllm:time_to_first_token_seconds_sum{", "vllm:request_prefill_time_seconds_count{",
                               "vllm:prompt_tokens_total{", "baton_bridge_seconds_count{", "baton_state_bytes{", "baton_model_bytes{"):
                    lines = [line for line in metrics.splitlines() if line.startswith(series)]
                    self.assertEqual([label in line for line in lines], [is_so], lines)
                for phase, of, word in (("prefill", unit, str(is_so).lower()), ("decode", "cpu", "false")):
                    self.assertRegex(metrics, rf'baton_unit_info{{model_name="[^"]*",phase="{phase}",unit="{of}",emulated="{word}"}} 1\n')

    # By --dispatch some requests run on an emulated unit, and others do not.
    def test_answers_without_an_emulated_unit_are_counted_apart(self):
        with Server("--prefill", "cuda:driver=emulated", "--decode", "cpu") as server:
            server.ask("POST", "/v1/completions", {"prompt": [5], "max_tokens": 2})  # nothing to prefill
            self.assertEqual(server.chat("What is a fern?", max_tokens=2)[0], 200)
            lines = [line for line in server.ask("GET", "/metrics")[2].splitlines() if line.startswith("vllm:e2e_request_latency_seconds_count")]
        self.assertEqual(sorted(('emulated="true"' in line, line[-2:]) for line in lines), [(False, " 1"), (True, " 1")])

    def test_the_file_of_flags_names_it_too(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "baton.toml"
            file.write_text(f'[[models]]\nname = "m"\npath = "{MODEL}"\nprefill = "cuda:driver=emulated"\n')
            checked = subprocess.run([PROGRAM, "serve", "--config", str(file), "--check-config"], capture_output=True, text=True,
                                     timeout=60)
        self.assertIn(", cuda (emulated) -> cpu,", checked.stdout)

    def test_what_was_asked_for_has_its_options(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with Server("--prefill", "ane:device=emulator,cache=" + folder.name, "--decode", "cpu:threads=1,kernels=scalar") as server:
            answer = server.chat("What is a fern?", max_tokens=3)[2]["baton"]
            routes = server.ask("GET", "/v1/routes")[2]
            last = pathlib.Path(folder.name).name  # no folder of the machine
            asked = (f"ane:cache={last},device=emulator", "cpu:kernels=scalar,threads=1")
            self.assertEqual((answer["prefill"]["unit_asked"], answer["decode"]["unit_asked"]), asked)
            self.assertEqual((answer["prefill"]["unit_ran"], answer["decode"]["unit_ran"]), ("ane", "cpu"))
            self.assertEqual((routes["asked"]["prefill"], routes["asked"]["decode"]), asked)
            self.assertEqual({unit["name"]: unit["asked"] for unit in routes["units"]}, {"ane": asked[0], "cpu": asked[1]})
            self.assertTrue(routes["routes"][0]["chosen"])
            # Which of them is best is what this machine has measured.
            self.assertIn(("ane", "cpu"), [(route["prefill"], route["decode"]) for route in routes["routes"]])
            known = {unit["name"]: unit for unit in routes["units"]}
            self.assertEqual(known["ane"]["prefill_tokens"]["from"], "emulated", "what was learned is of this unit")

    def test_memory_of_devices(self):
        for flags, on_device in ((("--decode", "cuda:driver=emulated"), "all"),
                                 (("--prefill", "cuda:driver=emulated", "--decode", "cpu"), "some"), (("--decode", "cpu"), "none")):
            with self.subTest(flags), Server(*flags) as server:
                self.assertEqual(server.chat("What is a fern?", max_tokens=2)[0], 200)
                shown = server.ask("GET", "/api/ps")[2]["models"][0]
                weights = pathlib.Path(MODEL).stat().st_size
                if on_device == "none":
                    self.assertEqual(shown["size_vram"], 0)
                    self.assertGreater(shown["size"], weights // 2)
                    continue
                self.assertGreater(shown["size_vram"], weights // 2)
                self.assertEqual(shown["emulated_units"], ["cuda"])
                self.assertEqual(shown["size"] == shown["size_vram"], on_device == "all", shown)
                self.assertGreaterEqual(shown["size"], shown["size_vram"])


class AccessLog(WithFolder):
    def serve(self, *flags):
        self.log = self.folder / "access.log"
        return Server("--access-log", str(self.log), "--access-log-format", "json", *flags)

    def test_a_line_of_each_request(self):
        with self.serve() as server:
            status, headers, body = server.ask("POST", "/v1/chat/completions", chat("What is a fern?", max_tokens=5),
                                               {"X-Request-Id": 'mine"\\1', "traceparent": PARENT, "tracestate": "a=1"})
            self.assertEqual(status, 200)
            headers = small(headers)
            self.assertEqual(headers["x-request-id"], 'mine"\\1')
            found = re.fullmatch(rf"00-{TRACE}-([0-9a-f]{{16}})-01", headers["traceresponse"])
            line = lines_of(self.log, 1)[0]
            self.assertEqual((line["status"], line["method"], line["path"]), (200, "POST", "/v1/chat/completions"))
            self.assertEqual((line["request_id"], line["trace_id"], line["span_id"]), ('mine"\\1', TRACE, found[1]))
            self.assertEqual((line["parent_id"], line["tracestate"]), ("b7ad6b7169203331", "a=1"))
            self.assertEqual(line["answer_id"], body["id"].split("-")[1])
            self.assertEqual((line["prompt_tokens"], line["answer_tokens"]),
                             (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]))
            self.assertEqual((line["finish"], line["prefill_unit"], line["decode_unit"], line["whole"]),
                             (body["choices"][0]["finish_reason"], "cpu", "cpu", True))
            self.assertGreater(line["bytes"], len(json.dumps(body["choices"])))
            self.assertGreater(line["ms"], line["ttft_ms"])
            self.assertGreaterEqual(line["ttft_ms"], line["queue_ms"])
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertRegex(line["client"], r"^127\.0\.0\.1:\d+$")
            self.assertNotIn("fern", self.log.read_text())
            queued = [event for event in server.ask("GET", "/v1/timeline?once=1")[2]["events"] if event["event"] == "queued"]
            self.assertEqual((queued[0]["request_id"], queued[0]["trace_id"]), ('mine"\\1', TRACE))
            metrics = server.ask("GET", "/metrics")[2]
            self.assertIn("baton_access_log_lines_total ", metrics)
            self.assertIn("baton_access_log_dropped_lines_total 0\n", metrics)

    def test_what_was_refused(self):
        with self.serve() as server:
            server.chat("hi", temperature=-1)
            server.ask("GET", "/nothing?key=SECRET")
            server.ask("PUT", "/v1/models")
            answer = raw(server.port, b"GET /bad HTTP/1.1\r\n\r\n")
            self.assertIn("X-Request-Id: ", answer)
            raw(server.port, b"GET /a%20status=200%22 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\ntraceparent: x\r\n\r\n")
            lines = lines_of(self.log, 5)
            # Each when it has ended: not in the order they came.
            self.assertEqual(sorted((line["status"], line.get("path", "")) for line in lines),
                             [(400, ""), (400, "/v1/chat/completions"), (404, '/a status=200"'), (404, "/nothing"),
                              (405, "/v1/models")])
            self.assertIn([line["request_id"] for line in lines if "path" not in line][0], answer)
            self.assertFalse(any("trace_id" in line for line in lines))
            self.assertNotIn("SECRET", self.log.read_text())

    def test_a_stream_that_was_cut(self):
        with self.serve("--parallel", "1") as server:
            data = json.dumps(chat("Count.", stream=True, max_tokens=3900, ignore_eos=True)).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data)
            runs = socket.create_connection(("127.0.0.1", server.port))
            runs.sendall(head + data)
            runs.recv(10)
            time.sleep(0.3)
            waits = socket.create_connection(("127.0.0.1", server.port))
            waits.sendall(head + data)
            waits.recv(10)
            for connection in (waits, runs):
                connection.close()
            lines = lines_of(self.log, 2)
            self.assertEqual({(line["status"], line["finish"], line["whole"]) for line in lines}, {(200, "cancelled", False)})
            self.assertEqual(sorted("decode_unit" in line for line in lines), [False, True])
            self.assertGreater(max(line.get("answer_tokens", 0) for line in lines), 0)

    def test_a_listener_that_leaves(self):
        with self.serve() as server:
            listener = socket.create_connection(("127.0.0.1", server.port))
            listener.sendall(b"GET /v1/timeline HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"200", listener.recv(100))
            listener.close()
            line = lines_of(self.log, 1)[0]  # at once, not with the next event
            self.assertEqual((line["path"], line["status"], line["whole"]), ("/v1/timeline", 200, False))

    def test_prompts_only_where_asked(self):
        with self.serve("--access-log-prompts") as server:
            server.chat("What is a fern? " * 300, max_tokens=1)
            line = lines_of(self.log, 1)[0]
            self.assertIn("What is a fern?", line["prompt"])
            self.assertLess(len(line["prompt"]), 2100)
            self.assertTrue(line["prompt"].endswith("..."))
        done = subprocess.run([PROGRAM, "serve", "--access-log-prompts"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--access-log-prompts goes with --access-log", done.stderr)

    def test_stderr_as_text_and_a_file_that_cannot_be(self):
        with Server("--access-log", "-") as server:
            server.ask("GET", "/health")
            end = time.monotonic() + 10
            while not any("path=/health status=200" in line for line in server.log) and time.monotonic() < end:
                time.sleep(0.02)
            self.assertTrue(any(re.match(r"time=\S+ request_id=\S+ client=\S+ method=GET path=/health status=200 bytes=\d+ ", line)
                                for line in server.log), server.log)
        done = subprocess.run([PROGRAM, "serve", "--access-log", "/no/such/folder/log"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/such/folder", done.stderr)


class Ids(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def test_ids_are_there_always(self):
        for method, path, given in (("GET", "/health", None), ("GET", "/nothing", "a-1"), ("POST", "/v1/chat/completions", "b-2"),
                                    ("GET", "/health", "x" * 129), ("GET", "/health", "a b")):
            headers = small(self.server.ask(method, path, None, {"X-Request-Id": given} if given else {})[1])
            usable = given and len(given) <= 128 and " " not in given
            self.assertEqual(headers["x-request-id"] == given, bool(usable), headers)

    def test_a_traceparent_that_is_none_is_ignored(self):
        for value in ("", "00", PARENT.upper(), "ff" + PARENT[2:], f"00-{'0' * 32}-b7ad6b7169203331-01", PARENT + "-x"):
            status, headers, _ = self.server.ask("GET", "/health", None, {"traceparent": value})
            self.assertEqual((status, "traceresponse" in small(headers)), (200, False), value)
        self.assertIn("traceresponse", small(self.server.ask("GET", "/nothing", None, {"traceparent": PARENT})[1]))

    def test_head(self):
        for path in ("/", "/health", "/v1/models", "/metrics", "/openapi.json", "/v1/timeline?once=1"):
            request = f"{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            head, body = raw(self.server.port, f"HEAD {request}".encode()).split("\r\n\r\n", 1)
            self.assertTrue(head.startswith("HTTP/1.1 200"), head)
            self.assertEqual(body, "")
            if path not in ("/metrics", "/v1/timeline?once=1"):  # these change
                whole = raw(self.server.port, f"GET {request}".encode()).split("\r\n\r\n", 1)[1]
                self.assertIn(f"\r\nContent-Length: {len(whole.encode())}\r\n", head + "\r\n")
        answer = raw(self.server.port, b"HEAD /v1/timeline HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertTrue(answer.startswith("HTTP/1.1 200") and answer.endswith("\r\n\r\n"), answer)
        answer = raw(self.server.port, b"HEAD /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertTrue(answer.startswith("HTTP/1.1 405"), answer)
        self.assertIn("\r\nAllow: POST\r\n", answer)


class OtherSites(unittest.TestCase):
    PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}

    def ask(self, server, origin, **more):
        return server.ask("POST", "/v1/chat/completions", chat("hi", max_tokens=1, **more), {"Origin": origin} if origin else {})

    def test_off_by_default(self):
        with Server() as server:
            for origin in ("https://a.example", "null"):
                status, headers, body = self.ask(server, origin)
                self.assertEqual((status, body["error"]["code"]), (403, "foreign_origin"))
                self.assertFalse([name for name in small(headers) if name.startswith("access-control")])
            status, headers, _ = server.ask("OPTIONS", "/v1/chat/completions", None, {"Origin": "https://a.example", **self.PREFLIGHT})
            self.assertEqual((status, small(headers)["allow"]), (405, "POST"))
            self.assertEqual(self.ask(server, f"http://127.0.0.1:{server.port}")[0], 200)

    def test_those_that_are_named(self):
        with Server("--cors", "https://a.example", "--cors", "http://localhost:3000") as server:
            for origin in ("https://a.example", "http://localhost:3000"):
                status, headers, _ = server.ask("OPTIONS", "/v1/chat/completions", None, {"Origin": origin, **self.PREFLIGHT})
                headers = small(headers)
                self.assertEqual(status, 204)
                self.assertEqual(headers["access-control-allow-origin"], origin)
                self.assertEqual(headers["access-control-allow-methods"], "POST")
                self.assertEqual(headers["access-control-allow-headers"], "authorization,x-stainless-os")
                for more in ({}, {"stream": True}, {"temperature": -1}):
                    status, headers, _ = self.ask(server, origin, **more)
                    headers = small(headers)
                    self.assertEqual(status, 400 if "temperature" in more else 200)
                    self.assertEqual((headers["access-control-allow-origin"], headers["vary"]), (origin, "Origin"))
            for origin in ("https://b.example", "https://a.example:1", "null"):
                status, headers, _ = self.ask(server, origin)
                self.assertEqual((status, small(headers)["vary"]), (403, "Origin"))
                self.assertNotIn("access-control-allow-origin", small(headers))
                self.assertEqual(server.ask("OPTIONS", "/v1/chat/completions", None, {"Origin": origin, **self.PREFLIGHT})[0], 405)
            self.assertEqual(small(self.ask(server, None)[1])["vary"], "Origin")
            self.assertEqual(server.ask("OPTIONS", "/nothing", None, {"Origin": "https://a.example", **self.PREFLIGHT})[0], 404)

    def test_all_with_a_warning(self):
        with Server("--cors", "*") as server:
            for origin in ("https://any.example", "null"):
                status, headers, _ = self.ask(server, origin)
                self.assertEqual((status, small(headers)["access-control-allow-origin"]), (200, "*"))
            self.assertTrue(any("--cors *" in line for line in server.log), server.log)

    def test_what_is_no_origin(self):
        for origin in ("https://a.example/", "a.example", "https://*.a.example"):
            done = subprocess.run([PROGRAM, "serve", "--cors", origin], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is no origin", done.stderr)


class LimitsOfKeys(WithFolder):
    def test_requests_and_tokens(self):
        keys = self.folder / "keys"
        keys.write_text("many name=many requests_per_minute=2\nfew name=few tokens_per_minute=30\nfree\n")
        with Server("--api-key-file", str(keys), "--access-log", str(self.folder / "log"), "--access-log-format", "json") as server:
            def ask(key, **more):
                status, headers, body = server.ask("POST", "/v1/chat/completions", chat("What is a fern?", **more),
                                                   {"Authorization": f"Bearer {key}"})
                return status, small(headers), body
            for left in ("1", "0"):
                status, headers, _ = ask("many", max_tokens=1)
                self.assertEqual((status, headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]),
                                 (200, "2", left))
            status, headers, body = ask("many", max_tokens=1)
            self.assertEqual((status, body["error"]["code"]), (429, "rate_limit_exceeded"))
            self.assertLessEqual(int(headers["retry-after"]), 30)
            self.assertGreaterEqual(int(headers["retry-after"]), 20)
            self.assertLessEqual(int(headers["retry-after-ms"]), 1000 * int(headers["retry-after"]))
            self.assertRegex(headers["x-ratelimit-reset-requests"], r"^(1m)?\d+(\.\d+)?s$")
            # What only looks is not counted.
            self.assertEqual(server.ask("GET", "/v1/models", None, {"x-api-key": "many"})[0], 200)
            status, headers, body = ask("few", max_tokens=24, ignore_eos=True, stream=True)
            self.assertEqual((status, headers["x-ratelimit-remaining-tokens"]), (200, "30"))
            status, headers, body = ask("few")
            self.assertEqual((status, body["error"]["code"]), (429, "rate_limit_exceeded"), body)
            self.assertIn("30 tokens in a minute", body["error"]["message"])
            status, headers, _ = ask("free", max_tokens=1)
            self.assertEqual(status, 200)
            self.assertFalse([name for name in headers if name.startswith("x-ratelimit")])
            lines = lines_of(self.folder / "log", 7)
            self.assertEqual(sorted((line["key"], line["status"]) for line in lines),
                             [("few", 200), ("few", 429), ("key3", 200), ("many", 200), ("many", 200), ("many", 200), ("many", 429)])
            self.assertIn('baton_requests_refused_total{reason="key_limit"} 2', server.ask("GET", "/metrics", None, {"x-api-key": "free"})[2])

    def test_vectors_are_counted_too(self):
        keys = self.folder / "keys"
        keys.write_text("few tokens_per_minute=4\nother\n")
        log = self.folder / "log"
        with Server("--embed", MODEL, "--api-key-file", str(keys), "--access-log", str(log), "--access-log-format", "json") as server:
            asked = {"input": "A fern is a plant without flowers."}
            status, _, body = server.ask("POST", "/v1/embeddings", asked, {"x-api-key": "few"})
            self.assertEqual(status, 200, body)
            status, _, refused = server.ask("POST", "/v1/embeddings", asked, {"x-api-key": "few"})
            self.assertEqual((status, refused["error"]["code"]), (429, "rate_limit_exceeded"), refused)
            line = [line for line in lines_of(log, 2) if line["status"] == 200][0]
            self.assertEqual((line["model"], line["prompt_tokens"]), (body["model"], body["usage"]["prompt_tokens"]))

    def test_running_at_once(self):
        keys = self.folder / "keys"
        keys.write_text("one running=1 waiting=1\nother\n")
        with Server("--api-key-file", str(keys), "--parallel", "4") as server:
            def begin(key):
                data = json.dumps(chat("Count.", stream=True, max_tokens=3900, ignore_eos=True)).encode()
                connection = socket.create_connection(("127.0.0.1", server.port), 20)
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: %s\r\nContent-Length: %d\r\n\r\n"
                                   % (key, len(data)) + data)
                return connection

            def usage():
                return server.ask("GET", "/props", None, {"x-api-key": "other"})[2]["usage"]

            def until(running, waiting):
                end = time.monotonic() + 20
                while (usage()["running"], usage()["waiting"]) != (running, waiting) and time.monotonic() < end:
                    time.sleep(0.02)
                self.assertEqual((usage()["running"], usage()["waiting"]), (running, waiting))
            first = begin(b"one")
            until(1, 0)
            second = begin(b"one")
            until(1, 1)
            self.assertIn(b"HTTP/1.1 200", second.recv(100))  # it waits, and its client is held
            status, _, body = server.ask("POST", "/v1/chat/completions", chat("hi"), {"x-api-key": "one"})
            self.assertEqual((status, body["error"]["code"]), (429, "rate_limit_exceeded"), body)
            third = begin(b"other")
            until(2, 1)
            first.close()
            until(2, 0)
            for connection in (second, third):
                connection.close()
            until(0, 0)

    def test_lines_that_are_wrong(self):
        keys = self.folder / "keys"
        keys.write_text("good\nsecret requests_per_minute=0\n")
        done = subprocess.run([PROGRAM, "serve", "--api-key-file", str(keys)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("line 2: requests_per_minute must be from 1", done.stderr)
        self.assertNotIn("secret", done.stderr)


class Addresses(WithFolder):
    def test_one_that_is_not_to_be_had_is_told_before_a_model_is_loaded(self):
        with socket.create_server(("127.0.0.1", 0)) as busy, socket.socket(socket.AF_UNIX) as path:
            path.bind(str(self.folder / "taken"))
            path.listen()
            port = str(busy.getsockname()[1])
            for flags, word in ((("--port", port), f"127.0.0.1:{port}: Address already in use; choose another port"),
                                (("--port", "0", "--host", "no such host"), "host 'no such host'"),
                                (("--unix-socket", str(self.folder / "taken")), "another process listens there")):
                done = subprocess.run([PROGRAM, "serve", "-m", str(MODEL), "-v", *flags], capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(word, done.stderr)
                self.assertNotIn("loaded in", done.stderr)


class Service(WithFolder):
    def test_the_manager_is_told(self):
        path = self.folder / "notify"
        for address, name in ((str(path), str(path)), (f"\0baton-test-{os.getpid()}", f"@baton-test-{os.getpid()}")):
            if address[0] == "\0" and not os.path.exists("/proc"):
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(address)
                manager.settimeout(30)
                told = []
                environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"}
                os.environ.update(environment)
                try:
                    server = Server()
                finally:
                    for variable in environment:
                        del os.environ[variable]
                with server:
                    def listen():
                        while not told or not told[-1].startswith("END"):
                            told.append(manager.recv(4096).decode())
                    reader = threading.Thread(target=listen)
                    reader.start()
                    time.sleep(1)
                    self.assertEqual(server.stop(), 0)
                    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                        last.sendto(b"END", address)
                    reader.join()
                ready = [state for state in told if state.startswith("READY=1\n")]
                self.assertEqual(ready, [f"READY=1\nSTATUS=listening on http://127.0.0.1:{server.port}"])
                self.assertGreaterEqual(told.count("WATCHDOG=1"), 3, told)
                self.assertTrue(any(state.startswith("STOPPING=1") for state in told), told)

    def test_a_manager_that_is_not_there(self):
        os.environ["NOTIFY_SOCKET"] = str(self.folder / "nobody")
        try:
            server = Server()
        finally:
            del os.environ["NOTIFY_SOCKET"]
        with server:
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            self.assertEqual(server.stop(), 0)
        self.assertTrue(any("NOTIFY_SOCKET" in line for line in server.log), server.log)

    def installed(self, name):
        """A file of packaging/ as an installation below `self.folder` has it."""
        (self.folder / "bin").mkdir(exist_ok=True)
        if not (self.folder / "bin" / "baton").exists():
            (self.folder / "bin" / "baton").symlink_to(pathlib.Path(PROGRAM).resolve())
        text = (ROOT / "packaging" / (name + ".in")).read_text()
        made = self.folder / name
        made.write_text(text.replace("@CMAKE_INSTALL_PREFIX@", str(self.folder)))
        return made

    def flags_of(self, words):
        """They are taken: --check-config reads them and ends."""
        config = self.folder / "baton.toml"
        config.write_text("")
        self.assertEqual(words[:2], [str(self.folder / "bin" / "baton"), "serve"])
        done = subprocess.run([*words, "--config", str(config), "--check-config"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return int(words[words.index("--drain-seconds") + 1])

    def test_the_unit_of_systemd(self):
        unit = self.installed("baton.service")
        text = unit.read_text()
        found = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
        environment = re.fullmatch(r'"BATON_STATE_FLAGS=(.*)"', found["Environment"])[1]
        line = found["ExecStart"].replace("$BATON_STATE_FLAGS", environment)
        self.assertTrue(line.endswith(" $BATON_SERVE_FLAGS"), "flags of the admin leave those of the unit")
        drain = self.flags_of(line.removesuffix(" $BATON_SERVE_FLAGS").split())
        self.assertGreater(int(found["TimeoutStopSec"].removesuffix("s")), drain)
        self.assertEqual((found["Type"], found["DynamicUser"], found["NoNewPrivileges"]), ("notify", "yes", "yes"))
        self.assertGreaterEqual(int(found["LimitNOFILE"]), 12_000 + 1000)
        self.assertTrue(environment.endswith("/var/lib/" + found["StateDirectory"] + "/states"))
        if shutil.which("systemd-analyze"):
            done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn(unit.name, done.stderr)
            unit.write_text(text.replace("LimitNOFILE=65536", "LimitNOFILE=many"))
            done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
            self.assertIn(unit.name, done.stderr)

    def test_the_agent_of_launchd(self):
        plist = plistlib.loads(self.installed("com.baton.serve.plist").read_bytes())
        self.assertEqual(plist["Label"], "com.baton.serve")
        self.assertLess(self.flags_of(plist["ProgramArguments"]), plist["ExitTimeOut"])
        self.assertGreaterEqual(plist["SoftResourceLimits"]["NumberOfFiles"], 12_000 + 1000)
        self.assertEqual(plist["KeepAlive"], {"SuccessfulExit": False})


if __name__ == "__main__":
    unittest.main(verbosity=2)
