#!/usr/bin/env python3
"""A server that speaks what the page at "/" asks for (docs/server.md), without a model: answers are scripted.

page_test.py uses it as a module. By itself: page_stub.py [PORT] serves the page with traffic of four made-up users.
"""
import http.server
import json
import pathlib
import queue
import random
import re
import socket
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "baton" / "serve" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}


def policy():
    """The one that the program sends."""
    text = (PAGE.parent / "page.cc").read_text()
    return "".join(re.findall(r'"([^"]*)"', re.search(r"kPolicy =([^;]*(?:\"[^\"]*\"[^;]*)*);\n\n", text)[1]))


class Script:
    """How to answer: what is said, in pieces, and what goes wrong."""

    def __init__(self, text="An answer.", reasoning="", calls=(), status=200, error=None, gap=0.0, finish=None, cut=False,
                 break_after=None, headers=(), piece=4):
        self.text, self.reasoning, self.calls, self.status, self.error = text, reasoning, calls, status, error
        self.gap, self.cut, self.break_after, self.headers, self.piece = gap, cut, break_after, headers, piece
        self.finish = finish or ("tool_calls" if calls else "stop")


class Timeline:
    def __init__(self):
        self.start, self.seq, self.events, self.listeners, self.lock = time.monotonic(), 0, [], [], threading.Lock()
        self.usage = {"running": 0, "waiting": 0, "state_bytes": 0, "checkpoints": 0, "checkpoint_bytes": 0}

    def now(self):
        return (time.monotonic() - self.start) * 1000

    def add(self, event, request, model, **more):
        with self.lock:
            self.seq += 1
            made = {"seq": self.seq, "t_ms": self.now(), "event": event, "request": request, "model": model,
                    "usage": dict(self.usage), **more}
            self.events = [*self.events[-255:], made]
            for listener in self.listeners:
                listener.put(made)

    def listen(self):
        mine = queue.Queue()
        with self.lock:
            self.listeners.append(mine)
            first = {"now_ms": self.now(), "started": int(time.time()), "usage": dict(self.usage), "events": list(self.events),
                     "models": [{"id": "stub-28m", "prefill_unit": "ref", "decode_unit": "cpu", "strategy": "overlap"}]}
        return first, mine


def done_event(timeline, arrived, prefill, moved, first, prompt, made, finish, emulated=False, fallback=None):
    now = timeline.now()
    phases = [("queue", arrived, prefill, None), ("prefill", prefill, moved, "ref"), ("move", moved, (moved + first) / 2, "ref -> cpu"),
              ("verify", (moved + first) / 2, first, "cpu"), ("decode", first, now, "cpu")]
    seconds = max(now - first, 1) / 1000
    return {"finish": finish, "prompt_tokens": prompt, "cached_tokens": 64 if prompt > 100 else 0, "completion_tokens": made,
            "phases": [{"name": name, "start_ms": a, "end_ms": b, "unit": unit} for name, a, b, unit in phases if b > a],
            "bridge": {"kind": "move", "bytes": 3 << 20, "ms": 4.2, "hidden_ms": 2.0, "level": "proven", "verified": True},
            "state_bytes": 4_400_000 + prompt * 2048,
            "tokens_per_second": {"prefill": prompt * 1000 / max(moved - prefill, 1), "decode": made / seconds},
            "joules": 12.4 if emulated else "unknown", "emulated": emulated, "fallback": fallback}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.sockets.append(self.connection)

    def log_message(self, *_):
        pass

    def reply(self, status, body, content_type="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("Content-Type", content_type), ("Content-Length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, **more):
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}
        self.reply(status, {"error": error})

    def allowed(self):
        key = self.server.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.refuse(401, "this server needs a key", type="authentication_error", code="invalid_api_key")
        return False

    def begin_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data, name=None):
        text = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write(((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode())
        self.wfile.flush()

    def do_GET(self):
        path = self.path.split("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        if (path == "/" or path.startswith("/page/")) and (PAGE / name).is_file():
            self.reply(200, (PAGE / name).read_bytes(), TYPES[pathlib.Path(name).suffix],
                       [("Content-Security-Policy", policy()), ("Cache-Control", "no-cache")])
        elif not self.allowed():
            pass
        elif path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": each, "object": "model"} for each in self.server.models] + [
                {"id": each, "object": "model", "embedding_length": 64} for each in self.server.embedders]})
        elif path == "/props":
            self.reply(200, {"version": "0.1.0", "models": [{"id": "stub-28m", "context_tokens": 4096, "memory_bytes": 31 << 20}],
                             "units": [{"name": "cpu", "emulated": False}, {"name": "ref", "emulated": True}]})
        elif path == "/v1/timeline" and self.server.has_timeline:
            self.watch()
        else:
            self.refuse(404, f"there is no {path}")

    def watch(self):
        first, mine = self.server.timeline.listen()
        self.begin_events()
        try:
            self.event(first, "snapshot")
            while not self.server.stopped:
                try:
                    self.event(mine.get(timeout=0.2), "request")
                except queue.Empty:
                    self.wfile.write(b": quiet\n\n")
                    self.wfile.flush()
        except OSError:
            pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.allowed():
            return
        if self.path != "/v1/chat/completions":
            self.refuse(404, f"there is no {self.path}")
            return
        request = json.loads(body)
        self.server.bodies.append(request)
        script = self.server.script_of(request)
        if script.status != 200:
            raw = script.error if isinstance(script.error, bytes) else json.dumps(script.error).encode()
            self.reply(script.status, raw, "application/json", script.headers)
            return
        self.begin_events()
        try:
            self.answer(request, script)
        except OSError:
            self.server.gone += 1

    def answer(self, request, script):
        timeline, model = self.server.timeline, request.get("model") or "stub-28m"
        name, arrived = f"{random.getrandbits(96):024x}", timeline.now()
        prompt = sum(len(str(message.get("content") or "").split()) + 4 for message in request["messages"])
        timeline.add("queued", name, model, path=self.path, stream=True, prompt_tokens=prompt)
        prefill = timeline.now()
        timeline.add("prefill", name, model, prefill_unit="ref", decode_unit="cpu", strategy="overlap", queue_ms=prefill - arrived,
                     prompt_tokens=prompt)
        time.sleep(0.005)
        first = timeline.now()
        moved = prefill + (first - prefill) * 0.7
        timeline.add("decode", name, model, ttft_ms=first - arrived)

        def chunk(delta, finish=None):
            self.event({"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "model": model,
                        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            if script.gap:
                time.sleep(script.gap)

        chunk({"role": "assistant", "content": ""})
        made = 0
        for text, key in [(script.reasoning, "reasoning_content"), (script.text, "content")]:
            for at in range(0, len(text), script.piece):
                if script.break_after is not None and made >= script.break_after:
                    if not script.cut:
                        self.event({"error": {"message": "a unit failed at this request", "type": "server_error", "param": None,
                                              "code": "unit_failed"}})
                    return
                chunk({key: text[at:at + script.piece]})
                made += 1
        for i, (tool, arguments) in enumerate(script.calls):
            chunk({"tool_calls": [{"index": i, "id": f"call_{i}", "type": "function", "function": {"name": tool, "arguments": ""}}]})
            for at in range(0, len(arguments), 5):
                chunk({"tool_calls": [{"index": i, "function": {"arguments": arguments[at:at + 5]}}]})
                made += 1
        chunk({}, script.finish)
        phase = {"unit_asked": "ref", "unit_ran": "ref", "emulated": True, "tokens": prompt, "ms": moved - prefill,
                 "tokens_per_second": 412.5, "warning": None}
        self.event({"id": f"chatcmpl-{name}", "object": "chat.completion.chunk", "model": model, "choices": [],
                    "usage": {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made,
                              "prompt_tokens_details": {"cached_tokens": 0}},
                    "baton": {"queue_ms": 0.3, "ttft_ms": first - arrived, "total_ms": timeline.now() - arrived, "prefill": phase,
                              "decode": {**phase, "unit_asked": "cpu", "unit_ran": "cpu", "emulated": False, "tokens": made,
                                         "tokens_per_second": 38.25},
                              "bridge": {"kind": "move", "bytes": 3 << 20, "ms": 4.2, "hidden_ms": 2.0, "level": "proven",
                                         "verified": True, "unproven": None},
                              "cached_tokens": 0, "emulated": True, "fallback": None, "joules": 12.4}})
        self.event("[DONE]")
        timeline.add("done", name, model, **done_event(timeline, arrived, prefill, moved, first, prompt, made, script.finish, True))


class Stub(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0):
        self.sockets = []
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.models, self.key, self.has_timeline = ["stub-28m", "stub-3m"], None, True
        self.embedders = ["stub-vectors"]
        self.timeline, self.bodies, self.gone, self.stopped = Timeline(), [], 0, False
        self.script_of = lambda request: Script()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):  # a browser that went
        pass

    def stop(self):
        self.stopped = True
        self.shutdown()
        self.server_close()
        for each in self.sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has gone
                pass


def user(stub, number, chance):
    """Traffic in the timeline, without requests: two lanes, one prefill at a time."""
    timeline, usage = stub.timeline, stub.timeline.usage
    while not stub.stopped:
        time.sleep(chance.uniform(0.1, 2.5))
        name, prompt, made = f"{chance.getrandbits(96):024x}", chance.randint(20, 900), chance.randint(20, 160)
        arrived = timeline.now()
        usage["waiting"] += 1
        timeline.add("queued", name, "stub-28m", path="/v1/chat/completions", stream=True, prompt_tokens=prompt)
        with stub.prefill_lane:
            usage["waiting"] -= 1
            usage["running"] += 1
            usage["state_bytes"] += 4_400_000 + prompt * 2048
            prefill = timeline.now()
            timeline.add("prefill", name, "stub-28m", prefill_unit="ref", decode_unit="cpu", strategy="overlap",
                         queue_ms=prefill - arrived, prompt_tokens=prompt)
            time.sleep(prompt / 900)
        moved = timeline.now()
        time.sleep(0.06)
        first = timeline.now()
        timeline.add("decode", name, "stub-28m", ttft_ms=first - arrived)
        for token in range(0, made, 8):
            time.sleep(8 / 35)
            timeline.add("tokens", name, "stub-28m", tokens=token, tokens_per_second=chance.uniform(30, 40))
        usage["running"] -= 1
        usage["state_bytes"] -= 4_400_000 + prompt * 2048
        usage["checkpoints"] += 1
        usage["checkpoint_bytes"] += 1 << 20
        timeline.add("done", name, "stub-28m", **done_event(timeline, arrived, prefill, moved, first, prompt, made, "stop", number == 3))


def make_busy(stub, users=4):
    stub.prefill_lane = threading.Lock()
    for number in range(users):
        threading.Thread(target=user, args=(stub, number, random.Random(number)), daemon=True).start()


SHOWN = """## Prefill and decode

A request has **two phases** with *opposite* needs:

1. *Prefill* reads the whole prompt at once. It is bound by arithmetic.
2. *Decode* makes one token at a time. It is bound by `memory bandwidth`.

| phase | bound by | unit |
|---|---|---|
| prefill | arithmetic | `ref` |
| decode | bandwidth | `cpu` |

```c
// Reverses in place.
void reverse(char *text, size_t size) {
  for (size_t i = 0; i < size / 2; ++i) {
    char kept = text[i];
    text[i] = text[size - 1 - i];
    text[size - 1 - i] = kept;
  }
}
```

> A state is read and written by rows, sealed, verified.

More: <https://example.org/state>.
"""


def main():
    stub = Stub(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    stub.script_of = lambda request: Script(SHOWN, reasoning="The question is short. I compare the two phases.", gap=0.03)
    make_busy(stub)
    print(stub.url, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        stub.stop()


if __name__ == "__main__":
    main()
