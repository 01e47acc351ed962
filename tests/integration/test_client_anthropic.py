"""Anthropic's client for Python at /v1/messages: whole, streamed, asynchronous; stop sequences;
tools and their round trip; errors in their classes; retries."""

import asyncio

import anthropic

from clients import SEEDS, TIMEOUT_S, ClientTest, busy_until_refused
from weft_server import run_tests

SYSTEM = "You answer in one sentence."
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TOKENS = 24
# The client itself has no temperature any more.
GREEDY = {"extra_body": {"temperature": 0}}
WEATHER = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "additionalProperties": False, "required": ["city"],
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]}}}}


def client_of(url, kind=anthropic.Anthropic, **arguments):
    return kind(**{"base_url": url, "api_key": "none", "max_retries": 0, "timeout": TIMEOUT_S,
                   **arguments})


class AnthropicTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = client_of(cls.url)

    def create(self, **fields):
        return self.client.messages.create(**{
            "model": self.model, "messages": MESSAGES, "system": SYSTEM, "max_tokens": TOKENS,
            **GREEDY, **fields})

    def test_a_message_is_the_chat_s(self):
        message = self.create()
        chat = self.server.post("/v1/chat/completions", {
            "messages": [{"role": "system", "content": SYSTEM}, *MESSAGES], "max_tokens": TOKENS,
            "temperature": 0})
        block, = message.content
        self.assertEqual((block.type, block.text),
                         ("text", chat["choices"][0]["message"]["content"]))
        self.assertEqual((message.role, message.type, message.stop_reason),
                         ("assistant", "message", "end_turn"))
        self.assertEqual((message.usage.input_tokens, message.usage.output_tokens),
                         (chat["usage"]["prompt_tokens"]
                          - (message.usage.cache_read_input_tokens or 0),
                          chat["usage"]["completion_tokens"]))

    def test_tokens_are_counted(self):
        tools = {"tools": [WEATHER]}
        for more in ({}, tools):
            usage = self.create(**more).usage
            counted = self.client.messages.count_tokens(model=self.model, messages=MESSAGES,
                                                        system=SYSTEM, **more)
            self.assertEqual(counted.input_tokens,
                             usage.input_tokens + (usage.cache_read_input_tokens or 0))
        with self.assertRaises(anthropic.BadRequestError):
            self.client.messages.count_tokens(model=self.model, messages=[])

    def test_ends(self):
        self.assertEqual(self.create(max_tokens=3).stop_reason, "max_tokens")
        stopped = self.create(stop_sequences=["Paris"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "Paris"))
        self.assertNotIn("Paris", stopped.content[0].text)

    def test_a_stream_is_the_whole_message(self):
        whole = self.create()
        events = list(self.create(stream=True))
        kinds = [event.type for event in events if event.type != "ping"]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})
        with self.client.messages.stream(model=self.model, messages=MESSAGES, system=SYSTEM,
                                         max_tokens=TOKENS, **GREEDY) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, whole.content[0].text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_asynchronous_messages_are_equal(self):
        expected = self.create().content[0].text

        async def ask_all():
            async with client_of(self.url, anthropic.AsyncAnthropic) as client:
                async def one():
                    async with client.messages.stream(
                            model=self.model, messages=MESSAGES, system=SYSTEM, max_tokens=TOKENS,
                            **GREEDY) as stream:
                        return "".join([text async for text in stream.text_stream])

                return await asyncio.gather(*[one() for _ in range(6)])

        self.assertEqual(asyncio.run(ask_all()), [expected] * 6)

    def test_conversations_and_blocks(self):
        said = self.create()
        again = self.create(messages=[*MESSAGES, {"role": "assistant", "content": said.content},
                                      {"role": "user", "content": [
                                          {"type": "text", "text": "And of Italy?"}]}])
        self.assertGreater(again.usage.input_tokens + (again.usage.cache_read_input_tokens or 0),
                           said.usage.input_tokens)
        self.assertTrue(again.content[0].text)

    def test_tools_and_their_round_trip(self):
        for choice in ({"type": "any", "disable_parallel_tool_use": True},
                       {"type": "tool", "name": "get_weather"}):
            for _ in SEEDS:
                asked = self.create(tools=[WEATHER], tool_choice=choice, max_tokens=200,
                                    extra_body={})
                self.assertEqual(asked.stop_reason, "tool_use")
                uses = [block for block in asked.content if block.type == "tool_use"]
                for use in uses:
                    self.assertEqual(use.name, "get_weather")
                    self.assertIn(use.input["city"], ("Paris", "Rome", "Oslo"))
        said = self.create(tools=[WEATHER], tool_choice={"type": "none"}, messages=[
            *MESSAGES, {"role": "assistant", "content": asked.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                          "content": "21 degrees"} for use in uses]}])
        self.assertTrue(said.content[0].text)

    def test_a_streamed_call(self):
        with self.client.messages.stream(
                model=self.model, messages=MESSAGES, max_tokens=200, tools=[WEATHER],
                tool_choice={"type": "any"}) as stream:
            parts = [event.delta.partial_json for event in stream
                     if event.type == "content_block_delta"
                     and event.delta.type == "input_json_delta"]
            final = stream.get_final_message()
        self.assertGreater(len(parts), 0)
        self.assertEqual(final.stop_reason, "tool_use")
        for block in final.content:
            if block.type == "tool_use":
                self.assertIn(block.input["city"], ("Paris", "Rome", "Oslo"))

    def test_errors_have_their_classes(self):
        for fields in ({"extra_body": {"temperature": -1}}, {"messages": []}, {"max_tokens": 0}):
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.create(**fields)
            self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.create(model="claude")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")


class BusyTest(ClientTest):
    flags = ("--running-max=1", "--queue-requests-max=1")

    def test_a_refused_request_is_sent_again(self):
        ask = {"model": self.model, "messages": MESSAGES, "max_tokens": 4}
        with busy_until_refused(self.server, "overloaded", 2):
            with self.assertRaises(anthropic.RateLimitError):
                client_of(self.url).messages.create(**ask)
        self.server.wait_idle()
        with busy_until_refused(self.server, "overloaded", 2):
            message = client_of(self.url, max_retries=8).messages.create(**ask)
        self.assertEqual(message.usage.output_tokens, 4)


if __name__ == "__main__":
    run_tests()
