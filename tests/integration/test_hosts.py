"""Shards on hosts of their own: the answers are those of shards on one host, to the token, also
when a host is cut off, comes back with another address, or dies.
"""

import pathlib
import random
import sys
import time
import unittest

import grpc
import grpc_health
import hosts
from live_tokens import live_tokens, prompt_rate
from machine_delay import QueueWaits
from stream_clients import Checker, Streams, mixed, through
from weft_server import WeftServer, run_tests, seed, wait_until

SEED = seed(47)
FULL = "full" in sys.argv
STREAMS = 32 if FULL else 8
# Longer than a shard is taken for slow.
CUT_S = 10 if FULL else 6
# From the moment the network is whole again to the first token; that of the last stream comes when
# the tokens of all have been computed again.
SILENCE_S = 2.0
PATIENCE_S = 90


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        hosts.enter()
        cls.source = random.Random(SEED)
        cls.requests = through(mixed(STREAMS, cls.source, tokens=(60, 100)))
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
        for rank in (1, 0) if FULL else (1,):
            losses = self.server.metric("weft_group_losses_total")
            rate = prompt_rate(self.server, self.source)
            streams = self.streams()
            self.server.hosts[rank].packets(hosts.CUT)
            # A partition lasts as long as it lasts: this is no wait for something.
            time.sleep(CUT_S)
            self.assertGreater(len(streams.open()), STREAMS // 2)
            live = live_tokens(self.checker, streams)
            waits = QueueWaits(self.server.process.pid, *map(self.server.shard_pid, (0, 1)))
            self.server.hosts[rank].packets(hosts.WHOLE)
            healed = time.time()
            streams.wait_all_speak(enough=any)
            first_waited_s = sum(map(waits.longest_s, waits.before))
            streams.wait_all_speak()
            waited_s = sum(map(waits.longest_s, waits.before))
            self.checker.check(streams.join())
            silence_s, back_s = streams.gaps_s(healed)
            rate = min(rate, prompt_rate(self.server, self.source))
            print(f"\nrank {rank}: silence of {silence_s:.2f} s after healing (threads waited "
                  f"{first_waited_s:.2f} s), all {STREAMS} streams back after {back_s:.2f} s: {live} "
                  f"live tokens at {rate:.0f}/s are {live / rate:.2f} s (waited {waited_s:.2f} s)")
            self.assertLess(silence_s, SILENCE_S + first_waited_s)
            self.assertLess(back_s, SILENCE_S + live / rate + waited_s)
            self.assertGreater(self.server.metric("weft_group_losses_total"), losses)

    def test_shards_answer_for_their_health_over_mutual_tls(self):
        folder = self.server.folder.name
        for rank in (0, 1):
            address = f"shard-{rank}:{hosts.SHARD_PORT}"
            with grpc_health.mutual_tls(address, folder, "router") as channel:
                for service in ("", grpc_health.SERVICE):
                    self.assertEqual(grpc_health.check(channel, service), "SERVING")
                self.assertEqual(grpc_health.code_of(
                    lambda: grpc_health.check(channel, "weft.v1.TextGeneration")), "NOT_FOUND")
                self.assertEqual(grpc_health.code_of(lambda: grpc_health.watch(channel)),
                                 "UNIMPLEMENTED")
            with grpc.secure_channel(address, grpc.ssl_channel_credentials(
                    pathlib.Path(folder, "ca.crt").read_bytes())) as stranger:
                self.assertEqual(grpc_health.code_of(lambda: grpc_health.check(stranger)),
                                 "UNAVAILABLE")

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


def load_tests(loader, tests, pattern):
    if FULL:
        return tests
    return unittest.TestSuite(map(Hosts, ("test_answers_are_those_of_one_host",
                                          "test_a_host_that_is_cut_off_and_comes_back",
                                          "test_shards_answer_for_their_health_over_mutual_tls")))


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "full"]
    run_tests()
