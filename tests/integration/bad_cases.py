"""What docs/API.md allows and refuses, field by field: the tables behind test_bad_input.py.

Values are JSON text, so that they can be what json.dumps would not write (1e400, NaN, equal keys).
"""

import dataclasses

NUMBER_WRONG = ('"1"', "true", "{}", "[]", "[1]", "1e400", "-1e400")
INTEGER_WRONG = NUMBER_WRONG + ("1.5", "1e30", "9223372036854775808",
                                "123456789012345678901234567890")
BOOLEAN_WRONG = ('"true"', "0", "1", "{}", "[]", "1e400")
STRING_WRONG = ("1", "true", "{}", "[]", '["a"]')


@dataclasses.dataclass(frozen=True)
class Field:
    """`names`: the field on (TGI, OpenAI chat, OpenAI completions); None where a door lacks it."""
    names: tuple
    good: tuple
    bad: tuple
    # Words that every refusal of a bad value must have: the range.
    says: tuple = ()
    # Further fields of the same body: JSON text by name.
    beside: tuple = ()


def everywhere(name):
    return (name, name, name)


def number(names, low, high, good=(), bad=(), open_low=False, says=None):
    """A float between `low` and `high`; the nearest values outside are 0.1 % of the span away."""
    step = (high - low) / 1000
    low_word, high_word = f"{low:g}", f"{high:g}"
    return Field(names,
                 (high_word, *(() if open_low else (low_word,)), "null", *good),
                 (repr(high + step), repr(low - step), *((low_word,) if open_low else ()),
                  *NUMBER_WRONG, *bad),
                 says or (low_word, high_word))


def integer(names, low, high, good=(), bad=(), says=None):
    return Field(names, (str(low), f"{low}.0", "null", *good),
                 (str(low - 1), str(high + 1), *INTEGER_WRONG, *bad), says or (str(low), str(high)))


def boolean(names, beside=()):
    return Field(names, ("true", "false", "null"), BOOLEAN_WRONG, ("boolean",), beside)


IDS_1024 = "{" + ",".join(f'"{i}":0' for i in range(1024)) + "}"
IDS_1025 = "{" + ",".join(f'"{i}":0' for i in range(1025)) + "}"


def quoted(text):
    return f'"{text}"'


def stops(count, length):
    return "[" + ",".join([quoted("q" * length)] * count) + "]"


# The table "Parameters" of API.md, in its order.
PARAMETERS = (
    Field(("max_new_tokens", "max_tokens", "max_tokens"), ("1", "2.0"),
          ("0", "-1", "1048577", *INTEGER_WRONG), ("1", "1048576")),
    Field((None, "max_completion_tokens", None), ("1",),
          ("0", "-1", "1048577", *INTEGER_WRONG), ("1", "1048576")),
    number(("temperature", None, None), 0, 100, open_low=True, good=("1e-30",), bad=("1e-60",)),
    number((None, "temperature", "temperature"), 0, 100),
    integer(everywhere("top_k"), -1, 1048576, good=("0", "1048576")),
    number(everywhere("top_p"), 0, 1, open_low=True, bad=("1e-60",)),
    number(everywhere("min_p"), 0, 1),
    number(everywhere("typical_p"), 0, 1, open_low=True),
    number(everywhere("repetition_penalty"), 0.01, 10, bad=("0", "0.001", "1e-37")),
    number(everywhere("presence_penalty"), -2, 2),
    number(everywhere("frequency_penalty"), -2, 2),
    Field(everywhere("logit_bias"),
          ("{}", "null", '{"0":100,"49151":-100}', IDS_1024),
          ("[]", '"x"', "1", "true", '{"0":100.1}', '{"0":-100.1}', '{"0":1e400}', '{"0":"1"}',
           '{"0":null}', '{"-1":0}', '{"1048576":0}', '{"49152":0}', '{"x":0}', '{"":0}',
           '{"01":0}', '{"1.0":0}', '{"99999999999999999999":0}', IDS_1025)),
    Field(everywhere("seed"),
          ("0", "-1", "-9223372036854775808", "18446744073709551615", "42.0", "null"),
          (*NUMBER_WRONG, "1.5", "18446744073709551616", "-9223372036854775809"), ("64", "63")),
    Field(everywhere("stop"),
          ("[]", "null", quoted("q" * 1024), stops(16, 1024), '["\\u0000"]'),
          ("1", "true", "{}", '""', '[""]', "[1]", "[null]", '[["a"]]', quoted("q" * 1025),
           stops(17, 1), stops(1, 1025), '["a","' + "q" * 1025 + '"]')),
    boolean((None, "include_stop_str_in_output", "include_stop_str_in_output")),
    boolean(everywhere("ignore_eos")),
    integer(("min_new_tokens", "min_tokens", "min_tokens"), 0, 1048576, good=("0",)),
    Field(everywhere("stop_token_ids"), ("[]", "null", "[0]", "[49151, 7, 7]"),
          ("1", '"x"', "{}", "[-1]", "[49152]", "[1048576]", '["a"]', "[1.5]",
           "[" + ",".join(["1"] * 65) + "]")),
    boolean(everywhere("skip_special_tokens")),
    boolean(everywhere("watermark")),
    Field(everywhere("cache_salt"), ('""', "null", quoted("s" * 256)),
          ("1", "true", "[]", quoted("s" * 257))),
    Field(everywhere("deadline_ms"), ("null", "86400000"),
          ("0", "-1", "86400001", *INTEGER_WRONG), ("86400000",)),
    Field(everywhere("allowed_token_ids"),
          ("[]", "null", "[0]", "[49151, 7, 7]", "[" + ",".join(["1"] * 4096) + "]"),
          ("1", '"x"', "{}", "[-1]", "[49152]", "[1048576]", '["a"]', "[1.5]", "[null]",
           "[" + ",".join(["1"] * 4097) + "]")),
    Field(everywhere("bad_words"),
          ("[]", "null", '["a"]', stops(128, 128), '["\\u0000"]'),
          ("1", '"x"', "true", "{}", '[""]', '[" "]', "[1]", "[null]", '[["a"]]', stops(129, 1),
           stops(1, 129))),
    boolean(("details", "logprobs", None)),
    Field((None, None, "logprobs"), ("0", "20", "null"), ("-1", "21", *INTEGER_WRONG), ("0", "20")),
    integer(("top_n_tokens", None, None), 0, 20, good=("20",)),
    dataclasses.replace(integer((None, "top_logprobs", None), 0, 20, good=("20",)),
                        beside=(("logprobs", "true"),)),
    boolean(("return_full_text", None, "echo")),
    # What they ask for is given in whole answers alone (test_prompt_logprobs.py).
    Field(("decoder_input_details", None, None), ("false", "null"), BOOLEAN_WRONG, ("boolean",)),
    Field((None, "prompt_logprobs", "prompt_logprobs"), ("null",), ("-1", "21", *INTEGER_WRONG),
          ("0", "20")),
    Field(("truncate", None, None), ("1", "1048576", "null"),
          ("0", "-1", "1048577", *INTEGER_WRONG), ("1", "1048576")),
    Field((None, "truncate_prompt_tokens", "truncate_prompt_tokens"),
          ("1", "-1", "1048576", "null"), ("0", "-2", "1048577", *INTEGER_WRONG)),
    boolean(everywhere("add_special_tokens")),
    integer(everywhere("priority"), -100, 100, good=("100",)),
    # A pair: the JSON text, and the part of the field that is named.
    Field(("grammar", None, None),
          ("null", '{"type":"json","value":{"type":"object"}}', '{"type":"regex","value":"a+"}'),
          ("1", '"x"', "[]", ("{}", ".type"), ('{"type":5}', ".type"),
           ('{"type":"xml","value":1}', ".type"), ('{"type":"regex"}', ".value"),
           ('{"type":"regex","value":""}', ".value"), ('{"type":"regex","value":5}', ".value"),
           '{"type":"regex","value":"["}', ('{"type":"json","value":5}', ".value"),
           '{"type":"json","value":{"type":"quux"}}')),
    Field((None, "response_format", "response_format"),
          ("null", '{"type":"text"}', '{"type":"json_object"}',
           '{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}'),
          ("1", '"x"', "[]", ("{}", ".type"), ('{"type":"xml"}', ".type"),
           ('{"type":"json_schema"}', ".schema"),
           ('{"type":"json_schema","json_schema":{"name":"n"}}', ".json_schema.schema"),
           '{"type":"json_schema","json_schema":{"schema":{"type":"quux"}}}')),
    Field((None, "guided_regex", "guided_regex"), ("null", '"a+"'), ("1", '""', "[]", '"["')),
    Field((None, "guided_choice", "guided_choice"), ("null", '["a","b"]'),
          ("1", '""', "[]", "[1]", "{}")),
    Field((None, "guided_json", "guided_json"), ("null", '{"type":"object"}'), ("1", "[]", '"{"')),
    Field((None, "guided_grammar", "guided_grammar"), ("null", '"start: \\"a\\""'),
          ("1", '""', "[]", '"start"')),
    Field((None, "structured_outputs", "structured_outputs"), ("null", '{"regex":"a+"}'),
          ("1", '""', "[]", ('{"regex":5}', ".regex"), '{"regex":"a","choice":["a"]}')),
    integer(("best_of", None, "best_of"), 1, 128, good=("1",)),
    integer((None, "n", "n"), 1, 128, good=("2",)),
    Field((None, "best_of", None), ("1", "1.0", "null"), ("0", "2", "-1", '"1"', "1.5", "{}"),
          ("1",)),
    boolean(("do_sample", None, None)),
    boolean((None, "add_generation_prompt", None)),
    boolean((None, "return_token_ids", "return_token_ids")),
    Field(everywhere("resume"), ("null",), ("1", '"x"', "true", "[]", "[1]", "1e400"),
          ("object",)),
    boolean((None, "stream", "stream")),
)


def refused(names, *neutral, others=()):
    """Known and not served: only null and the neutral values pass."""
    return Field(names, ("null", *neutral), tuple(
        value for value in ("1234", '"quux"', '{"a":1}', "[7]", *others) if value not in neutral))


def on_openai(*fields):
    return tuple(refused((None, name, name), *neutral) for name, *neutral in fields)


REFUSED = (
    refused((None, "grammar", "grammar")),
    refused(("adapter_id", "adapter_id", "adapter_id")),
    refused(("frequency_penalty_decay", None, None)),
    refused(("num_beams", None, None), "1"),
    refused(("length_penalty", "length_penalty", "length_penalty"), "1", "1.0"),
    *on_openai(
        ["service_tier", '"auto"', '"default"'],
        ["store", "false"], ["use_beam_search", "false"],
        ["return_tokens_as_token_ids", "false"],
        ["spaces_between_special_tokens", "true"],
        ["logits_processors", "[]"],
        ["vllm_xargs", "{}"], ["prompt_cache_retention", '"in_memory"'], ["regex"],
        ["json_schema"], ["ebnf"],
        ["logprob_token_ids"], ["prompt_embeds"], ["kv_transfer_params"],
        ["lora_path"], ["request_id"], ["functions", "[]"],
        ["function_call", '"none"', '"auto"'],
        ["modalities", '["text"]'], ["verbosity", '"medium"'],
        ["separate_reasoning", "true"],
        ["media_io_kwargs", "{}"], ["mm_processor_kwargs", "{}"], ["audio"], ["prediction"],
        ["web_search_options"], ["moderation"], ["tool_prompt"], ["chat_template"], ["guideline"],
        ["suffix", '""']),
    refused((None, "echo", None), "false"),
    # Of conversations alone.
    *(refused((None, None, name), *neutral) for name, *neutral in (
        ("tools", "[]"), ("parallel_tool_calls", "true"), ("include_reasoning", "true"),
        ("tool_choice", '"none"', '"auto"'), ("reasoning_effort", '"none"'),
        ("continue_final_message", "false"), ("documents", "[]"), ("chat_template_kwargs", "{}"))),
)

# What the chat template is given beside messages, on chats.
TOOL = '{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}'
TEMPLATE_FIELDS = (
    Field((None, "tools", None), ("[]", "null", f"[{TOOL}]"), ("1", '"x"', "{}", "true")),
    Field((None, "documents", None), ("[]", "null", '[{"text":"x"}]'), ("1", '"x"', "{}", "true")),
    Field((None, "chat_template_kwargs", None), ("{}", "null", '{"enable_thinking":false}'),
          ("1", '"x"', "[]", '{"a b":1}')),
    Field((None, "reasoning_effort", None),
          tuple(quoted(word) for word in ("none", "minimal", "low", "medium", "high", "xhigh",
                                          "max")) + ("null",),
          (*STRING_WRONG, '""', '"quux"')),
    boolean((None, "add_generation_prompt", None)),
    boolean((None, "parallel_tool_calls", None)),
    boolean((None, "include_reasoning", None)),
    Field((None, "continue_final_message", None), ("false", "null"), BOOLEAN_WRONG, ("boolean",)),
)

# Of GenerateRequest, for the messages of a chat with the tool above; beside the path that is named
# the fields, with __ for a dot. Lists are appended to.
STRICT_TOOL = ('{"type":"function","function":{"name":"s","strict":true,"parameters":'
               '{"type":"object","properties":{"x":{"not":{}}},"required":["x"]}}}')
GRPC_TOOLS = (
    ("chat.tools[1]", {"chat__tools": ["{"]}),
    ("chat.tools[1]", {"chat__tools": ["5"]}),
    ("chat.tools[1].type", {"chat__tools": ["{}"]}),
    ("chat.tools[1].function.name", {"chat__tools": [TOOL]}),
    ("chat.tools[1].function.strict",
     {"chat__tools": ['{"type":"function","function":{"name":"g","strict":1}}']}),
    ("chat.tools", {"chat__tools": [TOOL] * 128}),
    ("chat.tools", {"chat__tools": [STRICT_TOOL]}),
    ("chat.tools", {"chat__tools": [STRICT_TOOL], "response__parts": True}),
    ("chat.tools", {"chat__tools": [STRICT_TOOL], "chat__tool_choice__function": "s"}),
    ("chat.tool_choice", {"chat__tool_choice__function": "quux"}),
    ("chat.tool_choice.function", {"chat__tool_choice__function": ""}),
    ("chat.tool_choice.function", {"chat__tool_choice__function": "a b"}),
    ("chat.tool_choice.function", {"chat__tool_choice__function": "x" * 65}),
    ("chat.tool_choice.mode", {"chat__tool_choice__mode": 4}),
    ("chat.tool_choice.mode", {"chat__tool_choice__mode": -1}),
    ("chat.tool_choice", {"chat__tool_choice__allowed": ["quux"]}),
    ("chat.tool_choice.allowed[1]", {"chat__tool_choice__allowed": ["f", ""]}),
    ("chat.tool_choice.allowed", {"chat__tool_choice__allowed": ["f"] * 129}),
    ("chat.tool_choice.allowed", {"chat__tool_choice__allowed": ["f"],
                                  "chat__tool_choice__function": "f"}),
    ("chat.tool_choice.allowed", {"chat__tool_choice__allowed": ["f"],
                                  "chat__tool_choice__mode": 2}),
    ("response.echo_prompt", {"response__parts": True, "response__echo_prompt": True}),
    ("response.omit_reasoning", {"response__omit_reasoning": True}),
    ("decoding.grammar", {"response__parts": True, "decoding__grammar__regex": "a+"}),
)

# Never looked at.
ACCEPTED = tuple(Field((None, name, name), ("1", '"x"', "{}", "[1]", "null"), ())
                 for name in ("user", "metadata", "prompt_cache_key", "safety_identifier"))

# vLLM's form of /tokenize, and /detokenize: body without braces, field, words of the refusal.
_CHAT = '"messages":[{"role":"user","content":"Hi"}]'
TEXT_ROUTES = {
    "/tokenize": (
        *((f'"prompt":{value}', "prompt") for value in ('""', *STRING_WRONG)),
        ('"messages":[]', "messages"), ('"messages":[{"role":"user"}]', "messages[0].content"),
        (f'"prompt":"a",{_CHAT}', "messages", "not supported"),
        *((f'"prompt":"a","{name}":{value}', name, "boolean")
          for name in ("add_special_tokens", "return_token_strs") for value in BOOLEAN_WRONG),
        *((f'{_CHAT},"{name}":{value}', name, "boolean")
          for name in ("add_generation_prompt", "continue_final_message", "return_token_strs")
          for value in BOOLEAN_WRONG),
        (f'{_CHAT},"add_special_tokens":true', "add_special_tokens", "not supported"),
        (f'{_CHAT},"chat_template":"x"', "chat_template", "not supported"),
        (f'{_CHAT},"mm_processor_kwargs":{{"a":1}}', "mm_processor_kwargs", "not supported"),
        (f'{_CHAT},"tools":{{}}', "tools"), (f'{_CHAT},"chat_template_kwargs":[]',
                                             "chat_template_kwargs"),
        *((f'"prompt":"a","model":{value}', "model", "string") for value in STRING_WRONG)),
    "/detokenize": (
        ("", "tokens", "required"), ('"tokens":null', "tokens", "required"),
        *((f'"tokens":{value}', "tokens", "array") for value in ("1", '"x"', "{}", "true")),
        *((f'"tokens":[7,{value}]', "tokens", "0", "1048575", "index 1")
          for value in ("-1", "1048576", "1.5", '"a"', "null", "true", "1e400")),
        ('"tokens":[49152]', "tokens", "49152"),
        *((f'"tokens":[1],"skip_special_tokens":{value}', "skip_special_tokens", "boolean")
          for value in BOOLEAN_WRONG),
        *((f'"tokens":[1],"model":{value}', "model", "string") for value in STRING_WRONG)),
}
# Routes of models that are no decoders.
OF_OTHER_MODELS = ("/v1/embeddings", "/embed", "/v1/rerank", "/rerank", "/v1/score", "/score")

# -- /v1/responses, whose names are its own alone: (name,) ----------------------------------------

# What chats and completions have and Responses have not, or have otherwise.
NOT_IN_RESPONSES = ("max_tokens", "response_format", "return_token_ids", "resume", "store", "n",
                    "prompt_logprobs", "stream")


def of_responses(fields):
    return tuple(dataclasses.replace(field, names=(field.names[1],)) for field in fields
                 if field.names[1] is not None and field.names[1] == field.names[2]
                 and field.names[1] not in NOT_IN_RESPONSES)


FLAT_TOOL = '{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}'
RESPONSES = (
    *of_responses(PARAMETERS), *of_responses(REFUSED),
    Field(("max_output_tokens",), ("1", "2.0"), ("0", "-1", "1048577", *INTEGER_WRONG),
          ("1", "1048576")),
    Field(("instructions",), ('""', '"x"', "null"), STRING_WRONG),
    Field(("stream",), ("false", "null"), BOOLEAN_WRONG, ("boolean",)),
    Field(("store",), ("true", "false", "null"), BOOLEAN_WRONG, ("boolean",)),
    boolean(("include_reasoning",)),
    boolean(("parallel_tool_calls",)),
    *(Field((name,), ("null", '"x"'), STRING_WRONG)
      for name in ("user", "prompt_cache_key", "safety_identifier")),
    Field(("metadata",), ("null", "{}", '{"a":"b"}'),
          ("1", '"x"', "[]", '{"a":1}', '{"a":null}', '{"' + "k" * 65 + '":"x"}',
           '{"a":"' + "v" * 513 + '"}',
           "{" + ",".join(f'"{i}":""' for i in range(17)) + "}")),
    Field(("include",), ("null", "[]", '["message.output_text.logprobs"]',
                         '["reasoning.encrypted_content"]'),
          ("1", '"x"', "{}", "[1]", '["file_search_call.results"]')),
    Field(("top_logprobs",), ("0", "20", "null"), ("-1", "21", *INTEGER_WRONG), ("0", "20")),
    Field(("text",), ("null", "{}", '{"format":{"type":"text"}}', '{"verbosity":"medium"}',
                      '{"format":{"type":"json_object"}}',
                      '{"format":{"type":"json_schema","name":"n","strict":true,'
                      '"schema":{"type":"object","properties":{}}}}'),
          ("1", '"x"', "[]", ('{"format":1}', ".format"), ('{"format":{}}', ".format.type"),
           ('{"format":{"type":"xml"}}', ".format.type"),
           ('{"format":{"type":"json_schema","name":"n"}}', ".format.schema"),
           ('{"format":{"type":"json_schema","schema":{"type":"quux"}}}', ".format"),
           ('{"verbosity":"low"}', ".verbosity"))),
    Field(("reasoning",), ("null", "{}", '{"effort":"low","summary":"auto"}',
                           '{"effort":null,"generate_summary":null}'),
          ("1", '"x"', "[]", ('{"effort":1}', ".effort"), ('{"effort":"quux"}', ".effort"),
           ('{"summary":"detailed"}', ".summary"), ('{"mode":"pro"}', ".mode"),
           ('{"context":"current_turn"}', ".context"))),
    Field(("chat_template_kwargs",), ("{}", "null", '{"enable_thinking":false}'),
          ("1", '"x"', "[]", '{"a b":1}')),
    Field(("tools",), ("null", "[]", f"[{FLAT_TOOL}]"),
          ("1", '"x"', "{}", "[" + ",".join(f'{{"type":"function","name":"f{i}"}}'
                                            for i in range(129)) + "]",
           ("[1]", "[0]"), ("[{}]", "[0].type"), ('[{"type":"web_search"}]', "[0].type"),
           ('[{"type":"function"}]', "[0].name"), ('[{"type":"function","name":"a b"}]', "[0].name"),
           ('[{"type":"function","name":"f","parameters":1}]', "[0].parameters"),
           ('[{"type":"function","name":"f","strict":1}]', "[0].strict"),
           ('[{"type":"function","name":"f","defer_loading":true}]', "[0].defer_loading"),
           (f"[{FLAT_TOOL},{FLAT_TOOL}]", "[1].name"))),
    Field(("tool_choice",), ('"auto"', '"none"', "null", '{"type":"function","name":"f"}'),
          ("1", '"quux"', "[]", ("{}", ".type"), ('{"type":"web_search"}', ".type"),
           ('{"type":"function"}', ".name"), '{"type":"function","name":"g"}',
           ('{"type":"allowed_tools"}', ".tools"),
           ('{"type":"allowed_tools","mode":"x","tools":[]}', ".mode"),
           ('{"type":"allowed_tools","tools":[1]}', ".tools[0]")),
          beside=(("tools", f"[{FLAT_TOOL}]"),)),
    *(refused((name,), *neutral) for name, *neutral in (
        ("previous_response_id",), ("conversation",), ("prompt",), ("background", "false"),
        ("max_tool_calls",), ("context_management", "[]"), ("access_programs", "{}"),
        ("image", "{}"), ("prompt_cache_options", "{}"), ("truncation", '"disabled"'),
        ("messages",), ("max_tokens",), ("max_completion_tokens",), ("reasoning_effort",),
        ("response_format", '{"type":"text"}'), ("logprobs", "false"), ("n", "1"),
        ("return_token_ids", "false"), ("resume",), ("prompt_logprobs",), ("documents", "[]"))),
)

# (the input, the part of it that is named).
RESPONSES_INPUT_BAD = (
    ("null", ""), ('""', ""), ("1", ""), ("{}", ""), ("true", ""), ("[]", ""),
    ("[" + ",".join(['{"role":"user","content":"a"}'] * 1025) + "]", ""),
    ("[1]", "[0]"), ('[{"role":"user","content":"a"},null]', "[1]"), ("[{}]", "[0].type"),
    *((f"[{{{members}}}]", f"[0].{field}") for members, field in (
        ('"type":"item_reference","id":"msg_1"', "type"), ('"type":"web_search_call"', "type"),
        ('"type":1', "type"), ('"role":"tool","content":"a"', "role"), ('"role":1', "role"),
        ('"role":"user"', "content"), ('"role":"user","content":1', "content"),
        ('"role":"user","content":["a"]', "content[0]"),
        ('"role":"user","content":[{"text":"a"}]', "content[0].type"),
        ('"role":"user","content":[{"type":"input_image","image_url":"x"}]', "content[0].type"),
        ('"role":"user","content":[{"type":"input_file","file_id":"x"}]', "content[0].type"),
        ('"role":"user","content":[{"type":"input_text"}]', "content[0].text"),
        ('"type":"function_call","name":"f","arguments":"{}"', "call_id"),
        ('"type":"function_call","call_id":"' + "c" * 257 + '","name":"f","arguments":"{}"',
         "call_id"),
        ('"type":"function_call","call_id":"c","name":"a b","arguments":"{}"', "name"),
        ('"type":"function_call","call_id":"c","name":"f"', "arguments"),
        ('"type":"function_call","call_id":"c","name":"f","arguments":"[]"', "arguments"),
        ('"type":"function_call_output","output":"x"', "call_id"),
        ('"type":"function_call_output","call_id":"c"', "output"),
        ('"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]',
         "output[0].type"),
        ('"type":"reasoning","encrypted_content":"x"', "encrypted_content"),
        ('"type":"reasoning","content":[{"type":"text","text":"x"}]', "content[0].type"),
        ('"type":"reasoning","summary":[{"type":"summary_text"}]', "summary[0].text"))),
)

# Bodies that are no JSON object in UTF-8. %s stands for the door's prompt field.
MALFORMED = (
    b"", b" ", b"{", b"[]", b"null", b'"text"', b"1", b"\xff", b"\x00", b"{]", b"{'a':1}",
    b'{"%s":"a"', b'{"%s":"a', b'{"%s":"a"}}', b'{"%s":"a"} x', b'{"%s":"a",}', b'{"%s" "a"}',
    b'{"%s":a}', b'{"%s":"\xff"}', b'{"%s":"\xc0\x80"}', b'{"%s":"\xed\xa0\x80"}',
    b'{"%s":"\xf5\x80\x80\x80"}', b'{"%s":"\\ud800"}', b'{"%s":"\\udc00x"}', b'{"%s":"\\x41"}',
    b'{"%s":"a\nb"}', b'{"%s":NaN}', b'{"%s":Infinity}', b'{"%s":01}', b'{"%s":"a"/**/}',
    b'\xef\xbb\xbf{"%s":"a"}', '{"%s":"a"}'.encode("utf-16"),
    b'{"x":' + b"[" * 32 + b"]" * 32 + b',"%s":"a"}',
    b'{"x":' * 40 + b"1" + b"}" * 40, b"[" * 100_000,
)
