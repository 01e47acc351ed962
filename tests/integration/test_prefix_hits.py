"""Prompts that begin as earlier ones did: how much of them came from the cache is what each door
says, and the answers are those of a cold cache.
"""

import dataclasses
import http.client
import json
import random
import unittest

from prometheus_server import free_ports
from stream_clients import Checker, Streams, mixed
from stream_doors import CHAT, COMPLETIONS, GRPC, TGI
from weft_server import WeftServer, seed

SEED = seed(36)
# Tokens of a block on the CPU (docs/ARCHITECTURE.md); of a prompt at most its last token but one's
# block can be a hit.
BLOCK = 16


class PrefixHits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.admin, = free_ports(1)
        cls.server = WeftServer(f"--admin-port={cls.admin}", shards=2).start()
        cls.checker = Checker(cls.server)
        cls.source = random.Random(SEED)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def cold(self):
        """A prompt that nobody has asked yet."""
        return mixed(1, self.source, tokens=(12, 13), words=(60, 90))[0]

    def run_one(self, door, ask):
        streams = Streams(self.server, [(door, ask)]).join()
        self.checker.check(streams)
        return streams.histories[0]

    @staticmethod
    def most(prompt_tokens):
        return (prompt_tokens - 1) // BLOCK * BLOCK

    def test_the_second_of_two_equal_prompts_is_a_hit_through_each_door(self):
        for door in (COMPLETIONS, CHAT, GRPC):
            ask = self.cold()
            if door == CHAT:
                ask = dataclasses.replace(ask, message=ask.prompt, prompt="")
            cached = self.server.metric("weft_prompt_tokens_cached_total")
            first = self.run_one(door, ask)
            start = first.counted("cached_tokens")
            # What all conversations begin with may be there already.
            self.assertLess(start, 2 * BLOCK + 1 if door == CHAT else 1, door)
            second = self.run_one(door, ask)
            prompt = second.counted("prompt_tokens")
            self.assertGreater(self.most(prompt), 3 * BLOCK)
            self.assertEqual(second.counted("cached_tokens"), self.most(prompt), door)
            self.assertEqual((second.text(), second.ids()), (first.text(), first.ids()))
            self.assertEqual(self.server.metric("weft_prompt_tokens_cached_total"),
                             cached + start + self.most(prompt))

    def test_a_hit_of_one_door_serves_the_others(self):
        ask = self.cold()
        first = self.run_one(TGI, ask)
        for door in (GRPC, COMPLETIONS):
            again = self.run_one(door, ask)
            self.assertEqual(again.counted("cached_tokens"),
                             self.most(again.counted("prompt_tokens")), door)
            self.assertEqual(again.text(), first.text())

    def test_whole_answers_say_it_too(self):
        ask = self.cold()
        for path, body in (("/v1/completions", {"prompt": ask.prompt}),
                           ("/v1/chat/completions",
                            {"messages": [{"role": "user", "content": self.cold().prompt}]})):
            body = {**body, "max_tokens": 4, "temperature": 0}
            self.server.post(path, body)
            usage = self.server.post(path, body)["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"],
                             self.most(usage["prompt_tokens"]))

    def test_a_prompt_that_begins_alike_is_a_hit_as_far_as_whole_blocks_are_equal(self):
        ask = self.cold()
        ids = [token["id"] for token in self.server.post("/tokenize", {"inputs": ask.prompt})]
        self.run_one(GRPC, ask)
        for shared in (BLOCK - 1, BLOCK, 2 * BLOCK + 5, 3 * BLOCK):
            # The token that follows is another one, and so is the text.
            other = [*ids[:shared], ids[shared] + 1 + self.source.randrange(100),
                     *(self.source.randrange(100, 30000) for _ in range(3 * BLOCK))]
            body = {"prompt": other, "max_tokens": 2, "temperature": 0}
            usage = self.server.post("/v1/completions", body)["usage"]
            self.assertEqual(usage["prompt_tokens"], len(other))
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"],
                             shared // BLOCK * BLOCK, shared)

    def test_an_answer_is_a_prefix_of_the_next_turn(self):
        ask = dataclasses.replace(self.cold(), max_tokens=3 * BLOCK)
        first = self.run_one(GRPC, ask)
        prompt = [token["id"] for token in self.server.post("/tokenize", {"inputs": ask.prompt})]
        self.assertEqual(len(prompt), first.counted("prompt_tokens"))
        turn = [*prompt, *first.ids(), *range(1000, 1000 + BLOCK)]
        usage = self.server.post("/v1/completions", {
            "prompt": turn, "max_tokens": 1, "temperature": 0})["usage"]
        # The last token that was sampled was never read by the model.
        known = len(prompt) + len(first.ids()) - 1
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], known // BLOCK * BLOCK)

    def flush(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        try:
            connection.request("POST", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def test_after_a_flush_a_prompt_comes_in_cold(self):
        for path in ("/flush_cache", "/reset_prefix_cache"):
            ask = self.cold()
            first = self.run_one(GRPC, ask)
            self.assertEqual(self.run_one(TGI, ask).text(), first.text())
            self.assertEqual(self.flush(path), (200, {"success": True}))
            cold, hit = self.run_one(GRPC, ask), self.run_one(COMPLETIONS, ask)
            self.assertEqual(cold.counted("cached_tokens"), 0, path)
            self.assertEqual(hit.counted("cached_tokens"), self.most(hit.counted("prompt_tokens")))
            self.assertEqual((cold.text(), cold.ids()), (first.text(), first.ids()))
        # The routes are the operator's.
        self.assertEqual(self.server.request("POST", "/flush_cache", {})[0], 404)

    def test_a_flush_disturbs_no_stream(self):
        asks = mixed(8, self.source, tokens=(40, 80))
        streams = Streams(self.server, [((GRPC, COMPLETIONS)[index % 2], ask)
                                        for index, ask in enumerate(asks)])
        for _ in range(20):
            self.assertEqual(self.flush("/flush_cache")[0], 200)
        streams.join()
        self.checker.learn(asks)
        self.checker.check(streams)

    def test_hits_beside_other_streams_give_the_same_answers(self):
        first = self.cold()
        asks = [dataclasses.replace(first, max_tokens=12 + index) for index in range(6)]
        asks += mixed(6, self.source, tokens=(20, 40))
        streams = Streams(self.server, [((GRPC, COMPLETIONS)[index % 2], ask)
                                        for index, ask in enumerate(asks)]).join()
        self.checker.learn(asks)
        self.checker.check(streams)
        again = Streams(self.server, [((COMPLETIONS, GRPC)[index % 2], ask)
                                      for index, ask in enumerate(asks)]).join()
        self.checker.check(again)
        for history in again.histories:
            self.assertEqual(history.counted("cached_tokens"),
                             self.most(history.counted("prompt_tokens")))


if __name__ == "__main__":
    unittest.main()
