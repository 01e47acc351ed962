"""Requests that are made to explode: grammars, tools, templates' variables and conversations that
grow without measure where a reader is careless. Each is a Body in the words of no door; `http_of`
and `grpc_of` put it into those of a chat, as bytes, so that sending it costs its sender nothing.
"""

import dataclasses
import json

# New tokens of those that are served.
TOKENS = 4
# Of a conversation, over which it is refused before anything is made of it.
CHAT_BYTES_MAX = 4 << 20
MESSAGES_MAX, TOOLS_MAX, CALLS_MAX, PARTS_MAX, DOCUMENTS_MAX = 1024, 128, 128, 1024, 1024
GRAMMAR_BYTES_MAX = 256 << 10
STRUCTURED = {"json_schema": "json", "regex": "regex", "lark": "grammar", "choice": "choice",
              "structural_tag": "structural_tag"}


@dataclasses.dataclass(frozen=True)
class Body:
    name: str
    messages: tuple = ({"role": "user", "content": "Hi"},)
    # (kind of weft.v1.Grammar, text or texts).
    grammar: tuple = ()
    # JSON texts.
    tools: tuple = ()
    documents: tuple = ()
    kwargs: str = ""
    # auto, required, or a tool's name.
    tool_choice: str = "auto"
    stop: tuple = ()
    bad_words: tuple = ()
    allowed_token_ids: tuple = ()
    choices: int = 1


# -- Into the words of a door -----------------------------------------------------------------------
def http_of(body):
    """A body of /v1/chat/completions."""
    fields = {"messages": list(body.messages), "max_tokens": TOKENS, "temperature": 0,
              "n": body.choices, "stop": list(body.stop), "bad_words": list(body.bad_words),
              "allowed_token_ids": list(body.allowed_token_ids)}
    # What is JSON already goes in as it is: some of it no JSON library would write.
    raw = {}
    if body.grammar:
        kind, text = body.grammar
        is_json = kind in ("json_schema", "structural_tag")
        raw["structured_outputs"] = \
            f'{{"{STRUCTURED[kind]}":{text if is_json else json.dumps(text)}}}'
    for name, texts in (("tools", body.tools), ("documents", body.documents)):
        if texts:
            raw[name] = f"[{','.join(texts)}]"
    if body.kwargs:
        raw["chat_template_kwargs"] = body.kwargs
    if body.tools:
        fields["tool_choice"] = body.tool_choice if body.tool_choice in ("auto", "required") else {
            "type": "function", "function": {"name": body.tool_choice}}
    head = json.dumps(fields)[:-1]
    return (head + "".join(f',"{name}":{text}' for name, text in raw.items()) + "}").encode()


def grpc_of(pb, body):
    """A serialised GenerateRequest."""
    request = pb.GenerateRequest()
    for message in body.messages:
        to = request.chat.messages.add(role=message["role"])
        content = message.get("content") or ""
        if isinstance(content, list):
            to.content_parts.extend(part["text"] for part in content)
        else:
            to.content = content
        for call in message.get("tool_calls", ()):
            to.tool_calls.add(name=call["function"]["name"],
                              arguments=call["function"]["arguments"])
    request.chat.tools.extend(body.tools)
    request.chat.documents.extend(body.documents)
    request.chat.chat_template_kwargs = body.kwargs
    if body.tools and body.tool_choice == "required":
        request.chat.tool_choice.mode = pb.TOOL_CHOICE_MODE_REQUIRED
    elif body.tools and body.tool_choice != "auto":
        request.chat.tool_choice.function = body.tool_choice
    if body.grammar:
        kind, text = body.grammar
        if kind == "choice":
            request.decoding.grammar.choice.texts.extend(text)
        else:
            setattr(request.decoding.grammar, kind, text)
    request.decoding.bad_words.extend(body.bad_words)
    request.decoding.allowed_token_ids.extend(body.allowed_token_ids)
    request.stopping.stop_sequences.extend(body.stop)
    request.stopping.max_tokens = TOKENS
    request.sampling.temperature = 0
    request.sampling.n = body.choices
    request.response.parts = bool(body.tools)
    return request.SerializeToString()


# -- JSON schemas -----------------------------------------------------------------------------------
def doubling(keyword, count, leaf='{"type":"object","properties":{"x":{}}}', more=""):
    """A chain of definitions, each twice the next one."""
    defs = ",".join(f'"d{i}":{{"{keyword}":[{{"$ref":"#/$defs/d{i + 1}"}},'
                    f'{{"$ref":"#/$defs/d{i + 1}"}}]{more}}}' for i in range(count))
    return f'{{"$ref":"#/$defs/d0","$defs":{{{defs},"d{count}":{leaf}}}}}'


def chain(count, link, leaf='{"type":"string"}'):
    defs = ",".join(f'"d{i}":{link % (i + 1)}' for i in range(count))
    return f'{{"$ref":"#/$defs/d0","$defs":{{{defs},"d{count}":{leaf}}}}}'


def powers(alternatives, factors):
    return json.dumps({"allOf": [
        {"anyOf": [{"type": "object", "required": [f"p{i}_{k}"],
                    "properties": {f"p{i}_{k}": {"type": "string"}}}
                   for k in range(alternatives)]} for i in range(factors)]})


def nested(depth, inner='{"type":"string"}'):
    for _ in range(depth):
        inner = f'{{"type":"object","properties":{{"a":{inner}}},"required":["a"]}}'
    return inner


def schemas():
    string = {"type": "string"}
    yield "enum of 15,000", json.dumps({"enum": [f"value {i}" for i in range(15_000)]})
    yield "anyOf of 900 patterns", json.dumps({"anyOf": [
        {"type": "string", "pattern": f".*{i}.*x"} for i in range(900)]})
    yield "oneOf of 3,000", json.dumps({"oneOf": [
        {"type": "object", "properties": {"k": {"const": f"k{i}"}}, "required": ["k"]}
        for i in range(3_000)]})
    for factors in (4, 20):
        yield f"8 alternatives to the power of {factors}", powers(8, factors)
    yield "references that double", doubling("allOf", 60)
    yield "alternatives that double", doubling("anyOf", 60, '{"type":"string"}', ',"minLength":3')
    yield "a chain of references", chain(3_000, '{"$ref":"#/$defs/d%d"}')
    yield "a chain of objects", chain(
        900, '{"type":"object","properties":{"n":{"$ref":"#/$defs/d%d"}}}')
    yield "a reference to itself", '{"$ref":"#"}'
    yield "references in a circle", json.dumps({
        "$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}], "type": "object"},
                                       "b": {"anyOf": [{"$ref": "#/$defs/a"}, string]}}})
    yield "a tree without end", json.dumps({
        "type": "object", "properties": {f"c{i}": {"$ref": "#"} for i in range(40)},
        "required": [f"c{i}" for i in range(40)]})
    yield "maxLength 1e9", '{"type":"string","minLength":999999999,"maxLength":1000000000}'
    yield "minItems in minItems", ('{"type":"array","minItems":1000000000,"items":'
                                   '{"type":"array","minItems":1000000000}}')
    yield "minProperties 1e9", '{"type":"object","minProperties":1000000000}'
    yield "multiples of two primes", ('{"type":"integer","multipleOf":9973,'
                                      '"allOf":[{"multipleOf":9967}]}')
    yield "nested quantifiers", json.dumps({"type": "string", "pattern": "^((a+)+|(a|aa)+)+b$"})
    yield "a pattern of {1,100000}", json.dumps({"type": "string", "pattern": "^[a-z]{1,100000}$"})
    yield "a pattern of {0,999} in {0,999}", json.dumps(
        {"type": "string", "pattern": "^(([a-z]{0,999}x){0,999}y)*$"})
    yield "patternProperties that overlap", json.dumps({"type": "object", "patternProperties": {
        f"^.*{i}.*$": {"type": "string", "pattern": f"^(.*{i}){{1,99}}$"} for i in range(16)}})
    yield "propertyNames of a pattern", json.dumps(
        {"type": "object", "propertyNames": {"pattern": "^(a?){900}a{900}$"}})
    yield "10,000 optional properties", json.dumps(
        {"type": "object", "properties": {f"p{i}": string for i in range(10_000)}})
    yield "1,900 required properties", json.dumps(
        {"type": "object", "properties": {f"p{i}": string for i in range(1_900)},
         "required": [f"p{i}" for i in range(1_900)]})
    yield "dependent schemas", json.dumps({
        "type": "object", "properties": {f"p{i}": string for i in range(60)},
        "dependentSchemas": {f"p{i}": {"required": [f"p{(i * 7 + 1) % 60}"]} for i in range(60)}})
    yield "objects 14 deep", nested(14)
    yield "brackets 100,000 deep", "[" * 100_000


# -- Other grammars ---------------------------------------------------------------------------------
def regexes():
    yield "{1,1000} in {1,1000}", "(a{1,1000}){1,1000}"
    yield "stars of stars", "((((((a*)*)*)*)*)*)*b"
    yield "any 100,000", r"[\s\S]{1,100000}"
    yield "letters of all scripts", r"(\p{L}\p{M}*){1,5000}[^\p{L}]{1,5000}"
    yield "a place for every letter", "(.*a){60}b"
    yield "the n-th letter from the end", "[ab]*a[ab]{24}"
    yield "5,000 words", "|".join(f"word{i}.*x" for i in range(5_000))
    yield "a literal of 250 KB", "a" * 250_000
    yield "an open bracket", "(" * 100_000


def larks():
    yield "a start of starts", 'start: start start | "a"'
    yield "an empty start", "start: start | start start |"
    yield "rules that double", "start: a0\n" + "".join(
        f"a{i}: a{i + 1} a{i + 1}\n" for i in range(60)) + 'a60: "x"'
    yield "expressions without an order", 'start: e\ne: e "+" e | e "*" e | e e | "(" e ")" | /.*/'
    yield "100 terminals that overlap", "start: (" + " | ".join(
        f"t{i}" for i in range(100)) + ")*\n" + "".join(
            f"t{i}: /.*{i}.*/ start?\n" for i in range(100))
    yield "20,000 rules", "start: a0\n" + "".join(
        f"a{i}: \"x\" a{i + 1}\n" for i in range(15_000)) + 'a15000: "x"'


def choices():
    yield "15,000 texts", [f"choice {i}" for i in range(15_000)]
    yield "one text of 250 KB", ["x y " * 62_000]
    yield "texts with one beginning", ["a" * 480 + str(i) for i in range(500)]


def tags():
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(40)}}
    yield "60 structures", json.dumps({
        "type": "structural_tag", "triggers": ["<"],
        "structures": [{"begin": f"<f{i}>", "schema": schema, "end": f"</f{i}>"}
                       for i in range(60)]})
    yield "400 triggers", json.dumps({
        "type": "structural_tag", "triggers": [f"<f{i:03}" for i in range(400)],
        "structures": [{"begin": f"<f{i:03}>", "schema": {}, "end": "</f>"} for i in range(400)]})


# -- Tools ------------------------------------------------------------------------------------------
def tool(name, parameters, strict=False):
    return (f'{{"type":"function","function":{{"name":"{name}","strict":{json.dumps(strict)},'
            f'"parameters":{parameters}}}}}')


def tool_bodies():
    large = json.dumps({"type": "object", "properties": {
        f"p{i}": {"type": "string", "enum": [f"v{k}" for k in range(9)]} for i in range(20)}})
    yield Body("128 tools, required", tool_choice="required",
               tools=tuple(tool(f"f{i}", large) for i in range(TOOLS_MAX)))
    yield Body("128 strict tools", tools=tuple(tool(f"f{i}", large, True) for i in range(TOOLS_MAX)))
    yield Body("one too many", tools=tuple(tool(f"f{i}", "{}") for i in range(TOOLS_MAX + 1)))
    yield Body("a tool that doubles", tool_choice="f", tools=(tool("f", doubling("allOf", 60)),))
    yield Body("a strict tool that doubles", tools=(
        tool("f", doubling("anyOf", 60, '{"type":"string"}'), True),))
    yield Body("tools with patterns", tool_choice="required", tools=tuple(
        tool(f"f{i}", json.dumps({"type": "object", "required": ["x"], "properties": {
            "x": {"type": "string", "pattern": f"^(.*{i}){{1,40}}$"}}})) for i in range(64)))
    yield Body("a description of 3 MB", tools=(json.dumps({"type": "function", "function": {
        "name": "f", "description": "d e " * 750_000}}),))


# -- Conversations ----------------------------------------------------------------------------------
def user(content):
    return {"role": "user", "content": content}


def conversations():
    yield Body("the most messages", messages=(user("x" * 4000),) * MESSAGES_MAX)
    yield Body("messages without text", messages=(user(""),) * 200)
    yield Body("one message too many", messages=(user(""),) * (MESSAGES_MAX + 1))
    yield Body("one of 4 MB", messages=(user("7" * (CHAT_BYTES_MAX - 1024)),))
    yield Body("blanks", messages=(user(" " * 2_000_000),))
    yield Body("one letter", messages=(user("a" * 60_000),))
    yield Body("letters of many bytes", messages=(user("\U0001f9d1\u200d\U0001f680" * 3_000),))
    yield Body("marks on a letter", messages=(user("e" + "\u0301\u0323" * 9_000),))
    yield Body("control tokens", messages=(user("<|im_start|>" * 20_000),))
    yield Body("halves of control tokens", messages=(user("<|im_<|im_start|>start|>" * 9_000),))
    yield Body("the most parts", messages=(
        user([{"type": "text", "text": "<|im_end|>" * 40}] * PARTS_MAX),))
    call = {"type": "function", "function": {
        "name": "f", "arguments": '{"a":' * 30 + "1" + "}" * 30}}
    yield Body("the most calls", messages=(user("x"), {
        "role": "assistant", "content": "y", "tool_calls": [call] * CALLS_MAX}) * 60)


def variables():
    yield Body("variables 30 deep", kwargs='{"x":' + '{"x":' * 29 + "1" + "}" * 30)
    yield Body("variables too deep", kwargs='{"x":' + "[" * 5_000 + "]" * 5_000 + "}")
    yield Body("64 variables of 60 KB", kwargs=json.dumps(
        {f"x{i}": "y" * 60_000 for i in range(64)}))
    yield Body("a variable of a million numbers", kwargs=json.dumps({"x": [1] * 1_000_000}))
    yield Body("documents of 4 MB", documents=tuple(
        json.dumps({"text": "<|im_start|>" * 300}) for _ in range(DOCUMENTS_MAX)))


def parameters():
    yield Body("stops, bad words and ids", stop=tuple("ab" * 511 + str(i) for i in range(16)),
               bad_words=tuple(chr(0x4e00 + i) * 42 for i in range(128)),
               allowed_token_ids=tuple(range(4096)))
    yield Body("64 choices under a grammar", choices=64,
               grammar=("regex", "(([a-z ]{0,40}x){0,40}y)*"))


def other(kind, text, number):
    """The same grammar in other words, which no server has compiled yet."""
    if kind == "json_schema" and text.startswith("{"):
        return f'{{"title":"{number}",{text[1:]}'
    if kind == "regex":
        return f"(?:{text}){'()' * number}"
    if kind == "lark":
        return text + "\n" * number
    return text + [f"number {number}"] if kind == "choice" else text


def bodies(number=0):
    """All of them, each with a name of its own; grammars are others than those of another number."""
    found = [Body(f"{kind}: {name}", grammar=(kind, other(kind, text, number)))
             for kind, some in (("json_schema", schemas()), ("regex", regexes()),
                                ("lark", larks()), ("choice", choices()),
                                ("structural_tag", tags()))
             for name, text in some]
    for some in (tool_bodies(), conversations(), variables(), parameters()):
        found += some
    return found
