"""What tests of `baton chat` share: the program at a terminal (a pseudo-terminal of the standard library) and from pipes.

Takes the program out of the arguments.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
SMALL = str(GOLDEN / "dictionary-3m")
LARGER = str(ROOT / "models" / "dictionary-28m.Q8_0.gguf")
PATIENCE = 60


def chat(*arguments, model=SMALL, **options):
    options.setdefault("timeout", 120)
    temperature = () if "--temp" in arguments else ("--temp", "0")
    return subprocess.run([PROGRAM, "chat", "-m", model, *temperature, *arguments], capture_output=True, text=True, **options)


def turns(lines, *arguments, **options):
    """JSON turns in, JSON answers out."""
    done = chat("--json", *arguments, input="".join(json.dumps(line) + "\n" for line in lines), **options)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


class Terminal:
    def __init__(self, *arguments, history="", model=SMALL, rows=30, columns=100):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8", NO_COLOR="1")
            os.execv(PROGRAM, [PROGRAM, "chat", "-m", model, "--history", history, *arguments])
        self.resize(rows, columns)
        self.seen = b""
        self.begun = self.expect("> ")

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def take(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def send(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        while data:
            select.select([], [self.fd], [], PATIENCE)
            data = data[os.write(self.fd, data[:1000]):]
            while self.take(0):
                pass

    def expect(self, text):
        """All that was shown up to and with `text`, which is taken away."""
        return self.match(re.escape(text.encode()))

    def match(self, pattern):
        """The same for the first match of a regular expression over bytes."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen)):
            if time.monotonic() > end or (not self.take(1) and self.ended()):
                raise AssertionError(f"no {pattern!r} in {self.seen[-2000:]!r}")
        shown, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return shown.decode(errors="replace").replace("\r\n", "\n")

    def quiet(self, seconds):
        """All that is shown in this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.take(0.05)
        shown, self.seen = self.seen, b""
        return shown.decode(errors="replace")

    def ended(self):
        self.code = getattr(self, "code", None)
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def line(self, text, until="\n> "):
        """Enters a line; what was shown from its echo to the next prompt."""
        self.send(text + "\r")
        return self.expect(until)

    def leave(self):
        end = time.monotonic() + PATIENCE
        while not self.ended() and time.monotonic() < end:
            self.take(0.05)
        os.close(self.fd)
        return self.code


# It writes the thinking into the prompt and drops it from the history, as those of thinking models.
THINKING_TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and '</think>' in m.content %}{{- m.content.split('</think>')[-1].lstrip('\\n') }}"
    "{%- else %}{{- m.content }}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '\\n</think>\\n\\n' }}{%- endif %}{%- endif %}")


def thinking_model(folder):
    """The small model with that template, in the folder."""
    for file in pathlib.Path(SMALL).iterdir():
        if file.name not in ("tokenizer_config.json", "chat_template.jinja"):
            (folder / file.name).symlink_to(file)
    config = json.loads((pathlib.Path(SMALL) / "tokenizer_config.json").read_text())
    config["chat_template"] = THINKING_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
