"""A server that has all it can take: what comes on top is refused at once, through every door, and
those that run or wait do not notice.
"""

import json
import random
import statistics
import time
import unittest

from machine_delay import WakeDelays
from stream_clients import Checker, Streams, mixed, through
from stream_doors import CHAT, COMPLETIONS, TGI, Ask, grpc_request, http_body
from weft_server import WeftServer, grpc_modules, seed, wait_until

SEED = seed(35)
RUNNING, WAITING, REFUSED = 4, 4, 25
# What "at once" is, on a machine that lets a thread run when it can, and the threads that run one
# after another for it: the client's, the door's, the client's.
AT_ONCE_S, WAKE_UPS = 0.1, 3
PATIENCE_S = 60
ONE_MORE = Ask("One more", message="One more", max_tokens=4)


class Overload(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer(f"--running-max={RUNNING}", f"--queue-requests-max={WAITING}",
                                shards=2).start()
        cls.checker = Checker(cls.server)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def refused_over_http(self, connection, door):
        """Seconds until the answer."""
        body = json.dumps(http_body(door, ONE_MORE))
        at = time.time()
        connection.request("POST", door, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        took_s = time.time() - at
        self.assertEqual(answer.status, 429, said)
        self.assertGreater(int(answer.headers["retry-after"]), 0)
        self.assertIn("overloaded" if door == TGI else "rate_limit_error", json.dumps(said))
        return took_s

    def refused_over_grpc(self, stub):
        grpc, pb, _ = grpc_modules()
        at = time.time()
        with self.assertRaises(grpc.RpcError) as refusal:
            list(stub.Generate(grpc_request(pb, ONE_MORE), timeout=PATIENCE_S))
        took_s = time.time() - at
        self.assertEqual(refusal.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn(b"google.rpc.RetryInfo",
                      dict(refusal.exception.trailing_metadata())["grpc-status-details-bin"])
        return took_s

    def test_refusals_come_at_once(self):
        grpc, _, pb_grpc = grpc_modules()
        requests = through(mixed(RUNNING + WAITING, random.Random(SEED), tokens=(150, 200)))
        self.checker.learn([ask for _, ask in requests])
        failures = self.server.metric("weft_request_failure_total", reason="overloaded")
        streams = Streams(self.server, requests)
        wait_until(lambda: self.server.metric("weft_num_requests_running") == RUNNING
                   and self.server.metric("weft_num_requests_waiting") == WAITING,
                   "the server to be full", PATIENCE_S)
        wait_until(lambda: len(streams.open()) == RUNNING, "those that run to begin", PATIENCE_S)
        took = []
        connection = self.server.connection()
        with WakeDelays() as delays, grpc.insecure_channel(self.server.grpc) as channel:
            stub = pb_grpc.TextGenerationStub(channel)
            for door in (TGI, COMPLETIONS, CHAT, "gRPC"):
                for _ in range(REFUSED):
                    at = time.time()
                    took.append((door, at, self.refused_over_grpc(stub) if door == "gRPC"
                                 else self.refused_over_http(connection, door)))
        connection.close()
        self.assertEqual({history.closed for history in streams.histories}, {None},
                         "the server was not full all the time")
        for door, at, took_s in took:
            worst_s = delays.worst_s(at, at + took_s)
            self.assertLess(took_s, AT_ONCE_S + WAKE_UPS * worst_s, door)
        times = [1e3 * took_s for _, _, took_s in took]
        print(f"\n{len(times)} refusals: median {statistics.median(times):.1f} ms, "
              f"last {max(times):.1f} ms")
        self.assertEqual(self.server.metric("weft_request_failure_total", reason="overloaded"),
                         failures + len(took))
        # No stream lost anything by them, and those that waited came in.
        self.checker.check(streams.join())


if __name__ == "__main__":
    unittest.main()
