"""Shards on hosts of their own: the answers are those of shards on one host, to the token, also
when a host is cut off, comes back with another address, or dies.
"""

import random
import time
import unittest

import hosts
from stream_clients import Checker, Streams, mixed, through
from weft_server import WeftServer, run_tests, seed, wait_until

SEED = seed(47)
STREAMS = 8
CUT_S = 10
# From the moment the network is whole again to a token of every stream.
SILENCE_S = 2.0
PATIENCE_S = 90


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        hosts.enter()
        cls.requests = through(mixed(STREAMS, random.Random(SEED), tokens=(60, 100)))
        # What the answers have to be is learnt from shards that share memory.
        with WeftServer("--threads=1", shards=2) as near:
            cls.checker = Checker(near).learn([ask for _, ask in cls.requests])
            wanted = cls.checker
        cls.server = hosts.SpreadServer().start()
        wanted.server = cls.server

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def streams(self, tokens=16):
        streams = Streams(self.server, self.requests)
        streams.wait_tokens(tokens)
        return streams

    def tearDown(self):
        wait_until(lambda: self.server.request("GET", "/readyz")[0] == 200, "ready", PATIENCE_S)
        self.server.wait_idle()
        self.assertEqual(self.server.metric("weft_kv_blocks", state="used"), 0)

    def test_answers_are_those_of_one_host(self):
        self.checker.check(self.streams().join())

    def test_a_host_that_is_cut_off_and_comes_back(self):
        for rank in (1, 0):
            losses = self.server.metric("weft_group_losses_total")
            streams = self.streams()
            self.server.hosts[rank].packets(hosts.CUT)
            # A partition lasts as long as it lasts: this is no wait for something.
            time.sleep(CUT_S)
            self.assertGreater(len(streams.open()), STREAMS // 2)
            self.server.hosts[rank].packets(hosts.WHOLE)
            healed = time.time()
            self.checker.check(streams.join())
            silence_s, back_s = streams.gaps_s(healed)
            print(f"\nrank {rank}: all streams back after {back_s:.2f} s, silence {silence_s:.2f} s")
            self.assertLess(back_s, SILENCE_S)
            self.assertGreater(self.server.metric("weft_group_losses_total"), losses)

    def test_a_network_that_loses_packets_now_and_then(self):
        for host in self.server.hosts:
            host.packets(hosts.SOME_LOST)
        streams = self.streams()
        self.checker.check(streams.join())
        for host in self.server.hosts:
            host.packets(hosts.WHOLE)

    def test_a_shard_that_comes_back_with_another_address(self):
        streams = self.streams()
        self.server.kill_shard(1)
        self.server.hosts[1].set_address(f"{hosts.NETWORK}.99")
        self.server.start_shard(1)
        started = time.time()
        self.checker.check(streams.join())
        _, back_s = streams.gaps_s(started)
        print(f"\nall streams back {back_s:.2f} s after the start of the shard")


if __name__ == "__main__":
    run_tests()
