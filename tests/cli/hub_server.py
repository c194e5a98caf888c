"""A hub on this machine for tests: the parts of Hugging Face's interface that fetching a model touches, and a store on
another host that large files are sent on to. Faults are told by the test; what was asked is kept.
"""
import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def git_sum(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, commit="c0ffee" + "0" * 34, token=None, gated=False):
        self.files, self.commit, self.token, self.gated = files, commit, token, gated
        self.told_bytes = {}  # of files, where it tells something else

    def large(self, name):
        return name.endswith((".gguf", ".safetensors", ".bin"))

    def etag(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.large(name) else git_sum(data)


class Faults:
    def __init__(self):
        self.statuses = []        # of the next requests to the store: (status, headers)
        self.api_statuses = []    # of the next requests to the hub
        self.cuts = 0             # so many answers of the store end in their middle
        self.ranges = True
        self.no_part = 0          # so many ranges are answered 416
        self.flip = False         # a wrong byte in each file
        self.seconds = 0          # for each 256 KiB
        self.hold = None          # an event that each answer of the store waits for after 1.25 MiB
        self.expired = 0          # so many addresses of the store are good for nothing
        self.to_plain = False     # sends on to where it must not be followed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.faults = self.server.hub.faults  # of the test whose connection this is

    def log_message(self, *_):
        pass

    def answer(self, status, headers=(), body=b"", length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        with hub.lock:
            if self.faults is not hub.faults:  # of a client that was killed: it counts no more
                self.close_connection = True
                return
            hub.asked.append((self.server.name, self.command, path, dict(self.headers.items())))
        try:
            (self.get_store if self.server.name == "store" else self.get_hub)(hub, path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # --- the hub ---

    def may(self, repo):
        return repo.token is None or self.headers.get("Authorization") == "Bearer " + repo.token

    def get_hub(self, hub, path):
        with hub.lock:
            fault = hub.faults.api_statuses.pop(0) if hub.faults.api_statuses else None
        if fault:
            return self.answer(fault[0], fault[1])
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        if parts[:1] == ["small"]:
            return self.get_small(hub, parts)
        name = "/".join(parts[2:4] if api else parts[:2])
        repo = hub.repos.get(name)
        if name in hub.moved:
            return self.answer(307, [("Location", self.path.replace(name, hub.moved[name]))])
        if repo is None or not self.may(repo):
            if repo is not None and repo.gated:
                return self.answer(403, [("X-Error-Code", "GatedRepo"), ("X-Error-Message", "ask first")])
            return self.answer(401, [("X-Error-Code", "RepoNotFound"), ("X-Error-Message", "Repository not found")])
        revision = parts[5] if api and len(parts) > 5 else "main" if api else parts[3]
        if revision not in ("main", repo.commit):
            return self.answer(404, [("X-Error-Code", "RevisionNotFound")])
        if api:
            return self.get_api(repo, parts)
        self.get_file(hub, repo, name, "/".join(parts[4:]))

    def get_api(self, repo, parts):
        if len(parts) > 4 and parts[4] == "tree":
            listed = []
            for name, data in sorted(repo.files.items()):
                each = {"type": "file", "path": name, "size": len(data), "oid": git_sum(data)}
                if repo.large(name):
                    each["lfs"] = {"oid": repo.etag(name), "size": len(data), "pointerSize": 130}
                listed.append(each)
        else:
            listed = {"id": "/".join(parts[2:4]), "sha": repo.commit, "private": False, "tags": [], "downloads": 0,
                      "siblings": [{"rfilename": name} for name in sorted(repo.files)]}
        self.answer(200, [("Content-Type", "application/json")], json.dumps(listed).encode())

    def get_file(self, hub, repo, name, file):
        if file not in repo.files:
            return self.answer(404, [("X-Error-Code", "EntryNotFound")])
        common = [("X-Repo-Commit", repo.commit)]
        if not repo.large(file):  # as the hub does today: by a relative address of its own
            return self.answer(307, common + [("Location", f"/small/{name}/{file}")])
        to = "http://" + hub.address("store") + f"/{name}/{file}?signature={time.monotonic_ns()}"
        self.answer(302, common + [("Location", to), ("X-Linked-Etag", f'"{repo.etag(file)}"'), ("ETag", '"redirect"'),
                                   ("X-Linked-Size", str(repo.told_bytes.get(file, len(repo.files[file]))))])

    def get_small(self, hub, parts):
        repo, file = hub.repos["/".join(parts[1:3])], "/".join(parts[3:])
        self.answer(200, [("ETag", f'"{repo.etag(file)}"'), ("X-Repo-Commit", repo.commit)], repo.files[file])

    # --- the store ---

    def get_store(self, hub, path):
        faults = self.faults
        parts = path.strip("/").split("/")
        data = hub.repos["/".join(parts[:2])].files["/".join(parts[2:])]
        if faults.flip:
            data = data[:-1] + bytes([data[-1] ^ 1])
        part = self.headers.get("Range") if faults.ranges else None
        with hub.lock:
            fault = faults.statuses.pop(0) if faults.statuses else None
            cut = faults.cuts > 0
            faults.cuts -= cut
            expired = faults.expired > 0
            faults.expired -= expired
            no_part = part is not None and faults.no_part > 0
            faults.no_part -= no_part
        if fault:
            return self.answer(fault[0], fault[1])
        if expired:
            return self.answer(403, [], b"<Error>expired</Error>")
        if no_part:
            return self.answer(416, [("Content-Range", f"bytes */{len(data)}")])
        status, headers, whole = 200, [], len(data)
        if part:
            first, last = part.removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last or whole - 1), whole - 1)
            data, status = data[first:last + 1], 206
            headers = [("Content-Range", f"bytes {first}-{last}/{whole}")]
        self.send_response(status)
        for name, value in headers + [("Content-Length", str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(data) // 2 if cut else len(data)
        hold = faults.hold
        for at in range(0, end, 1 << 18):
            piece = data[at:min(at + (1 << 18), end)]
            self.wfile.write(piece)
            with hub.lock:
                if faults is hub.faults:
                    hub.sent += len(piece)
            if hold is not None and at == 1 << 20:
                hold.wait(100)
            if faults.seconds:
                time.sleep(faults.seconds)
        if cut:
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


class Hub:
    """Two servers: `hub` on localhost, `store` on 127.0.0.1, which is another host."""

    def __init__(self, repos):
        self.repos, self.moved, self.faults = repos, {}, Faults()
        self.lock, self.asked, self.sent = threading.Lock(), [], 0
        self.servers = {}
        for name in ("hub", "store"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.name = self, name
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers[name] = server

    def address(self, name):
        return f"{'localhost' if name == 'hub' else '127.0.0.1'}:{self.servers[name].server_address[1]}"

    def endpoint(self):
        return "http://" + self.address("hub")

    def reset(self):
        with self.lock:
            self.faults, self.asked, self.sent = Faults(), [], 0

    def of_store(self):
        with self.lock:
            return [each for each in self.asked if each[0] == "store"]

    def close(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()
