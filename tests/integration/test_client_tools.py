"""Tools by OpenAI's client for Python, langchain and huggingface_hub: forced, named, forbidden, in
parallel, streamed, parsed, and answered.

The demo model calls tools when it is made to; what it calls them with is the grammar's doing.
"""

import json

import openai
import pydantic
from huggingface_hub import InferenceClient
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from clients import ABOUT_A_CAT, SEEDS, TIMEOUT_S, Animal, ClientTest
from weft_server import run_tests

QUESTION = [{"role": "user", "content": "What is the weather in Paris, and what time is it there?"}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.", "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["city", "unit"],
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]},
                       "unit": {"type": "string", "enum": ["C", "F"]}}}}}
TIME = {"type": "function", "function": {
    "name": "get_time", "description": "The time of day in a zone.", "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["zone"],
        "properties": {"zone": {"type": "integer", "minimum": -12, "maximum": 12}}}}}
TOOLS = [WEATHER, TIME]
TOKENS = 300


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str = pydantic.Field(pattern="^(Paris|Rome|Oslo)$")
    unit: str = pydantic.Field(pattern="^[CF]$")


@tool
def double(number: int) -> int:
    """Doubles a number."""
    return 2 * number


def arguments_of(test, call):
    """The arguments of a call, which fit the tool's schema."""
    test.assertEqual(call.type, "function")
    test.assertTrue(call.id)
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        test.assertEqual(set(arguments), {"city", "unit"})
        test.assertIn(arguments["city"], ("Paris", "Rome", "Oslo"))
        test.assertIn(arguments["unit"], ("C", "F"))
    else:
        test.assertEqual(call.function.name, "get_time")
        test.assertEqual(set(arguments), {"zone"})
        test.assertIn(arguments["zone"], range(-12, 13))
    return arguments


class ToolsTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0,
                                   timeout=TIMEOUT_S)

    def create(self, **fields):
        return self.client.chat.completions.create(**{
            "model": self.model, "messages": QUESTION, "tools": TOOLS, "max_tokens": TOKENS,
            **fields})

    # -- Whole answers ----------------------------------------------------------------------------
    def test_required_calls_some_tool(self):
        for seed in SEEDS:
            choice = self.create(tool_choice="required", seed=seed).choices[0]
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertGreater(len(choice.message.tool_calls), 0)
            for call in choice.message.tool_calls:
                arguments_of(self, call)
            self.assertFalse(choice.message.content)
            ids = [call.id for call in choice.message.tool_calls]
            self.assertEqual(len(set(ids)), len(ids))

    def test_a_named_tool_is_called(self):
        for one in TOOLS:
            name = one["function"]["name"]
            choice = self.create(tool_choice={"type": "function", "function": {"name": name}},
                                 seed=2).choices[0]
            call, = choice.message.tool_calls
            self.assertEqual(call.function.name, name)
            arguments_of(self, call)
            # OpenAI says stop of a named tool, and others say tool_calls.
            self.assertIn(choice.finish_reason, ("stop", "tool_calls"))

    def test_none_and_auto(self):
        choice = self.create(tool_choice="none", temperature=0).choices[0]
        self.assertIsNone(choice.message.tool_calls)
        self.assertTrue(choice.message.content)
        choice = self.create(tool_choice="auto", temperature=0).choices[0]
        if choice.message.tool_calls:
            self.assertEqual(choice.finish_reason, "tool_calls")
        else:
            self.assertTrue(choice.message.content)

    def test_one_call_at_a_time(self):
        for seed in SEEDS:
            choice = self.create(tool_choice="required", parallel_tool_calls=False,
                                 seed=seed).choices[0]
            self.assertEqual(len(choice.message.tool_calls), 1)

    def test_the_usage_counts_the_call(self):
        answer = self.create(tool_choice="required", seed=1)
        self.assertGreater(answer.usage.completion_tokens, 5)
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.prompt_tokens + answer.usage.completion_tokens)

    # -- Streams ----------------------------------------------------------------------------------
    def test_a_streamed_call_is_the_whole_one(self):
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            whole = self.create(tool_choice=choice, seed=4)
            calls, reasons, text, usage = {}, [], "", None
            for chunk in self.create(tool_choice=choice, seed=4, stream=True,
                                     stream_options={"include_usage": True}):
                usage = chunk.usage or usage
                for one in chunk.choices:
                    text += one.delta.content or ""
                    reasons += [one.finish_reason] if one.finish_reason else []
                    for delta in one.delta.tool_calls or ():
                        self.add(calls, delta)
            self.assertEqual(text, whole.choices[0].message.content or "")
            self.assertEqual(reasons, [whole.choices[0].finish_reason])
            self.assertEqual(list(calls), list(range(len(calls))))
            self.assertEqual(
                [(call["name"], call["arguments"]) for call in calls.values()],
                [(call.function.name, call.function.arguments)
                 for call in whole.choices[0].message.tool_calls])
            self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def add(self, calls, delta):
        """The first delta of a call has its id, type and name; later ones have arguments alone."""
        if delta.index not in calls:
            self.assertTrue(delta.id)
            self.assertEqual(delta.type, "function")
            self.assertTrue(delta.function.name)
            calls[delta.index] = {"name": delta.function.name, "arguments": ""}
        else:
            self.assertFalse(delta.id)
            self.assertFalse(delta.function.name)
        calls[delta.index]["arguments"] += delta.function.arguments or ""

    def test_the_helper_that_collects_a_stream(self):
        with self.client.chat.completions.stream(
                model=self.model, messages=QUESTION, tools=[openai.pydantic_function_tool(Weather)],
                tool_choice="required", seed=6, max_tokens=TOKENS) as stream:
            done = [event for event in stream
                    if event.type == "tool_calls.function.arguments.done"]
            final = stream.get_final_completion().choices[0].message
        self.assertEqual(len(done), len(final.tool_calls))
        for event, call in zip(done, final.tool_calls):
            self.assertEqual(event.arguments, call.function.arguments)
            self.assertIsInstance(call.function.parsed_arguments, Weather)

    # -- Parsed, and answered ---------------------------------------------------------------------
    def test_parse_gives_objects(self):
        for seed in SEEDS:
            message = self.client.chat.completions.parse(
                model=self.model, messages=QUESTION, tool_choice="required", seed=seed,
                tools=[openai.pydantic_function_tool(Weather)], max_tokens=TOKENS,
            ).choices[0].message
            for call in message.tool_calls:
                self.assertIsInstance(call.function.parsed_arguments, Weather)

    def test_a_round_trip(self):
        asked = self.create(tool_choice={"type": "function", "function": {"name": "get_weather"}},
                            seed=3).choices[0].message
        answered = [*QUESTION, asked,
                    {"role": "tool", "tool_call_id": asked.tool_calls[0].id,
                     "content": json.dumps({"degrees": 21, "sky": "clear"})}]
        said = self.create(messages=answered, tool_choice="none", temperature=0)
        self.assertTrue(said.choices[0].message.content)
        self.assertEqual(said.choices[0].finish_reason, "stop")
        again = self.create(messages=answered, tool_choice="required", seed=3)
        for call in again.choices[0].message.tool_calls:
            arguments_of(self, call)

    def test_errors_name_the_field(self):
        broken = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"x": {"not": {}}}, "required": ["x"]}}}
        for param, fields in (
                ("tool_choice", {"tool_choice": {"type": "function",
                                                 "function": {"name": "get_news"}}}),
                ("tool_choice", {"tool_choice": "required", "tools": openai.omit}),
                ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
                # The grammar is of all tools together.
                ("tools", {"tools": [broken], "tool_choice": "required"})):
            with self.assertRaises(openai.BadRequestError, msg=fields) as caught:
                self.create(**fields)
            self.assertTrue((caught.exception.param or "").startswith(param),
                            (caught.exception.body, fields))

    # -- Other clients ----------------------------------------------------------------------------
    def langchain(self, **fields):
        return ChatOpenAI(base_url=f"{self.url}/v1", api_key="none", model=self.model,
                          max_tokens=TOKENS, max_retries=0, timeout=TIMEOUT_S, **fields)

    def test_langchain_binds_tools(self):
        for choice in ("required", "any", "double"):
            llm = self.langchain(seed=8).bind_tools([double], tool_choice=choice)
            message = HumanMessage("Double seven.")
            said = llm.invoke([message])
            self.assertEqual(said.invalid_tool_calls, [])
            self.assertEqual({call["name"] for call in said.tool_calls}, {"double"})
            for call in said.tool_calls:
                self.assertIsInstance(call["args"]["number"], int)
            chunks = list(llm.stream([message]))
            total = sum(chunks[1:], chunks[0])
            self.assertEqual([(call["name"], call["args"]) for call in total.tool_calls],
                             [(call["name"], call["args"]) for call in said.tool_calls])
            answers = [double.invoke(call) for call in said.tool_calls]
            self.assertIsInstance(answers[0], ToolMessage)
            last = self.langchain(temperature=0).invoke([message, said, *answers])
            self.assertTrue(last.content)

    def test_langchain_has_structured_output_by_calls(self):
        for seed in SEEDS:
            animal = self.langchain(seed=seed).with_structured_output(
                Animal, method="function_calling", strict=True).invoke(ABOUT_A_CAT)
            self.assertIsInstance(animal, Animal)

    def test_huggingface_hub_calls_tools(self):
        client = InferenceClient(model=self.url, timeout=TIMEOUT_S)
        said = client.chat_completion(QUESTION, tools=TOOLS, tool_choice="required", seed=1,
                                      max_tokens=TOKENS)
        for call in said.choices[0].message.tool_calls:
            arguments_of(self, call)
        self.assertEqual(said.choices[0].finish_reason, "tool_calls")


if __name__ == "__main__":
    run_tests()
