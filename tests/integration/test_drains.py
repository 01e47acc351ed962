"""Drains that are not left in peace: by kills, by a second signal, by streams that outlast them.
"""

import dataclasses
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest

from machine_delay import QueueWaits, WakeDelays
from stream_clients import Checker, Streams, mixed, through
from stream_history import CUT, FAILED
from weft_server import BIN, DEMO_MODEL, WeftServer, alive, children_of, seed, wait_until

SEED = seed(32)
STREAMS = 12
EXIT_CUT = 2  # common/exit_code.h
# What "at once" is, on a machine that lets a thread run when it can, and the threads that run one
# after another for it: the launcher's, that of a process that is killed, the launcher's again.
AT_ONCE_S, WAKE_UPS = 1.0, 3
# What waiting for a CPU excuses: a server that went on with its streams would wait for CPUs as well.
EXCUSED_S = 3.0
# For what has no promise; a machine may be under five times the load.
PATIENCE_S = 60
ASKS = mixed(STREAMS, random.Random(SEED), tokens=(60, 100))
# The same with answers that are not over when their test is.
LONG = [dataclasses.replace(ask, max_tokens=8 * ask.max_tokens) for ask in ASKS]


class Drains(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with WeftServer(shards=2) as server:
            cls.checker = Checker(server).learn(ASKS)

    def drain(self, *flags, asks=ASKS, also_router=False):
        """(server that drains, its streams)."""
        server = WeftServer("--drain-timeout-s=120", *flags, shards=2).start()
        self.addCleanup(self.end, server)
        streams = Streams(server, through(asks))
        streams.wait_tokens(4)
        self.assertEqual(len(streams.open()), STREAMS)
        self.children, router = list(children_of(server.process.pid)), server.router_pid()
        server.process.send_signal(signal.SIGTERM)
        if also_router:
            os.kill(router, signal.SIGTERM)
        # Until the router drains: a request is refused, or finds the port closed.
        wait_until(lambda: not self.taken(server), "the drain to begin")
        return server, streams

    @staticmethod
    def end(server):
        if not server.log.closed:
            server.process.kill()
            server.process.wait()
            server.close()

    @staticmethod
    def taken(server):
        try:
            return server.request("POST", "/generate", {
                "inputs": "x", "parameters": {"max_new_tokens": 1}})[0] == 200
        except OSError:
            return False

    def ended(self, server):
        """Waits for the end of all processes; the launcher's exit code."""
        code = server.process.wait(PATIENCE_S)
        wait_until(lambda: not any(alive(pid) for pid in self.children), "the children to be gone")
        server.close()
        return code

    def test_running_requests_finish(self):
        server, streams = self.drain()
        self.checker.check(streams.join())
        self.assertEqual(self.ended(server), 0)

    def test_a_router_that_is_signalled_beside_the_launcher_drains_all_the_same(self):
        """As a service manager does that stops all processes of a group at once."""
        server, streams = self.drain(also_router=True)
        self.checker.check(streams.join())
        self.assertEqual(self.ended(server), 0)

    def killed_in_a_drain(self, ranks):
        server, streams = self.drain()
        self.assertGreater(len(streams.open()), STREAMS // 2)
        for rank in ranks:
            os.kill(server.shard_pid(rank), signal.SIGKILL)
        self.checker.check(streams.join())
        self.assertEqual(self.ended(server), 0)
        self.assertIn("group lost", server.log_text())

    def test_a_shard_killed_in_a_drain(self):
        self.killed_in_a_drain([0])

    def test_both_shards_killed_in_a_drain(self):
        self.killed_in_a_drain([0, 1])

    def test_a_router_killed_in_a_drain_is_no_good_end(self):
        server, streams = self.drain()
        os.kill(server.router_pid(), signal.SIGKILL)
        self.checker.check(streams.join(), CUT)
        self.assertEqual(self.ended(server), EXIT_CUT)

    def test_a_second_signal_stops_at_once(self):
        server, streams = self.drain(asks=LONG)
        launcher = server.process.pid
        with WakeDelays() as delays, \
                QueueWaits(launcher, *self.children, os.getpid()) as waits:
            at = time.time()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.ended(server), EXIT_CUT)
            took_s = time.time() - at
        worst_s = delays.worst_s(at, at + took_s)
        # One after another: the launcher, the slowest of those that it ends, this process.
        waited_s = sum(map(waits.longest_s, (launcher, os.getpid()))) + \
            max(map(waits.longest_s, self.children))
        print(f"\nended after {1e3 * took_s:.0f} ms; threads ran up to {1e3 * worst_s:.1f} ms late "
              f"and waited {1e3 * waited_s:.0f} ms for a CPU")
        self.checker.check(streams.join(), CUT)
        self.assertLess(took_s, AT_ONCE_S + WAKE_UPS * worst_s + min(waited_s, EXCUSED_S))

    def test_streams_that_outlast_the_drain_end_with_one_error(self):
        server, streams = self.drain("--drain-timeout-s=1", asks=LONG)
        self.checker.check(streams.join(), FAILED)
        self.assertEqual(self.ended(server), 0)

    def test_a_router_of_its_own_takes_a_second_signal(self):
        """Without a launcher: the first signal drains, one more than a second later ends it."""
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            sockets = [f"{folder}/{rank}.sock" for rank in range(2)]
            processes = [subprocess.Popen(
                [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}", f"--rank={rank}", "--world=2",
                 f"--socket={socket}", "--device=cpu"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for rank, socket in enumerate(sockets)]
            router = subprocess.Popen(
                [str(BIN / "weft-router"), f"--model={DEMO_MODEL}", "--http-port=0",
                 "--grpc-port=0", *(f"--shard=unix:{socket}" for socket in sockets),
                 "--drain-timeout-s=120"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                words = dict(word.split("=") for word in router.stdout.readline().split()[1:])
                self.assertEqual(router.stdout.readline(), "ready\n")
                server = WeftServer()
                server.http, server.grpc = words["http"], words["grpc"]
                streams = Streams(server, through(LONG))
                streams.wait_tokens(4)
                first = time.monotonic()
                router.send_signal(signal.SIGTERM)

                def ended():
                    router.send_signal(signal.SIGTERM)
                    return router.poll() is not None

                wait_until(ended, "the router to end", PATIENCE_S)
                # Signals that follow at once are taken for echoes of the first.
                self.assertGreater(time.monotonic() - first, 1)
                self.assertEqual(router.returncode, EXIT_CUT)
                self.checker.check(streams.join(), CUT)
                server.log.close()
            finally:
                for process in [router, *processes]:
                    process.kill()
                    process.wait()
                router.stdout.close()


if __name__ == "__main__":
    unittest.main()
