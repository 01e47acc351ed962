"""What the tests of client libraries share: a server under the names that clients take, questions
whose answers are known, and a load that keeps everybody else waiting.

Only Python's own library, pydantic and weft_server.py: the clients live in several virtual
environments.
"""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import threading
import typing
import unittest

import pydantic

from weft_server import BIN, WeftServer, wait_until

PROMPT = "The capital of France is"
# What the demo model says behind it, and how likely that is (natural logarithm).
FIRST_TOKEN, FIRST_LOGPROB = " Paris", -0.267
MESSAGES = [{"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": "What is the capital of France?"}]
ABOUT_A_CAT = [{"role": "user", "content": "Describe a cat called Tom as JSON."}]
SMALL = "--kv-memory=67108864"
SEEDS = (1, 7, 2**53 - 1)
# A client that has not come back by then has hung.
TIMEOUT_S = 60


class Animal(pydantic.BaseModel):
    """A schema whose every answer is short."""

    name: typing.Literal["Tom", "Rex"]
    kind: typing.Literal["cat", "dog"]
    age: int = pydantic.Field(ge=0, le=30)
    indoors: bool


class ClientTest(unittest.TestCase):
    """One server a class, with the flags of the class."""

    flags: tuple = ()

    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer(SMALL, *cls.flags).start()
        cls.url = f"http://{cls.server.http}"
        cls.model = json.loads(cls.server.request("GET", "/info")[2])["model_id"]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        # No test leaves a request behind: what a client gave up has to be gone from the server.
        self.server.wait_idle()

    def chat(self, **fields):
        """What the server says itself, without a client."""
        return self.server.post("/v1/chat/completions", {"messages": MESSAGES, **fields})

    def generate(self, prompt=PROMPT, **parameters):
        return self.server.post("/generate", {"inputs": prompt,
                                              "parameters": {"details": True, **parameters}})


def keyed_server(test_class):
    """(a server that wants a key, the key); both go with the class."""
    folder = tempfile.TemporaryDirectory()
    test_class.addClassCleanup(folder.cleanup)
    keys = pathlib.Path(folder.name) / "keys.json"
    key = subprocess.run([BIN / "weft", "key", "new", "--tenant", "clients", "--file", keys],
                         check=True, capture_output=True, text=True, timeout=30).stdout.split()[0]
    server = WeftServer(SMALL, f"--api-keys={keys}").start()
    test_class.addClassCleanup(server.stop)
    return server, key


@contextlib.contextmanager
def hogs(server, count):
    """So many requests that do not end by themselves; at the exit, or by the yielded function,
    their clients leave."""
    connections = []

    def leave():
        while connections:
            connections.pop().close()

    try:
        for number in range(1, count + 1):
            connections.append(server.connection())
            body = {"inputs": "Hi", "parameters": {"max_new_tokens": 1500, "ignore_eos": True}}
            connections[-1].request("POST", "/generate_stream", json.dumps(body),
                                    {"Content-Type": "application/json"})
            wait_until(lambda: server.metric("weft_num_requests_running")
                       + server.metric("weft_num_requests_waiting") == number,
                       f"{number} requests are there")
        yield leave
    finally:
        leave()


@contextlib.contextmanager
def busy_until_refused(server, reason, count=1):
    """A server that has no room for one more until it has refused one for this reason."""
    failures = lambda: server.metric("weft_request_failure_total", reason=reason)
    before = failures()
    with hogs(server, count) as leave:
        def watch():
            wait_until(lambda: failures() > before, f"a request is refused: {reason}", TIMEOUT_S)
            leave()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            watcher.join(TIMEOUT_S)
