#!/usr/bin/env python3
"""Loads a server that speaks OpenAI's interface (ours, llama.cpp's, ...) and prints what it measured as JSON.

    load.py --users 8 --requests 64                  so many users at once, each asks again when answered
    load.py --users 8 --requests 64 --long-prompt-at 2   and one long prompt comes in after 2 seconds
    load.py --rps 100 --seconds 10                   overload: so many requests a second, whoever answers or not
    load.py --idle-sse 1000 --seconds 30             connections that are held, each behind one short stream

Times are in ms, from when a request was sent. A gap is the time between two pieces of one answer. Exit status 1: nothing
was answered. Standard library only.
"""

import argparse
import asyncio
import collections
import json
import math
import random
import resource
import ssl
import sys
import time
import urllib.parse

WORDS = "time year people way day man thing woman life child world school state family student group country problem".split()
LINE_BYTES_MAX = 1 << 22


class Failed(Exception):
    """An answer that is none; its text is the kind that is counted."""


def percentiles(values):
    """Nearest rank; null of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    made = {name: round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) for name, share in shares.items()}
    return {"count": len(ordered), **made, "max": round(ordered[-1], 3)}


class Answer:
    """What came of one request."""

    def __init__(self):
        self.sent = time.perf_counter()
        self.status = None
        self.error = None
        self.retry_after = None
        self.headers_at = self.ended = None
        self.pieces = []  # when each came
        self.prompt_tokens = self.completion_tokens = 0

    def ttft(self):
        return (self.pieces[0] - self.sent) * 1e3 if self.pieces else None

    def gaps(self):
        """(when the later one came, ms)"""
        return [(b, (b - a) * 1e3) for a, b in zip(self.pieces, self.pieces[1:])]


async def body_lines(reader, headers):
    """Lines of a body, chunked or up to its end, as they come."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        rest = b""
        while True:
            head = await reader.readline()
            if not head:
                raise Failed("ended within a chunk")
            size = int(head.split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            if size == 0:
                break
            *lines, rest = (rest + data[:-2]).split(b"\n")
            for line in lines:
                yield line.rstrip(b"\r")
        if rest:
            yield rest
        return
    left = int(headers["content-length"]) if "content-length" in headers else None
    while left is None or left > 0:
        line = await reader.readline()
        if not line:
            return
        left = None if left is None else left - len(line)
        yield line.rstrip(b"\r\n")


async def read_head(reader):
    first = (await reader.readline()).decode("latin-1").split(None, 2)
    if len(first) < 2 or not first[1].isdigit():
        raise Failed("no status line")
    headers = {}
    while line := (await reader.readline()).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(first[1]), headers


def has_text(event):
    """Whether an event of a stream holds a piece of an answer."""
    for choice in event.get("choices") or []:
        delta = choice.get("delta") or {}
        if choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"):
            return True
    return False


def take_event(answer, line):
    """False behind the last."""
    if not line.startswith(b"data:"):
        return True
    data = line[5:].strip()
    if data == b"[DONE]":
        return False
    event = json.loads(data)
    if "error" in event:
        raise Failed("error in the stream")
    if has_text(event):
        answer.pieces.append(time.perf_counter())
    usage = event.get("usage") or {}
    answer.prompt_tokens = usage.get("prompt_tokens", answer.prompt_tokens)
    answer.completion_tokens = usage.get("completion_tokens", answer.completion_tokens)
    return True


class Client:
    def __init__(self, options):
        self.options = options
        url = urllib.parse.urlsplit(options.url)
        self.tls = ssl._create_unverified_context() if url.scheme == "https" else None
        self.host, self.port = url.hostname, url.port or (443 if self.tls else 80)
        self.path = url.path.rstrip("/") + ("/v1/chat/completions" if options.endpoint == "chat" else "/v1/completions")
        self.random = random.Random(options.seed)

    def request(self, tokens, max_tokens, keep=False):
        text = f"{self.random.randrange(10**6)} " + " ".join(self.random.choices(WORDS, k=max(1, tokens - 2)))
        body = {"max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
        if self.options.model:
            body["model"] = self.options.model
        body.update({"messages": [{"role": "user", "content": text}]} if self.options.endpoint == "chat" else {"prompt": text})
        if self.options.ignore_eos:
            body["ignore_eos"] = True
        data = json.dumps(body).encode()
        key = f"Authorization: Bearer {self.options.api_key}\r\n" if self.options.api_key else ""
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n{key}"
        return (head + f"Content-Length: {len(data)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n").encode() + data

    async def connect(self):
        return await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=LINE_BYTES_MAX)

    async def exchange(self, answer, reader):
        answer.status, headers = await read_head(reader)
        answer.headers_at = time.perf_counter()
        answer.retry_after = headers.get("retry-after")
        if answer.status != 200:
            raise Failed(f"status {answer.status}")
        more = True
        async for line in body_lines(reader, headers):
            more = more and take_event(answer, line)
        if more:
            raise Failed("ended without [DONE]")

    async def ask(self, tokens, max_tokens):
        answer = Answer()
        writer = None
        try:
            async with asyncio.timeout(self.options.timeout):
                reader, writer = await self.connect()
                writer.write(self.request(tokens, max_tokens))
                await self.exchange(answer, reader)
        except Failed as error:
            answer.error = str(error)
        except TimeoutError:
            answer.error = "timeout"
        except (OSError, EOFError, ValueError) as error:  # reset, refused, cut, no JSON
            answer.error = "connect" if writer is None else type(error).__name__
        finally:
            answer.ended = time.perf_counter()
            if writer is not None:
                writer.close()
        return answer


def summary(answers, began, ended):
    good = [answer for answer in answers if answer.error is None]
    tokens = sum(answer.completion_tokens or len(answer.pieces) for answer in good)
    seconds = max(ended - began, 1e-9)
    refused = [answer for answer in answers if answer.status in (429, 503)]
    made = {
        "seconds": round(seconds, 3),
        "requests": len(answers),
        "completed": len(good),
        "errors": dict(collections.Counter(answer.error for answer in answers if answer.error)),
        "prompt_tokens": sum(answer.prompt_tokens for answer in good),
        "completion_tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 3),
        "ttft_ms": percentiles([answer.ttft() for answer in good if answer.pieces]),
        "inter_token_ms": percentiles([gap for answer in good for _, gap in answer.gaps()]),
        "whole_ms": percentiles([(answer.ended - answer.sent) * 1e3 for answer in good]),
    }
    if refused:
        made["refused_ms"] = percentiles([(answer.headers_at - answer.sent) * 1e3 for answer in refused])
        made["refused_without_retry_after"] = sum(answer.retry_after is None for answer in refused)
    return made


async def closed_loop(client, options):
    """Each of the users asks again when answered; perhaps one long prompt comes in between."""
    answers, left = [], options.requests

    async def user():
        nonlocal left
        while left > 0:
            left -= 1
            answers.append(await client.ask(options.prompt_tokens, options.max_tokens))

    async def long_prompt():
        await asyncio.sleep(options.long_prompt_at)
        return await client.ask(options.long_prompt_tokens, options.max_tokens)

    began = time.perf_counter()
    late = asyncio.create_task(long_prompt()) if options.long_prompt_at is not None else None
    await asyncio.gather(*(user() for _ in range(options.users)))
    ended = time.perf_counter()
    made = {"mode": "users", "users": options.users, **summary(answers, began, ended)}
    if late is not None:
        answer = await late
        until = answer.pieces[0] if answer.pieces else answer.ended
        during = [gap for other in answers for at, gap in other.gaps() if answer.sent <= at <= until + gap / 1e3]
        made["long_prompt"] = {
            "error": answer.error,
            "prompt_tokens": answer.prompt_tokens,
            "ttft_ms": None if answer.ttft() is None else round(answer.ttft(), 3),
            "inter_token_ms_of_others": percentiles(during),
        }
    return made


async def open_loop(client, options):
    """Requests at a fixed rate, whether answered or not."""
    began = time.perf_counter()
    tasks = []
    for i in range(max(1, round(options.rps * options.seconds))):
        await asyncio.sleep(max(0.0, began + i / options.rps - time.perf_counter()))
        tasks.append(asyncio.create_task(client.ask(options.prompt_tokens, options.max_tokens)))
    answers = await asyncio.gather(*tasks)
    return {"mode": "rps", "rps": options.rps, **summary(answers, began, time.perf_counter())}


async def idle(client, options):
    """Connections that stay open behind one short stream, or, with --idle-path, within one that does not end."""
    held, errors, at_once = [], collections.Counter(), asyncio.Semaphore(64)

    async def hold():
        try:
            async with at_once, asyncio.timeout(options.timeout):
                reader, writer = await client.connect()
                held.append((reader, writer))
                if options.idle_path:
                    writer.write(f"GET {options.idle_path} HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
                    status, _ = await read_head(reader)
                    if status != 200:
                        raise Failed(f"status {status}")
                else:
                    writer.write(client.request(4, 1, keep=True))
                    await client.exchange(Answer(), reader)
        except Failed as error:
            errors[str(error)] += 1
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            errors[type(error).__name__] += 1

    began = time.perf_counter()
    await asyncio.gather(*(hold() for _ in range(options.idle_sse)))
    opened = time.perf_counter()
    probes = []
    while time.perf_counter() < opened + options.seconds:  # is anybody served beside them?
        probes.append(await client.ask(options.prompt_tokens, options.max_tokens))
        await asyncio.sleep(min(1.0, options.seconds / 4))
    open_still = sum(not reader.at_eof() for reader, _ in held)
    made = {"mode": "idle", "asked": options.idle_sse, "opened": len(held), "held": open_still, "errors": dict(errors),
            "open_seconds": round(opened - began, 3), "beside": summary(probes, opened, time.perf_counter())}
    for _, writer in held:
        writer.close()
    return made


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--endpoint", choices=("chat", "completions"), default="chat")
    parser.add_argument("--model", default="")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--requests", type=int, default=64, help="of all users together")
    parser.add_argument("--prompt-tokens", type=int, default=64, help="about so many: one word each")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--ignore-eos", action="store_true", help="asks for it: answers of one length")
    parser.add_argument("--long-prompt-at", type=float, metavar="SECONDS")
    parser.add_argument("--long-prompt-tokens", type=int, default=2000)
    parser.add_argument("--rps", type=float, metavar="N")
    parser.add_argument("--idle-sse", type=int, metavar="N")
    parser.add_argument("--idle-path", default="", help="a GET that streams, for --idle-sse")
    parser.add_argument("--seconds", type=float, default=10, help="of --rps and --idle-sse")
    parser.add_argument("--timeout", type=float, default=300, help="of one request, seconds")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts")
    return parser.parse_args()


def main():
    options = arguments()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))
    client = Client(options)
    mode = idle if options.idle_sse else open_loop if options.rps else closed_loop
    made = asyncio.run(mode(client, options))
    print(json.dumps({"url": options.url, "prompt_tokens_asked": options.prompt_tokens, **made}, indent=1))
    sys.exit(0 if made.get("completed") or made.get("held") else 1)


if __name__ == "__main__":
    main()
