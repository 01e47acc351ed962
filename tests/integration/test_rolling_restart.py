"""Two replicas behind HAProxy, as docs/OPERATIONS.md ("Rolling restarts") has it: one after the
other is drained and started again under load, and no client notices. With "full" as an argument it
takes five times the requests.
"""

import collections
import http.client
import itertools
import json
import random
import signal
import sys
import threading
import time
import unittest

from haproxy import HAProxy
from stream_clients import Checker, Streams, mixed, through
from stream_doors import GRPC, TGI, Ask, grpc_request, http_body
from weft_server import WeftServer, grpc_modules, run_tests, seed, wait_until

SEED = seed(61)
REQUESTS = 10_000 if "full" in sys.argv else 2_000
CLIENTS, STREAMS = 8, 8
PATIENCE_S = 120
# As the page says for a balancer that asks each second.
DELAY_S = 5
FLAGS = ("--kv-memory=67108864", "--drain-timeout-s=120", f"--shutdown-delay-s={DELAY_S}")


class ShortRequests:
    """Clients that ask for a token again and again, by turns over HTTP and gRPC, each on one
    connection that it keeps. Nobody tries a second time."""

    def __init__(self, front):
        self.front, self.done, self.failed = front, itertools.count(1), []
        self.count, self.doors = 0, collections.Counter()
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(door, index), daemon=True)
                        for index, door in zip(range(CLIENTS), itertools.cycle((TGI, GRPC)))]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.failed.append("a client hangs")

    def ask(self, door, index):
        ask = {TGI: self.http, GRPC: self.grpc}[door]()
        for number in itertools.count():
            if self.stop.is_set():
                return
            failure = ask(Ask(f"Number {index} {number % 50}:", max_tokens=1))
            if failure:
                self.failed.append(f"{time.time():.3f} {door}: {failure}")
            self.count = next(self.done)
            self.doors[door] += 1

    def http(self):
        connection = self.front.connection()

        def ask(one):
            try:
                connection.request("POST", "/generate", json.dumps(http_body(TGI, one)),
                                   {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
                if answer.status == 200 and json.loads(text)["details"]["generated_tokens"] == 1:
                    return None
                return f"{answer.status} {text[:300]}"
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                return repr(error)
        return ask

    def grpc(self):
        grpc, pb, pb_grpc = grpc_modules()
        stub = pb_grpc.TextGenerationStub(grpc.insecure_channel(
            self.front.grpc, [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]))

        def ask(one):
            try:
                answer = list(stub.Generate(grpc_request(pb, one), timeout=PATIENCE_S))
                return None if answer[-1].finish_info.output_tokens == 1 else repr(answer)
            except grpc.RpcError as error:
                return f"{error.code().name}: {error.details()}"
        return ask


class RollingRestart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.asks = mixed(STREAMS, random.Random(SEED), tokens=(40, 80))

    def replica(self, *flags):
        server = WeftServer(*FLAGS, *flags).start()
        self.addCleanup(self.end, server)
        return server

    @staticmethod
    def end(server):
        if not server.log.closed:
            server.process.kill()
            server.process.wait()
            server.close()

    def restart(self, front, name, load):
        """Ends a replica as an orchestrator does, and starts it again at the same addresses."""
        server = front.replicas[name]
        streams = Streams(front, through(self.asks))
        streams.wait_tokens(2)
        self.assertGreater(len(streams.open()), STREAMS // 2)
        before, at = load.count, time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(PATIENCE_S), 0, server.log_text())
        server.close()
        drain_s = time.monotonic() - at
        front.wait(name, "DOWN")
        ports = [f"--{door}-port={getattr(server, door).split(':')[1]}" for door in ("http", "grpc")]
        front.replicas[name] = self.replica(*ports)
        front.wait(name, "UP")
        sessions = front.sessions(name)
        wait_until(lambda: front.sessions(name) > sessions + 2 * CLIENTS,
                   f"requests to {name} again", PATIENCE_S)
        self.checker.check(streams.join())
        self.assertGreater(load.count, before + CLIENTS)
        print(f"\n{name}: ended {drain_s:.1f} s after SIGTERM, {load.count - before} requests until "
              "it served again", flush=True)

    def roll(self, without=()):
        replicas = {name: self.replica() for name in "ab"}
        self.checker = Checker(replicas["a"]).learn(self.asks)
        with HAProxy(replicas, without) as front, ShortRequests(front) as load:
            for name, share in (("a", 0.2), ("b", 0.6)):
                wait_until(lambda: load.count >= share * REQUESTS, "requests", 60 * PATIENCE_S)
                self.restart(front, name, load)
            wait_until(lambda: load.count >= REQUESTS, "requests", 60 * PATIENCE_S)
        print(f"{load.count} requests ({dict(load.doors)}), {len(load.failed)} failed", flush=True)
        self.assertEqual(len(load.failed), 0, "\n".join(load.failed[:20]))
        self.assertGreater(load.doors[GRPC], REQUESTS // 10)

    def test_a_balancer_that_never_tries_again_loses_nothing(self):
        """It learns from /readyz alone, and a replica takes requests until it has."""
        self.roll(without=("retry-on", "retries"))

    def test_the_balancer_of_the_page_loses_nothing(self):
        self.roll()


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "full"]
    run_tests()
