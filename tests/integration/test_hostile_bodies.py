"""Bodies that are made to explode beside 32 streams: each is refused by name, or has been read and is
served, within two seconds of the server's own time, whichever door it comes through, alone and four
at once; the streams keep their pace, and none is lost or other than undisturbed.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import random
import re
import threading
import time
import unittest

from hostile_bodies import Body, bodies, grpc_of, http_of
from machine_delay import QueueWaits, WakeDelays
from stream_clients import Checker, mixed, through
from stream_doors import GRPC, new_history, read_stream
from weft_server import WeftServer, grpc_modules, run_tests, seed, wait_until

SEED = seed(61)
STREAMS = 32
HTTP = "HTTP"
# The server's own time until a body is refused, or has been read: what its threads waited for a CPU
# comes on top (machine_delay.py), and what the client needs to send and to read.
LIMIT_S, CLIENT_S = 2.0, 0.3
# Nobody waits so long, however busy the machine is.
PATIENCE_S = 120
AT_ONCE = 4
QUIET_S = 20
# How much longer a stream's gaps may be than without the bodies. On two cores, both of which a step
# computes on, whoever reads a body takes half of them: 1.5 to 3.1 times was seen.
GAPS = 4.0


class Load:
    """Clients that have one stream after another, each of its own request, until stop(); then
    `requests` and `histories` are what a Checker looks at."""

    def __init__(self, server, requests):
        self.server, self.over = server, threading.Event()
        # Of each client [(door, ask, history)], in order.
        self.streams = [[] for _ in requests]
        self.threads = [threading.Thread(target=self.run, args=(index, *request), daemon=True)
                        for index, request in enumerate(requests)]
        for thread in self.threads:
            thread.start()

    def run(self, index, door, ask):
        while not self.over.is_set():
            history = new_history(door)
            self.streams[index].append((door, ask, history))
            read_stream(self.server, door, ask, history)

    def wait_all_speak(self):
        wait_until(lambda: all(streams and streams[-1][2].count for streams in self.streams),
                   "every client to read", PATIENCE_S)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                raise AssertionError("a stream hangs")
        every = [stream for streams in self.streams for stream in streams]
        self.requests = [(door, ask) for door, ask, _ in every]
        self.histories = [history for _, _, history in every]

    def gaps_s(self, since, until):
        """Between neighbouring tokens of a stream that came in this time, ascending."""
        gaps = []
        for streams in self.streams:
            for _, _, history in list(streams):
                times = [token.at for token in history.tokens() if since <= token.at <= until]
                gaps += [b - a for a, b in zip(times, times[1:])]
        return sorted(gaps)


@dataclasses.dataclass
class Finished:
    """What became of a body."""
    name: str
    door: str
    # Until it was refused; of one that was served until the server had read it.
    took_s: float
    # How long the server's slowest thread could have run meanwhile and did not.
    waited_s: float
    # The refusal, or "served".
    end: str
    # Bodies that were under way at once: the server reads long ones one after another.
    beside: int

    def over_s(self):
        return self.took_s - self.waited_s - CLIENT_S - self.beside * LIMIT_S


def share(values, part):
    return values[min(int(len(values) * part), len(values) - 1)]


class HostileBodiesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.grpc, cls.pb, _ = grpc_modules()
        cls.numbers = itertools.count()
        # (door, how many at once, bodies), ready to be sent: to make them while streams are read would
        # delay their readers.
        cls.phases = []
        for number, (door, at_once) in enumerate(((HTTP, 1), (GRPC, 1), (HTTP, AT_ONCE),
                                                  (GRPC, AT_ONCE))):
            cls.phases.append((door, at_once, [
                (body.name, http_of(body) if door == HTTP else grpc_of(cls.pb, body))
                for body in bodies(number)]))

    # -- One body ---------------------------------------------------------------------------------
    def end_of_http(self, data, request_id):
        connection = self.server.connection(PATIENCE_S)
        try:
            connection.request("POST", "/v1/chat/completions", data,
                               {"Content-Type": "application/json", "x-request-id": request_id})
            answer = connection.getresponse()
            said = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status == 200:
            return "served"
        error = said["error"]
        self.assertIn(answer.status, (400, 413), error)
        self.assertTrue(error["message"])
        return f"{error['param']}: {error['message']}"

    def end_of_grpc(self, data, request_id):
        call = self.channel.unary_stream("/weft.v1.TextGeneration/Generate")
        # Field 1 of GenerateRequest.
        data += bytes([0x0a, len(request_id)]) + request_id.encode()
        try:
            for _ in call(data, timeout=PATIENCE_S):
                pass
            return "served"
        except self.grpc.RpcError as error:
            self.assertEqual(error.code(), self.grpc.StatusCode.INVALID_ARGUMENT, error.details())
            self.assertTrue(error.details())
            return error.details()

    def send(self, door, name, data, beside=1):
        request_id = f"hostile-{next(self.numbers)}"
        # Grammars are compiled on threads of their own, which are gone afterwards.
        with QueueWaits(self.router) as waits:
            at = time.time()
            end = (self.end_of_grpc if door == GRPC else self.end_of_http)(data, request_id)
            took_s = time.time() - at
        if end == "served":
            took_s = self.read_s(request_id)
        return Finished(name, door, took_s, waits.longest_s(self.router), end, beside)

    def read_s(self, request_id):
        """How long it took to read a request, as the access log has it."""
        def found():
            return re.search(rf"correlation_id={request_id} .*validation_ms=([0-9.]+)",
                             self.server.log_text())
        return float(wait_until(found, f"the log line of {request_id}")[1]) / 1e3

    def send_all(self, door, all_bodies, at_once):
        if at_once == 1:
            return [self.send(door, name, data) for name, data in all_bodies]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda body: self.send(door, *body, at_once), all_bodies))

    # -- All of them ------------------------------------------------------------------------------
    def test_hostile_bodies_beside_streams(self):
        requests = through(mixed(STREAMS, random.Random(SEED), tokens=(60, 90)))
        with WeftServer(f"--running-max={STREAMS + 8}") as server, \
                self.grpc.insecure_channel(server.grpc) as channel:
            self.server, self.channel = server, channel
            self.router = server.pid_of("weft-router")
            checker = Checker(server).learn([ask for _, ask in requests])
            load = Load(server, requests)
            load.wait_all_speak()
            since = time.time()
            load.over.wait(QUIET_S)
            quiet = load.gaps_s(since, time.time())
            finished, phases = [], []
            for door, at_once, all_bodies in self.phases:
                since = time.time()
                with WakeDelays() as delays:
                    finished += self.send_all(door, all_bodies, at_once)
                until = time.time()
                phases.append((f"{door}, {at_once} at once", load.gaps_s(since, until),
                               until - since, delays.worst_s(since, until)))
            load.stop()
            self.report(quiet, phases, finished)
            checker.check(load)
            self.check_bodies(finished)
            for name, gaps, _, worst_s in phases:
                self.assertLess(share(gaps, 0.99), GAPS * share(quiet, 0.99), name)
                self.assertLess(gaps[-1], GAPS * quiet[-1] + LIMIT_S + worst_s, name)
            # Who sent nothing hostile is served as before.
            self.assertEqual(self.end_of_http(http_of(Body("plain")), "plain"), "served")
            server.wait_idle()

    def check_bodies(self, finished):
        late = [f"{one.door} {one.name}: {one.took_s:.2f} s, {one.waited_s:.2f} of them for a CPU"
                for one in finished if one.over_s() > 0]
        self.assertEqual(late, [])
        # Through each door, beside others or not, a body has the same end.
        ends = {}
        for one in finished:
            ends.setdefault(one.name, set()).add(one.end == "served")
        self.assertEqual([name for name, some in ends.items() if len(some) > 1], [])
        refused = [name for name, some in ends.items() if some == {False}]
        self.assertGreaterEqual(len(refused), 20)
        self.assertGreaterEqual(len(ends) - len(refused), 10)

    def report(self, quiet, phases, finished):
        print(f"\nquiet: p50 {share(quiet, 0.5):.3f} s, p99 {share(quiet, 0.99):.3f}, "
              f"longest {quiet[-1]:.3f}")
        for name, gaps, took_s, worst_s in phases:
            print(f"{name}: p50 {share(gaps, 0.5):.3f} s, p99 {share(gaps, 0.99):.3f}, longest "
                  f"{gaps[-1]:.3f}; {took_s:.0f} s, {len(gaps)} gaps, a thread was late by "
                  f"{worst_s:.3f}")
        for one in sorted(finished, key=lambda one: one.over_s())[-12:]:
            print(f"{one.door} {one.name} ({one.beside}): {one.took_s:.2f} s, {one.waited_s:.2f} "
                  f"for a CPU: {one.end[:90]}", flush=True)


if __name__ == "__main__":
    run_tests()
