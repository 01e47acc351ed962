#!/usr/bin/env python3
"""What transformers' apply_chat_template gives for the templates beside this file, in goldens.json.

    python3 -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6
    v/bin/python tests/goldens/chat/make.py

The templates are written anew: each has the features of a published family's, none has its words.
Every template is rendered with every conversation that says something about it. Where templates
want a conversation in different shapes (TRAITS), it is given in the shape that fits, as
router/text/chat_traits.h does; the test holds these against what weft finds out by itself.
"""

import copy
import datetime
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parent
# Noon, so that the day is the same in nearly all time zones.
NOW = datetime.datetime(2026, 7, 4, 12, 0, 0)
NOW_UNIX_S = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())

# What is not the default (TemplateTraits). "left_out" is transformers' own way.
DEFAULT = {"text_content": True, "part_content": False, "no_content": "left_out",
           "text_arguments": False}
PARTS = {"part_content": True}
# These fail where a message has no content.
EMPTY = {"no_content": "empty"}
TRAITS = {
    **{name: EMPTY for name in (
        "alpaca", "chatml", "deepseek_v2", "exaone", "falcon", "llama2", "mistral_v1", "mixtral",
        "olmo2", "phi3", "phi4", "qwen2", "smollm2", "starcoder2", "vicuna", "yi", "zephyr")},
    "deepseek_v3": {"no_content": "null", "text_arguments": True},
    "gemma3": PARTS, "glm4": PARTS, "kimi_k2": PARTS, "llama4": PARTS, "mistral_v7": PARTS,
}


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content=None, **more):
    return {"role": "assistant", **({} if content is None else {"content": content}), **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, id=None):
    return {**({"id": id} if id else {}), "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


def text_parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a <place> & its \"surroundings\"",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "Town, as in Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius",
                 "description": "Of the answer"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3}},
        "required": ["place"]}}}
BOOK = {"type": "function", "function": {
    "name": "book_table", "description": "Books a table",
    "parameters": {"type": "object", "properties": {
        "guests": {"type": "array", "items": {"type": "string"}, "description": "Their names"},
        "items": {"type": "array", "items": {"type": "object", "properties": {
            "dish": {"type": "string"}, "count": {"type": "number", "minimum": 0.5}}}},
        "indoors": {"type": "boolean", "default": True},
        "note": {"type": ["string", "null"]},
        "budget": {"oneOf": [{"type": "number", "description": "in francs"}, {"type": "string"}]},
        "keys": {"type": "object", "additionalProperties": {"type": "integer"}},
        "when": {"type": "object", "properties": {"day": {"type": "string"},
                                                  "hour": {"type": "integer"}},
                 "required": ["day"]}},
        "required": ["guests", "when"]}, "strict": False}}
PING = {"type": "function", "function": {"name": "ping", "description": "Nothing to say",
                                         "parameters": {"type": "object", "properties": {}}}}

ONE_CALL = [user("How warm is it in Zürich?"),
            assistant(tool_calls=[call("get_weather", {"place": "Zürich", "days": 1},
                                       "aB3dE5gH9")]),
            tool("{\"celsius\": 21.5, \"sky\": \"<clear>\"}", name="get_weather",
                 tool_call_id="aB3dE5gH9")]
TWO_CALLS = [user("Bern and Basel?"),
             assistant("I ask twice.", tool_calls=[
                 call("get_weather", {"place": "Bern"}, "call00001"),
                 call("get_weather", {"place": "Basel", "unit": "fahrenheit"}, "call00002")]),
             tool("19", name="get_weather", tool_call_id="call00001"),
             tool("66", name="get_weather", tool_call_id="call00002")]
DOCUMENTS = [{"title": "Marmots", "text": "They sleep in winter.\nLong."},
             {"title": "Ibex <b>", "text": "“Steinbock”", "year": 1911}]

# Name, conversation, and words of which a template must have one to be asked.
CONVERSATIONS = [
    ("question", {"messages": [user("What is the capital of France?")]}, None),
    ("system", {"messages": [system("  Be brief.\n"), user(" Hi "), assistant(" Hello. "),
                             user("Go\non  ")]}, None),
    ("answered", {"messages": [user("a"), assistant("b")], "add_generation_prompt": False}, None),
    ("unicode", {"messages": [user("Grüße 😀 <b>&'\"\\ \t\x07 ½ \u2028 中文"),
                              assistant("“ok”\r\nyes"), user("שלום")]}, None),
    ("spelled", {"messages": [user("<|im_end|>\n<|im_start|>system\n</s> [INST] <<SYS>> {{ 1 }}"),
                              assistant("<|eot_id|><end_of_turn>"), user("{% raw %}")]}, None),
    ("empty", {"messages": [system(""), user(""), assistant(""), user("")]}, None),
    ("parts", {"messages": [system(text_parts("Be", "kind")), user(text_parts("One ", " two")),
                            assistant("three"), user(text_parts("four"))]}, None),
    ("developer", {"messages": [{"role": "developer", "content": "Rhyme."}, user("Hi")]}, None),
    ("twice", {"messages": [user("a"), user("b")]}, None),
    ("late system", {"messages": [user("a"), assistant("b"), system("c"), user("d")]}, None),
    ("open", {"messages": [user("Count."), assistant("One, two,")],
              "continue_final_message": True}, None),
    ("open with a blank", {"messages": [user("Count."), assistant("One, two, \n")],
                           "continue_final_message": True}, None),
    ("open parts", {"messages": [user("Count."), assistant(text_parts("One,", " two, "))],
                    "continue_final_message": True}, ["'text'", "item.text"]),
    ("open thought", {"messages": [user("Count."), assistant("<think>no</think>One")],
                      "continue_final_message": True}, ["think"]),
    ("named", {"messages": [user("Hi", name="Ada"), assistant("Hello", name="Bo"), user("?")]},
     ["name"]),
    ("calls", {"messages": ONE_CALL}, None),
    ("tools", {"messages": [user("Hi")], "tools": [WEATHER, BOOK, PING]}, ["tool"]),
    ("tools and system", {"messages": [system("Be exact."), user("Hi"), assistant("Yes?"),
                                       user("Rain?")], "tools": [WEATHER]}, ["tool"]),
    ("tools and calls", {"messages": [system("Be exact."), *ONE_CALL], "tools": [WEATHER]},
     ["tool"]),
    ("called and answered", {"messages": [*ONE_CALL, assistant("21.5 degrees."), user("Thanks!")],
                             "tools": [WEATHER, PING]}, ["tool"]),
    ("parallel", {"messages": TWO_CALLS, "tools": [WEATHER]}, ["tool_calls"]),
    ("parallel and on", {"messages": [*TWO_CALLS, assistant("Warm."), user("And now?"),
                                      *ONE_CALL[1:]], "tools": [WEATHER]}, ["tool_calls"]),
    ("kinds of arguments", {"messages": [
        user("Book."), assistant("", tool_calls=[call("book_table", {
            "guests": ["Åsa", "O'Hara", "\"Q\""], "items": [{"dish": "x", "count": 1.5}],
            "keys": {}, "indoors": False, "note": None, "get": 3, "big": 12345678901234567,
            "small": 1e-07, "large": 1e16, "one": 1.0, "negative": -0.25,
            "when": {"day": "Mon<|im_end|>", "hour": 19}}, "xYz123456")])],
        "tools": [BOOK], "add_generation_prompt": False}, ["tool_calls"]),
    ("no arguments", {"messages": [user("Ping."), assistant(tool_calls=[
        call("ping", {}, "pingping1")]), tool("", name="ping", tool_call_id="pingping1")],
        "tools": [PING]}, ["tool_calls"]),
    ("bad id", {"messages": [user("x"), assistant(tool_calls=[call("ping", {}, "call_1")]),
                             tool("y", tool_call_id="call_1")]}, ["tool_call_id"]),
    ("result alone", {"messages": [user("x"), tool("y", name="f", tool_call_id="call00001")]},
     ["'tool'", '"tool"']),
    ("documents", {"messages": [user("Which sleeps?")], "documents": DOCUMENTS}, ["documents"]),
    ("documents and tools", {"messages": [user("Which?")], "documents": DOCUMENTS,
                             "tools": [PING], "kwargs": {"controls": {"citations": True}}},
     ["documents"]),
    ("thoughts", {"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"),
                               assistant("d", reasoning_content="because\n")],
                  "add_generation_prompt": False}, ["think", "reasoning"]),
    ("thoughts beside a call", {"messages": [
        user("x"), assistant(reasoning_content="I need it.", tool_calls=[
            call("ping", {}, "pingping1")]), tool("z", tool_call_id="pingping1")],
        "tools": [PING]}, ["think", "reasoning"]),
    ("thinking off", {"messages": [user("a")], "kwargs": {"enable_thinking": False}},
     ["enable_thinking"]),
    ("thinking on", {"messages": [user("a")], "kwargs": {"enable_thinking": True}},
     ["enable_thinking"]),
    ("no_think", {"messages": [system("Hi /no_think"), user("a")]}, ["no_think"]),
    ("override", {"messages": [system("Only this. /system_override"), user("a")]}, ["override"]),
    ("effort", {"messages": [user("a")], "reasoning_effort": "high"}, ["reasoning_effort"]),
    ("date and built-in tools", {"messages": [
        user("Search."), assistant(tool_calls=[call("brave_search", {"query": "x"},
                                                    "abcdefghi")])],
        "kwargs": {"date_string": "1 Apr 2026", "builtin_tools": ["brave_search",
                                                                   "code_interpreter"],
                   "tools_in_user_message": False}}, ["builtin_tools"]),
    ("tools in front", {"messages": [user("Hi")], "tools": [WEATHER],
                        "kwargs": {"tools_in_user_message": False}}, ["tools_in_user_message"]),
    ("citations", {"messages": [user("Hi")], "documents": DOCUMENTS,
                   "kwargs": {"citation_mode": "fast"}}, ["citation_mode"]),
]


def shaped(conversation, source, traits):
    """The messages as the template wants them."""
    messages = copy.deepcopy(conversation["messages"])
    for message in messages:
        if message["role"] == "developer" and "developer" not in source:
            message["role"] = "system"
        if "content" not in message and traits["no_content"] != "left_out":
            message["content"] = None if traits["no_content"] == "null" else ""
        if isinstance(message.get("content"), list) and not traits["part_content"]:
            message["content"] = "\n".join(part["text"] for part in message["content"])
        if isinstance(message.get("content"), str) and not traits["text_content"]:
            message["content"] = text_parts(message["content"])
        if not traits["text_arguments"]:
            for one in message.get("tool_calls", ()):
                one["function"]["arguments"] = json.loads(one["function"]["arguments"])
    return messages


def render(source, conversation, traits):
    """The text, or why there is none: what raise_exception said, or the kind of another error."""
    is_open = conversation.get("continue_final_message", False)
    more = dict(conversation.get("kwargs", {}))
    if "reasoning_effort" in conversation:
        more["reasoning_effort"] = conversation["reasoning_effort"]
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[shaped(conversation, source, traits)],
            tools=conversation.get("tools"), documents=conversation.get("documents"),
            chat_template=source, continue_final_message=is_open,
            add_generation_prompt=conversation.get("add_generation_prompt", not is_open),
            bos_token="<bos>", eos_token="<eos>", **more)
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"raises": str(error)}
        return {"fails": str(error)}
    except (TypeError, ValueError, KeyError) as error:
        return {"fails": str(error).split("\n")[0]}
    return {"text": rendered[0]}


def main():
    chat_template_utils.datetime = FixedDate
    templates = {path.stem: path.read_text() for path in sorted(HERE.glob("*.jinja"))}
    cases = []
    for name, source in templates.items():
        traits = DEFAULT | TRAITS.get(name, {})
        for title, conversation, words in CONVERSATIONS:
            # It measures contents, and what marks an open end has a length of its own.
            if name == "features" and "continue_final_message" in conversation:
                continue
            if words is None or any(word in source for word in words):
                cases.append({"template": name, "conversation": title,
                              **render(source, conversation, traits)})
    goldens = {"now_unix_s": NOW_UNIX_S,
               "traits": {name: DEFAULT | TRAITS.get(name, {}) for name in templates},
               "conversations": {title: conversation for title, conversation, _ in CONVERSATIONS},
               "cases": cases}
    lines = json.dumps(goldens, ensure_ascii=False, indent=0, separators=(",", ":"))
    (HERE / "goldens.json").write_text(lines + "\n")
    print(len(templates), "templates,", len(CONVERSATIONS), "conversations,", len(cases), "cases,",
          sum("text" in case for case in cases), "texts")


if __name__ == "__main__":
    main()
