#!/usr/bin/env python3
"""Asks a server for hours and watches its memory: chats that grow, streams that are read to their end or left in the
middle, and answers that are not waited for. Prints what came of it as JSON.

    soak.py --pid PID --seconds 3600 --clients 8      PID: of the server, on this machine

`drift`: how far the median of its resident memory in the last tenth of the time lies above that in the second tenth (the
first warms up). Exit status 1: an answer was no 200, states were left at the end, or the drift is above --drift.
Standard library only.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse

WORDS = "time year people way day man thing woman life child world school state family student group country problem".split()


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


class Client(threading.Thread):
    """One that chats until it is told to end."""

    def __init__(self, options, number, end):
        super().__init__(daemon=True)
        self.options, self.end = options, end
        self.random = random.Random(options.seed * 1000 + number)
        self.counts = {"whole": 0, "streamed": 0, "left": 0, "wrong": 0}
        self.first_wrong = None

    def words(self, most):
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, most)))

    def ask(self, messages, how):
        address = urllib.parse.urlsplit(self.options.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
        body = {"messages": messages, "max_tokens": self.random.randint(1, 48), "stream": how != "whole",
                "temperature": self.random.choice((0, 1)), "ignore_eos": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        if how == "left" and self.random.random() < 0.3:
            connection.close()  # not even the head is waited for
            return ""
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"{answer.status}: {answer.read()[:300]}")
        if how == "whole":
            text = json.loads(answer.read())["choices"][0]["message"]["content"]
        else:
            text, stop = "", self.random.randint(1, 20) if how == "left" else None
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise ValueError(str(event["error"]))
                for choice in event["choices"]:
                    text += choice["delta"].get("content") or ""
                if stop is not None:
                    stop -= 1
                    if stop <= 0:
                        break
        connection.close()
        return text or ""

    def run(self):
        messages = []
        while time.monotonic() < self.end:
            if len(messages) > 8 or self.random.random() < 0.2:
                messages = [{"role": "system", "content": self.words(60)}] if self.random.random() < 0.5 else []
            how = self.random.choice(("whole", "streamed", "streamed", "left"))
            messages.append({"role": "user", "content": self.words(40)})
            try:
                text = self.ask(messages, how)
                self.counts[how] += 1
                messages.append({"role": "assistant", "content": text})
            except (ValueError, OSError, http.client.HTTPException) as error:
                self.counts["wrong"] += 1
                self.first_wrong = self.first_wrong or repr(error)
                messages = []
            time.sleep(self.options.pause * self.random.random())


def state_bytes(url):
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    connection.request("GET", "/props")
    return json.loads(connection.getresponse().read())["usage"]["state_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--pause", type=float, default=0.0, help="at most so many seconds between two of a client")
    parser.add_argument("--drift", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.monotonic()
    clients = [Client(options, number, begin + options.seconds) for number in range(options.clients)]
    for client in clients:
        client.start()
    sizes = []
    while time.monotonic() < begin + options.seconds:
        time.sleep(min(1.0, options.seconds / 100))
        sizes.append(resident(options.pid))
        if len(sizes) % 60 == 0:
            total = sum(sum(client.counts.values()) for client in clients)
            print(f"{time.monotonic() - begin:.0f} s, {total} requests, {sizes[-1] / 2**20:.1f} MiB", file=sys.stderr)
    for client in clients:
        client.join(150)
    time.sleep(1)
    tenth = max(1, len(sizes) // 10)
    before, behind = statistics.median(sizes[tenth:2 * tenth] or sizes), statistics.median(sizes[-tenth:])
    made = {"seconds": round(time.monotonic() - begin, 1), "clients": options.clients}
    for name in clients[0].counts:
        made[name] = sum(client.counts[name] for client in clients)
    made["first_wrong"] = next((client.first_wrong for client in clients if client.first_wrong), None)
    made["state_bytes_left"] = state_bytes(options.url)
    made["rss_before"], made["rss_behind"], made["rss_peak"] = before, behind, max(sizes)
    made["drift"] = round(behind / before - 1, 5)
    print(json.dumps(made, indent=1))
    return 1 if made["wrong"] or made["state_bytes_left"] or made["drift"] > options.drift else 0


if __name__ == "__main__":
    sys.exit(main())
