"""docs/examples/resume: each client prints what one unbroken stream would have been, although its
connection is cut again and again, and although its server is killed.
"""

import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from weft_server import ROOT, WeftServer, run_tests, skip, wait_until

FOLDER = ROOT / "docs/examples/resume"
PROMPT = "Once upon a time"
# Of what the server sends: in the head, in the first events, and later. Then nothing is cut.
CUTS = (120, 900, 2500, 4000, 1800)
PATIENCE_S = 180


class CuttingProxy:
    """In front of a server: cuts its first connections, each after so many bytes of the answer."""

    def __init__(self, address, cuts):
        host, port = address.split(":")
        self.target, self.cuts, self.made = (host, int(port)), list(cuts), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            left = self.cuts.pop(0) if self.cuts else None
            for source, target, limit in ((client, server, None), (server, client, left)):
                threading.Thread(target=self.pump, args=(source, target, limit),
                                 daemon=True).start()

    def pump(self, source, target, left):
        try:
            while data := source.recv(1 << 16 if left is None else min(left, 1 << 16)):
                target.sendall(data)
                if left is not None:
                    left -= len(data)
                    if left == 0:
                        self.made.append(target)
                        break
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()

    def close(self):
        self.listener.close()


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer("--kv-memory=67108864").start()
        cls.folder = tempfile.TemporaryDirectory()
        text = (ROOT / "docs/GRPC.md").read_text()
        command = next(line for line in text.splitlines() if line.startswith("python -m grpc_tools"))
        (pathlib.Path(cls.folder.name) / "proto").symlink_to(ROOT / "proto")
        subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=cls.folder.name, check=True,
                       timeout=60)
        found = cls.server.post("/generate", {"inputs": PROMPT, "parameters": {
            "max_new_tokens": 64, "temperature": 0.8, "do_sample": True, "seed": 7,
            "ignore_eos": True}})
        cls.expected = found["generated_text"] + "\n"

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def start(self, argv, addresses, stdout=subprocess.PIPE):
        return subprocess.Popen(
            [*argv, PROMPT, *addresses], stdout=stdout, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": self.folder.name, "GOTOOLCHAIN": "local"})

    def check(self, argv, door, scheme=""):
        """Cut connections first, then a server that dies while it answers."""
        proxy = CuttingProxy(getattr(self.server, door), CUTS)
        try:
            said, log = self.start(argv, [scheme + proxy.address]).communicate(timeout=PATIENCE_S)
            self.assertEqual(said, self.expected, log)
            # gRPC says as much in fewer bytes.
            self.assertGreaterEqual(len(proxy.made), 2, log)
        finally:
            proxy.close()
        other = WeftServer("--kv-memory=67108864").start()
        client = self.start(argv, [scheme + getattr(one, door) for one in (other, self.server)])
        try:
            wait_until(lambda: other.metric("weft_generation_tokens_total") >= 8 or
                       client.poll() is not None, "tokens", PATIENCE_S)
            for pid in (other.process.pid, other.router_pid(), other.shard_pid(0)):
                os.kill(pid, signal.SIGKILL)
            said, log = client.communicate(timeout=PATIENCE_S)
            self.assertEqual(said, self.expected, log)
            self.assertIn(getattr(other, door), log)
        finally:
            client.kill()
            client.communicate()
            other.process.wait()
            other.close()

    def test_python_through_grpc(self):
        self.check([sys.executable, str(FOLDER / "python/resume.py")], "grpc")

    def test_go_through_completions(self):
        go = shutil.which("go", path=os.environ["PATH"] + ":/usr/local/go/bin")
        go = go or skip("go", "Go is missing; deploy/setup.sh --tests installs it")
        program = pathlib.Path(self.folder.name) / "resume"
        subprocess.run([go, "build", "-o", str(program), str(FOLDER / "go/main.go")], check=True,
                       timeout=300, env={**os.environ, "GOTOOLCHAIN": "local"})
        self.check([str(program)], "http", "http://")

    def test_node_through_tgi(self):
        node = shutil.which("node") or skip("node", "Node.js is missing; deploy/setup.sh --tests "
                                            "installs it")
        self.check([node, str(FOLDER / "node/resume.mjs")], "http", "http://")


if __name__ == "__main__":
    run_tests()
