"""HAProxy with the configuration that docs/OPERATIONS.md shows, in front of servers of a test."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

from weft_server import ROOT, skip, wait_until

PAGE = ROOT / "docs/OPERATIONS.md"
PORTS = {"http": 8080, "grpc": 8081}


def documented():
    """The configuration in the page."""
    return re.search(r"^```haproxy\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]


def program():
    """Path of HAProxy, which lies where a user's PATH may not lead."""
    path = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
    return path or skip("haproxy", "HAProxy is missing; deploy/setup.sh --tests installs it")


class HAProxy:
    """As a context manager. Looks like a server to clients: `http` and `grpc` are its own addresses,
    on ports that it gets as open sockets, so that nobody can take them in between."""

    # As WeftServer has them.
    headers: dict = {}

    def __init__(self, replicas, without=()):
        """`replicas`: {"a": server, "b": server}. `without`: lines of the configuration, by their
        beginnings, that are left out."""
        self.replicas, self.without = replicas, tuple(without)

    def config(self):
        lines = [line for line in documented().splitlines()
                 if not line.strip().startswith(self.without)]
        text = "\n".join(["global", f"  stats socket {self.folder}/stats level admin", *lines, ""])
        for door, listener in self.listeners.items():
            text = text.replace(f"bind :{PORTS[door]}", f"bind fd@{listener.fileno()}")
            for name, server in self.replicas.items():
                port = getattr(server, door).split(":")[1]
                text = re.sub(rf"(server {name}) \S+:{PORTS[door]}\b", rf"\1 127.0.0.1:{port}",
                              text)
        # A health check has a port of its own where it is not that of its server.
        for name, server in self.replicas.items():
            text = re.sub(rf"(server {name} .*check port) {PORTS['http']}",
                          rf"\1 {server.http.split(':')[1]}", text)
        return text

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-haproxy-"))
        self.listeners = {}
        for door in PORTS:
            listener = socket.create_server(("127.0.0.1", 0), backlog=256)
            self.listeners[door] = listener
            setattr(self, door, f"127.0.0.1:{listener.getsockname()[1]}")
        file = self.folder / "haproxy.cfg"
        file.write_text(self.config())
        self.log = (self.folder / "log").open("w+")
        self.process = subprocess.Popen(
            [program(), "-db", "-f", str(file)], stdout=self.log, stderr=self.log,
            pass_fds=[listener.fileno() for listener in self.listeners.values()])
        for listener in self.listeners.values():
            listener.close()
        try:
            wait_until(lambda: self.process.poll() is not None or (self.folder / "stats").exists(),
                       "HAProxy to start")
            for name in self.replicas:
                self.wait(name, "UP")
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(f"{error}\n{self.last_log}\n{file and self.config_text}") from None
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.seek(0)
        self.last_log, self.config_text = self.log.read(), (self.folder / "haproxy.cfg").read_text()
        self.log.close()
        shutil.rmtree(self.folder)

    # -- As a server ------------------------------------------------------------------------------
    def connection(self, timeout_s=120):
        import http.client
        host, port = self.http.split(":")
        return http.client.HTTPConnection(host, int(port), timeout=timeout_s)

    # -- What it thinks of its servers ------------------------------------------------------------
    def ask(self, command):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "stats"))
            client.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()

    def set_state(self, name, state):
        """`state`: "maint" sends a server nothing more, "ready" ends that."""
        for backend, server in self.stats():
            if server == name:
                answer = self.ask(f"set server {backend}/{name} state {state}").strip()
                assert not answer, answer

    def stats(self):
        """{(backend, server): {column: text}}"""
        text = self.ask("show stat")
        names, *rows = [line.split(",") for line in text.lstrip("# ").splitlines() if line]
        return {(row[0], row[1]): dict(zip(names, row)) for row in rows}

    def status(self, name):
        """UP or DOWN, of its HTTP and gRPC port alike, or None where they differ."""
        found = {row["status"].split(" ")[0] for (_, server), row in self.stats().items()
                 if server == name}
        return found.pop() if len(found) == 1 else None

    def sessions(self, name):
        """Requests that a server has had so far."""
        return sum(int(row["stot"]) for (_, server), row in self.stats().items() if server == name)

    def wait(self, name, status, timeout_s=30):
        wait_until(lambda: self.status(name) == status, f"HAProxy to see {name} {status}",
                   timeout_s)
