"""Log-probabilities of prompts' own tokens, on the demo model: those of transformers
(tests/goldens/make_likelihoods.py), the same by every door, whatever else runs, and when a shard
dies in the middle of a prompt.
"""

import concurrent.futures
import json
import math
import os
import signal
import sys
import unittest

from weft_server import ROOT, WeftServer, grpc_modules, run_tests, wait_until

sys.path.append(str(ROOT / "tests/goldens"))
from likelihood_items import items  # noqa: E402

GOLDEN = json.loads((ROOT / "tests/goldens/demo/likelihoods.json").read_text())
# Of a log-likelihood of a few tokens in float32: what is left of another order of sums.
TOLERANCE = 0.002
ITEMS = 40
TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all."


class PromptLogprobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Prompts go in chunks.
        cls.server = WeftServer("--step-tokens-max=64", "--dtype=float32", shards=2).start()
        cls.grpc, cls.pb, cls.pb_grpc = grpc_modules()
        cls.channel = cls.grpc.insecure_channel(cls.server.grpc)
        cls.stub = cls.pb_grpc.TextGenerationStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def completion(self, prompt, **fields):
        return self.server.post("/v1/completions", {"prompt": prompt, **fields})

    def scored(self, prompt, **fields):
        """`logprobs` of a prompt alone."""
        fields = {"echo": True, "logprobs": 1, "max_tokens": 0, **fields}
        choice = self.completion(prompt, **fields)["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        return choice["logprobs"]

    # -- Numbers ----------------------------------------------------------------------------------
    def test_log_likelihoods_are_those_of_transformers(self):
        def likelihoods(item):
            context = len(self.scored(item["question"])["tokens"])
            return [sum(self.scored(f"{item['question']} {choice}")["token_logprobs"][context:])
                    for choice in item["choices"]]

        rows = items()[:ITEMS]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(likelihoods, rows))
        for item, values, expected in zip(rows, found, GOLDEN["log_likelihoods"]):
            for value, golden in zip(values, expected, strict=True):
                self.assertAlmostEqual(value, golden, delta=TOLERANCE, msg=item)

    def test_a_greedy_answer_has_as_prompt_what_it_had_as_output(self):
        answer = self.completion(TEXT, max_tokens=40, temperature=0, logprobs=3, ignore_eos=True,
                                 return_token_ids=True)["choices"][0]
        prompt = self.server.post("/tokenize", {"inputs": TEXT})
        ids = [token["id"] for token in prompt] + answer["token_ids"]
        again = self.scored(ids, logprobs=3)
        count = len(answer["token_ids"])
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            self.assertEqual(again[name][-count:], answer["logprobs"][name], name)
        self.assertIsNone(again["token_logprobs"][0])
        self.assertIsNone(again["top_logprobs"][0])

    # -- Shapes -----------------------------------------------------------------------------------
    def test_echo_has_the_prompt_and_then_the_answer(self):
        both = self.completion(TEXT, max_tokens=5, temperature=0, logprobs=2, echo=True)
        alone = self.completion(TEXT, max_tokens=5, temperature=0, logprobs=2)
        choice, plain = both["choices"][0], alone["choices"][0]
        self.assertEqual(choice["text"], TEXT + plain["text"])
        tokens = choice["logprobs"]["tokens"]
        self.assertEqual("".join(tokens), choice["text"])
        self.assertEqual(tokens[-5:], plain["logprobs"]["tokens"])
        self.assertEqual(choice["logprobs"]["token_logprobs"][-5:],
                         plain["logprobs"]["token_logprobs"])
        offsets = choice["logprobs"]["text_offset"]
        self.assertEqual([choice["text"][at:at + len(token)]
                          for at, token in zip(offsets, tokens)], tokens)
        self.assertEqual(both["usage"], {**alone["usage"], "prompt_tokens_details":
                                         both["usage"]["prompt_tokens_details"]})

    def test_every_door_says_the_same(self):
        logprobs = self.scored(TEXT, logprobs=4)
        values = logprobs["token_logprobs"]
        ids = [token["id"] for token in self.server.post("/tokenize", {"inputs": TEXT})]

        tgi = self.server.post("/generate", {"inputs": TEXT, "parameters": {
            "max_new_tokens": 1, "decoder_input_details": True}})["details"]["prefill"]
        self.assertEqual([token["id"] for token in tgi], ids)
        self.assertEqual([token["text"] for token in tgi], logprobs["tokens"])
        self.assertEqual([token["logprob"] for token in tgi], values)

        vllm = self.completion(TEXT, max_tokens=1, prompt_logprobs=4)
        listed = vllm["choices"][0]["prompt_logprobs"]
        self.assertIsNone(listed[0])
        for at, entry in enumerate(listed[1:], 1):
            own = entry[str(ids[at])]
            self.assertEqual((own["logprob"], own["decoded_token"]),
                             (values[at], logprobs["tokens"][at]))
            self.assertEqual([one["rank"] for key, one in entry.items() if key != str(ids[at])],
                             [rank for rank in range(1, 5) if rank != own["rank"]])
            self.assertEqual(len(entry), 4 if own["rank"] <= 4 else 5)

        request = self.pb.GenerateRequest(text=TEXT)
        request.stopping.max_tokens = 1
        request.response.prompt_logprobs = 4
        details = next(iter(self.stub.Generate(request))).prompt_info.prompt_details
        self.assertEqual([token.id for token in details], ids)
        self.assertFalse(details[0].HasField("logprob"))
        for at, token in enumerate(details[1:], 1):
            self.assertAlmostEqual(token.logprob, values[at], places=5)
            self.assertEqual(token.rank, listed[at][str(ids[at])]["rank"])
            self.assertEqual(len(token.top), 4)

        batch = self.pb.GenerateBatchRequest(requests=[request, request])
        infos = [event.response.prompt_info for event in self.stub.GenerateBatch(batch)
                 if event.response.HasField("prompt_info")]
        self.assertEqual([list(info.prompt_details) for info in infos], [list(details)] * 2)

    def test_a_chat_has_them_at_its_top(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "n": 2,
                "prompt_logprobs": 0}
        answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(len(answer["prompt_logprobs"]), answer["usage"]["prompt_tokens"])
        self.assertEqual({len(entry) for entry in answer["prompt_logprobs"][1:]}, {1})

    def test_choices_and_prompts_have_those_of_their_prompt(self):
        answer = self.completion([TEXT, "Hi there"], n=2, echo=True, logprobs=0, max_tokens=1)
        first, second, third, fourth = (
            choice["logprobs"]["token_logprobs"][:-1] for choice in answer["choices"])
        self.assertEqual(first, second)
        self.assertEqual(third, fourth)
        self.assertEqual(first, self.scored(TEXT, logprobs=0)["token_logprobs"])
        self.assertEqual(third, self.scored("Hi there", logprobs=0)["token_logprobs"])

    def test_too_many_are_refused_by_field(self):
        # Of the 2,048 tokens of the context each with twenty others: below the bound. Of five such
        # prompts it is above.
        ids = [7] * 2000
        self.assertEqual(len(self.scored(ids, logprobs=20)["tokens"]), 2000)
        for body, field in (({"echo": True, "logprobs": 20}, "logprobs"),
                            ({"prompt_logprobs": 20}, "prompt_logprobs")):
            status, _, text = self.server.request("POST", "/v1/completions", {
                "prompt": [ids] * 5, "max_tokens": 1, **body})
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, field))

    # -- Beside others, and through a loss --------------------------------------------------------
    def test_a_prompt_goes_on_when_a_shard_dies(self):
        ids = [11 + at * 37 % 40000 for at in range(1900)]
        expected = self.scored(ids)["token_logprobs"]
        self.assertTrue(all(math.isfinite(value) for value in expected[1:]))
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            steps = self.server.metric("weft_steps_total")
            scored = [pool.submit(self.scored, ids) for _ in range(2)]
            others = [pool.submit(self.completion, TEXT, max_tokens=20) for _ in range(3)]
            wait_until(lambda: self.server.metric("weft_steps_total") > steps + 5, "some steps")
            os.kill(self.server.shard_pid(1), signal.SIGKILL)
            for one in scored:
                self.assertEqual(one.result()["token_logprobs"], expected)
            for one in others:
                self.assertEqual(one.result()["usage"]["completion_tokens"], 20)
        self.assertGreater(self.server.metric("weft_group_losses_total"), 0)


if __name__ == "__main__":
    run_tests()
