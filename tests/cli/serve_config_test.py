#!/usr/bin/env python3
"""`baton serve --config`: several models, what the flags win over, --check-config; /v1/routes and --dispatch.

usage: serve_config_test.py PROGRAM   (then unittest's own options)
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "dictionary-3m.Q8_0.gguf"
CONFIG = f"""
[server]
port = 1
parallel = 2
[[models]]
name = "quick"
path = "{MODEL}"
aliases = ["default"]
[[models]]
name = "exact"
path = "{MODEL}"
decode = "ref"
[models.defaults]
max_tokens = 3
"""


class Server:
    """Ended with its scope."""

    def __init__(self, *flags):
        command = [PROGRAM, "serve", "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        log = ""
        for line in self.process.stderr:
            log += line
            if found := re.search(r"listening on http://[^:]+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError(log)
        self.log = log
        self.reader = threading.Thread(target=self.process.stderr.read)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    def ask(self, method, path, body=None):
        """(status, body as JSON)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class ServeConfig(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "baton.toml"

    def check(self, text, *flags):
        self.file.write_text(text)
        return subprocess.run([PROGRAM, "serve", "--config", self.file, "--check-config", *flags], capture_output=True,
                              text=True, timeout=60)

    def test_check(self):
        good = self.check(CONFIG)
        self.assertEqual((good.returncode, good.stderr), (0, ""))
        self.assertIn("server  127.0.0.1:1\nmodel   quick: ", good.stdout)
        self.assertIn("server  127.0.0.1:2\n", self.check(CONFIG, "--port", "2").stdout)
        self.assertRegex(self.check("").stdout, r"server  127.0.0.1:8080\nmodel   .*, loaded at the start, cpu -> cpu")
        for text, words in [("[server]\nprot = 1", "baton.toml:2: server has no key 'prot'"),
                            ("[[models]]\nname = 'a'\n[models.defaults]\nstop = ['" + "x" * 5000 + "']", "baton.toml:1"),
                            (CONFIG + "[server2]", "there is no 'server2' here"),
                            ("[server]\nmemory_budget = 'much'", "server.memory_budget must be bytes, or a size"),
                            ("[server]\nstate_key = 'k'", "--state-key goes with --state-cache"),
                            ("[[models]]\nname = 'a'\npath = 'none.gguf'", "none.gguf"),
                            ("[server]\nmemory_budget = '1M'", "the server's budget is 1048576"),
                            ("[server]\naccess_log = 'none/log'", "its folder is not there"),
                            ("[server]\napi_key_file = 'none'", "none"),
                            ("[server]\ntls_cert = 'none'\ntls_key = 'none'", "none")]:
            bad = self.check(text)
            self.assertIn(bad.returncode, (1, 2), text)
            self.assertEqual(bad.stdout, "")
            self.assertIn(words, bad.stderr)
        alone = subprocess.run([PROGRAM, "serve", "--check-config"], capture_output=True, text=True, timeout=60)
        self.assertEqual(alone.returncode, 2)

    def test_models_and_routes(self):
        self.file.write_text(CONFIG)
        with Server("--config", self.file, "--prefill", "cpu") as server:
            self.assertIn("units ref, cpu", server.log)
            self.assertEqual([m["id"] for m in server.ask("GET", "/v1/models")[1]["data"]], ["quick", "exact"])
            texts = {}
            for name in ("quick", "default", "exact"):
                body = {"model": name, "prompt": "tree:", "temperature": 0}
                status, answer = server.ask("POST", "/v1/completions", body | ({} if name == "exact" else {"max_tokens": 3}))
                self.assertEqual(status, 200, answer)
                self.assertEqual(answer["usage"]["completion_tokens"], 3)
                self.assertEqual(answer["baton"]["decode"]["unit_ran"], "ref" if name == "exact" else "cpu")
                texts[name] = answer["choices"][0]["text"]
            self.assertEqual(texts["quick"], texts["default"])
            self.assertEqual(server.ask("POST", "/v1/completions", {"model": "other", "prompt": "a"})[0], 404)
            self.ask_routes(server)

    def ask_routes(self, server):
        status, routes = server.ask("GET", "/v1/routes?model=exact&prompt_tokens=100&answer_tokens=10")
        self.assertEqual((status, routes["model"], routes["prompt_tokens"]), (200, "exact", 100))
        self.assertEqual({unit["name"] for unit in routes["units"]}, {"cpu", "ref"})
        self.assertEqual(routes["asked"]["prefill"], "cpu")
        self.assertFalse(routes["dispatch"])
        chosen = [route for route in routes["routes"] if route["chosen"]]
        self.assertEqual(len(chosen), 1, routes)
        self.assertEqual(chosen[0]["decode"], "ref", "what was measured")
        self.assertIsNone(chosen[0]["loses_by"])
        self.assertTrue(any("impossible" in route for route in routes["routes"]), "nothing decoded on cpu there")
        for query, param in [("prompt_tokens=-1", "prompt_tokens"), ("answer_tokens=1e3", "answer_tokens"),
                             ("cached_tokens=", "cached_tokens"), ("prompt_tokens=99999999999999999999", "prompt_tokens")]:
            status, error = server.ask("GET", "/v1/routes?" + query)
            self.assertEqual((status, error["error"]["param"]), (400, param))
        self.assertEqual(server.ask("GET", "/v1/routes?model=none")[0], 404)
        context = server.ask("GET", "/v1/models/exact")[1]["max_model_len"]
        for prompt, cached, answer, param in [(context + 1, 0, 1, "prompt_tokens"), (context, 0, 1, "answer_tokens"),
                                              (1, 0, context + 1, "answer_tokens"), (10, 11, 1, "cached_tokens")]:
            query = f"model=exact&prompt_tokens={prompt}&cached_tokens={cached}&answer_tokens={answer}"
            status, error = server.ask("GET", "/v1/routes?" + query)
            self.assertEqual((status, error["error"]["param"]), (400, param), query)
            self.assertIn(f"holds {context}", error["error"]["message"])
        status, routes = server.ask("GET", f"/v1/routes?model=exact&prompt_tokens={context}")
        self.assertEqual((status, routes["answer_tokens"]), (200, 0), "a default takes what is left")

    def test_a_file_that_broke(self):
        """What was whole at the start and is not when it is asked for: every path says so, and when to come again."""
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder, "broken.gguf")
            shutil.copyfile(MODEL, broken)
            with Server("-m", MODEL, "-m", broken) as server:
                os.truncate(broken, 1000)
                for path, body in (("/tokenize", {"content": "a"}), ("/v1/completions", {"prompt": "a"}),
                                   ("/v1/routes?model=broken.gguf&prompt_tokens=3", None)):
                    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
                    body = body and json.dumps(body | {"model": "broken.gguf"})
                    connection.request("GET" if body is None else "POST", path, body)
                    answer = connection.getresponse()
                    text = answer.read().decode()
                    self.assertEqual((answer.status, answer.getheader("retry-after")), (503, "3"), (path, text))
                    self.assertIn("could not be loaded", text)
                    self.assertNotIn(folder, text)
                    connection.close()
                shutil.copyfile(MODEL, broken)
                time.sleep(3.1)
                self.assertEqual(server.ask("POST", "/tokenize", {"content": "a", "model": "broken.gguf"})[0], 200)

    def test_many_models(self):
        """One budget that only one of them fits: each answers as alone, and says where it is."""
        small, large = MODEL.name, "dictionary-28m.Q8_0.gguf"
        flags = ["-m", MODEL, "-m", MODEL.with_name(large), "--memory-budget", "40M", "--keep-alive", "1h"]
        with Server(*flags) as server:
            def ask(name, **more):
                status, answer = server.ask("POST", "/v1/completions",
                                            {"model": name, "prompt": "fern:", "temperature": 0, "max_tokens": 6} | more)
                self.assertEqual(status, 200, answer)
                return answer["choices"][0]["text"]

            def loaded():
                return {model["id"]: model["loaded"] for model in server.ask("GET", "/v1/models")[1]["data"]}

            self.assertEqual(loaded(), {small: True, large: False})
            self.assertEqual({m["name"] for m in server.ask("GET", "/api/tags")[1]["models"]}, {small, large})
            alone = {name: ask(name) for name in (small, large)}
            self.assertEqual(loaded(), {small: False, large: True})
            texts = []
            threads = [threading.Thread(target=lambda name=name: texts.append((name, ask(name)))) for name in (small, large) * 4]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(texts), sorted([(name, text) for name, text in alone.items()] * 4))
            props = server.ask("GET", "/props")[1]
            self.assertEqual(props["memory"]["budget_bytes"], 40 << 20)
            self.assertLessEqual(props["memory"]["loaded_bytes"], 40 << 20)
            ask(large)
            self.assertLess(0, self.props(server, large)["unloads_in_s"])
            self.assertIsNone(self.props(server, small)["unloads_in_s"])
            shown = subprocess.run([PROGRAM, "ps", "--url", f"http://127.0.0.1:{server.port}"], capture_output=True, text=True,
                                   timeout=60).stdout
            self.assertRegex(shown, rf"model    {large}: loaded, \d+ bytes of weights, states up to \d+, unloads in \d+ min")
            self.assertRegex(shown, rf"model    {small}: absent, \d+ bytes of weights, states up to \d+; \d+ parameters")
            self.assertRegex(shown, r"memory   \d+ of 41943040 bytes")
            listed = server.ask("GET", "/api/ps")[1]["models"]
            self.assertEqual([model["name"] for model in listed], [large])
            self.assertNotIn("3000-01-01", listed[0]["expires_at"])
            # As `ollama stop` says it.
            status, answer = server.ask("POST", "/api/generate", {"model": large, "prompt": "", "keep_alive": 0})
            self.assertEqual((status, answer["done_reason"]), (200, "unload"))
            for _ in range(100):
                if not loaded()[large]:
                    break
            self.assertEqual(server.ask("GET", "/api/ps")[1]["models"], [])
            routes = server.ask("GET", f"/v1/routes?model={small}")[1]
            self.assertEqual(routes["model"], small, "loaded for it")
        too_small = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--memory-budget", "1M", "--port", "0"], capture_output=True,
                                   text=True, timeout=60)
        self.assertEqual(too_small.returncode, 1)
        self.assertIn("the budget of 1048576: give more with --memory-budget", too_small.stderr)
        same = subprocess.run([PROGRAM, "serve", "-m", MODEL, "-m", MODEL, "--port", "0"], capture_output=True, text=True,
                              timeout=60)
        self.assertNotEqual(same.returncode, 0)
        self.assertIn("two models are called 'dictionary-3m.Q8_0.gguf'", same.stderr)

    def props(self, server, name):
        return next(model for model in server.ask("GET", "/props")[1]["models"] if model["id"] == name)

    def test_states_outlive_their_model(self):
        """With --state-cache a model that made room finds its states again; so does a server that is started anew."""
        folder = self.file.parent / "states"
        self.file.write_text(CONFIG.replace('decode = "ref"', ""))
        flags = ["--config", self.file, "--state-cache", folder, "--keep-alive", "0s"]
        body = {"model": "exact", "prompt": list(range(100, 260)), "temperature": 0, "max_tokens": 2}
        cached = []
        for _ in range(2):
            with Server(*flags) as server:
                for _ in range(2):
                    status, answer = server.ask("POST", "/v1/completions", body)
                    self.assertEqual(status, 200, answer)
                    cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
                    while self.props(server, "exact")["state"] != "absent":
                        pass
        self.assertEqual(cached[0], 0)
        self.assertTrue(all(count > 0 for count in cached[1:]), cached)

    def test_dispatch(self):
        # Nobody knows which of them is faster with so small a model on a busy machine: what they were measured at decides.
        with Server("-m", MODEL, "--prefill", "ref", "--decode", "cpu", "--dispatch") as server:
            status, routes = server.ask("GET", "/v1/routes?prompt_tokens=400&answer_tokens=256")
            self.assertEqual(status, 200)
            self.assertTrue(routes["dispatch"])
            first = routes["routes"][0]
            self.assertEqual(first["total_ms"], min(route["total_ms"] for route in routes["routes"]), routes)
            speed = {unit["name"]: unit["prefill_tokens"]["per_second"] for unit in routes["units"]}
            if speed["cpu"] > 1.2 * speed["ref"]:
                self.assertEqual(first["prefill"], "cpu", routes)
            body = {"prompt": list(range(100, 500)), "max_tokens": 5, "ignore_eos": True}
            status, answer = server.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["baton"]["prefill"]["unit_ran"], first["prefill"])
        wrong = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--dispatch", "--strategy", "single"], capture_output=True,
                               text=True, timeout=60)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--dispatch chooses", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
