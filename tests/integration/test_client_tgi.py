"""text-generation, TGI's own client for Python."""

import asyncio
import math
import re

from text_generation import AsyncClient, Client
from text_generation.errors import OverloadedError, ValidationError
from text_generation.types import Grammar, GrammarType

from clients import (FIRST_LOGPROB, FIRST_TOKEN, MESSAGES, PROMPT, SEEDS, TIMEOUT_S, Animal,
                     ClientTest, busy_until_refused)
from weft_server import run_tests

TOKENS = 16


class TgiTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = Client(cls.url, timeout=TIMEOUT_S)

    def test_a_stream_is_the_whole_answer(self):
        for seed in SEEDS:
            asked = {"max_new_tokens": TOKENS, "do_sample": True, "temperature": 0.8, "top_k": 40,
                     "top_p": 0.9, "seed": seed}
            whole = self.client.generate(PROMPT, top_n_tokens=2, **asked)
            self.assertEqual(whole.details.seed, seed)
            self.assertEqual(whole.details.generated_tokens, len(whole.details.tokens))
            self.assertEqual([len(top) for top in whole.details.top_tokens],
                             [2] * len(whole.details.tokens))
            events = list(self.client.generate_stream(PROMPT, **asked))
            self.assertEqual(events[-1].generated_text, whole.generated_text)
            self.assertEqual([event.token for event in events], whole.details.tokens)
            self.assertEqual((events[-1].details.finish_reason, events[-1].details.seed,
                              events[-1].details.generated_tokens),
                             (whole.details.finish_reason, seed, whole.details.generated_tokens))
            self.assertEqual([event.details for event in events[:-1]], [None] * (len(events) - 1))

    def test_asynchronous_answers_are_equal(self):
        async def ask_all():
            client = AsyncClient(self.url, timeout=TIMEOUT_S)

            async def streamed(seed):
                return "".join([event.token.text async for event in client.generate_stream(
                    PROMPT, max_new_tokens=TOKENS, do_sample=True, seed=seed)
                    if not event.token.special])

            wholes = asyncio.gather(*[client.generate(PROMPT, max_new_tokens=TOKENS, seed=seed,
                                                      do_sample=True) for seed in range(6)])
            return await wholes, await asyncio.gather(*map(streamed, range(6)))

        wholes, streams = asyncio.run(ask_all())
        self.assertEqual([whole.generated_text for whole in wholes], streams)
        self.assertGreater(len(set(streams)), 2)

    def test_ends_and_texts(self):
        stopped = self.client.generate(PROMPT, max_new_tokens=TOKENS, stop_sequences=["aris"])
        # TGI would leave the stop string in the text.
        self.assertEqual((stopped.generated_text, stopped.details.finish_reason.value),
                         (" P", "stop_sequence"))
        cut = self.client.generate(PROMPT, max_new_tokens=2)
        self.assertEqual((cut.generated_text, cut.details.finish_reason.value),
                         (" Paris.", "length"))
        self.assertEqual(cut.details.tokens[0].text, FIRST_TOKEN)
        self.assertAlmostEqual(cut.details.tokens[0].logprob, FIRST_LOGPROB, delta=0.05)
        full = self.client.generate(PROMPT, max_new_tokens=2, return_full_text=True)
        self.assertEqual(full.generated_text, PROMPT + " Paris.")
        self.assertEqual(self.client.generate("One. " + PROMPT, max_new_tokens=2,
                                              truncate=5).generated_text, " Paris.")

    def test_the_best_of_several(self):
        best = self.client.generate(PROMPT, max_new_tokens=8, best_of=2, do_sample=True)
        other, = best.details.best_of_sequences
        mean = lambda tokens: math.fsum(token.logprob for token in tokens) / len(tokens)
        self.assertGreaterEqual(mean(best.details.tokens), mean(other.tokens))
        # The seed of each is one that any client can give back, and gives it alone.
        for text, seed in ((best.generated_text, best.details.seed),
                           (other.generated_text, other.seed)):
            self.assertLess(seed, 2**53)
            self.assertEqual(self.client.generate(PROMPT, max_new_tokens=8, do_sample=True,
                                                  seed=seed).generated_text, text)

    def test_grammars(self):
        pattern = "[A-Z][a-z]{2,5}, [0-9]{4}"
        answer = self.client.generate("A month:", max_new_tokens=30, grammar=Grammar(
            type=GrammarType.Regex, value=pattern))
        self.assertTrue(re.fullmatch(pattern, answer.generated_text), answer)
        answer = self.client.generate(
            "A cat as JSON:", max_new_tokens=200, do_sample=True, seed=4, grammar=Grammar(
                type=GrammarType.Json, value=Animal.model_json_schema()))
        Animal.model_validate_json(answer.generated_text)

    def test_chats(self):
        asked = {"max_tokens": TOKENS, "seed": 11, "logprobs": True, "top_logprobs": 2}
        whole = self.client.chat(MESSAGES, **asked)
        self.assertEqual(whole.choices[0].message.role, "assistant")
        self.assertEqual(whole.choices[0].message.content, self.chat(**asked)["choices"][0][
            "message"]["content"])
        self.assertEqual(len(whole.choices[0].logprobs["content"]),
                         whole.usage["completion_tokens"])

    def test_errors_have_their_classes(self):
        with self.assertRaises(ValidationError) as caught:
            self.client.generate(PROMPT, max_new_tokens=0)
        self.assertIn("parameters.max_new_tokens", str(caught.exception))
        with self.assertRaises(ValidationError):
            list(self.client.generate_stream("x " * 20000))
        with self.assertRaises(ValidationError):
            self.client.generate(PROMPT, grammar=Grammar(type=GrammarType.Regex, value="(?=x)"))


class BusyTest(ClientTest):
    flags = ("--running-max=1", "--queue-requests-max=1")

    def test_a_full_server(self):
        client = Client(self.url, timeout=TIMEOUT_S)
        with busy_until_refused(self.server, "overloaded", 2):
            with self.assertRaises(OverloadedError):
                client.generate(PROMPT, max_new_tokens=2)


if __name__ == "__main__":
    run_tests()
