"""Three and four shards on the CPU: heads and columns are split unevenly, streams of every door are
the undisturbed ones beside others and after a kill, and every rank is a process of its own.
"""

import os
import random
import signal
import unittest

from stream_clients import Checker, Streams, mixed, through
from weft_server import WeftServer, alive, children_of, seed, wait_until

SEED = seed(34)
STREAMS = 8
PATIENCE_S = 60
QUESTION = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 24, "temperature": 0}


class ManyShards(unittest.TestCase):
    def serve(self, shards):
        source = random.Random(SEED)
        with WeftServer(shards=shards) as server:
            pids = [server.shard_pid(rank) for rank in range(shards)]
            self.assertEqual(len(set(pids) - {None}), shards)
            said = server.post("/v1/chat/completions", QUESTION)
            self.assertIn("Paris", said["choices"][0]["message"]["content"])
            requests = through(mixed(STREAMS, source, tokens=(50, 70)))
            checker = Checker(server).learn([ask for _, ask in requests])
            checker.check(Streams(server, requests).join())
            # Each rank in turn would take minutes: one between the ends, and the last one, which
            # has the least to do.
            for rank in (1, shards - 1):
                streams = Streams(server, requests)
                # Late enough for penalties to have something to count.
                streams.wait_tokens(16)
                losses = server.metric("weft_group_losses_total")
                running, pid = len(streams.open()), server.shard_pid(rank)
                os.kill(pid, signal.SIGKILL)
                self.assertGreater(running, STREAMS // 2)
                checker.check(streams.join())
                self.assertGreater(server.metric("weft_group_losses_total"), losses)
                self.assertFalse(alive(pid))
            whole = ["weft-router"] + ["weft-shard"] * shards
            wait_until(lambda: sorted(children_of(server.process.pid).values()) == whole,
                       "the group to be whole", PATIENCE_S)
            # Those that were not hit are the processes of the start.
            self.assertEqual([server.shard_pid(rank) for rank in range(shards)
                              if rank not in (1, shards - 1)],
                             [pid for rank, pid in enumerate(pids) if rank not in (1, shards - 1)])
            server.wait_idle(PATIENCE_S)
            self.assertEqual(server.metric("weft_kv_blocks", state="used"), 0)

    def test_three(self):
        self.serve(3)

    def test_four(self):
        self.serve(4)


if __name__ == "__main__":
    unittest.main()
