"""OpenAI's client for Python: chats and completions, whole, streamed and asynchronous; answers that
fit a schema; errors in the classes that its users catch; retries."""

import asyncio
import contextlib
import json
import typing
import unittest

import openai
import pydantic

from clients import (ABOUT_A_CAT, FIRST_LOGPROB, FIRST_TOKEN, MESSAGES, PROMPT, SEEDS, SMALL,
                     TIMEOUT_S, Animal, ClientTest, busy_until_refused, keyed_server)
from weft_server import WeftServer, run_tests

TOKENS = 24


def client_of(server, kind=openai.OpenAI, **arguments):
    return kind(**{"base_url": f"http://{server.http}/v1", "api_key": "none", "max_retries": 0,
                   "timeout": TIMEOUT_S, **arguments})


def joined(chunks):
    """(text, finish reason, usage, logprobs) of a chat's chunks, of one choice."""
    text, reason, usage, logprobs = "", None, None, []
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            logprobs += choice.logprobs.content if choice.logprobs else []
    return text, reason, usage, logprobs


class OpenAiTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = client_of(cls.server)

    def create(self, **fields):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": MESSAGES, "max_tokens": TOKENS, **fields})

    def complete(self, **fields):
        return self.client.completions.create(
            **{"model": self.model, "prompt": PROMPT, "max_tokens": TOKENS, **fields})

    # -- Chats ------------------------------------------------------------------------------------
    def test_models_are_listed_and_found(self):
        listed = self.client.models.list().data
        self.assertEqual([model.id for model in listed], [self.model])
        self.assertEqual(self.client.models.retrieve(self.model), listed[0])
        self.assertEqual(listed[0].object, "model")

    def test_a_stream_is_the_whole_answer(self):
        for seed in SEEDS:
            whole = self.create(seed=seed, logprobs=True, top_logprobs=3)
            chunks = list(self.create(seed=seed, logprobs=True, top_logprobs=3, stream=True,
                                      stream_options={"include_usage": True}))
            text, reason, usage, logprobs = joined(chunks)
            choice = whole.choices[0]
            self.assertEqual(text, choice.message.content)
            self.assertEqual(reason, choice.finish_reason)
            self.assertEqual(logprobs, choice.logprobs.content)
            self.assertEqual((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
                             (whole.usage.prompt_tokens, whole.usage.completion_tokens,
                              whole.usage.total_tokens))
            self.assertEqual(usage.completion_tokens, len(logprobs))
            roles = [chunk.choices[0].delta.role for chunk in chunks if chunk.choices]
            self.assertEqual(roles, ["assistant"] + [None] * (len(roles) - 1))
            self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})
            self.assertEqual(chunks[0].system_fingerprint, whole.system_fingerprint)

    def test_the_prompt_s_tokens_are_those_of_the_template(self):
        tokens = self.server.post("/chat_tokenize", {"messages": MESSAGES})["tokenize_response"]
        self.assertEqual(self.create(max_tokens=1).usage.prompt_tokens, len(tokens))

    def test_asynchronous_answers_are_those_of_the_other_client(self):
        expected = {seed: self.create(seed=seed).choices[0].message.content for seed in range(8)}

        async def ask_all():
            async with client_of(self.server, openai.AsyncOpenAI) as client:
                async def streamed(seed):
                    chunks = await client.chat.completions.create(
                        model=self.model, messages=MESSAGES, max_tokens=TOKENS, seed=seed,
                        stream=True)
                    return joined([chunk async for chunk in chunks])[0]

                async def whole(seed):
                    answer = await client.chat.completions.create(
                        model=self.model, messages=MESSAGES, max_tokens=TOKENS, seed=seed)
                    return answer.choices[0].message.content

                return await asyncio.gather(*map(streamed, expected), *map(whole, expected))

        self.assertEqual(asyncio.run(ask_all()), list(expected.values()) * 2)
        self.assertGreater(len(set(expected.values())), 2)

    def test_choices_come_whole_and_streamed(self):
        whole = self.create(n=3, seed=5)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2])
        texts = [choice.message.content for choice in whole.choices]
        self.assertGreater(len(set(texts)), 1)  # a small model repeats itself now and then
        streamed = ["", "", ""]
        for chunk in self.create(n=3, seed=5, stream=True,
                                 stream_options={"include_usage": True}):
            usage = chunk.usage
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual(streamed, texts)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertGreater(usage.completion_tokens, usage.prompt_tokens)

    def test_ends(self):
        cut = self.create(max_tokens=4, temperature=0)
        self.assertEqual((cut.choices[0].finish_reason, cut.usage.completion_tokens), ("length", 4))
        self.assertEqual(self.create(max_tokens=openai.omit, max_completion_tokens=4,
                                     temperature=0).choices[0].message.content,
                         cut.choices[0].message.content)
        own = self.create(temperature=0)
        self.assertEqual(own.choices[0].finish_reason, "stop")
        self.assertIn("Paris", own.choices[0].message.content)
        for stop in ("Paris", ["Rome", "Paris"]):
            stopped = self.create(temperature=0, stop=stop)
            self.assertEqual(stopped.choices[0].finish_reason, "stop")
            self.assertEqual(stopped.choices[0].message.content,
                             own.choices[0].message.content.split("Paris")[0])
            chunks = self.create(temperature=0, stop=stop, stream=True)
            self.assertEqual(joined(chunks)[0], stopped.choices[0].message.content)

    def test_log_probabilities(self):
        content = self.create(temperature=0, logprobs=True, top_logprobs=4).choices[0]
        # The last token is the one that ends the answer, which is no text.
        spelled = b"".join(bytes(token.bytes) for token in content.logprobs.content[:-1])
        self.assertEqual(spelled.decode(), content.message.content)
        for token in content.logprobs.content:
            self.assertEqual(len(token.top_logprobs), 4)
            self.assertEqual(token.top_logprobs[0].token, token.token)
            values = [top.logprob for top in token.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(values[0], 0)

    def test_biases_and_penalties_reach_the_model(self):
        forced = self.create(max_tokens=5, temperature=0, logit_bias={"7042": 100})
        self.assertEqual(forced.choices[0].message.content, " Paris" * 5)
        freed = self.create(max_tokens=5, temperature=0, logit_bias={"7042": 5}, presence_penalty=2,
                            frequency_penalty=2)
        self.assertNotEqual(freed.choices[0].message.content, " Paris" * 5)

    # -- Completions ------------------------------------------------------------------------------
    def test_completions_of_several_prompts(self):
        prompts = [PROMPT, "One, two, three,", "Roses are red,"]
        singles = [self.complete(prompt=prompt, temperature=0) for prompt in prompts]
        both = self.complete(prompt=prompts, temperature=0)
        self.assertEqual([choice.text for choice in both.choices],
                         [single.choices[0].text for single in singles])
        self.assertEqual([choice.index for choice in both.choices], [0, 1, 2])
        self.assertEqual(both.usage.completion_tokens,
                         sum(single.usage.completion_tokens for single in singles))
        self.assertEqual(both.usage.prompt_tokens,
                         sum(single.usage.prompt_tokens for single in singles))
        streamed = ["", "", ""]
        for chunk in self.complete(prompt=prompts, temperature=0, stream=True):
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
        self.assertEqual(streamed, [choice.text for choice in both.choices])

    def test_completions_of_ids_and_with_an_echo(self):
        text = self.complete(temperature=0).choices[0].text
        tokens = self.server.post("/tokenize", {"inputs": PROMPT})
        ids = [token["id"] for token in tokens]
        self.assertEqual(self.complete(prompt=ids, temperature=0).choices[0].text, text)
        self.assertEqual(self.complete(echo=True, temperature=0).choices[0].text, PROMPT + text)

    def test_log_probabilities_of_completions(self):
        choice = self.complete(temperature=0, logprobs=2).choices[0]
        logprobs = choice.logprobs
        self.assertEqual("".join(logprobs.tokens), choice.text)
        self.assertEqual(logprobs.text_offset,
                         [sum(map(len, logprobs.tokens[:i])) for i in range(len(logprobs.tokens))])
        self.assertEqual(logprobs.tokens[0], FIRST_TOKEN)
        self.assertAlmostEqual(logprobs.token_logprobs[0], FIRST_LOGPROB, delta=0.05)
        for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs,
                                       logprobs.top_logprobs):
            self.assertEqual(top[token], logprob)
            self.assertEqual(max(top.values()), logprob)

    # -- Answers that fit a schema ----------------------------------------------------------------
    def test_parse_gives_objects(self):
        for seed in SEEDS:
            answer = self.client.chat.completions.parse(
                model=self.model, messages=ABOUT_A_CAT, response_format=Animal, seed=seed,
                temperature=1.2, max_tokens=200)
            choice = answer.choices[0]
            self.assertEqual(choice.finish_reason, "stop")
            self.assertIsInstance(choice.message.parsed, Animal)
            self.assertEqual(choice.message.parsed,
                             Animal.model_validate_json(choice.message.content))
        with self.assertRaises(openai.LengthFinishReasonError):
            self.client.chat.completions.parse(model=self.model, messages=ABOUT_A_CAT,
                                               response_format=Animal, max_tokens=3)

    def parsed(self, kind, question, **fields):
        return self.client.chat.completions.parse(
            model=self.model, messages=[{"role": "user", "content": question}],
            response_format=kind, **fields).choices[0].message.parsed

    def test_parse_of_nested_and_recursive_schemas(self):
        class Zoo(pydantic.BaseModel):
            animals: list[Animal] = pydantic.Field(min_length=1, max_length=2)
            keeper: typing.Literal["Ann", "Bob"] | None

        class Node(pydantic.BaseModel):
            last: bool
            next: typing.Optional["Node"]

        self.assertIsInstance(self.parsed(Zoo, "A small zoo as JSON.", temperature=0,
                                          max_tokens=600), Zoo)
        whole = 0
        for seed in range(8):
            # A chain may go on and on.
            with contextlib.suppress(openai.LengthFinishReasonError):
                chain = self.parsed(Node, "A short chain as JSON.", seed=seed, max_tokens=150)
                self.assertIsInstance(chain, Node)
                whole += 1
        self.assertGreater(whole, 0)

    def test_parse_while_it_streams(self):
        deltas, done = "", None
        with self.client.chat.completions.stream(
                model=self.model, messages=ABOUT_A_CAT, response_format=Animal, temperature=0,
                max_tokens=200) as stream:
            for event in stream:
                if event.type == "content.delta":
                    deltas += event.delta
                elif event.type == "content.done":
                    done = event
            final = stream.get_final_completion().choices[0]
        self.assertEqual(deltas, final.message.content)
        self.assertIsInstance(done.parsed, Animal)
        self.assertEqual(final.message.parsed, Animal.model_validate_json(deltas))

    def test_schemas_and_json_by_response_format(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3,
                                                         "maximum": 5}},
                  "required": ["n"], "additionalProperties": False}
        answer = self.create(messages=ABOUT_A_CAT, seed=3, max_tokens=300, response_format={
            "type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}})
        value = json.loads(answer.choices[0].message.content)
        self.assertEqual(list(value), ["n"])
        self.assertIn(value["n"], (3, 4, 5))
        answer = self.create(messages=ABOUT_A_CAT, temperature=0, max_tokens=300,
                             response_format={"type": "json_object"})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    # -- Errors -----------------------------------------------------------------------------------
    def test_errors_have_their_classes_and_name_the_field(self):
        tokens = {"model": self.model, "messages": MESSAGES, "max_tokens": 1}
        broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}
        for kind, param, fields in (
                (openai.BadRequestError, "temperature", {"temperature": -1}),
                (openai.BadRequestError, "messages", {"messages": []}),
                (openai.BadRequestError, "messages[0].role", {"messages": [{"role": "robot",
                                                                            "content": "x"}]}),
                (openai.BadRequestError, "top_logprobs", {"top_logprobs": 2}),
                (openai.BadRequestError, "max_tokens", {"max_tokens": 0}),
                (openai.BadRequestError, "n", {"n": 0}),
                (openai.NotFoundError, None, {"model": "gpt-5"})):
            for stream in (False, True):
                with self.assertRaises(kind, msg=param) as caught:
                    self.client.chat.completions.create(**{**tokens, **fields}, stream=stream)
                self.assertEqual(caught.exception.param, param)
                self.assertEqual(caught.exception.type, "invalid_request_error")
                self.assertRegex(caught.exception.request_id, r"^[A-Za-z0-9._-]{1,128}$")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(response_format=broken)
        self.assertTrue(caught.exception.param.startswith("response_format"), caught.exception)
        self.assertEqual(caught.exception.status_code, 400)

    def test_errors_of_models_paths_and_bodies(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("gpt-5")
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertIn(self.model, str(caught.exception))
        with self.assertRaises(openai.NotFoundError):
            self.client.images.generate(model=self.model, prompt="a cat")
        with self.assertRaises(openai.APIStatusError) as caught:
            self.create(messages=[{"role": "user", "content": "x" * (5 << 20)}])
        self.assertEqual(caught.exception.status_code, 413)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(messages=[{"role": "user", "content": "x " * 10000}])
        self.assertEqual((caught.exception.param, caught.exception.code),
                         ("messages", "context_length_exceeded"))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(max_tokens=100000)
        self.assertEqual((caught.exception.param, caught.exception.code),
                         ("max_tokens", "context_length_exceeded"))

    def test_deadlines_whole_and_inside_a_stream(self):
        slow = {"ignore_eos": True, "deadline_ms": 400}
        failures = lambda: self.server.metric("weft_request_failure_total", reason="deadline")
        before = failures()
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client.with_options(max_retries=3).chat.completions.create(
                model=self.model, messages=MESSAGES, max_tokens=1500, extra_body=slow)
        self.assertEqual((caught.exception.status_code, caught.exception.code),
                         (504, "deadline_exceeded"))
        # It is not sent again: that would not meet the deadline either.
        self.assertEqual(failures(), before + 1)
        text = ""
        with self.assertRaises(openai.APIError) as caught:
            for chunk in self.create(max_tokens=1500, extra_body=slow, stream=True):
                text += chunk.choices[0].delta.content or ""
        self.assertEqual(caught.exception.code, "deadline_exceeded")
        self.assertGreater(len(text), 10)

    def test_a_client_that_gives_up_is_gone(self):
        endless = {"ignore_eos": True}
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.5).chat.completions.create(
                model=self.model, messages=MESSAGES, max_tokens=1500, extra_body=endless)
        self.server.wait_idle()
        with self.create(max_tokens=1500, extra_body=endless, stream=True) as stream:
            next(iter(stream))
        self.server.wait_idle()
        self.assertEqual(self.server.metric("weft_num_requests_running"), 0)

    def test_names_of_requests(self):
        answer = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=MESSAGES, max_tokens=1,
            extra_headers={"x-request-id": "my-name.1"})
        self.assertEqual(answer.request_id, "my-name.1")
        self.assertEqual(answer.parse().id, "chatcmpl-my-name.1")


class RetriesTest(ClientTest):
    flags = ("--running-max=1", "--queue-requests-max=1", "--queue-timeout-s=3600")

    def test_a_refused_request_is_sent_again(self):
        client = client_of(self.server)
        ask = {"model": self.model, "messages": MESSAGES, "max_tokens": 4, "temperature": 0}
        expected = client.chat.completions.create(**ask).choices[0].message.content
        with busy_until_refused(self.server, "overloaded", 2):
            with self.assertRaises(openai.RateLimitError) as caught:
                client.chat.completions.create(**ask)
        self.assertEqual(caught.exception.type, "rate_limit_error")
        self.assertGreater(int(caught.exception.response.headers["retry-after"]), 0)
        self.server.wait_idle()
        patient = client.with_options(max_retries=8)
        with busy_until_refused(self.server, "overloaded", 2):
            answer = patient.chat.completions.with_raw_response.create(**ask)
        self.assertGreaterEqual(answer.retries_taken, 1)
        self.assertEqual(answer.parse().choices[0].message.content, expected)


class QueueTimeoutTest(ClientTest):
    flags = ("--running-max=1", "--queue-timeout-s=1")

    def test_a_request_that_waited_too_long_is_sent_again(self):
        client = client_of(self.server)
        ask = {"model": self.model, "messages": MESSAGES, "max_tokens": 4, "temperature": 0}
        with busy_until_refused(self.server, "unavailable"):
            with self.assertRaises(openai.InternalServerError) as caught:
                client.chat.completions.create(**ask)
        self.assertEqual((caught.exception.status_code, caught.exception.type,
                          caught.exception.code),
                         (503, "service_unavailable_error", "queue_timeout"))
        self.server.wait_idle()
        with busy_until_refused(self.server, "unavailable"):
            answer = client.with_options(max_retries=8).chat.completions.with_raw_response.create(
                **ask)
        self.assertGreaterEqual(answer.retries_taken, 1)
        self.assertEqual(answer.parse().usage.completion_tokens, 4)


class AccessTest(unittest.TestCase):
    def test_keys(self):
        server, right = keyed_server(type(self))
        for key in ("none", right[:-1], right + "x"):
            with self.assertRaises(openai.AuthenticationError) as caught:
                client_of(server, api_key=key).models.list()
            self.assertEqual(caught.exception.code, "invalid_api_key")
        answer = client_of(server, api_key=right).chat.completions.create(
            model="tgi", messages=MESSAGES, max_tokens=2)
        self.assertEqual(answer.usage.completion_tokens, 2)

    def test_a_server_that_is_gone_is_a_connection_error(self):
        server = WeftServer(SMALL).start()
        client = client_of(server)
        self.assertEqual(len(client.models.list().data), 1)
        server.stop()
        with self.assertRaises(openai.APIConnectionError):
            client.models.list()


if __name__ == "__main__":
    run_tests()
