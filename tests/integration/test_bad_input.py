"""Bad input through the HTTP doors: a 4xx that names the field, before the first byte of an answer.

The fields and their values are in bad_cases.py. Everything goes to one server, which must not hand
a bad request to a shard and must serve as before when all is over.
"""

import http.client
import json
import unittest

from bad_cases import (ACCEPTED, IDS_1024, MALFORMED, OF_OTHER_MODELS, PARAMETERS, REFUSED,
                       RESPONSES, RESPONSES_INPUT_BAD, TEMPLATE_FIELDS, TEXT_ROUTES)
from stream_clients import Checker, Streams
from stream_doors import TEXT_DOORS, Ask
from weft_server import WeftServer

TGI, CHAT, COMPLETIONS = 0, 1, 2
MEGABYTE = 1 << 20
VOCABULARY = 49152
MESSAGES = '[{"role":"user","content":"Hi"}]'


def text(fields):
    """A JSON object of (name, JSON text) pairs, in order and with equal names as they are."""
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields) + "}"


class Door:
    """A route, and how a parameter is put into its body."""

    def __init__(self, path, kind, stream=None):
        self.path, self.kind, self.stream = path, kind, stream
        self.prompt_field = ("inputs", "messages", "prompt")[kind]
        self.prompt = MESSAGES if kind == CHAT else '"Hi"'
        self.name = path + (" stream" if stream else "")

    def full_name(self, name):
        return f"parameters.{name}" if self.kind == TGI else name

    def body(self, *parameters, prompt=None):
        limit = ("max_new_tokens", "max_tokens", "max_tokens")[self.kind]
        names = {name for name, _ in parameters}
        if not names & {limit, "max_completion_tokens"}:
            parameters += ((limit, "1"),)
        fields = [(self.prompt_field, prompt or self.prompt)]
        if self.stream and "stream" not in names:
            fields.append(("stream", "true"))
        if self.kind == TGI:
            return text(fields + [("parameters", text(parameters))])
        return text(fields + list(parameters))


DOORS = (Door("/generate", TGI), Door("/generate_stream", TGI), Door("/", TGI),
         Door("/", TGI, stream=True), Door("/v1/chat/completions", CHAT),
         Door("/v1/chat/completions", CHAT, stream=True), Door("/v1/completions", COMPLETIONS),
         Door("/v1/completions", COMPLETIONS, stream=True))
# Bad values go to all doors, good ones to one of each family.
ONE_OF_EACH = (DOORS[0], DOORS[4], DOORS[7])


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A short context: prompts that just fit are read in no time.
        cls.server = WeftServer(environment={"WEFT_CONTEXT_TOKENS_MAX": "512"}).start()
        cls.connection = cls.server.connection(timeout_s=60)
        cls.context = json.loads(cls.server.request("GET", "/info")[2])["max_total_tokens"]

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        cls.server.stop()

    def setUp(self):
        self.prompt_tokens = self.server.metric("weft_prompt_tokens_total")
        self.steps = self.server.metric("weft_steps_total")

    def tearDown(self):
        """After each sweep: idle, and a good request works."""
        self.server.wait_idle()
        body = {"inputs": "Hi", "parameters": {"max_new_tokens": 2}}
        self.assertTrue(self.server.post("/generate", body)["generated_text"])
        self.server.wait_idle()

    def assert_no_prompts(self):
        """No request since the test's beginning reached a shard."""
        self.assertEqual(self.server.metric("weft_prompt_tokens_total"), self.prompt_tokens)
        self.assertEqual(self.server.metric("weft_steps_total"), self.steps)

    def send(self, path, body, method="POST", headers=None):
        """(status, headers, body) over one connection, which must outlive all errors."""
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        self.connection.request(method, path, body, headers or {})
        socket = self.connection.sock
        response = self.connection.getresponse()
        data = response.read()
        self.assertIs(self.connection.sock, socket, "the server closed the connection")
        return response.status, dict(response.getheaders()), data

    def assert_refused(self, path, body, field, says=(), openai=None, code=None):
        """`field` None: no field is to blame. `openai`: whose shape it has, else by the path."""
        status, headers, data = self.send(path, body)
        what = (path, body[:300], status, data[:600])
        self.assertEqual(headers["content-type"], "application/json", what)
        answer = json.loads(data)
        if openai if openai is not None else path.startswith("/v1/"):
            self.assertEqual(status, 400, what)
            self.assertEqual(set(answer), {"error"}, what)
            error = answer["error"]
            self.assertEqual(set(error), {"message", "type", "param", "code"}, what)
            self.assertEqual(error["type"], "invalid_request_error", what)
            self.assertEqual(error["param"], field, what)
            if code is not None:
                self.assertEqual(error["code"], code, what)
            message = error["message"]
        else:
            self.assertEqual(status, 422, what)
            self.assertEqual(set(answer), {"error", "error_type"}, what)
            self.assertEqual(answer["error_type"], "validation", what)
            message = answer["error"]
        if field is not None:
            self.assertIn(f"`{field}`", message, what)
        for word in says:
            self.assertIn(word, message, what)
        return message

    def assert_served(self, path, body):
        status, headers, data = self.send(path, body)
        self.assertEqual(status, 200, (path, body[:300], data[:600]))
        return headers, data

    def sweep(self, fields):
        count = 0
        for door in DOORS:
            for field in fields:
                name = field.names[door.kind]
                if name is None or (name == "stream" and door.stream):
                    continue
                for value in field.bad:
                    value, inner = value if isinstance(value, tuple) else (value, "")
                    body = door.body((name, value), *field.beside)
                    self.assert_refused(door.path, body, door.full_name(name) + inner, field.says)
                    count += 1
        self.assert_no_prompts()
        for door in ONE_OF_EACH:
            for field in fields:
                name = field.names[door.kind]
                for value in field.good if name else ():
                    self.assert_served(door.path, door.body((name, value), *field.beside))
                    count += 1
        print(f"{count} requests")

    # -- Fields -----------------------------------------------------------------------------------
    def test_parameters_out_of_range_or_of_the_wrong_type(self):
        self.sweep(PARAMETERS)

    def test_what_a_template_is_given_beside_messages(self):
        self.sweep(TEMPLATE_FIELDS)

    def test_known_fields_that_are_not_served(self):
        self.sweep(REFUSED + ACCEPTED)

    def test_responses(self):
        path = "/v1/responses"

        def body(*fields, prompt='"Hi"'):
            if "max_output_tokens" not in {name for name, _ in fields}:
                fields += (("max_output_tokens", "1"),)
            return text([("input", prompt), *fields])

        count = 0
        for field in RESPONSES:
            for value in field.bad:
                value, inner = value if isinstance(value, tuple) else (value, "")
                self.assert_refused(path, body((field.names[0], value), *field.beside),
                                    field.names[0] + inner, field.says)
                count += 1
        for prompt, inner in RESPONSES_INPUT_BAD:
            self.assert_refused(path, body(prompt=prompt), "input" + inner)
            self.assert_refused(path, body(("stream", "true"), prompt=prompt), "input" + inner)
            count += 2
        self.assert_refused(path, body(prompt='"' + "a b " * self.context + '"'), "input",
                            (str(self.context),))
        self.assert_refused(path, body(("max_output_tokens", str(self.context))),
                            "max_output_tokens", (str(self.context),))
        self.assert_no_prompts()
        for field in RESPONSES:
            for value in field.good:
                _, data = self.assert_served(path, body((field.names[0], value), *field.beside))
                self.assertIn(json.loads(data)["status"], ("completed", "incomplete"))
                count += 1
        headers, _ = self.assert_served(path, body(("quux", "1")))
        self.assertEqual(headers["x-weft-ignored-fields"], "quux")
        print(f"{count} requests")

    def test_contradictions(self):
        chat, completions = "/v1/chat/completions", "/v1/completions"
        for path, extra, field in (
                ("/generate", '"stream":true', "stream"),
                ("/generate_stream", '"stream":false', "stream"),
                (chat, '"max_tokens":1,"max_completion_tokens":2', "max_tokens"),
                (chat, '"top_logprobs":1', "top_logprobs"),
                (chat, '"top_logprobs":1,"logprobs":false', "top_logprobs"),
                (chat, '"stream_options":{}', "stream_options"),
                (completions, '"stream":false,"stream_options":{"include_usage":true}',
                 "stream_options"),
                (completions, '"echo":true,"logprobs":0,"stream":true', "echo"),
                (completions, '"echo":true,"max_tokens":-1', "max_tokens"),
                (completions, '"echo":false,"max_tokens":0', "max_tokens"),
                (completions, '"prompt_logprobs":0,"stream":true', "prompt_logprobs"),
                (chat, '"prompt_logprobs":0,"stream":true', "prompt_logprobs"),
                ("/generate_stream", '"parameters":{"decoder_input_details":true}',
                 "parameters.decoder_input_details")):
            prompt = {"/v1/chat/completions": f'"messages":{MESSAGES}',
                      "/v1/completions": '"prompt":"Hi"'}.get(path, '"inputs":"Hi"')
            self.assert_refused(path, "{" + prompt + "," + extra + "}", field)
        self.assert_no_prompts()
        self.assert_served(
            chat, '{"messages":%s,"max_tokens":1,"max_completion_tokens":1}' % MESSAGES)
        self.assert_served(completions, '{"prompt":"Hi","max_tokens":1,"echo":true}')
        self.assert_served(completions, '{"prompt":"Hi","max_tokens":0,"echo":true}')

    def test_objects_inside_a_body(self):
        for value in ("1", '"x"', "[]", "true"):
            self.assert_refused("/generate", f'{{"inputs":"Hi","parameters":{value}}}',
                                "parameters")
            self.assert_refused("/v1/completions",
                                f'{{"prompt":"Hi","stream":true,"stream_options":{value}}}',
                                "stream_options")
        for name, bad in (("include_usage", "1"), ("continuous_usage_stats", '"x"'),
                          ("include_obfuscation", "true")):
            self.assert_refused(
                "/v1/completions",
                f'{{"prompt":"Hi","stream":true,"stream_options":{{"{name}":{bad}}}}}',
                f"stream_options.{name}")
        for model in ("1", "{}", "[]", "true"):
            for door in DOORS[4:]:
                self.assert_refused(door.path, door.body(("model", model)), "model")
        for door in DOORS[4:]:
            status, _, data = self.send(door.path, door.body(("model", '"no-such-model"')))
            error = json.loads(data)["error"]
            self.assertEqual((status, error["code"]), (404, "model_not_found"), data)
        self.assert_no_prompts()

    def test_of_equal_keys_the_last_counts(self):
        for door in DOORS:
            body = door.body(("top_k", "5"), ("top_k", "-5"))
            self.assert_refused(door.path, body, door.full_name("top_k"))
        self.assert_no_prompts()
        self.assert_served("/generate", DOORS[0].body(("top_k", "-5"), ("top_k", "5")))

    def test_unknown_fields_are_named_in_a_header(self):
        for door in ONE_OF_EACH:
            headers, _ = self.assert_served(door.path, door.body(("quux", "1")))
            self.assertEqual(headers["x-weft-ignored-fields"], door.full_name("quux"))
        headers, _ = self.assert_served("/generate", '{"inputs":"Hi","a\\r\\nb: c":1,'
                                        '"parameters":{"max_new_tokens":1}}')
        self.assertNotIn("b", headers)

    # -- Bodies -----------------------------------------------------------------------------------
    def test_malformed_bodies(self):
        for path, name in [(door.path, door.prompt_field) for door in DOORS] + [
                ("/v1/responses", "input"), ("/api/chat", "messages"),
                ("/api/generate", "prompt"), ("/tokenize", "inputs"),
                ("/chat_tokenize", "messages")]:
            for body in MALFORMED:
                self.assert_refused(path, body.replace(b"%s", name.encode()), None)
        self.assert_no_prompts()
        nested = "[" * 30 + "]" * 30  # in `parameters`, in the body: 32 deep
        self.assert_served("/generate", DOORS[0].body(("quux", nested)))

    def test_bodies_are_declared_as_json_or_not_at_all(self):
        for kind in ("application/json; charset=utf-8", "application/problem+json", ""):
            status, _, data = self.send("/generate", DOORS[0].body(),
                                        headers={"Content-Type": kind})
            self.assertEqual(status, 200, (kind, data))
        # What a page of another site can make a browser send.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "quux"):
            status, _, data = self.server.request("POST", "/generate", DOORS[0].body().encode(),
                                                  headers={"Content-Type": kind})
            self.assertEqual(status, 415, (kind, data))
            self.assertIn(kind, json.loads(data)["error"])
            self.assertIn("application/json", json.loads(data)["error"])

    # -- Prompts ----------------------------------------------------------------------------------
    def test_prompts_of_the_wrong_type(self):
        common = ('""', "[]", "1", "true", "{}", "null", "[-1]", "[1.5]", "[1048576]", "[1,\"a\"]",
                  "[null]", "[1e400]", "[99999999999999999999]", f"[{VOCABULARY}]",
                  f"[1,{VOCABULARY}]")
        for door in DOORS:
            if door.kind == CHAT:
                continue
            for prompt in common + (('["a"]',) if door.kind == TGI else
                                    ('[""]', "[[]]", "[[[1]]]", "[" + ",".join(['"a"'] * 257) + "]")):
                self.assert_refused(door.path, door.body(prompt=prompt), door.prompt_field)
            for prompt, index in () if door.kind == TGI else (
                    ('["a",1]', 1), ('["a",""]', 1), ("[[1],[-1]]", 1), ("[[1],[2],null]", 2)):
                self.assert_refused(door.path, door.body(prompt=prompt), f"prompt[{index}]")
            self.assert_refused(door.path, "{}", door.prompt_field, ("required",))
        for prompt in ('""', "null", "1", "[1]", "{}", "true"):
            self.assert_refused("/tokenize", f'{{"inputs":{prompt}}}', "inputs")
        self.assert_refused("/tokenize", '{"inputs":"a","add_special_tokens":1}',
                            "add_special_tokens")
        self.assert_no_prompts()
        for prompt in (f"[{VOCABULARY - 1}]", "[16.0]", '"\\u0000"', '"\\ud83d\\ude00"'):
            self.assert_served("/generate", DOORS[0].body(prompt=prompt))
        for prompt in ('["a"]', "[[1,2]]", '["a","b"]', "[[1],[2]]", '["a",[1]]'):
            self.assert_served("/v1/completions", DOORS[6].body(prompt=prompt))

    def test_texts_and_ids(self):
        for path, cases in TEXT_ROUTES.items():
            for body, field, *says in cases:
                self.assert_refused(path, f"{{{body}}}", field, says, openai=True)
        self.assert_no_prompts()
        tokens = self.server.post("/tokenize", {"prompt": "Hi there", "return_token_strs": True})
        self.assertEqual(tokens, {"count": len(tokens["tokens"]), "max_model_len": self.context,
                                  "tokens": tokens["tokens"], "token_strs": ["Hi", " there"]})
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens["tokens"]}),
                         {"prompt": "Hi there"})
        self.assertEqual(self.server.post("/detokenize", {"tokens": []}), {"prompt": ""})
        # A conversation's are those of its rendered text; control tokens come back as they are.
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        ids = self.server.post("/tokenize", chat)["tokens"]
        rendered = self.server.post("/chat_tokenize", chat)
        self.assertEqual(ids, [token["id"] for token in rendered["tokenize_response"]])
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids})["prompt"],
                         rendered["templated_text"])
        self.assertNotIn("<|im_start|>", self.server.post(
            "/detokenize", {"tokens": ids, "skip_special_tokens": True})["prompt"])

    def test_routes_of_models_that_are_no_decoders(self):
        for path in OF_OTHER_MODELS:
            for body in ('{"input":"Hi"}', "{}", "["):
                self.assert_refused(path, body, None, ("decoder",), openai=True,
                                    code="not_supported_by_model")
        self.assert_no_prompts()

    def test_messages(self):
        user = '{"role":"user","content":"a"}'
        for value, field in (
                ("null", "messages"), ("[]", "messages"), ('"x"', "messages"), ("{}", "messages"),
                ("1", "messages"), ("[" + ",".join([user] * 1025) + "]", "messages"),
                ("[1]", "messages[0]"), (f"[{user},null]", "messages[1]"),
                ("[{}]", "messages[0].role"), ('[{"content":"a"}]', "messages[0].role"),
                ('[{"role":"user"}]', "messages[0].content"),
                ('[{"role":"user","content":null}]', "messages[0].content"),
                *((f'[{user},{{"role":{role},"content":"a"}}]', "messages[1].role")
                  for role in ("1", '""', '"function"', '"quux"', "[]")),
                *((f'[{{"role":"user","content":{content}}}]', "messages[0].content")
                  for content in ("1", "{}", "true")),
                ('[{"role":"user","content":["a"]}]', "messages[0].content[0]"),
                *((f'[{{"role":"user","content":[{part}]}}]', f"messages[0].content[0].{name}")
                  for part, name in (('{"type":"text"}', "text"), ('{"text":"a"}', "type"),
                                     ('{"type":"text","text":1}', "text"),
                                     ('{"type":"image_url","image_url":{}}', "type"))),
                *((f'[{{"role":"user","content":"a","{name}":{value}}}]', f"messages[0].{name}")
                  for name, value in (("name", "1"), ("tool_calls", "{}"),
                                      ("tool_call_id", '"x"'), ("function_call", "{}"),
                                      ("refusal", '"x"'), ("audio", "{}"), ("images", '["x"]'),
                                      ("tool_name", "1"), ("thinking", "1")))):
            for door in (DOORS[4], DOORS[5]):
                self.assert_refused(door.path, door.body(prompt=value), field)
            self.assert_refused("/chat_tokenize", f'{{"messages":{value}}}', field)
        self.assert_refused("/v1/chat/completions", "{}", "messages", ("required",))
        self.assert_no_prompts()
        # So many are taken; their tokens are not.
        message = self.assert_refused("/chat_tokenize",
                                      '{"messages":[' + ",".join([user] * 1024) + "]}", "messages")
        self.assertIn("tokens", message)
        for content in ('""', '[{"type":"text","text":"a"},{"type":"text","text":"b"}]'):
            self.assert_served("/v1/chat/completions", DOORS[4].body(
                prompt=f'[{{"role":"developer","content":{content}}}]'))

    def test_prompts_over_the_context(self):
        ids = lambda count: json.dumps([5] * count)
        for door in DOORS:
            limit = ("max_new_tokens", "max_tokens", "max_tokens")[door.kind]
            says = (str(self.context),)
            # By their bytes, before they are encoded: "at least" tokens; truncated ones too.
            cut = ("truncate", "truncate_prompt_tokens", "truncate_prompt_tokens")[door.kind]
            for extra in ((), ((cut, "5"),)):
                digits = '"' + "7" * (3 * MEGABYTE) + '"'
                if door.kind == CHAT:
                    digits = f'[{{"role":"user","content":{digits}}}]'
                message = self.assert_refused(door.path, door.body(*extra, prompt=digits),
                                              door.prompt_field, says)
                self.assertIn("at least", message)
            # By their tokens.
            long = '"' + "a b " * self.context + '"'
            if door.kind == CHAT:
                long = f'[{{"role":"user","content":{long}}}]'
            self.assert_refused(door.path, door.body(prompt=long), door.prompt_field, says)
            if door.kind != CHAT:
                self.assert_refused(door.path, door.body(prompt=ids(self.context)),
                                    door.prompt_field, says)
                self.assert_refused(
                    door.path, door.body((limit, "2"), prompt=ids(self.context - 1)),
                    door.full_name(limit), says)
            self.assert_refused(door.path, door.body((limit, str(self.context))),
                                door.full_name(limit), says)
        self.assert_no_prompts()
        # What just fits is served, and so is a long text that is cut.
        self.assert_served("/generate", DOORS[0].body(prompt=ids(self.context - 1)))
        body = DOORS[0].body(("truncate", "7"), prompt='"' + "a b " * self.context + '"')
        headers, _ = self.assert_served("/generate", body)
        self.assertEqual(headers["x-prompt-tokens"], "7")

    # -- Requests beside others -------------------------------------------------------------------
    def test_a_request_id_may_be_used_again(self):
        other = self.server.connection()
        other.request("POST", "/generate_stream", text([("inputs", '"Once"'), (
            "parameters", '{"max_new_tokens":400,"logit_bias":{"0":-100,"2":-100}}')]),
            {"x-request-id": "taken"})
        stream = other.getresponse()
        self.assertEqual(stream.status, 200)
        for door in (DOORS[0], DOORS[1], DOORS[4], DOORS[7]):
            status, headers, data = self.send(door.path, door.body(),
                                              headers={"x-request-id": "taken"})
            self.assertEqual(status, 200, data)
            self.assertEqual(headers["x-request-id"], "taken")
        stream.close()
        other.close()

    def test_many_bad_requests_beside_a_stream_leave_it_alone(self):
        ask = Ask("Once upon a time", max_tokens=100)
        checker = Checker(self.server).learn([ask])
        streams = Streams(self.server, [(door, ask) for door in TEXT_DOORS])
        streams.wait_tokens(1)
        for door in DOORS:
            for value in ("-2", '"x"', IDS_1024):
                self.assert_refused(door.path, door.body(("top_k", value)), door.full_name("top_k"))
        self.assertEqual(len(streams.open()), len(TEXT_DOORS))
        checker.check(streams.join())


if __name__ == "__main__":
    unittest.main()
