#!/usr/bin/env python3
"""`baton embed` from outside: vectors, texts from standard input, ranks, JSON fields, errors; and the same over HTTP.

usage: embed_test.py PROGRAM   (then unittest's own options)
"""
import base64
import concurrent.futures
import json
import math
import pathlib
import shutil
import string
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
BERT = ROOT / "tests" / "data" / "golden" / "tiny-bert"
DECODER = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")


def run(*arguments, stdin=""):
    return subprocess.run([PROGRAM, "embed", *arguments], capture_output=True, text=True, timeout=120, input=stdin)


class Embed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name) / "tiny"
        path.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(BERT / name, path)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"]
        words += [c for c in string.ascii_lowercase] + ["##" + c for c in string.ascii_lowercase]
        (path / "vocab.txt").write_text("\n".join(words) + "\n")
        cls.model = str(path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_line_for_each_text(self):
        done = run("-m", self.model, "hello world", "abc")
        self.assertEqual(done.returncode, 0, done.stderr)
        vectors = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([len(vector) for vector in vectors], [96, 96])
        for vector in vectors:
            self.assertAlmostEqual(math.fsum(x * x for x in vector), 1, places=5)
        self.assertEqual(run("-m", self.model, stdin="hello world\nabc\n").stdout, done.stdout)
        self.assertEqual(run("-m", self.model, stdin="a\n\nabc").stdout, run("-m", self.model, "a", "", "abc").stdout)

    def test_more_lines_than_go_at_once(self):
        done = run("-m", self.model, stdin="".join(f"text {i}\n" for i in range(2100)))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2100)
        alone = json.loads(run("-m", self.model, "text 2077").stdout)
        self.assertLess(max(abs(a - b) for a, b in zip(json.loads(lines[2077]), alone)), 1e-5)
        late = run("-m", self.model, stdin="a\n" * 600 + "a " * 200 + "\n")
        self.assertEqual(late.returncode, 2)
        self.assertIn("input 600: 202 tokens", late.stderr)

    def test_a_dash_reads_as_nothing_does(self):
        piped = run("-m", self.model, "-", stdin="hello world\nabc\n")
        self.assertEqual(piped.stdout, run("-m", self.model, "hello world", "abc").stdout)
        self.assertEqual(len(piped.stdout.splitlines()), 2)

    def test_errors_name_what_can_be_done(self):
        long = run("-m", self.model, "a " * 400)
        self.assertEqual((long.returncode, long.stdout), (2, ""))
        self.assertIn("have it cut with --truncate", long.stderr)
        bare = run("-m", str(BERT), "hello")
        self.assertEqual(bare.returncode, 1)
        self.assertIn("no tokenizer.json, vocab.txt or sentencepiece.bpe.model", bare.stderr)
        self.assertTrue(bare.stderr.endswith("or give token ids (--ids)\n"), bare.stderr)
        self.assertNotIn("input 0", bare.stderr)
        self.assertNotIn("documents", run("-m", str(BERT), "--query", "a", "b").stderr)
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(run("-m", empty, "hello").returncode, 1)
        self.assertEqual(run("-m", self.model, "--unit", "tpu", "hello").returncode, 2)

    def test_convert_writes_no_encoders(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.gguf"
            done = subprocess.run([PROGRAM, "convert", self.model, out], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is an encoder, and convert writes none yet", done.stderr)
            self.assertFalse(out.exists())

    def test_architectures_that_are_not_there_have_a_reason(self):
        for name, words in (("mpnet", "relative positions"), ("deberta-v2", "takes words and distances apart"),
                            ("phimoe", "sparsemixer"), ("gemma3n", "AltUp"), ("gpt_oss", "attention sinks")):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(BERT / "model.safetensors", folder)
                (pathlib.Path(folder) / "config.json").write_text(json.dumps({"model_type": name}))
                done = run("-m", folder, "hello")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"architecture '{name}' is not supported; it is ", done.stderr)
                self.assertIn(words, done.stderr)

    def test_inspect_tells_of_vectors(self):
        done = subprocess.run([PROGRAM, "inspect", "--all", self.model], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("an encoder, for `baton embed`: the mean of all tokens' states, of length 1", done.stdout)
        self.assertIn("layer_norm_eps", done.stdout)
        for absent in ("rms_eps", "state 0 B", "0 B fixed", "logits"):
            self.assertNotIn(absent, done.stdout)
        (pathlib.Path(self.model) / "sentence_bert_config.json").write_text('{"max_seq_length": 33}')
        try:
            told = json.loads(subprocess.run([PROGRAM, "inspect", "--json", self.model], capture_output=True, text=True,
                                             timeout=120).stdout)
            self.assertEqual(told["vectors"], {"pooling": "mean", "normalized": True, "tokens_max": 33})
        finally:
            (pathlib.Path(self.model) / "sentence_bert_config.json").unlink()

    def test_json(self):
        done = run("-m", self.model, "hello", "--ids", "2,5,6,3", "--dimensions", "8", "--unit", "cpu", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["unit"], answer["placed"], answer["pooling"], answer["normalized"]), ("cpu", "cpu: as asked", "mean", True))
        self.assertEqual((answer["tokens"], answer["dimensions"], answer["tokens_max"]), (7, 8, 128))
        self.assertEqual([item["tokens"] for item in answer["embeddings"]], [3, 4])
        self.assertEqual([item["index"] for item in answer["embeddings"]], [0, 1])
        self.assertEqual([len(item["embedding"]) for item in answer["embeddings"]], [8, 8])

    def test_small_encoders_are_for_the_neural_engine(self):
        usual = json.loads(run("-m", self.model, "hello", "--json").stdout)
        if usual["unit"] == "cpu":
            self.assertTrue(usual["placed"].startswith("cpu: ane is emulated here"), usual["placed"])
        else:
            self.assertTrue(usual["placed"].startswith("ane: a small encoder"), usual["placed"])
        answer = json.loads(run("-m", self.model, "hello", "--json", "--unit", "ane").stdout)
        self.assertEqual((answer["unit"], answer["emulated"]), ("ane", usual["unit"] == "cpu"))
        exact = json.loads(run("-m", self.model, "hello", "--json", "--unit", "ref").stdout)
        pairs = zip(answer["embeddings"][0]["embedding"], exact["embeddings"][0]["embedding"])
        self.assertLess(max(abs(a - b) for a, b in pairs), 2e-3)

    def test_warnings_are_no_output(self):
        for arguments, lines in ((("a", "b"), 2), (("a", "b", "--cosines"), 3), (("a", "b", "--query", "c"), 2)):
            done = run("-m", DECODER, "--unit", "cuda:driver=emulated", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), lines, done.stdout)
            self.assertEqual(done.stderr, "baton: warning: cuda is emulated: its times are the emulator's\n")

    def test_decoders_by_their_last_token(self):
        answer = json.loads(run("-m", DECODER, "a word", "--json").stdout)
        self.assertEqual((answer["unit"], answer["placed"], answer["pooling"]), ("cpu", "cpu: a decoder", "last"))

    def test_ranks(self):
        done = run("-m", self.model, "--query", "hello", "world", "hello", "--json", "--unit", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(done.stdout)["results"]
        self.assertEqual([item["index"] for item in results], [1, 0])
        self.assertAlmostEqual(results[0]["relevance_score"], 1, places=5)
        self.assertRegex(run("-m", self.model, "--query", "hello", "world", "--unit", "cpu").stdout, r"^-?\d\.\d{4}  world\n$")

    def test_ranks_as_the_flags_say(self):
        path = pathlib.Path(self.folder.name) / "prompted"
        shutil.copytree(self.model, path, dirs_exist_ok=True)
        (path / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "world "}}))
        rank = ("-m", str(path), "--unit", "cpu", "--query", "hello")
        usual = run(*rank, "abc").stdout
        plain = run(*rank, "abc", "--no-prompt").stdout
        self.assertNotEqual(plain, usual)
        self.assertEqual(plain, run("-m", self.model, "--unit", "cpu", "--query", "hello", "abc").stdout)
        self.assertNotIn(run(*rank, "abc", "--prompt", "query").stdout, (usual, plain))
        self.assertNotEqual(run(*rank, "abc", "--no-prompt", "--dimensions", "5").stdout, plain)
        empty = run("-m", self.model, "--unit", "cpu", "--query", "", "abc", "hello")
        self.assertEqual((empty.returncode, len(empty.stdout.splitlines())), (0, 2), empty.stderr)
        for line in empty.stdout.splitlines():
            self.assertRegex(line, r"^-?\d\.\d{4}  (abc|hello)$")
        for arguments, word in ((("--prompt", "zz"), "no prompt 'zz'"), (("--raw",), "--raw"), (("--dimensions", "97"), "dimensions 97"),
                                (("--prompt", "query", "--no-prompt"), "give one of them")):
            done = run(*rank, "abc", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn(word, done.stderr)

    def test_lines_that_are_no_texts(self):
        done = run("-m", self.model, stdin="a\nb\0c\n")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("line 2 has a zero byte", done.stderr)
        for arguments in (("-f", "/dev/zero"), ("--query", "a", "-f", "/dev/zero")):
            done = run("-m", self.model, *arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertIn("line 1 is longer than 1048576 bytes", done.stderr)

    def test_cosines(self):
        done = run("-m", self.model, "hello", "hello world", "abc", "--cosines", "--unit", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["1", "2", "3"])
        table = [[float(value) for value in line.split()[1:4]] for line in lines[1:]]
        self.assertEqual([line.split(maxsplit=4)[4] for line in lines[1:]], ["hello", "hello world", "abc"])
        answer = json.loads(run("-m", self.model, "hello", "hello world", "abc", "--cosines", "--unit", "cpu", "--json").stdout)
        vectors = [item["embedding"] for item in answer["embeddings"]]
        for i, row in enumerate(table):
            self.assertAlmostEqual(row[i], 1, places=4)
            for j, value in enumerate(row):
                exact = math.fsum(a * b for a, b in zip(vectors[i], vectors[j]))
                self.assertAlmostEqual(value, exact, places=3)
                self.assertAlmostEqual(answer["cosines"][i][j], exact, places=5)
        self.assertLess(table[0][2], 0.999)

    def test_families_from_folders_and_gguf(self):
        encoders = ROOT / "tests" / "data" / "golden" / "encoders"
        for name in ("distilbert", "modernbert", "jina"):
            ids = ",".join(str(3 + i % 50) for i in range(70))
            made = []
            for model in (encoders / name, encoders / name / "model.gguf"):
                done = run("-m", str(model), "--ids", ids, "--pooling", "mean", "--unit", "ref")
                self.assertEqual(done.returncode, 0, done.stderr)
                made.append(json.loads(done.stdout))
            self.assertLess(max(abs(a - b) for a, b in zip(*made)), 1e-5, name)
            answer = json.loads(run("-m", str(encoders / name / "model.gguf"), "--ids", ids, "--json", "--unit", "ane").stdout)
            self.assertEqual((answer["pooling"], answer["unit"]), ("first" if name == "modernbert" else "mean", "ane"))

    def test_errors(self):
        cases = (((), "--model"), (("-m", self.model, "--ids", "2,x"), "x"), (("-m", self.model, "--ids", "999"), "token 999"),
                 (("-m", self.model, "a", "--dimensions", "97"), "dimensions 97"), (("-m", self.model, "a", "--prompt", "q"), "prompt 'q'"),
                 (("-m", self.model, "a", "--unit", "gpu9"), "gpu9"), (("-m", self.model, "a", "--pooling", "max"), "max"),
                 (("-m", self.model, "a", "--cosines"), "there are 1"), (("-m", self.model, *["a"] * 21, "--cosines"), "there are 21"),
                 (("-m", self.model), "no texts"), (("-m", self.model, "a " * 200), "202 tokens: the model takes 128"))
        for arguments, word in cases:
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
            self.assertIn(word, done.stderr)
        self.assertEqual(run("-m", self.model, "a " * 200, "--truncate", "--unit", "cpu").returncode, 0)

    def test_other_commands_name_it(self):
        done = subprocess.run([PROGRAM, "run", "-m", self.model, "hello"], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("baton embed", done.stderr)
        shown = subprocess.run([PROGRAM, "inspect", self.model], capture_output=True, text=True, timeout=60)
        self.assertEqual(shown.returncode, 0, shown.stderr)


class Server(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        Embed.setUpClass()
        cls.addClassCleanup(Embed.tearDownClass)
        small = str(ROOT / "models" / "dictionary-3m.Q8_0.gguf")
        command = [PROGRAM, "serve", "-m", small, "--embed", Embed.model, "--port", "0", "-c", "256"]
        cls.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.end)
        for line in cls.process.stderr:
            if "listening on" in line:
                cls.address = line.split()[-1]
                break

    @classmethod
    def end(cls):
        cls.process.terminate()
        cls.process.communicate(timeout=60)

    def post(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def cosine(self, a, b):
        return sum(x * y for x, y in zip(a, b))

    def test_openai(self):
        status, answer = self.post("/v1/embeddings", {"model": "tiny", "input": ["hello world", "abc"]})
        self.assertEqual((status, answer["object"], answer["model"]), (200, "list", "tiny"), answer)
        self.assertEqual([item["index"] for item in answer["data"]], [0, 1])
        self.assertEqual(answer["usage"], {"prompt_tokens": 9, "total_tokens": 9})
        exact = json.loads(run("-m", Embed.model, "hello world", "--unit", "ref").stdout)
        self.assertGreater(self.cosine(answer["data"][0]["embedding"], exact), 0.9999)
        one = self.post("/v1/embeddings", {"model": "tiny", "input": [2, 5, 6, 3], "encoding_format": "base64", "dimensions": 8})[1]
        values = struct.unpack("<8f", base64.b64decode(one["data"][0]["embedding"]))
        self.assertAlmostEqual(math.fsum(x * x for x in values), 1, places=4)
        self.assertEqual(self.post("/v1/embeddings", {"input": [[2, 5, 3], [2, 6, 3]]})[0], 200)

    def test_many_at_once(self):
        texts = ["hello " * (1 + i % 20) for i in range(200)]
        whole = self.post("/v1/embeddings", {"model": "tiny", "input": texts})[1]["data"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            single = list(pool.map(lambda text: self.post("/v1/embeddings", {"model": "tiny", "input": text})[1], texts[:24]))
        for i, answer in enumerate(single):
            self.assertGreater(self.cosine(answer["data"][0]["embedding"], whole[i]["embedding"]), 0.99999, i)

    def test_a_text_that_is_too_long_is_told_what_there_is(self):
        status, answer = self.post("/v1/embeddings", {"model": "tiny", "input": "a " * 400})
        self.assertEqual(status, 400)
        self.assertTrue(answer["error"]["message"].endswith("tokens: the model takes 128; shorten it"), answer)  # truncate is Ollama's

    def test_ollama(self):
        status, answer = self.post("/api/embed", {"model": "tiny:latest", "input": ["hello", "a " * 400]})
        self.assertEqual((status, len(answer["embeddings"]), answer["prompt_eval_count"]), (200, 2, 3 + 128), answer)
        self.assertEqual(len(self.post("/api/embeddings", {"model": "tiny", "prompt": "hello"})[1]["embedding"]), 96)
        status, answer = self.post("/api/embed", {"model": "tiny", "input": "a " * 400, "truncate": False})
        self.assertEqual(status, 400)
        self.assertIsInstance(answer["error"], str)
        self.assertIn("the model takes 128", answer["error"])

    def test_ranks(self):
        body = {"model": "tiny", "query": "hello", "documents": ["world", "hello", "zz"], "top_n": 2}
        status, answer = self.post("/v1/rerank", body)
        self.assertEqual((status, [item["index"] for item in answer["results"]][0], len(answer["results"])), (200, 1, 2), answer)

    def test_models(self):
        with urllib.request.urlopen(self.address + "/v1/models", timeout=60) as answer:
            models = {item["id"]: item for item in json.load(answer)["data"]}
        self.assertEqual(models["tiny"]["embedding_length"], 96)
        self.assertEqual(len(models), 2)

    def test_bad_requests(self):
        with urllib.request.urlopen(self.address + "/v1/models", timeout=60) as answer:
            writer = next(item["id"] for item in json.load(answer)["data"] if "embedding_length" not in item)
        cases = (({"model": "tiny"}, 400, "input"), ({"model": "tiny", "input": ""}, 400, "input"), ({"model": "tiny", "input": []}, 400, "input"),
                 ({"model": "tiny", "input": [[1], [-2]]}, 400, "input[1]"), ({"model": "tiny", "input": [256]}, 400, "token 256"),
                 ({"model": "tiny", "input": "a " * 400}, 400, "the model takes 128"), ({"model": "tiny", "input": "a", "dimensions": 97}, 400, "dimensions"),
                 ({"model": "zz", "input": "a"}, 404, "tiny"), ({"model": writer, "input": "a"}, 400, "writes text"),
                 ({"model": "tiny", "input": "a", "encoding_format": "int8"}, 400, "encoding_format"), (b"{", 400, ""), (b"[]", 400, ""),
                 ({"model": "tiny", "input": "a", "what": 1}, 400, "what"), ({"model": "tiny", "input": ["a"] * 2049}, 400, "2049"))
        for body, status, word in cases:
            got, answer = self.post("/v1/embeddings", body)
            self.assertEqual(got, status, (str(body)[:80], answer))
            self.assertIn(word, answer["error"]["message"], str(body)[:80])
            self.assertNotIn(Embed.folder.name, answer["error"]["message"])
        self.assertEqual(self.post("/v1/rerank", {"model": "tiny", "query": "a", "documents": []})[0], 400)


if __name__ == "__main__":
    unittest.main()
