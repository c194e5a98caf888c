#!/usr/bin/env python3
"""The load generator against a server whose times and faults are known."""

import asyncio
import json
import pathlib
import subprocess
import sys
import threading
import unittest

LOAD = pathlib.Path(__file__).resolve().with_name("load.py")


class Stub:
    """Streams `tokens` pieces, `gap` seconds between them; more than `slots` at once are refused."""

    def __init__(self, tokens=5, gap=0.02, slots=100, fault=None):
        self.tokens, self.gap, self.slots, self.fault = tokens, gap, slots, fault
        self.active = self.seen = self.connections = self.connections_max = 0
        self.bodies, self.ready = [], threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True).start()
        self.ready.wait(10)

    async def serve(self):
        server = await asyncio.start_server(self.connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.loop, self.stopped = asyncio.get_running_loop(), asyncio.Event()
        self.ready.set()
        await self.stopped.wait()
        server.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.stopped.set)

    async def connection(self, reader, writer):
        self.connections += 1
        self.connections_max = max(self.connections, self.connections_max)
        try:
            while await self.one(reader, writer):
                pass
        except (OSError, EOFError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    async def one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        self.seen += 1
        if self.active >= self.slots:
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}")
            return False
        if self.fault == "500" and self.seen % 2 == 0:
            writer.write(b"HTTP/1.1 500 Internal\r\nContent-Length: 2\r\n\r\n{}")
            return False
        self.active += 1
        try:
            await self.stream(writer)
        finally:
            self.active -= 1
        return "keep-alive" in head and self.fault is None

    async def stream(self, writer):
        def send(text):
            data = text.encode()
            half = len(data) // 2  # a line that two chunks share
            for part in (data[:half], data[half:]):
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")

        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        send(": a comment\n\n")
        send("data: " + json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]}) + "\n\n")
        for i in range(self.tokens):
            await asyncio.sleep(self.gap)
            if writer.is_closing():
                return
            if self.fault == "error" and i == 2:
                send('data: {"error": {"message": "no"}}\n\n')
            send("data: " + json.dumps({"choices": [{"delta": {"content": "\u00fc"}}]}, ensure_ascii=False) + "\n\n")
        if self.fault == "cut":
            return
        usage = {"prompt_tokens": 7, "completion_tokens": self.tokens}
        send("data: " + json.dumps({"choices": [], "usage": usage}) + "\n\n")
        if self.fault != "no end":
            send("data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


class LoadTest(unittest.TestCase):
    def load(self, stub, *flags, status=0):
        done = subprocess.run([sys.executable, LOAD, "--url", stub.url, *flags], capture_output=True, text=True, timeout=120)
        stub.stop()
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)

    def test_users(self):
        stub = Stub()
        got = self.load(stub, "--users", "3", "--requests", "7", "--prompt-tokens", "30", "--max-tokens", "9")
        self.assertEqual((got["completed"], got["errors"], got["requests"]), (7, {}, 7))
        self.assertEqual((got["prompt_tokens"], got["completion_tokens"]), (49, 35))
        self.assertEqual((got["ttft_ms"]["count"], got["inter_token_ms"]["count"]), (7, 28))
        self.assertGreaterEqual(got["inter_token_ms"]["p50"], 15)
        self.assertGreaterEqual(got["ttft_ms"]["p50"], 15)
        self.assertGreaterEqual(got["whole_ms"]["p50"], 90)
        self.assertGreater(got["tokens_per_second"], 1)
        self.assertEqual(stub.connections_max, 3)
        body = stub.bodies[0]
        self.assertEqual((body["stream"], body["max_tokens"]), (True, 9))
        self.assertEqual(len(body["messages"][0]["content"].split()), 29)

    def test_a_long_prompt_comes_in(self):
        stub = Stub(tokens=20)
        got = self.load(stub, "--users", "2", "--requests", "4", "--long-prompt-at", "0.15", "--long-prompt-tokens", "500")
        self.assertEqual((got["requests"], got["long_prompt"]["error"]), (4, None))
        self.assertGreater(got["long_prompt"]["inter_token_ms_of_others"]["count"], 0)
        self.assertEqual(max(len(body["messages"][0]["content"].split()) for body in stub.bodies), 499)

    def test_faults_are_counted(self):
        for fault, name in (("500", "status 500"), ("cut", "ended within a chunk"), ("no end", "ended without [DONE]"),
                            ("error", "error in the stream")):
            got = self.load(Stub(fault=fault), "--users", "1", "--requests", "4", status=0 if fault == "500" else 1)
            self.assertEqual(got["errors"], {name: 2 if fault == "500" else 4}, fault)

    def test_nobody_listens(self):
        stub = Stub()
        stub.url = "http://127.0.0.1:1"
        self.assertEqual(self.load(stub, "--users", "1", "--requests", "2", status=1)["errors"], {"connect": 2})

    def test_overload(self):
        stub = Stub(tokens=10, slots=2)
        got = self.load(stub, "--rps", "50", "--seconds", "1")
        self.assertEqual(got["requests"], 50)
        self.assertGreater(got["completed"], 1)
        self.assertEqual(got["errors"], {"status 429": 50 - got["completed"]})
        self.assertEqual(got["refused_ms"]["count"], 50 - got["completed"])
        self.assertEqual(got["refused_without_retry_after"], 0)

    def test_idle_connections_are_held(self):
        stub = Stub(tokens=1, gap=0.001)
        got = self.load(stub, "--idle-sse", "40", "--seconds", "0.5")
        self.assertEqual((got["opened"], got["held"], got["errors"]), (40, 40, {}))
        self.assertGreater(got["beside"]["completed"], 0)
        self.assertGreater(stub.connections_max, 40)
        # A server that hangs up is seen.
        got = self.load(Stub(tokens=1, gap=0.001, fault="closes"), "--idle-sse", "5", "--seconds", "0.3", status=1)
        self.assertEqual((got["opened"], got["held"]), (5, 0))


if __name__ == "__main__":
    unittest.main()
