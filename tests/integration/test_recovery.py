"""kill -9 and kill -STOP of shards under streams: no stream errs, every token is the undisturbed one.

Each round runs 8 greedy and 8 seeded sampling streams with penalties and hits one shard at a moment
of the round's choosing: during prompt chunks, while decoding, right after an earlier hit (JoinGroup
and Warmup of the epoch that is forming), under preemption (a small KV pool).
"""

import os
import random
import signal
import threading
import time
import unittest

from weft_server import WeftServer, alive, wait_until

ROUNDS = int(os.environ.get("WEFT_RECOVERY_ROUNDS", "30"))
SEED = int(os.environ.get("WEFT_SEED", "20"))
STREAMS = 16
TOKENS = 48


def bodies():
    """One request a stream: half greedy, half sampled with penalties; some with long prompts."""
    out = []
    for index in range(STREAMS):
        words = "river stone paper light garden market winter letter music window".split()
        count = 300 if index % 4 == 3 else 12 + index
        prompt = f"Story {index}. " + " ".join(words[(index * 7 + i * i) % 10] for i in range(count))
        body = {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        if index % 2 == 0:
            body["temperature"] = 0
        else:
            body.update(temperature=0.9, top_p=0.95, seed=1000 + index, repetition_penalty=1.1,
                        presence_penalty=0.3, frequency_penalty=0.2)
        out.append(body)
    return out


class Streams:
    """Runs all requests at once and collects the text of each."""

    def __init__(self, server):
        self.server = server
        self.texts = [""] * STREAMS
        self.tokens = [0] * STREAMS
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(index, body))
                        for index, body in enumerate(bodies())]
        for thread in self.threads:
            thread.start()

    def run(self, index, body):
        try:
            for event in self.server.events("/v1/completions", body, timeout_s=180):
                if event["choices"]:
                    self.texts[index] += event["choices"][0]["text"]
                    self.tokens[index] += 1
        except Exception as error:  # noqa: BLE001 - every failure of a stream is a finding
            self.errors.append((index, repr(error)))

    def join(self):
        for thread in self.threads:
            thread.join(180)
            if thread.is_alive():
                raise AssertionError("a stream hangs")
        if self.errors:
            raise AssertionError(f"streams failed: {self.errors}")
        return self.texts


class RecoveryTest(unittest.TestCase):
    def hit(self, server, random_source, signal_number, restarts):
        """Sends the signal to one shard; returns once its successor runs."""
        rank = random_source.randrange(server.shards)
        pid = wait_until(lambda: server.shard_pid(rank), "a shard to hit")
        in_flight = server.metric("weft_num_requests_running") > 0
        os.kill(pid, signal_number)
        wait_until(lambda: not alive(pid), "the shard to be gone")
        wait_until(lambda: server.shard_pid(rank), "its successor")
        return in_flight

    def run_rounds(self, rounds, signal_number, *flags):
        print(f"seed {SEED}")
        random_source = random.Random(SEED)
        with WeftServer("--running-max=16", *flags, shards=2) as server:
            expected = Streams(server).join()
            hits_in_flight = 0
            for number in range(rounds):
                streams = Streams(server)
                moment = random_source.choice(["prompt", "decode", "decode", "twice"])
                if moment == "prompt":
                    wait_until(lambda: server.metric("weft_num_requests_running") > 0, "a prompt")
                else:
                    goal = random_source.randrange(10, STREAMS * TOKENS // 2)
                    wait_until(lambda: sum(streams.tokens) >= goal, f"{goal} tokens", 120)
                hits_in_flight += self.hit(server, random_source, signal_number, number)
                if moment == "twice":
                    self.hit(server, random_source, signal_number, number)
                texts = streams.join()
                for index, text in enumerate(texts):
                    self.assertEqual(text, expected[index], (number, moment, index))
            self.assertGreater(hits_in_flight, rounds // 2)
            self.assertGreaterEqual(server.metric("weft_shard_restarts_total"), rounds)
            server.wait_idle()
            preemptions = server.metric("weft_num_preemptions_total")
            pids = [server.router_pid(), server.shard_pid(0), server.shard_pid(1)]
        wait_until(lambda: not any(alive(pid) for pid in pids if pid), "no orphan process")
        return preemptions

    def test_kill_9(self):
        self.run_rounds(ROUNDS * 2 // 3, signal.SIGKILL)

    def test_kill_9_under_preemption(self):
        # A pool that cannot hold all streams: preemption and recovery meet.
        preemptions = self.run_rounds(ROUNDS // 3, signal.SIGKILL, "--kv-memory=40MiB")
        self.assertGreater(preemptions, 0)

    def test_kill_stop(self):
        self.run_rounds(max(2, ROUNDS // 10), signal.SIGSTOP, "--hang-timeout-ms=1000")


if __name__ == "__main__":
    unittest.main()
