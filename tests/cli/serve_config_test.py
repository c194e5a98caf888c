#!/usr/bin/env python3
"""`baton serve --config`: several models, what the flags win over, --check-config; /v1/routes and --dispatch.

usage: serve_config_test.py PROGRAM   (then unittest's own options)
"""
import http.client
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
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
        for text, words in [("[server]\nprot = 1", "baton.toml:2: server has no key 'prot'"),
                            ("[[models]]\nname = 'a'\n[models.defaults]\nstop = ['" + "x" * 5000 + "']", "baton.toml:1"),
                            (CONFIG + "[server2]", "there is no 'server2' here"),
                            ("[server]\nstate_cache = 'c'\n[[models]]\nname='a'\n[[models]]\nname='b'", "state cache is of"),
                            ("[server]\nstate_key = 'k'", "--state-key goes with --state-cache")]:
            bad = self.check(text)
            self.assertEqual(bad.returncode, 2, text)
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

    def test_dispatch(self):
        # Nobody knows which of them decodes so small a model faster on a busy machine; prefill is another matter.
        with Server("-m", MODEL, "--prefill", "ref", "--decode", "cpu", "--dispatch") as server:
            status, routes = server.ask("GET", "/v1/routes?prompt_tokens=400&answer_tokens=256")
            self.assertEqual(status, 200)
            self.assertTrue(routes["dispatch"])
            self.assertEqual(routes["routes"][0]["prefill"], "cpu", routes)
            body = {"prompt": list(range(100, 500)), "max_tokens": 5, "ignore_eos": True}
            status, answer = server.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["baton"]["prefill"]["unit_ran"], "cpu")
        wrong = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--dispatch", "--strategy", "single"], capture_output=True,
                               text=True, timeout=60)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--dispatch chooses", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
