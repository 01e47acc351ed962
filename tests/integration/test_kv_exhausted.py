"""More streams than the KV pool holds: some are preempted and come back, some wait, and every one
is whole and the undisturbed one.
"""

import random
import threading
import unittest

from stream_clients import Checker, Streams, mixed, through
from weft_server import WeftServer, run_tests, seed

SEED = seed(53)
STREAMS = 32
# Holds about a third of what all streams come to.
FLAGS = ["--kv-memory=36MiB", f"--running-max={STREAMS}"]


class KvExhausted(unittest.TestCase):
    def test_streams_are_preempted_and_queue_and_none_fails(self):
        requests = through(mixed(STREAMS, random.Random(SEED), tokens=(100, 160)))
        with WeftServer(*FLAGS, shards=2) as server:
            checker = Checker(server).learn([ask for _, ask in requests])
            server.wait_idle()
            before = server.metric("weft_num_preemptions_total")
            streams, most, done = Streams(server, requests), {}, threading.Event()

            def watch():
                while not done.is_set():
                    for name, labels in (("weft_num_requests_waiting", {}),
                                         ("weft_kv_blocks", {"state": "used"})):
                        most[name] = max(most.get(name, 0), server.metric(name, **labels))

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                checker.check(streams.join())
            finally:
                done.set()
                watcher.join()
            preemptions = server.metric("weft_num_preemptions_total") - before
            server.wait_idle()
            self.assertEqual(server.metric("weft_kv_blocks", state="used"), 0)
            free = server.metric("weft_kv_blocks", state="free") + \
                server.metric("weft_kv_blocks", state="cached")
            print(f"\n{preemptions:.0f} preemptions, up to {most['weft_num_requests_waiting']:.0f} "
                  f"waited, up to {most['weft_kv_blocks']:.0f} of {free:.0f} blocks used")
            self.assertGreater(preemptions, 0)
            self.assertGreater(most["weft_num_requests_waiting"], 0)
            self.assertGreater(most["weft_kv_blocks"], 0.9 * free)


if __name__ == "__main__":
    run_tests()
