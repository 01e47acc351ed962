"""OpenAI's Responses by its client for Python: texts, events of streams, answers that fit a schema,
tools and their round trip; stateless, so that what would need a state is refused."""

import json

import openai

from clients import ABOUT_A_CAT, SEEDS, TIMEOUT_S, Animal, ClientTest
from weft_server import run_tests

QUESTION = "What is the capital of France?"
TOKENS = 24
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.",
           "strict": True, "parameters": {
               "type": "object", "additionalProperties": False, "required": ["city"],
               "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]}}}}


class ResponsesTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0,
                                   timeout=TIMEOUT_S)

    def create(self, **fields):
        return self.client.responses.create(**{
            "model": self.model, "input": QUESTION, "temperature": 0, "max_output_tokens": TOKENS,
            **fields})

    def test_a_text(self):
        answer = self.create(instructions="You answer in one sentence.")
        chat = self.chat(max_tokens=TOKENS, temperature=0)
        self.assertEqual(answer.output_text, chat["choices"][0]["message"]["content"])
        self.assertEqual((answer.status, answer.object), ("completed", "response"))
        self.assertEqual((answer.usage.input_tokens, answer.usage.output_tokens,
                          answer.usage.total_tokens),
                         (chat["usage"]["prompt_tokens"], chat["usage"]["completion_tokens"],
                          chat["usage"]["total_tokens"]))
        message, = answer.output
        self.assertEqual((message.type, message.role, message.status),
                         ("message", "assistant", "completed"))

    def test_conversations_are_given_whole(self):
        first = self.create()
        again = self.create(input=[{"role": "user", "content": QUESTION}, *first.output,
                                   {"role": "user", "content": "And of Italy?"}])
        self.assertGreater(again.usage.input_tokens, first.usage.input_tokens)
        self.assertTrue(again.output_text)
        parts = self.create(input=[{"role": "user", "content": [
            {"type": "input_text", "text": QUESTION}]}])
        self.assertEqual(parts.output_text, first.output_text)

    def test_an_answer_that_is_cut_is_incomplete(self):
        answer = self.create(max_output_tokens=3)
        self.assertEqual((answer.status, answer.incomplete_details.reason),
                         ("incomplete", "max_output_tokens"))
        self.assertEqual(answer.usage.output_tokens, 3)

    def test_the_events_of_a_stream(self):
        whole = self.create()
        events = list(self.create(stream=True))
        kinds = [event.type for event in events]
        self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
        self.assertEqual(kinds[2:4], ["response.output_item.added", "response.content_part.added"])
        self.assertEqual(kinds[-4:], ["response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"])
        self.assertEqual(set(kinds[4:-4]), {"response.output_text.delta"})
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        deltas = "".join(event.delta for event in events
                         if event.type == "response.output_text.delta")
        self.assertEqual(deltas, whole.output_text)
        self.assertEqual(events[-4].text, whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        self.assertEqual(events[-1].response.usage.output_tokens, whole.usage.output_tokens)
        self.assertEqual(list(self.create(stream=True, max_output_tokens=3))[-1].type,
                         "response.incomplete")

    def test_parse_gives_objects(self):
        answer = self.client.responses.parse(model=self.model, input=ABOUT_A_CAT, temperature=0,
                                             text_format=Animal, max_output_tokens=200)
        self.assertIsInstance(answer.output_parsed, Animal)
        with self.client.responses.stream(model=self.model, input=ABOUT_A_CAT, temperature=0,
                                          text_format=Animal, max_output_tokens=200) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_response().output_parsed, answer.output_parsed)

    def test_tools_and_their_round_trip(self):
        for choice in ("required", {"type": "function", "name": "get_weather"}):
            for seed in SEEDS:
                asked = self.create(tools=[WEATHER], tool_choice=choice, max_output_tokens=200,
                                    temperature=1, extra_body={"seed": seed})
                # The last one may have been cut off.
                calls = [item for item in asked.output
                         if item.type == "function_call" and item.status == "completed"]
                self.assertGreater(len(calls), 0)
                for call in calls:
                    self.assertEqual(call.name, "get_weather")
                    self.assertIn(json.loads(call.arguments)["city"], ("Paris", "Rome", "Oslo"))
                    self.assertTrue(call.call_id)
        said = self.create(tools=[WEATHER], tool_choice="none", input=[
            {"role": "user", "content": QUESTION}, *asked.output,
            *({"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
              for call in calls)])
        self.assertTrue(said.output_text)

    def test_a_streamed_call(self):
        events = list(self.create(tools=[WEATHER], tool_choice="required", max_output_tokens=200,
                                  stream=True))
        deltas = "".join(event.delta for event in events
                         if event.type == "response.function_call_arguments.delta")
        done = [event for event in events if event.type == "response.function_call_arguments.done"]
        self.assertEqual(deltas, "".join(event.arguments for event in done))
        for event in done:
            self.assertIn(json.loads(event.arguments)["city"], ("Paris", "Rome", "Oslo"))

    def test_what_needs_a_state_is_refused_by_name(self):
        for param, fields in (("previous_response_id", {"previous_response_id": "resp_1"}),
                              ("conversation", {"conversation": "conv_1"}),
                              ("background", {"background": True}),
                              ("temperature", {"temperature": -1}),
                              ("tools", {"tools": [{"type": "web_search"}]})):
            with self.assertRaises(openai.BadRequestError, msg=param) as caught:
                self.create(**fields)
            self.assertTrue((caught.exception.param or "").startswith(param),
                            caught.exception.body)


if __name__ == "__main__":
    run_tests()
