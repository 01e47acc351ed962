"""weft serve --replicas 2: one router, two groups of shards, one queue.

Streams run through all doors and are held against the undisturbed ones. kill -9 of a shard of
group 0 leaves group 1 as it is: its streams do not stall, newcomers go there, and the streams of
group 0 end with exactly their tokens when it is back.
"""

import os
import pathlib
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from stream_clients import Checker, Streams, mixed, through
from stream_doors import GRPC, Ask
from weft_server import BIN, DEMO_MODEL, WeftServer, alive, children_of, seed, wait_until

FLAGS = ["--replicas=2", "--running-max=8", "--kv-memory=32MiB", "--threads=1"]
# Of a stream of the group that was not hit, however busy two cores are.
GAP_S = 2.0
# Tokens of a KV block on the CPU.
BLOCK = 16


def shard_pid(server, rank):
    """Pid of the shard of that rank, counted through all groups; None while it is not running."""
    for pid, name in children_of(server.process.pid).items():
        if name != "weft-shard":
            continue
        try:
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if f"/shard-{rank}.sock\0" in command:
            return pid
    return None


def both_serve(server):
    return server.metric("weft_group_state", state="serving") == 2


class Replicas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.random = random.Random(seed(141))
        cls.server = WeftServer(*FLAGS)
        cls.server.start()
        cls.addClassCleanup(cls.server.stop)
        wait_until(lambda: both_serve(cls.server), "both groups to serve")
        cls.checker = Checker(cls.server)

    def running(self, group):
        return self.server.metric("weft_group_requests", group=str(group), state="running")

    def test_streams_of_both_groups_are_the_same_as_alone(self):
        asks = mixed(16, self.random)
        self.checker.learn(asks)
        streams = Streams(self.server, through(asks))
        wait_until(lambda: self.running(0) > 0 and self.running(1) > 0, "both groups to run")
        self.checker.check(streams.join())
        self.server.wait_idle()
        self.assertEqual(self.server.metric("weft_kv_blocks", state="used"), 0)

    def test_a_conversation_stays_where_its_beginning_is_known(self):
        for _ in range(6):
            ask = mixed(1, self.random, tokens=(6, 7), words=(60, 90))[0]
            histories = []
            for _ in range(3):
                streams = Streams(self.server, [(GRPC, ask)]).join()
                self.checker.check(streams)
                histories += streams.histories
            cached = [history.counted("cached_tokens") for history in histories]
            most = (histories[0].counted("prompt_tokens") - 1) // BLOCK * BLOCK
            self.assertEqual(cached, [0, most, most])
        self.assertGreater(self.server.metric("weft_placements_total", reason="prefix"), 0)

    def test_a_killed_shard_costs_the_other_group_nothing(self):
        asks = mixed(8, self.random, tokens=(220, 260))
        late = mixed(6, self.random)
        self.checker.learn(asks + late)
        streams = Streams(self.server, through(asks))
        streams.wait_tokens(4)
        wait_until(lambda: self.running(0) > 0 and self.running(1) > 0, "both groups to run")
        killed = shard_pid(self.server, 0)
        before = self.server.metric("weft_group_losses_total", state="serving")
        # It stays away for a moment: the launcher is stopped, so nobody starts it again.
        os.kill(self.server.process.pid, signal.SIGSTOP)
        try:
            at = time.time()
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: self.server.metric("weft_group_serving", group="0") == 0,
                       "the loss to be seen")
            seen_at = time.time()
            self.assertEqual(self.server.request("GET", "/readyz")[0], 200)
            newcomers = Streams(self.server, through(late))
            newcomers.join()
            self.assertEqual(self.server.metric("weft_group_serving", group="0"), 0)
            back_at = time.time()
        finally:
            os.kill(self.server.process.pid, signal.SIGCONT)
        self.checker.check(newcomers)
        self.checker.check(streams.join())
        self.assertEqual(self.server.metric("weft_group_losses_total", state="serving"), before + 1)
        # Tokens of the lost group were all sent before its loss was told.
        went_on = [history for history in streams.histories
                   if any(seen_at + 0.1 < token.at < back_at for token in history.tokens())]
        self.assertTrue(0 < len(went_on) < len(streams.histories), len(went_on))
        gaps = [self.gap_s(history, at, back_at) for history in went_on]
        print(f"group 0 was away for {back_at - at:.1f} s: {len(went_on)} of "
              f"{len(streams.histories)} streams went on, longest gap {max(gaps):.2f} s", flush=True)
        self.assertLess(max(gaps), GAP_S)
        wait_until(lambda: both_serve(self.server), "group 0 to be back")
        self.assertFalse(alive(killed))
        self.server.wait_idle()

    @staticmethod
    def gap_s(history, since, until):
        times = [since, *(token.at for token in history.tokens() if since < token.at < until)]
        return max((b - a for a, b in zip(times, times[1:])), default=0)


class Recordings(unittest.TestCase):
    def test_each_group_leaves_a_recording_that_replays(self):
        with tempfile.TemporaryDirectory() as folder:
            with WeftServer(*FLAGS, f"--record={folder}/trace") as server:
                wait_until(lambda: both_serve(server), "both groups to serve")
                asks = [Ask(f"A story about {n} ships", max_tokens=8) for n in range(8)]
                Checker(server).learn(asks)
            for group in range(2):
                played = subprocess.run([BIN / "weft", "replay", f"{folder}/trace.group{group}"],
                                        capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(played.returncode, 0, played.stdout + played.stderr)


class Drain(unittest.TestCase):
    def test_a_drain_lets_both_groups_and_the_queue_finish(self):
        with WeftServer("--replicas=2", "--running-max=2", "--kv-memory=32MiB", "--threads=1",
                        "--drain-timeout-s=60") as server:
            wait_until(lambda: both_serve(server), "both groups to serve")
            checker = Checker(server)
            # More than both groups take: the others have no group when the drain begins.
            asks = [Ask(f"Once upon a time there were {n} kings.", max_tokens=24)
                    for n in range(16)]
            checker.learn(asks)
            streams = Streams(server, through(asks))
            wait_until(lambda: server.metric("weft_num_requests_undispatched") > 0
                       and server.metric("weft_num_requests_running") == 4, "a queue")
            code = {}
            stopper = threading.Thread(target=lambda: code.update(exit=server.stop(90)))
            stopper.start()
            for history in streams.join().histories:
                self.assertTrue(history.finished(), history.door)
            stopper.join()
            self.assertEqual(code["exit"], 0)

    def test_replicas_that_cannot_be_are_refused_by_name(self):
        for flags, words in ((["--replicas=0"], "--replicas"), (["--replicas=17"], "--replicas"),
                             (["--replicas=16", "--shards=9", "--device=cpu"],
                              "--replicas 16: with --shards 9 they are 144 processes; at most 64")):
            ended = subprocess.run([str(BIN / "weft"), "serve", f"--model={DEMO_MODEL}", *flags],
                                   capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn(words, ended.stderr)


if __name__ == "__main__":
    unittest.main()
