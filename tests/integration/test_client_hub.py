"""huggingface_hub's InferenceClient: TGI's text generation, and chats, synchronous and not."""

import asyncio
import json
import re

from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import (BadRequestError, HfHubHTTPError, InferenceTimeoutError,
                                    OverloadedError, ValidationError)

from clients import (ABOUT_A_CAT, FIRST_LOGPROB, FIRST_TOKEN, MESSAGES, PROMPT, SEEDS, TIMEOUT_S,
                     Animal, ClientTest, busy_until_refused)
from weft_server import run_tests

TOKENS = 16
SCHEMA = Animal.model_json_schema()


class HubTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # As people write it who had TGI before: the address of the server is the model.
        cls.client = InferenceClient(model=cls.url, timeout=TIMEOUT_S)
        cls.chats = InferenceClient(base_url=f"{cls.url}/v1", api_key="none", timeout=TIMEOUT_S)

    # -- Text -------------------------------------------------------------------------------------
    def test_text_is_that_of_the_route(self):
        expected = self.generate(max_new_tokens=TOKENS)["generated_text"]
        self.assertEqual(self.client.text_generation(PROMPT, max_new_tokens=TOKENS), expected)
        self.assertIn("Paris", expected)
        full = self.client.text_generation(PROMPT, max_new_tokens=TOKENS, return_full_text=True)
        self.assertEqual(full, PROMPT + expected)

    def test_details_and_streams_are_one_answer(self):
        for seed in SEEDS:
            asked = {"max_new_tokens": TOKENS, "do_sample": True, "temperature": 0.9, "top_p": 0.95,
                     "seed": seed, "top_n_tokens": 3, "details": True}
            whole = self.client.text_generation(PROMPT, **asked)
            self.assertEqual(whole.details.seed, seed)
            self.assertEqual(whole.details.generated_tokens, len(whole.details.tokens))
            self.assertEqual([len(top) for top in whole.details.top_tokens],
                             [3] * len(whole.details.tokens))
            events = list(self.client.text_generation(PROMPT, stream=True, **asked))
            last = events[-1]
            self.assertEqual(last.generated_text, whole.generated_text)
            self.assertEqual((last.details.finish_reason, last.details.generated_tokens,
                              last.details.seed),
                             (whole.details.finish_reason, whole.details.generated_tokens, seed))
            self.assertEqual([event.token.id for event in events],
                             [token.id for token in whole.details.tokens])
            self.assertEqual([event.token.logprob for event in events],
                             [token.logprob for token in whole.details.tokens])
            texts = "".join(event.token.text for event in events if not event.token.special)
            self.assertEqual(texts, whole.generated_text)
            plain = list(self.client.text_generation(PROMPT, stream=True,
                                                     **{**asked, "details": False}))
            self.assertEqual(plain, [event.token.text for event in events])

    def test_ends(self):
        stopped = self.client.text_generation(PROMPT, max_new_tokens=TOKENS, stop=["aris"],
                                              details=True)
        # TGI would leave the stop string in the text.
        self.assertEqual((stopped.details.finish_reason, stopped.generated_text),
                         ("stop_sequence", " P"))
        cut = self.client.text_generation(PROMPT, max_new_tokens=2, details=True)
        self.assertEqual((cut.details.finish_reason, cut.generated_text), ("length", " Paris."))
        self.assertEqual(cut.details.tokens[0].text, FIRST_TOKEN)
        self.assertAlmostEqual(cut.details.tokens[0].logprob, FIRST_LOGPROB, delta=0.05)

    def test_grammars(self):
        text = self.client.text_generation(PROMPT, max_new_tokens=12,
                                           grammar={"type": "regex", "value": "[0-9]{3}-[a-f]{2}"})
        self.assertTrue(re.fullmatch("[0-9]{3}-[a-f]{2}", text), text)
        for seed in SEEDS:
            text = self.client.text_generation(
                "A cat as JSON:", max_new_tokens=200, do_sample=True, seed=seed,
                grammar={"type": "json", "value": SCHEMA})
            Animal.model_validate_json(text)

    def test_the_best_of_several(self):
        best = self.client.text_generation(PROMPT, max_new_tokens=8, best_of=3, do_sample=True,
                                           details=True)
        others = best.details.best_of_sequences
        self.assertEqual(len(others), 2)
        mean = lambda tokens: sum(token.logprob for token in tokens) / len(tokens)
        for other in others:
            self.assertGreaterEqual(mean(best.details.tokens), mean(other.tokens))
            self.assertEqual(other.generated_tokens, len(other.tokens))

    def test_parameters(self):
        ask = lambda **more: self.client.text_generation(PROMPT, max_new_tokens=TOKENS, **more)
        self.assertNotEqual(ask(repetition_penalty=2.0, frequency_penalty=1.0), ask())
        self.assertEqual(ask(top_k=1, do_sample=True), ask())
        self.assertEqual(self.client.text_generation("One two three. " + PROMPT, truncate=5,
                                                     max_new_tokens=TOKENS),
                         self.client.text_generation(" " + PROMPT, max_new_tokens=TOKENS))

    # -- Chats ------------------------------------------------------------------------------------
    def test_a_chat_and_its_stream_are_equal(self):
        for client in (self.client, self.chats):
            for seed in SEEDS:
                asked = {"max_tokens": TOKENS, "seed": seed, "logprobs": True, "top_logprobs": 2}
                whole = client.chat_completion(MESSAGES, **asked)
                self.assertEqual(whole.choices[0].message.role, "assistant")
                chunks = list(client.chat_completion(
                    MESSAGES, stream=True, stream_options={"include_usage": True}, **asked))
                text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks
                               if chunk.choices)
                self.assertEqual(text, whole.choices[0].message.content)
                self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
                self.assertEqual(chunks[-1].usage.completion_tokens,
                                 len(whole.choices[0].logprobs.content))

    def test_chats_in_openais_words(self):
        answer = self.chats.chat.completions.create(model=self.model, messages=MESSAGES,
                                                    max_tokens=TOKENS, temperature=0)
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        # Without a model the client sends a placeholder of its own.
        nameless = self.client.chat_completion(MESSAGES, max_tokens=TOKENS, temperature=0)
        self.assertEqual(nameless.choices[0].message.content, answer.choices[0].message.content)

    def test_chats_that_fit_a_schema(self):
        schema = {"name": "animal", "schema": SCHEMA, "strict": True}
        for form in ({"type": "json_schema", "json_schema": schema},
                     {"type": "json", "value": SCHEMA}, {"type": "json_object", "value": SCHEMA}):
            answer = self.client.chat_completion(ABOUT_A_CAT, max_tokens=200, seed=1,
                                                 response_format=form)
            Animal.model_validate_json(answer.choices[0].message.content)
        answer = self.client.chat_completion(ABOUT_A_CAT, max_tokens=20, seed=1, response_format={
            "type": "regex", "value": "(yes|no)!"})
        self.assertIn(answer.choices[0].message.content, ("yes!", "no!"))

    def test_asynchronous_answers_are_equal(self):
        # Streams show the token that ends an answer, too.
        expected = ["".join(self.client.text_generation(
            PROMPT, max_new_tokens=TOKENS, do_sample=True, seed=seed, stream=True))
            for seed in range(6)]

        async def ask_all():
            async with AsyncInferenceClient(model=self.url, timeout=TIMEOUT_S) as client:
                async def one(seed):
                    stream = await client.text_generation(PROMPT, max_new_tokens=TOKENS, seed=seed,
                                                          do_sample=True, stream=True)
                    return "".join([text async for text in stream])

                return await asyncio.gather(*map(one, range(6)))

        self.assertEqual(asyncio.run(ask_all()), expected)

    # -- The server, and errors -------------------------------------------------------------------
    def test_the_server_is_found(self):
        client = InferenceClient(model=self.url, provider="hf-inference", timeout=TIMEOUT_S)
        self.assertTrue(client.health_check())
        info = client.get_endpoint_info()
        self.assertEqual(info["model_id"], self.model)
        self.assertGreater(info["max_total_tokens"], 100)

    def test_errors_have_their_classes(self):
        with self.assertRaises(ValidationError) as caught:
            self.client.text_generation(PROMPT, max_new_tokens=0)
        self.assertIn("parameters.max_new_tokens", str(caught.exception))
        with self.assertRaises(ValidationError):
            self.client.text_generation(PROMPT, top_k=-5, stream=True)
        with self.assertRaises(BadRequestError) as caught:
            self.client.chat_completion(MESSAGES, temperature=-1)
        self.assertIn("temperature", str(caught.exception))
        with self.assertRaises(HfHubHTTPError) as caught:
            self.chats.chat.completions.create(model="gpt-5", messages=MESSAGES)
        self.assertEqual(caught.exception.response.status_code, 404)
        self.assertEqual(json.loads(caught.exception.response.text)["error"]["code"],
                         "model_not_found")

    def test_a_client_that_gives_up_is_gone(self):
        with self.assertRaises(InferenceTimeoutError):
            InferenceClient(model=self.url, timeout=0.5).text_generation(
                PROMPT, max_new_tokens=2500, grammar={"type": "regex", "value": "[a-z]*"})


class BusyTest(ClientTest):
    flags = ("--running-max=1", "--queue-requests-max=1")

    def test_a_full_server(self):
        client = InferenceClient(model=self.url, timeout=TIMEOUT_S)
        with busy_until_refused(self.server, "overloaded", 2):
            with self.assertRaises(OverloadedError):
                client.text_generation(PROMPT, max_new_tokens=2)
        self.server.wait_idle()
        with busy_until_refused(self.server, "overloaded", 2):
            with self.assertRaises(HfHubHTTPError) as caught:
                client.chat_completion(MESSAGES, max_tokens=2)
        self.assertEqual(caught.exception.response.status_code, 429)


if __name__ == "__main__":
    run_tests()
