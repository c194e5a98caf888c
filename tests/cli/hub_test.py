#!/usr/bin/env python3
"""Models by name: `baton pull`, `ls`, `rm` and -m OWNER/NAME:TYPE against a hub on this machine, with faults; and one cache
shared with huggingface_hub, where Python has it.

usage: hub_test.py PROGRAM   (then unittest's own options)
"""
import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hub_server  # noqa: E402

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ROOT / "models" / "dictionary-3m.Q8_0.gguf"
LARGE = random.Random(7).randbytes(37_000_001)  # five pieces
FOLDER = ROOT / "tests" / "data" / "golden" / "dictionary-3m"
try:
    import huggingface_hub  # noqa: F401
    HAS_HUB = True
except ImportError:
    HAS_HUB = False


def folder_files():
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    files = {name: (FOLDER / name).read_bytes() for name in names if (FOLDER / name).is_file()}
    return {**files, "README.md": b"# hi\n", "pytorch_model.bin": b"pickle", "onnx/model.onnx": b"x"}


def repos():
    small = SMALL.read_bytes()
    return {
        "org/tiny-GGUF": hub_server.Repo({"tiny-Q8_0.gguf": small, "tiny-Q4_0.gguf": small[:-1] + b"x",
                                          "mmproj-F16.gguf": b"no", "README.md": b"# hi\n"}),
        "any/tiny-GGUF-more": hub_server.Repo({"more-Q8_0.gguf": small}),
        "org/large-GGUF": hub_server.Repo({"large-Q4_K_M.gguf": LARGE, "large-Q8_0.gguf": LARGE[::-1]}),
        "org/split-GGUF": hub_server.Repo({f"Q4_K_M/s-Q4_K_M-{i:05}-of-00003.gguf": bytes([i]) * 1000
                                           for i in (1, 2, 3)}),
        "org/folder": hub_server.Repo(folder_files()),
        "org/adapter": hub_server.Repo({"adapter_config.json": b"{}", "adapter_model.safetensors": b"x",
                                        "README.md": b"# hi\n"}),
        "org/pickle": hub_server.Repo({"config.json": b"{}", "pytorch_model.bin": b"x"}),
        "org/secret": hub_server.Repo({"s-Q8_0.gguf": b"s" * 5000}, token="hf_right"),
        "org/gated": hub_server.Repo({"s-Q8_0.gguf": b"s" * 5000}, token="hf_right", gated=True),
        "org/evil": hub_server.Repo({"../../evil-Q4_K_M.gguf": b"x", "/etc/evil-Q4_K_M.gguf": b"x",
                                     "good-Q8_0.gguf": b"good"}),
    }


class HubCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hub = hub_server.Hub(repos())

    @classmethod
    def tearDownClass(cls):
        cls.hub.close()

    def setUp(self):
        self.hub.reset()
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.home = pathlib.Path(self.place.name)
        self.cache = self.home / "hub"

    def environment(self, **more):
        names = {name: value for name, value in os.environ.items()
                 if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))
                 and name.lower() not in ("http_proxy", "https_proxy", "all_proxy")}
        return {**names, "HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.endpoint(), "no_proxy": "*",
                "HF_HUB_DISABLE_XET": "1", **more}

    def run_baton(self, *arguments, cwd=None, **environment):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd,
                              stdin=subprocess.DEVNULL, env=self.environment(**environment))

    def pull(self, *arguments, code=0, **environment):
        done = self.run_baton("pull", *arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def blob(self, name, data):
        return self.cache / ("models--" + name.replace("/", "--")) / "blobs" / hashlib.sha256(data).hexdigest()

    def check_large(self):
        self.assertEqual(self.blob("org/large-GGUF", LARGE).read_bytes(), LARGE)
        self.assertEqual(list(self.cache.rglob("*.incomplete")), [])


class Pull(HubCase):
    def test_a_gguf_file_and_its_layout(self):
        done = self.pull("org/tiny-GGUF:q8_0")
        path = pathlib.Path(done.stdout.strip())
        commit = self.hub.repos["org/tiny-GGUF"].commit
        folder = self.cache / "models--org--tiny-GGUF"
        self.assertEqual(path, folder / "snapshots" / commit / "tiny-Q8_0.gguf")
        self.assertEqual((folder / "refs" / "main").read_text(), commit)
        self.assertEqual(os.readlink(path), "../../blobs/" + hashlib.sha256(SMALL.read_bytes()).hexdigest())
        self.assertEqual(path.read_bytes(), SMALL.read_bytes())
        self.assertEqual([each.name for each in (folder / "blobs").iterdir()], [os.path.basename(os.readlink(path))])
        answer = self.run_baton("run", "-m", "org/tiny-GGUF:Q8_0", "--temp", "0", "-n", "4", "-q", "What is a fern?")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        own = self.run_baton("run", "-m", str(SMALL), "--temp", "0", "-n", "4", "-q", "What is a fern?")
        self.assertEqual(answer.stdout, own.stdout)
        for command in (("inspect", "org/tiny-GGUF"), ("perplexity", "-m", "org/tiny-GGUF", "--text",
                        str(ROOT / "tests/data/golden/heldout.txt"), "--chunks", "1", "--window", "64")):
            looked = self.run_baton(*command)
            self.assertEqual(looked.returncode, 0, looked.stderr)

    def test_which_type_is_taken(self):
        told = json.loads(self.pull("org/tiny-GGUF", "--json").stdout)
        self.assertEqual(told["type"], "Q8_0")  # before Q4_0
        told = json.loads(self.pull("org/large-GGUF", "--json").stdout)
        self.assertEqual((told["type"], told["bytes_fetched"]), ("Q4_K_M", len(LARGE)))
        again = json.loads(self.pull("hf.co/org/large-GGUF:q4_k_m", "--json").stdout)
        self.assertEqual((again["bytes_fetched"], again["files"][0]["fetched"]), (0, False))
        wrong = self.pull("org/tiny-GGUF:Q5_K_M", code=1)
        self.assertIn("has no 'Q5_K_M'; there are: Q4_0, Q8_0", wrong.stderr)
        self.assertIn("pickle", self.pull("org/pickle", code=1).stderr)

    def test_a_split_file_in_a_folder(self):
        path = pathlib.Path(self.pull("org/split-GGUF:Q4_K_M").stdout.strip())
        self.assertEqual(sorted(each.name for each in path.parent.iterdir()),
                         [f"s-Q4_K_M-{i:05}-of-00003.gguf" for i in (1, 2, 3)])
        self.assertEqual(path.read_bytes(), b"\1" * 1000)

    def test_a_folder_without_what_others_read(self):
        told = json.loads(self.pull("org/folder", "--json").stdout)
        names = [each["path"] for each in told["files"]]
        self.assertIn("model.safetensors", names)
        self.assertIn("tokenizer.json", names)
        self.assertFalse({"README.md", "pytorch_model.bin", "onnx/model.onnx"} & set(names))
        answer = self.run_baton("run", "-m", "org/folder", "--temp", "0", "-n", "2", "--json", "hi")
        self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_several_connections_and_no_token_for_another_host(self):
        self.pull("org/large-GGUF", HF_TOKEN="hf_right")
        self.check_large()
        asked = self.hub.of_store()
        self.assertGreaterEqual(len({each[3]["Range"] for each in asked}), 5)
        self.assertFalse([each for each in asked if "Authorization" in each[3]])
        to_hub = [each for each in self.hub.asked if each[0] == "hub"]
        self.assertTrue(all(each[3].get("Authorization") == "Bearer hf_right" for each in to_hub))

    def test_tokens(self):
        self.assertIn("HF_TOKEN", self.pull("org/secret", code=1).stderr)
        self.assertIn("must be let in", self.pull("org/gated", code=1).stderr)
        self.pull("org/secret", HF_TOKEN="hf_right")
        shutil.rmtree(self.cache)
        (self.home / "token").write_text("hf_right\n")
        self.pull("org/secret")
        wrong = self.pull("org/secret", code=1, HF_TOKEN="hf_wrong")
        self.assertNotIn("hf_wrong", wrong.stderr)

    def test_a_repository_that_moved(self):
        self.hub.moved["old/tiny"] = "org/tiny-GGUF"
        self.addCleanup(self.hub.moved.clear)
        self.pull("old/tiny")

    def test_names_that_lead_elsewhere_are_refused(self):
        for name in ("../x", "a/../b", "a/b/c", "a/b:../c", "a//b", "a/b c", "-a/b", "https://example.com/a/b", "a/.b"):
            done = self.run_baton("pull", "--", name)
            self.assertEqual(done.returncode, 2, name + done.stderr)
        bare = self.run_baton("pull", "tiny-GGUF:Q8_0")
        self.assertEqual(bare.returncode, 2)
        self.assertIn("OWNER/NAME or OWNER/NAME:TYPE", bare.stderr)
        self.assertEqual(self.hub.asked, [])
        self.assertEqual(self.pull("org/evil").returncode, 0)
        self.assertEqual(list(self.home.rglob("evil*")), [])
        self.assertEqual(self.run_baton("pull", "org/tiny-GGUF", "--revision", "../../x").returncode, 2)
        self.assertIn("no revision 'other'", self.pull("org/tiny-GGUF", "--revision", "other", code=1).stderr)
        self.assertIn("no model org/none", self.pull("org/none", code=1).stderr)


class Faults(HubCase):
    def test_connections_that_end_in_the_middle(self):
        self.hub.faults.cuts = 4
        done = self.pull("org/large-GGUF")
        self.check_large()
        self.assertIn("again in", done.stderr)
        self.assertLess(self.hub.sent, len(LARGE) * 1.2)

    def test_errors_that_pass(self):
        self.hub.faults.api_statuses = [(503, [])]
        self.hub.faults.statuses = [(500, []), (429, [("Retry-After", "1")]), (502, [])]
        start = time.monotonic()
        done = self.pull("org/large-GGUF")
        self.assertGreaterEqual(time.monotonic() - start, 1)
        self.assertIn("answered 429: again in 1.0 s", done.stderr)
        self.check_large()

    def test_errors_that_stay(self):
        self.hub.faults.statuses = [(404, [])] * 50
        self.assertIn("answered 404", self.pull("org/large-GGUF", code=1).stderr)

    def test_no_ranges(self):
        self.hub.faults.ranges = False
        self.pull("org/large-GGUF")
        self.check_large()

    def test_no_ranges_and_a_cut(self):
        self.hub.faults.ranges = False
        self.hub.faults.cuts = 3
        self.pull("org/large-GGUF")
        self.check_large()

    def test_no_such_part(self):
        self.hub.faults.no_part = 1
        self.pull("org/large-GGUF")
        self.check_large()

    def test_an_address_that_expired(self):
        self.hub.faults.expired = 2
        self.pull("org/large-GGUF")
        self.check_large()

    def test_a_wrong_sum(self):
        self.hub.faults.flip = True
        done = self.pull("org/large-GGUF", code=1)
        self.assertIn("SHA-256", done.stderr)
        self.assertIn("deleted", done.stderr)
        self.assertEqual(list((self.cache / "models--org--large-GGUF" / "blobs").iterdir()), [])
        self.assertEqual(list(self.cache.rglob("*.gguf")), [])
        self.hub.faults.flip = False
        self.pull("org/large-GGUF")
        self.check_large()

    def test_what_was_left_is_gone_on_from(self):
        part = self.blob("org/large-GGUF", LARGE).with_suffix(".incomplete")
        part.parent.mkdir(parents=True)
        part.write_bytes(LARGE[:20_000_000])
        self.pull("org/large-GGUF")
        self.check_large()
        self.assertEqual(self.hub.sent, len(LARGE) - 20_000_000)

    def test_what_was_left_is_wrong(self):
        part = self.blob("org/large-GGUF", LARGE).with_suffix(".incomplete")
        part.parent.mkdir(parents=True)
        part.write_bytes(b"?" * 20_000_000)
        self.assertIn("SHA-256", self.pull("org/large-GGUF", code=1).stderr)
        self.pull("org/large-GGUF")
        self.check_large()

    def begin(self):
        if self.hub.faults.hold is None:
            self.hub.faults.seconds = 0.05
        pull = subprocess.Popen([PROGRAM, "pull", "org/large-GGUF"], env=self.environment(), stderr=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(pull.kill)
        self.addCleanup(pull.stdout.close)
        self.addCleanup(pull.stderr.close)
        until = time.monotonic() + 60
        part = self.blob("org/large-GGUF", LARGE).with_suffix(".incomplete")
        while not (part.exists() and part.stat().st_size > 1_000_000):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        return pull, part

    def test_an_interrupt_and_a_kill(self):
        pull, part = self.begin()
        pull.send_signal(signal.SIGINT)
        self.assertEqual(pull.wait(30), 130)
        self.assertIn("goes on from there", pull.stderr.read())
        left = part.read_bytes()
        self.assertGreater(len(left), 1_000_000)
        self.assertEqual(left, LARGE[:len(left)])
        self.hub.reset()
        pull, part = self.begin()
        pull.kill()
        pull.wait(30)
        left = part.stat().st_size
        self.hub.reset()
        self.pull("org/large-GGUF")
        self.check_large()
        self.assertEqual(self.hub.sent, len(LARGE) - left)

    def test_two_pulls_at_once(self):
        first, _ = self.begin()
        second = subprocess.Popen([PROGRAM, "pull", "org/large-GGUF"], env=self.environment(), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        _, told = second.communicate(timeout=120)
        self.assertEqual(first.wait(60), 0)
        self.assertEqual(second.returncode, 0, told)
        self.assertIn("waiting for it", told)
        self.check_large()
        self.assertEqual(self.hub.sent, len(LARGE))

    def begin_held(self):
        """A pull that stands in the middle until the event is set."""
        self.hub.faults.hold = threading.Event()
        self.addCleanup(self.hub.faults.hold.set)
        return (*self.begin(), self.hub.faults.hold)

    def end_badly(self, pull, event):
        event.set()
        _, told = pull.communicate(timeout=60)
        self.assertEqual(pull.returncode, 1, told)
        self.assertIn("pull again", told)
        self.assertFalse(self.blob("org/large-GGUF", LARGE).exists())
        self.assertEqual(json.loads(self.run_baton("ls", "--json").stdout)["models"], [])

    def test_rm_while_it_is_pulled(self):
        pull, part, event = self.begin_held()
        locks = {path: path.stat().st_ino for path in (self.cache / ".locks").rglob("*.lock")}
        self.assertEqual(len(locks), 2)
        for name in ("org/large-GGUF", "org/large-GGUF:Q4_K_M"):
            done = self.run_baton("rm", name)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is being pulled", done.stderr)
        self.assertTrue(part.exists())
        event.set()
        _, told = pull.communicate(timeout=60)
        self.assertEqual(pull.returncode, 0, told)
        self.check_large()
        self.assertEqual(self.run_baton("rm", "org/large-GGUF").returncode, 0)
        self.assertFalse((self.cache / "models--org--large-GGUF").exists())
        self.assertEqual({path: path.stat().st_ino for path in (self.cache / ".locks").rglob("*.lock")}, locks)

    def test_rm_while_another_program_holds_a_lock(self):
        self.pull("org/large-GGUF")
        folder = self.cache / ".locks" / "models--org--large-GGUF"
        for name in (self.blob("org/large-GGUF", LARGE).name + ".lock", ".repository.lock"):
            with open(folder / name, "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for given in ("org/large-GGUF", "org/large-GGUF:Q4_K_M"):
                    done = self.run_baton("rm", given)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("is being pulled", done.stderr)
                self.check_large()
        self.assertEqual(self.run_baton("rm", "org/large-GGUF:Q4_K_M").returncode, 0)

    def test_a_part_that_another_program_replaces(self):
        # All is removed, locks too, and another program has begun anew.
        pull, part, event = self.begin_held()
        shutil.rmtree(self.cache / ".locks")
        shutil.rmtree(self.cache / "models--org--large-GGUF")
        part.parent.mkdir(parents=True)
        part.write_bytes(LARGE[:2_097_152])
        self.end_badly(pull, event)
        self.assertEqual(part.read_bytes(), LARGE[:2_097_152])
        self.hub.reset()
        self.pull("org/large-GGUF")
        self.check_large()

    def test_a_part_that_another_program_removes(self):
        pull, part, event = self.begin_held()
        part.unlink()
        self.end_badly(pull, event)

    def test_a_part_that_another_program_cuts(self):
        pull, part, event = self.begin_held()
        os.truncate(part, 1000)
        self.end_badly(pull, event)

    def test_a_part_that_is_no_file(self):
        part = self.blob("org/large-GGUF", LARGE).with_suffix(".incomplete")
        part.parent.mkdir(parents=True)
        os.mkfifo(part)
        self.assertIn("is no file", self.pull("org/large-GGUF", code=1).stderr)

    def test_a_file_that_is_removed_while_others_are_pulled(self):
        names = sorted(self.hub.repos["org/split-GGUF"].files)
        self.pull("org/split-GGUF")
        folder = self.cache / "models--org--split-GGUF"
        last = self.blob("org/split-GGUF", self.hub.repos["org/split-GGUF"].files[names[-1]])
        last.unlink()
        lock_path = self.cache / ".locks" / "models--org--split-GGUF" / (last.name + ".lock")
        with open(lock_path, "w") as lock:  # the pull stands before the last file
            fcntl.flock(lock, fcntl.LOCK_EX)
            pull = subprocess.Popen([PROGRAM, "pull", "org/split-GGUF"], env=self.environment(), text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(pull.kill)
            for line in pull.stderr:
                if "waiting for it" in line:
                    break
            self.blob("org/split-GGUF", self.hub.repos["org/split-GGUF"].files[names[0]]).unlink()
        _, told = pull.communicate(timeout=60)
        self.assertEqual(pull.returncode, 1, told)
        self.assertIn("another program removed it", told)
        self.pull("org/split-GGUF")
        self.assertEqual(len(list((folder / "blobs").iterdir())), 3)

    def tell_bytes(self, name, file, count):
        repo = self.hub.repos[name]
        repo.told_bytes[file] = count
        self.addCleanup(repo.told_bytes.clear)

    def test_a_disk_that_is_too_small(self):
        self.tell_bytes("org/large-GGUF", "large-Q4_K_M.gguf", 1 << 50)
        self.assertIn("are free there: make room", self.pull("org/large-GGUF", code=1).stderr)
        self.assertEqual(self.hub.of_store(), [])

    def test_a_size_that_is_none(self):
        for count in (2**64 - 1, 2**64 - 101, 2**63, 2**50 + 1):
            self.tell_bytes("org/large-GGUF", "large-Q4_K_M.gguf", count)
            self.assertIn("no file is so large", self.pull("org/large-GGUF", code=1).stderr)
        for count in (2**64, -1, "1e3", "0x64"):
            self.tell_bytes("org/large-GGUF", "large-Q4_K_M.gguf", count)
            self.assertIn("tells no size of it", self.pull("org/large-GGUF", code=1).stderr)
        self.assertEqual(self.hub.of_store(), [])

    def test_more_bytes_than_were_told(self):
        self.tell_bytes("org/large-GGUF", "large-Q4_K_M.gguf", 1000)
        self.assertIn("more bytes came than the 1000", self.pull("org/large-GGUF", code=1).stderr)
        self.assertEqual(list(self.cache.rglob("*.gguf")), [])

    def test_a_cache_that_cannot_be_written(self):
        (self.home / "hub").write_text("a file")
        self.assertIn("HF_HUB_CACHE", self.pull("org/tiny-GGUF", code=1).stderr)

    def test_a_cache_that_cannot_be_created(self):
        (self.home / "file").write_text("a file")
        for place, why in (("/proc/nope", ""), (str(self.home / "file" / "nope"), "Not a directory"),
                           (str(self.home / "file"), "Not a directory")):
            done = self.pull("org/tiny-GGUF", code=1, HF_HUB_CACHE=place)
            self.assertIn("the folder cannot be created: " + why, done.stderr)
            self.assertIn("HF_HUB_CACHE", done.stderr)
            self.assertNotIn("are free", done.stderr)
        self.assertEqual(self.hub.of_store(), [])

    def test_an_adapter_is_no_model(self):
        done = self.pull("org/adapter", code=1)
        self.assertIn("org/adapter is a LoRA adapter, not a model", done.stderr)
        self.assertIn("--lora", done.stderr)
        self.assertEqual(self.hub.of_store(), [])
        self.assertEqual(list(self.cache.rglob("adapter_model.safetensors")), [])

    def test_nobody_answers(self):
        done = self.pull("org/tiny-GGUF", code=1, HF_ENDPOINT="http://127.0.0.1:1")
        self.assertIn("HF_ENDPOINT", done.stderr)


class Names(HubCase):
    def test_ls_and_rm(self):
        self.assertEqual(json.loads(self.run_baton("ls", "--json").stdout)["models"], [])
        self.pull("org/tiny-GGUF:Q8_0")
        self.pull("org/tiny-GGUF:Q4_0")
        self.pull("org/folder")
        listed = json.loads(self.run_baton("ls", "--json").stdout)
        self.assertEqual([each["model"] for each in listed["models"]],
                         ["org/folder:safetensors", "org/tiny-GGUF:Q4_0", "org/tiny-GGUF:Q8_0"])
        self.assertTrue(all(each["whole"] for each in listed["models"]))
        self.assertEqual(len(self.run_baton("ls").stdout.splitlines()), 3)
        removed = json.loads(self.run_baton("rm", "org/tiny-GGUF:q4_0", "--json").stdout)["removed"]
        self.assertEqual([(each["files"], each["bytes"]) for each in removed], [(1, SMALL.stat().st_size)])
        self.assertEqual(self.run_baton("inspect", "org/tiny-GGUF:Q8_0").returncode, 0)
        self.assertEqual(self.run_baton("rm", "org/tiny-GGUF:Q4_0").returncode, 1)
        self.assertEqual(self.run_baton("rm", "org/tiny-GGUF", "org/folder").returncode, 0)
        self.assertEqual([each.name for each in self.cache.iterdir() if each.name.startswith("models")], [])
        self.assertEqual(self.run_baton("rm", "../x").returncode, 2)

    def test_a_link_out_of_the_cache_is_not_followed(self):
        self.pull("org/tiny-GGUF:Q8_0")
        outside = self.home / "mine.gguf"
        outside.write_bytes(b"mine")
        snapshot = next((self.cache / "models--org--tiny-GGUF" / "snapshots").iterdir())
        (snapshot / "x-Q6_K.gguf").symlink_to(outside)
        self.assertEqual(self.run_baton("rm", "org/tiny-GGUF:Q6_K").returncode, 0)
        self.assertEqual(outside.read_bytes(), b"mine")
        (snapshot / "y").symlink_to(self.home)
        self.assertEqual(self.run_baton("rm", "org/tiny-GGUF").returncode, 0)
        self.assertEqual(outside.read_bytes(), b"mine")

    def test_names_that_are_not_there(self):
        done = self.run_baton("run", "-m", "org/tiny-GGUF:Q8_0", "hi")
        self.assertEqual(done.returncode, 1)
        self.assertIn("`baton pull org/tiny-GGUF:Q8_0` would fetch it", done.stderr)
        self.pull("org/tiny-GGUF:Q8_0")
        for given, meant in (("org/tiny-GUFF:Q8_0", "org/tiny-GGUF:Q8_0"), ("org/tiny-gguf", "org/tiny-GGUF:Q8_0")):
            self.assertIn(f"did you mean {meant}?", self.run_baton("inspect", given).stderr)
        self.assertIn("has no 'Q4_K_M'; there are: Q8_0 in the cache",
                      self.run_baton("inspect", "org/tiny-GGUF:Q4_K_M").stderr)
        for given in ("tiny-gguf", "tiny-GGUF:Q8_0"):
            self.assertIn("did you mean org/tiny-GGUF:Q8_0?", self.run_baton("inspect", given).stderr)
        typo = self.run_baton("inspect", "org/tiny-GGUF:Q8_O").stderr
        self.assertIn("has no 'Q8_O'; there are: Q8_0 in the cache", typo)
        self.assertNotIn("would fetch it", typo)
        self.assertIn("did you mean org/tiny-GGUF:Q8_0?", self.run_baton("rm", "org/tiny-GUFF:Q8_0").stderr)
        for given in ("tiny-Q8_0.gguf", "tiny-q8_0", "tiny-GUFF"):
            self.assertIn("did you mean org/tiny-GGUF:Q8_0?", self.run_baton("inspect", given).stderr)
        self.assertIn("did you mean org/tiny-GGUF:Q8_0?", self.run_baton("rm", "tiny-GGUF").stderr)
        (self.home / "model.gguf").write_bytes(b"x")
        self.assertIn("did you mean model.gguf?", self.run_baton("inspect", "modle.gguf", cwd=self.home).stderr)
        (self.home / "models" / "qwen3").mkdir(parents=True)
        (self.home / "models" / "gemma-2b-Q8_0.gguf").write_bytes(b"x")
        for given, meant in (("models/gemma-2b-Q8_O.gguf", "gemma-2b-Q8_0.gguf"), ("models/qwen", "qwen3"),
                             ("models/GEMMA-2B-q8_0.gguf", "gemma-2b-Q8_0.gguf")):
            for place in ("", str(self.home) + "/"):
                done = self.run_baton("run", "-m", place + given, "hi", cwd=self.home)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"did you mean {place}models/{meant}?", done.stderr)
        self.assertNotIn("did you mean", self.run_baton("inspect", "models/zzzzzzzz.gguf", cwd=self.home).stderr)
        (self.home / "models" / "own.gguf").write_bytes(b"x")
        for given in ("models/own.ggfu", "modles/own.gguf", "modles/own.ggfu"):
            self.assertIn(f"{given}: No such file or directory; did you mean models/own.gguf?",
                          self.run_baton("inspect", given, cwd=self.home).stderr)
        (self.home / "many" / "one").mkdir(parents=True)
        (self.home / "many" / "one" / "config.json").write_text("{}")
        (self.home / "many" / "other").mkdir()
        self.assertIn("a folder of models: give one of those in it: one\n",
                      self.run_baton("inspect", "many", cwd=self.home).stderr)
        self.assertIn("in the cache: org/tiny-GGUF:Q8_0", self.run_baton("inspect", "zzzzzzzz").stderr)
        self.pull("any/tiny-GGUF-more:Q8_0")  # of which the other is a beginning
        self.assertIn("did you mean org/tiny-GGUF:Q8_0?", self.run_baton("inspect", "tiny-gguf").stderr)

    def test_every_place_of_a_model_takes_a_name(self):
        self.pull("org/tiny-GGUF:Q8_0")
        self.pull("org/folder")
        text = self.home / "text.txt"
        text.write_text("A compiler reads a program. " * 20)
        for arguments in (["convert", "org/folder", "c.gguf"], ["convert", "-m", "org/folder", "c.gguf"],
                          ["quantize", "c.gguf", "q.gguf", "Q8_0", "--allow-requantize"],
                          ["quantize", "org/tiny-GGUF", "q.gguf", "Q8_0", "--allow-requantize"],
                          ["perplexity", "org/tiny-GGUF", "--reference", "org/folder", "-w", "16", "--chunks", "1",
                           "-f", str(text)]):
            done = self.run_baton(*arguments, cwd=self.home)
            self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        done = self.run_baton("convert", "org/fodler", "c.gguf", cwd=self.home)
        self.assertEqual(done.returncode, 1)
        self.assertIn("did you mean org/folder", done.stderr)

    def test_a_folder_is_called_by_its_repository(self):
        self.pull("org/folder")
        done = self.run_baton("inspect", "org/folder", "--json")
        self.assertEqual(json.loads(done.stdout)["name"], "org/folder")
        self.run_baton("convert", "org/folder", "c.gguf", cwd=self.home)
        self.assertEqual(json.loads(self.run_baton("inspect", "c.gguf", "--json", cwd=self.home).stdout)["name"],
                         "org/folder")

    def test_help_says_where_names_are_taken(self):
        for command in ("run", "chat", "serve", "inspect", "bench", "perplexity", "ladder", "imatrix", "convert",
                        "quantize", "embed"):
            text = " ".join(self.run_baton(command, "--help").stdout.split())
            self.assertIn("or OWNER/NAME[:TYPE] of `baton pull`", text, command)
            self.assertNotIn("MODEL-", text, command)

    def test_a_path_goes_first(self):
        self.pull("org/tiny-GGUF:Q8_0")
        (self.home / "org").mkdir()
        (self.home / "org" / "tiny-GGUF").write_bytes(b"no model")
        self.assertEqual(self.run_baton("inspect", "org/tiny-GGUF", cwd=self.home).returncode, 1)

    def test_offline(self):
        done = self.pull("org/tiny-GGUF", code=1, HF_HUB_OFFLINE="1")
        self.assertIn("HF_HUB_OFFLINE", done.stderr)
        self.assertEqual(self.hub.asked, [])
        self.pull("org/tiny-GGUF")
        count = len(self.hub.asked)
        self.pull("org/tiny-GGUF", HF_HUB_OFFLINE="1")
        self.assertEqual(self.run_baton("inspect", "org/tiny-GGUF", HF_HUB_OFFLINE="1").returncode, 0)
        self.assertEqual(len(self.hub.asked), count)

    def test_a_configuration_file(self):
        self.pull("org/tiny-GGUF:Q8_0")
        config = self.home / "baton.toml"
        config.write_text('[[models]]\nname = "tiny"\npath = "org/tiny-GGUF:Q8_0"\n')
        done = self.run_baton("serve", "--config", str(config), "--check-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("snapshots", done.stdout)


class OverHttp(HubCase):
    def serve(self, *flags):
        server = subprocess.Popen([PROGRAM, "serve", "-m", str(SMALL), "--port", "0", *flags], env=self.environment(),
                                  stderr=subprocess.PIPE, text=True)
        self.server = server
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait, 60)
        self.addCleanup(server.terminate)
        for line in server.stderr:
            if "listening on" in line:
                return line.split()[-1]
        raise AssertionError("it does not listen")

    def ask(self, address, **body):
        request = urllib.request.Request(address + "/api/pull", json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, [json.loads(line) for line in answer.read().splitlines()]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, [json.loads(error.read())]

    def test_nothing_is_fetched_unasked(self):
        address = self.serve()
        status, lines = self.ask(address, model="org/tiny-GGUF:Q8_0")
        self.assertEqual(status, 404)
        self.assertIn("--allow-pull", lines[0]["error"])
        self.assertEqual(self.hub.asked, [])

    def test_lines_of_progress(self):
        address = self.serve("--allow-pull")
        status, lines = self.ask(address, model="org/large-GGUF:Q4_K_M")
        self.assertEqual((status, lines[0], lines[-1]), (200, {"status": "pulling manifest"}, {"status": "success"}))
        bars = [line for line in lines if "digest" in line]
        self.assertEqual(bars[-1]["digest"], "sha256:" + hashlib.sha256(LARGE).hexdigest())
        self.assertEqual((bars[-1]["total"], bars[-1]["completed"]), (len(LARGE), len(LARGE)))
        self.assertEqual([bar["completed"] for bar in bars], sorted(bar["completed"] for bar in bars))
        self.check_large()
        for _ in range(20):  # one that has ended is in nobody's way
            self.assertEqual(self.ask(address, model="org/tiny-GGUF", stream=False), (200, [{"status": "success"}]))
        self.assertEqual(self.ask(address, model="org/none", stream=False)[0], 404)
        self.assertIn("error", self.ask(address, model="org/none")[1][-1])
        self.assertEqual(self.ask(address, model="no-owner")[0], 400)
        self.assertEqual(self.ask(address, model="org/../x")[0], 400)

    def test_a_client_that_leaves_and_one_at_a_time(self):
        address = self.serve("--allow-pull")
        self.hub.faults.seconds = 0.1
        body = json.dumps({"model": "org/large-GGUF"}).encode()
        first = urllib.request.urlopen(urllib.request.Request(address + "/api/pull", body), timeout=60)
        first.readline()
        self.assertEqual(self.ask(address, model="org/tiny-GGUF")[0], 429)
        first.close()
        until = time.monotonic() + 30
        while self.ask(address, model="org/tiny-GGUF")[0] == 429:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)
        self.assertFalse(self.blob("org/large-GGUF", LARGE).exists())

    def test_a_server_that_ends_waits_for_no_pull(self):
        address = self.serve("--allow-pull", "--drain-seconds", "60")
        self.hub.faults.hold = threading.Event()
        self.addCleanup(self.hub.faults.hold.set)
        body = json.dumps({"model": "org/large-GGUF"}).encode()
        with urllib.request.urlopen(urllib.request.Request(address + "/api/pull", body), timeout=60) as answer:
            answer.readline()
            part = self.blob("org/large-GGUF", LARGE).with_suffix(".incomplete")
            until = time.monotonic() + 30
            while not part.exists():  # the first line comes before anything of the file is asked for
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            self.server.terminate()
            self.assertIn("error", json.loads(answer.read().splitlines()[-1]))
        self.assertEqual(self.server.wait(20), 0)
        self.assertTrue(part.exists())


@unittest.skipUnless(HAS_HUB, "needs huggingface_hub: run this with a Python that has it")
class Shared(HubCase):
    def python(self, code, **environment):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                              env=self.environment(**environment))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip().splitlines()[-1]

    def test_what_it_fetched_is_found_here(self):
        path = self.python("import huggingface_hub as h; print(h.hf_hub_download('org/tiny-GGUF', 'tiny-Q8_0.gguf'))")
        folder = self.python("import huggingface_hub as h; print(h.snapshot_download('org/folder'))")
        listed = json.loads(self.run_baton("ls", "--json").stdout)["models"]
        self.assertEqual([each["path"] for each in listed], [folder, path])
        sent = self.hub.sent
        for name in ("org/tiny-GGUF:Q8_0", "org/folder"):
            self.assertEqual(self.run_baton("inspect", name).returncode, 0)
            self.assertEqual(json.loads(self.pull(name, "--json").stdout)["bytes_fetched"], 0)
        self.assertEqual(self.hub.sent, sent)

    def test_what_was_pulled_is_found_there(self):
        path = self.pull("org/tiny-GGUF:Q8_0").stdout.strip()
        folder = self.pull("org/folder").stdout.strip()
        self.hub.servers["hub"].hub.asked.clear()
        found = self.python("import huggingface_hub as h; print(h.hf_hub_download('org/tiny-GGUF', 'tiny-Q8_0.gguf', "
                            "local_files_only=True))")
        self.assertEqual(found, path)
        whole = self.python("import huggingface_hub as h; print(h.snapshot_download('org/folder', "
                            "local_files_only=True))")
        self.assertEqual(whole, folder)
        scanned = json.loads(self.python(
            "import huggingface_hub as h, json; c = h.scan_cache_dir(); print(json.dumps([sorted((r.repo_id, r.nb_files, "
            "[sorted(v.refs) for v in r.revisions]) for r in c.repos), [str(w) for w in c.warnings]]))"))
        self.assertEqual(scanned[1], [])
        self.assertEqual([each[0] for each in scanned[0]], ["org/folder", "org/tiny-GGUF"])
        self.assertEqual(scanned[0][1][1:], [1, [["main"]]])
        self.assertEqual([each for each in self.hub.asked if "org/" in each[2]], [])
        # What it sees as fetched it does not fetch again.
        sent = self.hub.sent
        self.python("import huggingface_hub as h; print(h.hf_hub_download('org/tiny-GGUF', 'tiny-Q8_0.gguf'))")
        self.assertEqual(self.hub.sent, sent)


if __name__ == "__main__":
    unittest.main()
