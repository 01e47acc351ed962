"""kill -9 and kill -STOP of shards under streams: every stream is whole, and the undisturbed one.

Each round runs 8 greedy and 8 seeded sampling streams with penalties, through all doors, and hits
one shard at the round's moment (recovery_moments.py). What was hit is read from the router's own
record: the state of the group that was lost and the steps that it had sent and not got back.
"""

import os
import pathlib
import random
import signal
import time
import unittest

from recovery_moments import (Target, as_a_preempted_stream_resumes, in_a_chunked_prompt, in_decode,
                              in_join, in_warmup, while_a_stream_is_preempted)
from recovery_record import BOOKS, ServerLog, requests
from stream_clients import Checker, Streams
from weft_server import WeftServer, alive, children_of, wait_until

SEED = int(os.environ.get("WEFT_SEED", "20"))
# A pool that cannot hold all streams, so that some are preempted, and steps that cannot hold a
# prompt, so that it comes in chunks.
FLAGS = ["--running-max=16", "--kv-memory=36MiB", "--step-tokens-max=96", "--log-format=json"]
BOTH = (0, 1)
# A round that missed its moment is run again.
ATTEMPTS = 4
# moment: rounds that hit rank 0, rank 1.
KILLS = {in_a_chunked_prompt: (3, 3), in_decode: (4, 3), while_a_stream_is_preempted: (2, 2),
         as_a_preempted_stream_resumes: (2, 2), in_join: (3, 2), in_warmup: (2, 2)}
STOPS = {in_a_chunked_prompt: (1, 1), in_decode: (1, 1), while_a_stream_is_preempted: (1, 1),
         in_join: (1, 1), in_warmup: (1, 1)}


def rounds_of(table, random_source):
    rounds = [(moment, rank) for moment, counts in table.items()
              for rank in BOTH for _ in range(counts[rank])]
    random_source.shuffle(rounds)
    return rounds


def processes_of(server):
    """Pids of all processes that were started for this server, by the paths they were given."""
    run_directory = next(part for part in pathlib.Path(
        f"/proc/{server.shard_pid(0)}/cmdline").read_text().split("\0")
        if part.startswith("--socket=")).removeprefix("--socket=").rpartition("/")[0]

    def find():
        found = set()
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if run_directory in path.read_text():
                    found.add(int(path.parent.name))
            except OSError:
                continue
        return {pid for pid in found if alive(pid)}
    return find


class RecoveryTest(unittest.TestCase):
    def run_round(self, target, moment, rank):
        hit = moment(target, rank)
        wait_until(lambda: not alive(hit.pid), "the shard to be gone")
        self.checker.check(target.streams.join())
        # The router and one process a rank, nothing else.
        whole = ["weft-router"] + ["weft-shard"] * target.server.shards
        wait_until(lambda: sorted(children_of(target.server.process.pid).values()) == whole
                   and target.state()[0] == "serving", "the group to be whole")
        silence_s, all_s = target.streams.gaps_s(hit.at)
        print(f"{moment.__name__:30} {rank:4} {'yes' if hit.proven else 'NO':6} "
              f"{1e3 * silence_s:6.0f}ms {1e3 * all_s:6.0f}ms   {hit.evidence}", flush=True)
        return hit

    def run_rounds(self, table, signal_number, *flags):
        """Runs the rounds of `table` in random order until each has met its moment."""
        random_source = random.Random(SEED)
        rounds = rounds_of(table, random_source)
        print(f"\nseed {SEED}, {len(rounds)} rounds of {signal_number.name}\n"
              f"{'moment':30} {'rank':>4} proven  silence all back   evidence")
        pids, proven = set(), 0
        started = time.monotonic()
        with WeftServer(*FLAGS, *flags, shards=2) as server:
            log = ServerLog(server)
            find_processes = processes_of(server)
            self.checker = Checker(server)
            for book in range(BOOKS):
                self.checker.learn([ask for _, ask in requests(book)])
            runs = 0
            for moment, rank in rounds:
                for _ in range(ATTEMPTS):
                    target = Target(server, log, Streams(server, requests(runs % BOOKS)),
                                    signal_number, random_source)
                    runs += 1
                    hit = self.run_round(target, moment, rank)
                    pids |= target.pids
                    if hit.proven:
                        proven += 1
                        break
            self.check_record(server, log, runs)
            # Healthy: as before, and nothing is held.
            self.checker.check(Streams(server, requests(0)).join())
            server.wait_idle()
            self.assertEqual(server.request("GET", "/readyz")[0], 200)
            self.assertEqual(server.metric("weft_kv_blocks", state="used"), 0)
            pids |= find_processes()
        wait_until(lambda: not any(alive(pid) for pid in pids), "no orphan process")
        self.assertEqual(find_processes(), set())
        print(f"{proven} of {len(rounds)} rounds proven in {runs} runs, "
              f"{time.monotonic() - started:.0f} s, {len(pids)} processes seen")
        self.assertEqual(proven, len(rounds))

    def check_record(self, server, log, rounds):
        """Metrics and log say the same, and that no loss was missed."""
        losses = log.losses()
        self.assertGreaterEqual(len(losses), rounds)
        for state in ("joining", "warming", "serving"):
            self.assertEqual(server.metric("weft_group_losses_total", state=state),
                             sum(loss.state == state for loss in losses), state)
        self.assertEqual(server.metric("weft_steps_lost_total"),
                         sum(len(loss.steps) for loss in losses))
        self.assertGreaterEqual(server.metric("weft_shard_restarts_total"), rounds)

    def test_kill_9(self):
        self.run_rounds(KILLS, signal.SIGKILL)

    def test_kill_stop(self):
        self.run_rounds(STOPS, signal.SIGSTOP, "--hang-timeout-ms=1000")


if __name__ == "__main__":
    unittest.main()
