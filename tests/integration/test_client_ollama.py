"""Ollama's client for Python at /api: chats and prompts, whole, streamed, asynchronous; formats;
tools and their round trip; errors."""

import asyncio
import json

import ollama

from clients import MESSAGES, SEEDS, TIMEOUT_S, Animal, ClientTest
from weft_server import run_tests

TOKENS = 24
OPTIONS = {"temperature": 0, "num_predict": TOKENS}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.", "strict": True, "parameters": {
        "type": "object", "required": ["city"],
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]}}}}}


class OllamaTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = ollama.Client(host=cls.url, timeout=TIMEOUT_S)

    def ask(self, **fields):
        return self.client.chat(**{"model": self.model, "messages": MESSAGES, "options": OPTIONS,
                                   **fields})

    def test_a_chat_is_the_chat_of_the_same_words(self):
        answer = self.ask()
        chat = self.chat(max_tokens=TOKENS, temperature=0)
        self.assertEqual(answer.message.content, chat["choices"][0]["message"]["content"])
        self.assertEqual((answer.done, answer.done_reason), (True, "stop"))
        self.assertEqual((answer.prompt_eval_count, answer.eval_count),
                         (chat["usage"]["prompt_tokens"], chat["usage"]["completion_tokens"]))
        self.assertGreater(answer.total_duration, answer.eval_duration)
        parts = list(self.ask(stream=True))
        self.assertEqual("".join(part.message.content for part in parts), answer.message.content)
        self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(parts[-1].eval_count, answer.eval_count)
        cut = self.ask(options={**OPTIONS, "num_predict": 3})
        self.assertEqual((cut.done_reason, cut.eval_count), ("length", 3))

    def test_asynchronous_chats_are_equal(self):
        async def ask():
            client = ollama.AsyncClient(host=self.url, timeout=TIMEOUT_S)
            stream = await client.chat(model=self.model, messages=MESSAGES, options=OPTIONS,
                                       stream=True)
            return "".join([part.message.content async for part in stream])

        self.assertEqual(asyncio.run(ask()), self.ask().message.content)

    def test_prompts(self):
        answer = self.client.generate(model=self.model, prompt=MESSAGES[1]["content"],
                                      system=MESSAGES[0]["content"], options=OPTIONS)
        self.assertEqual(answer.response, self.ask().message.content)
        raw = self.client.generate(model=self.model, prompt="The capital of France is", raw=True,
                                   options=OPTIONS)
        plain = self.generate(max_new_tokens=TOKENS)
        self.assertEqual(raw.response, plain["generated_text"])

    def test_an_answer_fits_its_format(self):
        answer = self.ask(messages=[{"role": "user", "content": "Describe a cat as JSON."}],
                          format=Animal.model_json_schema(),
                          options={"temperature": 0, "num_predict": 200})
        Animal.model_validate_json(answer.message.content)

    def test_tools_and_their_round_trip(self):
        for seed in SEEDS:
            asked = self.ask(tools=[WEATHER], messages=[
                {"role": "user", "content": "What is the weather in Paris?"}],
                options={"seed": seed, "num_predict": 100})
            for call in asked.message.tool_calls or ():
                self.assertIn(call.function.arguments["city"], ("Paris", "Rome", "Oslo"))
        call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
        said = self.ask(tools=[WEATHER], messages=[
            *MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "21 degrees", "tool_name": "get_weather"}])
        self.assertTrue(said.message.content or said.message.tool_calls)

    def test_models_and_errors(self):
        self.assertEqual([one.model for one in self.client.list().models], [self.model])
        for fields, status in (({"model": "llama3"}, 404), ({"options": {"temperature": -1}}, 422),
                               ({"messages": [{**MESSAGES[1], "images": [b"x"]}]}, 422)):
            for stream in (False, True):
                with self.assertRaises(ollama.ResponseError) as caught:
                    list(self.ask(**fields, stream=stream))
                self.assertEqual(caught.exception.status_code, status, json.dumps(str(fields)))


if __name__ == "__main__":
    run_tests()
