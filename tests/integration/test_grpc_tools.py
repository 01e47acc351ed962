"""Tools and reasoning over gRPC: forced, named, forbidden, one at a time, in batches, as text; what a
stream says is what the OpenAI route says of the same seed.

The demo model calls tools when it is made to; what it calls them with is the grammar's doing.
"""

import json

from grpc_case import GrpcCase
from weft_server import run_tests

QUESTION = "What is the weather in Paris, and what time is it there?"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.", "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["city", "unit"],
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]},
                       "unit": {"type": "string", "enum": ["C", "F"]}}}}}
TIME = {"type": "function", "function": {
    "name": "get_time", "description": "The time of day in a zone.", "parameters": {
        "type": "object", "additionalProperties": False, "required": ["zone"],
        "properties": {"zone": {"type": "integer", "minimum": -12, "maximum": 12}}}}}
TOOLS = (WEATHER, TIME)
TOKENS = 200
SEEDS = (1, 2, 3)


class Answer:
    """The messages of one choice, put together."""

    def __init__(self):
        self.text, self.reasoning, self.calls, self.ids, self.finish = "", "", [], [], None
        # What each message said that was not nothing: as the chunks of the OpenAI route.
        self.deltas = []

    def add(self, response):
        output = response.output
        self.text += output.text
        self.reasoning += output.reasoning
        self.ids += output.token_ids
        calls = []
        for delta in output.tool_calls:
            if delta.index == len(self.calls):
                self.calls.append({"id": delta.id, "name": delta.name, "arguments": ""})
            self.calls[delta.index]["arguments"] += delta.arguments
            calls.append((delta.index, delta.name, delta.arguments))
        if output.text or output.reasoning or calls:
            self.deltas.append((output.text, output.reasoning, calls))
        if response.HasField("finish_info"):
            self.finish = response.finish_info


class GrpcToolsTest(GrpcCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from weft.v1 import types_pb2
        cls.types = types_pb2

    def request(self, choice=None, seed=1, parts=True, tools=TOOLS, **chat):
        request = self.pb.GenerateRequest(chat=self.pb.ChatPrompt(
            messages=[self.pb.ChatMessage(role="user", content=QUESTION)],
            tools=[json.dumps(tool) for tool in tools], **chat))
        if choice in ("auto", "none", "required"):
            request.chat.tool_choice.mode = getattr(self.pb, f"TOOL_CHOICE_MODE_{choice.upper()}")
        elif choice:
            request.chat.tool_choice.function = choice
        request.sampling.seed = seed
        request.stopping.max_tokens = TOKENS
        request.response.parts = parts
        return request

    def generate(self, request):
        answer = Answer()
        for response in self.stub.Generate(request, timeout=120):
            answer.add(response)
        return answer

    def check_arguments(self, name, text):
        arguments = json.loads(text)
        if name == "get_weather":
            self.assertEqual(set(arguments), {"city", "unit"})
            self.assertIn(arguments["city"], ("Paris", "Rome", "Oslo"))
        else:
            self.assertEqual(name, "get_time")
            self.assertEqual(set(arguments), {"zone"})
            self.assertIn(arguments["zone"], range(-12, 13))

    def check_calls(self, answer):
        """Calls of known tools, and nothing else; the last one may be cut off where the model goes on
        and on."""
        self.assertGreater(len(answer.calls), 0)
        self.assertEqual(answer.text, "")
        whole = answer.calls
        if answer.finish.reason == self.types.FINISH_REASON_LENGTH:
            whole = whole[:-1]
            self.assertGreater(len(whole), 0)
        else:
            self.assertEqual(answer.finish.reason, self.types.FINISH_REASON_TOOL_CALLS)
        for call in whole:
            self.check_arguments(call["name"], call["arguments"])
        ids = [call["id"] for call in answer.calls]
        self.assertEqual(len(set(ids)), len(ids))
        self.assertTrue(all(ids))

    def chunks(self, choice, seed, **more):
        """[(content, reasoning, calls)] and the finish reason of the OpenAI route's stream."""
        if choice not in ("auto", "none", "required"):
            choice = {"type": "function", "function": {"name": choice}}
        deltas, reason = [], None
        for event in self.server.events("/v1/chat/completions", {
                "messages": [{"role": "user", "content": QUESTION}], "tools": list(TOOLS),
                "tool_choice": choice, "seed": seed, "max_tokens": TOKENS, "stream": True, **more}):
            one, = event["choices"]
            delta = one["delta"]
            calls = [(call["index"], call["function"].get("name", ""),
                      call["function"]["arguments"]) for call in delta.get("tool_calls", ())]
            said = (delta.get("content", ""), delta.get("reasoning_content", ""), calls)
            if any(said):
                deltas.append(said)
            reason = one["finish_reason"] or reason
        return deltas, reason

    def test_required_and_named_tools_are_called(self):
        for seed in SEEDS:
            self.check_calls(self.generate(self.request("required", seed)))
        for tool in TOOLS:
            name = tool["function"]["name"]
            answer = self.generate(self.request(name, seed=2))
            self.check_calls(answer)
            self.assertEqual([call["name"] for call in answer.calls], [name])

    def test_one_call_at_a_time(self):
        for seed in SEEDS:
            answer = self.generate(self.request("required", seed, parallel_tool_calls=False))
            self.check_calls(answer)
            self.assertEqual(len(answer.calls), 1)

    def test_some_of_the_tools(self):
        request = self.request("required", seed=5)
        request.chat.tool_choice.allowed.append("get_time")
        self.assertEqual({call["name"] for call in self.generate(request).calls}, {"get_time"})

    def test_auto_and_none(self):
        answer = self.generate(self.request("auto"))
        if answer.calls:
            self.assertEqual(answer.finish.reason, self.types.FINISH_REASON_TOOL_CALLS)
        else:
            self.assertTrue(answer.text)
        answer = self.generate(self.request("none"))
        self.assertEqual(answer.calls, [])
        self.assertTrue(answer.text)

    def test_deltas_are_those_of_the_http_route(self):
        for choice, seed in (("required", 4), ("get_time", 4), ("auto", 6), ("none", 7)):
            with self.subTest(choice=choice):
                answer = self.generate(self.request(choice, seed))
                deltas, reason = self.chunks(choice, seed)
                self.assertEqual(answer.deltas, deltas)
                self.assertEqual(answer.finish.reason, {
                    "tool_calls": self.types.FINISH_REASON_TOOL_CALLS,
                    "length": self.types.FINISH_REASON_LENGTH,
                    "stop": self.types.FINISH_REASON_EOS_TOKEN}[reason])
                # A message a token all the same.
                self.assertEqual(len(answer.ids), answer.finish.output_tokens)

    def test_without_parts_a_call_is_text_that_fits(self):
        apart = self.generate(self.request("get_weather", seed=3))
        request = self.request("get_weather", seed=3, parts=False)
        request.response.keep_special_tokens = True
        answer = self.generate(request)
        self.assertEqual(answer.ids, apart.ids)
        self.assertEqual(answer.calls, [])
        self.assertNotEqual(answer.finish.reason, self.types.FINISH_REASON_TOOL_CALLS)
        self.assertIn("get_weather", answer.text)
        for text in json.loads(apart.calls[0]["arguments"]).values():
            self.assertIn(f'"{text}"', answer.text)

    def test_a_cut_off_call_ends_with_length(self):
        request = self.request("required")
        request.stopping.max_tokens = 6
        answer = self.generate(request)
        self.assertEqual(answer.finish.reason, self.types.FINISH_REASON_LENGTH)
        self.assertEqual(answer.finish.output_tokens, 6)

    def test_a_schema_beside_tools_is_that_of_the_content(self):
        schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 9}},
                  "required": ["x"], "additionalProperties": False}
        for seed in SEEDS:
            request = self.request("auto", seed)
            request.decoding.grammar.json_schema = json.dumps(schema)
            answer = self.generate(request)
            deltas, _ = self.chunks("auto", seed, response_format={
                "type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
            self.assertEqual(answer.deltas, deltas)
            if not answer.calls:
                self.assertLessEqual(json.loads(answer.text)["x"], 9)

    def test_a_round_trip(self):
        asked = self.generate(self.request("get_weather", seed=3)).calls[0]
        request = self.request("none")
        request.chat.messages.add(role="assistant").tool_calls.add(**asked)
        request.chat.messages.add(role="tool", tool_call_id=asked["id"],
                                  content='{"degrees": 21, "sky": "clear"}')
        answer = self.generate(request)
        self.assertTrue(answer.text)
        self.assertEqual(answer.calls, [])

    def test_choices_and_batches(self):
        several = self.request("required", seed=9)
        several.sampling.n = 2
        alone = [self.generate(self.request("required", seed=4)),
                 self.generate(self.request("none", seed=4))]
        batch = self.pb.GenerateBatchRequest(requests=[
            self.request("required", seed=4), several, self.request("get_news"),
            self.request("none", seed=4)])
        answers, errors = {}, {}
        for event in self.stub.GenerateBatch(batch, timeout=120):
            if event.HasField("error"):
                errors[event.request_index] = event.error
            else:
                response = event.response
                choice = (response.output.index if response.HasField("output")
                          else response.finish_info.index)
                answers.setdefault((event.request_index, choice), Answer()).add(response)
        self.assertEqual(answers[0, 0].deltas, alone[0].deltas)
        self.assertEqual(answers[3, 0].deltas, alone[1].deltas)
        for choice in (0, 1):
            self.check_calls(answers[1, choice])
        self.assertEqual(set(errors), {2})
        self.assertIn("`chat.tool_choice`", errors[2].message)


if __name__ == "__main__":
    run_tests()
