"""A kill -9 of one shard under 64 open streams of every door: when the router sees it, when all flow
again, and that each goes on to the token.
"""

import os
import random
import signal
import time
import unittest

from live_tokens import live_tokens, prompt_rate
from machine_delay import QueueWaits, WAKE_UPS, WakeDelays
from recovery_record import ServerLog
from stream_clients import Checker, Streams, mixed, through
from weft_server import WeftServer, seed

SEED = seed(32)
MANY = 64
# What is promised, on a machine that lets a thread run when it can. All streams flow again after
# FLOW_S and the time that it takes to compute their tokens again.
DETECTION_S, FLOW_S = 0.1, 2.0


class ManyStreams(unittest.TestCase):
    def kill(self, server, rank, streams, log):
        """kill -9 of one shard under all streams. (time of it, its loss, how long threads waited for
        a CPU until that was seen, and until all streams flowed again)."""
        victim, other = server.shard_pid(rank), server.shard_pid(1 - rank)
        chain = victim, server.process.pid, server.router_pid(), os.getpid()
        with QueueWaits(*chain, other) as waits:
            self.assertEqual(len(streams.open()), MANY, "streams were over before the kill")
            at = time.time()
            os.kill(victim, signal.SIGKILL)
            loss = log.first_loss_after(at)
            seen_s = sum(waits.longest_s(pid, until=loss.at) for pid in chain)
            streams.wait_all_speak()
        return at, loss, seen_s, sum(map(waits.longest_s, (*chain, other, server.shard_pid(rank))))

    def test_a_kill_under_64_open_streams(self):
        source = random.Random(SEED)
        requests = through(mixed(MANY, source, tokens=(70, 100)))
        with WeftServer("--log-format=json", shards=2) as server, WakeDelays() as delays:
            checker = Checker(server).learn([ask for _, ask in requests])
            log, seen = ServerLog(server), []
            for rank in (0, 1):
                rate = prompt_rate(server, source)
                streams = Streams(server, requests)
                streams.wait_tokens(8)
                live = live_tokens(checker, streams)
                killed = self.kill(server, rank, streams, log)
                checker.check(streams.join())
                # The slower of the two: a neighbour may have come or gone.
                again_s = live / min(rate, prompt_rate(server, source))
                seen.append((*killed, streams.gaps_s(killed[0])[1], live, again_s))
        for at, loss, seen_s, waited_s, back_s, live, again_s in seen:
            noticed_s, worst_s = loss.at - at, delays.worst_s(at, loss.at)
            print(f"\nseen after {1e3 * noticed_s:.1f} ms (threads ran up to {1e3 * worst_s:.1f} ms "
                  f"late and waited {1e3 * seen_s:.1f} ms); all {MANY} streams flow again after "
                  f"{back_s:.2f} s: {live} live tokens take {again_s:.2f} s (waited {waited_s:.2f} s)")
            self.assertLess(noticed_s, DETECTION_S + WAKE_UPS * worst_s + seen_s)
            self.assertLess(back_s, FLOW_S + again_s + waited_s)


if __name__ == "__main__":
    unittest.main()
