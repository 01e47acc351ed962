"""Clients that go away, of every door: each request is cancelled, everything comes back, and those
who stay notice nothing.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import unittest

from stream_clients import Checker, Streams, mixed
from stream_doors import COMPLETIONS, GRPC, PLAIN_COMPLETIONS, TGI, Ask, after
from stream_history import HUNG_UP, LEFT
from weft_server import WeftServer, seed, wait_until

SEED = seed(7)
STREAMS = 200
# Answers that nobody waits for to the end, and how many of them.
LONG, LONG_STREAMS = 1500, 8
# A machine may be under five times the load.
PATIENCE_S = 60
# A process of its own with streams through one door, that does not end by itself.
PROCESS = """
import sys
from stream_clients import Streams
from stream_doors import Ask
from weft_server import WeftServer
server = WeftServer()
server.http, server.grpc, door = sys.argv[1:4]
Streams(server, [(door, Ask(f"Tell {index}.", max_tokens=%d)) for index in range(%d)]).join()
""" % (LONG, LONG_STREAMS)


class VanishTest(unittest.TestCase):
    def nothing_is_held(self, server):
        server.wait_idle(PATIENCE_S)
        self.assertEqual(server.metric("weft_kv_blocks", state="used"), 0)

    def test_blocks_slots_and_permits_come_back(self):
        source = random.Random(SEED)
        doors = (TGI, GRPC, COMPLETIONS, PLAIN_COMPLETIONS)
        requests = [(source.choice(doors), ask)
                    for ask in mixed(STREAMS, source, tokens=(24, 25), words=(1, 60))]
        leave = {index: after(source.choice([0, 1, 3, 10])) for index in range(0, STREAMS, 3)}
        with WeftServer("--kv-memory=64MiB", "--running-max=64", shards=2) as server:
            # A part of them: the others' text is that of their ids, and that is much already.
            checker = Checker(server).learn([ask for _, ask in requests[:STREAMS // 4]])
            streams = Streams(server, requests, leave).join()
            left = {index: HUNG_UP for index, history in enumerate(streams.histories)
                    if history.closed == LEFT}
            self.assertGreater(len(left), len(leave) // 2)
            checker.check(streams, ends=left)
            self.assertGreater(server.metric("weft_requests_cancelled_total", by="client"), 0)
            self.nothing_is_held(server)
            # And it still answers.
            checker.check(Streams(server, requests[:4]).join())

    def test_every_request_that_was_left_is_cancelled_in_its_answer(self):
        with WeftServer(shards=2) as server:
            checker = Checker(server)
            for door in (GRPC, TGI, COMPLETIONS):
                before = server.metric("weft_requests_cancelled_total", by="client")
                asks = [Ask(f"Tell {index}.", max_tokens=LONG) for index in range(LONG_STREAMS)]
                streams = Streams(server, [(door, ask) for ask in asks],
                                  {index: after(1 + index) for index in range(LONG_STREAMS)}).join()
                checker.check(streams, HUNG_UP)
                self.nothing_is_held(server)
                wait_until(lambda: server.metric("weft_requests_cancelled_total", by="client")
                           == before + LONG_STREAMS, f"{door}: all to be counted as cancelled")

    def kill_a_client(self, server, door, running, waiting):
        """kill -9 of a process with LONG_STREAMS streams, of which so many run or wait then, beside
        the others of `server`."""
        before = server.metric("weft_requests_cancelled_total", by="client")
        client = subprocess.Popen(
            [sys.executable, "-c", PROCESS, server.http, server.grpc, door],
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
        try:
            wait_until(lambda: (server.metric("weft_num_requests_running"),
                                server.metric("weft_num_requests_waiting")) == (running, waiting),
                       f"{door}: {running} to run and {waiting} to wait", PATIENCE_S)
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
        wait_until(lambda: server.metric("weft_requests_cancelled_total", by="client")
                   == before + LONG_STREAMS, f"{door}: all to be counted as cancelled", PATIENCE_S)

    def test_a_client_process_that_is_killed_is_gone(self):
        with WeftServer(shards=2) as server:
            for door in (GRPC, TGI):
                self.kill_a_client(server, door, LONG_STREAMS, 0)
                self.nothing_is_held(server)

    def test_a_client_that_is_gone_waits_no_more(self):
        """Where nothing was written to it yet that could fail."""
        with WeftServer("--running-max=1", shards=2) as server:
            ask = Ask("Once", max_tokens=LONG)
            checker = Checker(server).learn([Ask("Once", max_tokens=100)])
            streams = Streams(server, [(TGI, ask)])
            streams.wait_tokens(1)
            for door in (GRPC, TGI):
                self.kill_a_client(server, door, 1, LONG_STREAMS)
                self.assertEqual(server.metric("weft_num_requests_waiting"), 0)
                self.assertEqual(len(streams.open()), 1)
            checker.check(streams.join())


if __name__ == "__main__":
    unittest.main()
