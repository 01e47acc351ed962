"""A hub for the tests of `weft pull`: the routes of Hugging Face's that clients use, with faults.

Two servers on loopback: the hub, which lists files and answers for the small ones itself, and a CDN
on another port, which it leads to (302) for the large ones. A Model's files are given as bytes. The
CDN's addresses are signed: each redirect makes a new one, which is good for `uses` requests.
"""

import hashlib
import http.server
import json
import re
import secrets
import ssl
import threading
import time
import urllib.parse

LARGE_BYTES = 64 << 10


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Model:
    """A repository at one commit, which `main` means."""

    def __init__(self, files, commit=None):
        self.files = files
        self.commit = commit or secrets.token_hex(20)

    def is_large(self, path):
        return len(self.files[path]) >= LARGE_BYTES

    def digest(self, path):
        data = self.files[path]
        return sha256(data) if self.is_large(path) else git_sha1(data)

    def sibling(self, path):
        entry = {"rfilename": path, "size": len(self.files[path]),
                 "blobId": git_sha1(self.files[path])}
        if self.is_large(path):
            entry["lfs"] = {"sha256": self.digest(path), "size": len(self.files[path]),
                            "pointerSize": 134}
        return entry

    def listing(self):
        return {"id": "x", "sha": self.commit, "siblings": [self.sibling(p) for p in self.files]}

    def tree(self):
        entries = []
        for path in self.files:
            entry = {"type": "file", "path": path, "size": len(self.files[path]),
                     "oid": git_sha1(self.files[path])}
            if self.is_large(path):
                entry["lfs"] = {"oid": self.digest(path), "size": len(self.files[path]),
                                "pointerSize": 134}
            entries.append(entry)
        return entries


class Asked:
    """One request as a server saw it."""

    def __init__(self, handler):
        self.server = handler.server.name
        self.method = handler.command
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.served = 0
        self.hub = handler.server.hub
        with self.hub.lock:
            self.hub.asked.append(self)
            self.hub.in_flight += 1
            self.hub.in_flight_max = max(self.hub.in_flight_max, self.hub.in_flight)
        self.in_flight = True

    def leave(self):
        """It is in flight no more: called before the client can know, who then asks again."""
        with self.hub.lock:
            self.hub.in_flight -= self.in_flight
            self.in_flight = False


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        """Clients are killed, and hang up."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        asked = Asked(self)
        hub = self.server.hub
        self.current = asked
        try:
            fault = hub.fault(asked) if hub.fault else None
            if fault is None or not fault(self, asked):
                getattr(self, "serve_" + self.server.name)(hub, asked)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            asked.leave()

    # -- Answers ----------------------------------------------------------------------------------
    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.current.leave()
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, **headers):
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def answer_bytes(self, asked, data, etag, **headers):
        """`data`, or the range that is asked for."""
        hub = self.server.hub
        start, stop, status = 0, len(data), 200
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.headers.get("range", ""))
        changed = asked.headers.get("if-range", etag) != etag
        if match and hub.ranges and not changed:
            start = int(match[1])
            stop = min(int(match[2]) + 1 if match[2] else len(data), len(data))
            if start >= len(data):
                return self.answer(416, Content_Range=f"bytes */{len(data)}")
            status = 206
            headers["Content_Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        for at in range(start, stop, 64 << 10):
            chunk = data[at:min(at + (64 << 10), stop)]
            if at + len(chunk) == stop:
                asked.leave()
            self.wfile.write(chunk)
            asked.served += len(chunk)
            if hub.bytes_per_s:
                time.sleep(len(chunk) / hub.bytes_per_s)

    # -- Routes -----------------------------------------------------------------------------------
    def serve_hub(self, hub, asked):
        url = urllib.parse.urlsplit(asked.path)
        path = urllib.parse.unquote(url.path)
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)", path)
        if match:
            model, revision = hub.models.get(match[1]), match[3]
            if model is None:
                return self.answer(404, b'{"error":"Repository not found"}',
                                   X_Error_Code="RepoNotFound")
            if revision not in ("main", model.commit, *hub.revisions):
                return self.answer(404, X_Error_Code="RevisionNotFound",
                                   X_Error_Message="Invalid rev id")
            if match[2] == "tree":
                return self.answer_json(model.tree())
            return self.answer_json(hub.listing(model) if hub.listing else model.listing())
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        model = hub.models.get(match[1]) if match else None
        if model is None or match[3] not in model.files:
            return self.answer(404, X_Error_Code="EntryNotFound")
        etag = f'"{model.digest(match[3])}"'
        if not model.is_large(match[3]):
            return self.answer_bytes(asked, model.files[match[3]], etag,
                                     X_Repo_Commit=model.commit)
        ticket = secrets.token_hex(8)
        hub.tickets[ticket] = [model.files[match[3]], hub.ticket_uses]
        self.answer(302, X_Repo_Commit=model.commit, X_Linked_Etag=etag,
                    X_Linked_Size=str(len(model.files[match[3]])),
                    Location=f"{hub.cdn_url}/{ticket}?signature=a%2Fb")

    def serve_cdn(self, hub, asked):
        ticket = hub.tickets.get(urllib.parse.urlsplit(asked.path).path[1:])
        if ticket is None or ticket[1] <= 0:
            return self.answer(403, b"<Error>Request has expired</Error>")
        ticket[1] -= 1
        # As a CDN's ETag is: not the hub's.
        self.answer_bytes(asked, ticket[0], f'"cdn-{sha256(ticket[0])[:8]}"')


class FakeHub:
    """Use as a context manager; `url` is for HF_ENDPOINT."""

    def __init__(self, tls=None, **models):
        # `tls`: paths of a certificate and its key. "org__name" in keywords.
        self.models = {name.replace("__", "/", 1): model for name, model in models.items()}
        self.revisions = []
        self.asked = []
        self.tickets = {}
        self.ticket_uses = 1 << 30
        self.ranges = True
        self.bytes_per_s = 0
        self.in_flight = self.in_flight_max = 0
        # Called with an Asked; what it returns is called with (handler, asked), and True of it
        # means that it has answered.
        self.fault = None
        # Called with a Model in the place of its own listing.
        self.listing = None
        self.lock = threading.Lock()
        self.servers = []
        for name in ("hub", "cdn"):
            server = _Server(("127.0.0.1", 0), _Handler)
            server.name, server.hub = name, self
            self.servers.append(server)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            for server in self.servers:
                server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.url, self.cdn_url = (f"{scheme}://127.0.0.1:{s.server_port}" for s in self.servers)

    def __enter__(self):
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    # -- What was asked ---------------------------------------------------------------------------
    def requests(self, server, part=""):
        with self.lock:
            return [a for a in self.asked if a.server == server and part in a.path]

    def forget(self):
        with self.lock:
            self.asked = []
            self.in_flight_max = 0

    def bytes_served(self, server="cdn"):
        return sum(a.served for a in self.requests(server))


# -- Faults: functions of (handler, asked) ----------------------------------------------------------
def status(code, **headers):
    def fault(handler, _):
        handler.answer(code, b'{"error":"planted"}', **headers)
        return True
    return fault


def cut_after(count):
    """Sends `count` bytes of what should come, then closes the connection."""
    def fault(handler, asked):
        class Cut(Exception):
            pass

        class Writer:
            def __init__(self, file):
                self.file, self.left, self.head = file, count, True

            def write(self, data):
                if self.head:  # status and headers are one write
                    self.head = False
                    return self.file.write(data)
                self.file.write(data[:self.left])
                self.left -= len(data)
                if self.left <= 0:
                    self.file.flush()
                    raise Cut()

            def flush(self):
                self.file.flush()

        real = handler.wfile
        handler.wfile = Writer(real)
        try:
            getattr(handler, "serve_" + handler.server.name)(handler.server.hub, asked)
        except Cut:
            handler.connection.shutdown(2)
        finally:
            handler.wfile = real
            handler.close_connection = True
        return True
    return fault
