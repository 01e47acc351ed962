"""litellm: as an OpenAI-compatible server, as one of text completions, as vLLM, as TGI."""

import asyncio
import json
import os

# What is asked for here is not sold by anybody: no list of prices is fetched.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402

from clients import (ABOUT_A_CAT, MESSAGES, PROMPT, SEEDS, TIMEOUT_S, Animal,  # noqa: E402
                     ClientTest, busy_until_refused)
from weft_server import run_tests  # noqa: E402

TOKENS = 16
litellm.suppress_debug_info = True


class LitellmTest(ClientTest):
    def providers(self):
        """(model, address) by which litellm knows a chat here."""
        return (("openai/" + self.model, self.url + "/v1"),
                ("hosted_vllm/" + self.model, self.url + "/v1"),
                ("litellm_proxy/" + self.model, self.url + "/v1"),
                ("huggingface/tgi", self.url))

    def ask(self, model, address, **fields):
        return litellm.completion(**{"model": model, "api_base": address, "api_key": "none",
                                     "messages": MESSAGES, "max_tokens": TOKENS, "num_retries": 0,
                                     "timeout": TIMEOUT_S, **fields})

    def test_whole_and_streamed_chats_by_every_provider(self):
        for seed in SEEDS:
            expected = self.chat(max_tokens=TOKENS, seed=seed)
            text = expected["choices"][0]["message"]["content"]
            for model, address in self.providers():
                whole = self.ask(model, address, seed=seed)
                self.assertEqual(whole.choices[0].message.content, text, model)
                self.assertEqual(whole.choices[0].finish_reason,
                                 expected["choices"][0]["finish_reason"], model)
                self.assertEqual(whole.usage.completion_tokens,
                                 expected["usage"]["completion_tokens"], model)
                chunks = list(self.ask(model, address, seed=seed, stream=True,
                                       stream_options={"include_usage": True}))
                built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
                self.assertEqual(built.choices[0].message.content, text, model)
                self.assertEqual(built.choices[0].finish_reason,
                                 expected["choices"][0]["finish_reason"], model)
                self.assertEqual((built.usage.prompt_tokens, built.usage.completion_tokens),
                                 (expected["usage"]["prompt_tokens"],
                                  expected["usage"]["completion_tokens"]), model)

    def test_asynchronous_answers_are_equal(self):
        model, address = self.providers()[0]
        expected = [self.ask(model, address, seed=seed).choices[0].message.content
                    for seed in range(6)]

        async def one(seed):
            stream = await litellm.acompletion(
                model=model, api_base=address, api_key="none", messages=MESSAGES,
                max_tokens=TOKENS, seed=seed, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        async def ask_all():
            return await asyncio.gather(*map(one, range(6)))

        self.assertEqual(asyncio.run(ask_all()), expected)

    def test_text_completions(self):
        asked = {"model": "text-completion-openai/" + self.model, "prompt": PROMPT,
                 "api_base": self.url + "/v1", "api_key": "none", "max_tokens": TOKENS,
                 "temperature": 0}
        expected = self.generate(max_new_tokens=TOKENS)["generated_text"]
        whole = litellm.text_completion(logprobs=2, **asked)
        self.assertEqual(whole.choices[0].text, expected)
        self.assertEqual("".join(whole.choices[0].logprobs.tokens), expected)
        self.assertEqual(whole.usage.completion_tokens, TOKENS)
        streamed = litellm.text_completion(stream=True, **asked)
        self.assertEqual("".join(chunk.choices[0].text or "" for chunk in streamed), expected)

    def test_structured_output(self):
        for model, address in self.providers():
            answer = self.ask(model, address, messages=ABOUT_A_CAT, seed=2, max_tokens=200,
                              response_format=Animal)
            Animal.model_validate_json(answer.choices[0].message.content)
        answer = self.ask(*self.providers()[0], messages=ABOUT_A_CAT, temperature=0, max_tokens=300,
                          response_format={"type": "json_object"})
        self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_choices_stops_and_log_probabilities(self):
        model, address = self.providers()[0]
        several = self.ask(model, address, n=3, seed=1)
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2])
        stopped = self.ask(model, address, temperature=0, stop=["Paris"])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertNotIn("Paris", stopped.choices[0].message.content)
        logged = self.ask(model, address, temperature=0, logprobs=True, top_logprobs=2)
        tokens = logged.choices[0].logprobs.content
        self.assertEqual("".join(token.token for token in tokens[:-1]),
                         logged.choices[0].message.content)

    def test_errors_have_their_classes(self):
        model, address = self.providers()[0]
        with self.assertRaises(litellm.BadRequestError) as caught:
            self.ask(model, address, temperature=-1)
        self.assertIn("temperature", str(caught.exception))
        with self.assertRaises(litellm.NotFoundError):
            self.ask("openai/gpt-5", address)
        # By which its router falls back to a model with a longer context.
        for text in ("x " * 10000, "word " * 5000):
            with self.assertRaises(litellm.ContextWindowExceededError):
                self.ask(model, address, messages=[{"role": "user", "content": text}])


class BusyTest(ClientTest):
    flags = ("--running-max=1", "--queue-requests-max=1")

    def test_a_full_server(self):
        asked = {"model": "openai/" + self.model, "api_base": self.url + "/v1", "api_key": "none",
                 "messages": MESSAGES, "max_tokens": 2, "temperature": 0}
        with busy_until_refused(self.server, "overloaded", 2):
            with self.assertRaises(litellm.RateLimitError):
                litellm.completion(max_retries=0, num_retries=0, **asked)
        self.server.wait_idle()
        with busy_until_refused(self.server, "overloaded", 2):
            answer = litellm.completion(max_retries=8, **asked)
        self.assertEqual(answer.usage.completion_tokens, 2)


if __name__ == "__main__":
    run_tests()
