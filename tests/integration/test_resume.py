"""Streams that outlive their replica: what came is given back, and another server goes on."""

import dataclasses
import json
import os
import random
import signal
import unittest
from concurrent.futures import ThreadPoolExecutor

import stream_history
from haproxy import HAProxy
from resuming import Had, Resuming, read_part, up_to
from stream_clients import Checker, Streams, mixed, through
from stream_doors import CHAT, COMPLETIONS, GRPC, TGI, Ask, new_history
from weft_server import WeftServer, run_tests, seed, wait_until

SEED = seed(73)
STREAMS = 32
FLAGS = ("--kv-memory=67108864",)
DOORS = (TGI, COMPLETIONS, GRPC)
# What a model goes on with in characters of which each is several tokens; one of them will do.
MANY_BYTES = ("\U0001f642\U0001f389\U0001f680\n" * 8, "\u65e5\u672c\u8a9e\n" * 12,
              "\u16a0\u16a2\u16a6 " * 12)


def kill(server):
    """The whole replica at once: launcher, router and shards."""
    ranks = range(server.shards)
    for pid in (server.process.pid, server.router_pid(), *map(server.shard_pid, ranks)):
        os.kill(pid, signal.SIGKILL)
    server.process.wait()


class Borders(unittest.TestCase):
    """A stream broken behind each of its tokens goes on as if nothing had happened."""

    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer(*FLAGS, shards=2).start()
        cls.checker = Checker(cls.server)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def whole(self, door, ask):
        client, history = Resuming(), new_history(door)
        client(self.server, door, ask, history)
        stream_history.require(history, f"{ask}", max_tokens=ask.max_tokens, stops=ask.stop,
                               ends_itself=not ask.ignore_eos, detokenize=self.checker.detokenize)
        return history, client.of(history)

    def check(self, door, ask):
        history, had = self.whole(door, ask)
        count = len(had.ids)

        def resume(cut):
            part, before = up_to(history, cut), Had(had.ids[:cut], had.seed, had.fingerprint)
            self.assertTrue(read_part(self.server, door, ask, part, before), part.why)
            stream_history.require(
                part, f"cut {cut} of {count}: {ask}", max_tokens=ask.max_tokens, stops=ask.stop,
                ends_itself=not ask.ignore_eos, undisturbed=history,
                detokenize=self.checker.detokenize)
            self.assertEqual(before.ids, had.ids)
            self.assertEqual(before.matches, ["exact"])

        # Who has the event of the last token mostly has the end with it, held-back text included;
        # the engine's own tests have that border.
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(resume, cut) for cut in range(count)]:
                done.result()
        return history

    def test_greedy_with_a_stop_string_across_the_border(self):
        ask = Ask("Count: one, two, three,", max_tokens=24)
        text = self.whole(GRPC, ask)[0].text()
        stop = text[len(text) // 2 - 4:len(text) // 2 + 5]
        for door in DOORS:
            history = self.check(door, dataclasses.replace(ask, stop=(stop, stop[:4] + "\t")))
            self.assertTrue(any(event.reason == stream_history.STOP for event in history.events))

    def test_drawn_with_penalties(self):
        ask = Ask("The weather today is", max_tokens=24, temperature=0.9, top_p=0.95, seed=SEED,
                  repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.4)
        for door in DOORS:
            self.check(door, ask)

    def test_drawn_with_the_seed_of_the_server(self):
        self.check(TGI, Ask("A short poem:", max_tokens=16, temperature=1.0))
        self.check(GRPC, Ask("A short poem:", max_tokens=16, temperature=1.0))

    def test_characters_of_several_tokens(self):
        def silent(ask):
            return sum(not event.text for event in self.whole(GRPC, ask)[0].tokens())

        asks = [Ask(prompt, max_tokens=24) for prompt in MANY_BYTES]
        ask = max(asks, key=silent)
        self.assertGreater(silent(ask), 3)
        for door in DOORS:
            self.check(door, ask)

    def test_a_conversation_that_the_model_ends(self):
        ask = Ask(message="What is the capital of France? One word.", max_tokens=40,
                  ignore_eos=False)
        for door in (CHAT, GRPC):
            history = self.check(door, ask)
            self.assertTrue(any(event.reason == stream_history.STOP for event in history.events))

    def test_log_probabilities_go_on_to_the_bit(self):
        parameters = {"max_new_tokens": 12, "top_n_tokens": 3, "seed": 5, "temperature": 0.8}
        body = {"inputs": "Water boils at", "parameters": parameters}
        events = list(self.server.events("/generate_stream", body))
        for cut in range(len(events)):
            parameters["resume"] = {**events[0]["resume"], "output_ids": [
                event["token"]["id"] for event in events[:cut]]}
            rest = list(self.server.events("/generate_stream", body))
            self.assertEqual([(event["token"], event["top_tokens"]) for event in rest],
                             [(event["token"], event["top_tokens"]) for event in events[cut:]])
            self.assertEqual(rest[-1]["generated_text"], events[-1]["generated_text"])

    def test_what_is_refused(self):
        ids = [event["token"]["id"] for event in self.server.events(
            "/generate_stream", {"inputs": "Hi", "parameters": {"max_new_tokens": 8}})]
        vocabulary = json.loads(self.server.request("GET", "/info")[2])["vocab_size"]
        good = {"output_ids": ids[:4]}
        for limit, resume, says in (
                (8, {"output_ids": [vocabulary]}, f"not below the vocabulary size {vocabulary}"),
                (3, good, "has 4 ids; the answer has at most 3 tokens"),
                (None, {"output_ids": ids[:1] * 5000}, "the answer has at most")):
            for path, name, body in (
                    ("/generate_stream", "parameters.resume.output_ids",
                     {"inputs": "Hi", "parameters": {"max_new_tokens": limit, "resume": resume}}),
                    ("/v1/chat/completions", "resume.output_ids",
                     {"messages": [{"role": "user", "content": "Hi"}], "stream": True,
                      "max_tokens": limit, "temperature": 0, "resume": resume})):
                status, _, data = self.server.request("POST", path, body)
                self.assertIn(status, (400, 422), data)
                self.assertIn(f"`{name}`", data.decode())
                self.assertIn(says, data.decode())


class Replicas(unittest.TestCase):
    def replica(self, **arguments):
        server = WeftServer(*FLAGS, **arguments).start()
        self.addCleanup(self.end, server)
        return server

    @staticmethod
    def end(server):
        if server.process.poll() is None:
            server.stop()
        elif not server.log.closed:
            server.close()

    def test_all_streams_of_a_replica_that_dies_end_at_another(self):
        replicas = {name: self.replica(shards=2) for name in "ab"}
        asks = mixed(STREAMS, random.Random(SEED), tokens=(40, 72))
        checker = Checker(replicas["b"]).learn(asks)
        client = Resuming()
        with HAProxy(replicas) as front:
            # None is at B when A dies: all have to move.
            front.set_state("b", "maint")
            streams = Streams(front, through(asks, DOORS), read=client)
            streams.wait_tokens(3)
            running = len(streams.open())
            kill(replicas["a"])
            front.set_state("b", "ready")
            streams.join()
            wait_until(lambda: front.status("a") == "DOWN", "HAProxy to see that A is gone")
        self.assertGreater(running, STREAMS * 3 // 4)
        checker.check(streams)
        parts = [client.of(history).matches for history in streams.histories]
        resumed = [match for matches in parts for match in matches]
        print(f"\n{running} of {STREAMS} streams ran when A died, {len(resumed)} went on at B",
              flush=True)
        self.assertGreaterEqual(len(resumed), running)
        self.assertEqual(set(resumed), {"exact"})
        b = replicas["b"]
        self.assertEqual(b.metric("weft_requests_resumed_total", match="exact"), len(resumed))

    def test_other_numbers_go_on_and_say_so(self):
        two, one = self.replica(shards=2), self.replica(shards=1)
        for door in DOORS:
            ask = Ask("The sea is", max_tokens=20)
            client, history = Resuming(), new_history(door)
            client(two, door, ask, history)
            had = client.of(history)
            before = Had(had.ids[:9], had.seed, had.fingerprint)
            part = up_to(history, 9)
            self.assertTrue(read_part(one, door, ask, part, before), part.why)
            self.assertEqual(before.matches, ["inexact"])
            self.assertNotEqual(before.fingerprint, had.fingerprint)
            stream_history.require(part, door, max_tokens=20, ends_itself=False,
                                   detokenize=Checker(one).detokenize)
        status, headers, _ = one.request("POST", "/generate_stream", {
            "inputs": "Hi", "parameters": {"max_new_tokens": 2, "resume": {
                "output_ids": [], "fingerprint": had.fingerprint}}})
        self.assertEqual((status, headers["x-weft-resume"]), (200, "inexact"))
        self.assertEqual(headers["x-weft-fingerprint"], before.fingerprint)


if __name__ == "__main__":
    run_tests()
