"""GET /openapi.json against the server that serves it: OpenAPI 3.1, every route and no other, and
each field as the server reads it. What a field's schema refuses the server refuses by its name;
its default is accepted; a name that a reader knows is described, and one that is described is read.
"""

import copy
import http.client
import json
import pathlib
import re
import unittest

import jsonschema
import openapi_spec_validator
from prometheus_server import free_ports
from weft_server import WeftServer

DOORS = pathlib.Path(__file__).resolve().parents[2] / "router/doors"
MESSAGES = [{"role": "user", "content": "Hi"}]
FUNCTION = {"type": "function", "function": {"name": "f"}}
CHAT = {"messages": MESSAGES, "tools": [FUNCTION]}
# Good values of objects, so that what is in them is looked at too.
STREAM = {"stream": True, "stream_options": {}, "resume": {"output_ids": []}, "seed": 1}
# A route and a good body for each body that is described.
BODIES = {
    "ChatRequest": ("/v1/chat/completions", {**CHAT, **STREAM, "max_tokens": 1}),
    "CompletionRequest": ("/v1/completions", {"prompt": "Hi", **STREAM, "max_tokens": 1}),
    "ResponsesRequest": ("/v1/responses", {
        "input": "Hi", "max_output_tokens": 1, "stream": True, "stream_options": {},
        "text": {"format": {"type": "text"}}, "reasoning": {},
        "tools": [{"type": "function", "name": "f"}]}),
    "TokenizeText": ("/tokenize", {"prompt": "Hi"}),
    "TokenizeChat": ("/tokenize", CHAT),
    "DetokenizeRequest": ("/detokenize", {"tokens": [1]}),
    "GenerateRequest": ("/generate_stream", {"inputs": "Hi", "parameters": {
        "max_new_tokens": 1, "resume": {"output_ids": []}, "seed": 1,
        "grammar": {"type": "regex", "value": "a+"}}}),
    "TokenizeInputs": ("/tokenize", {"inputs": "Hi"}),
    "MessagesRequest": ("/v1/messages", {
        "messages": MESSAGES, "max_tokens": 1, "thinking": {"type": "disabled"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "f"}}),
    "CountTokensRequest": ("/v1/messages/count_tokens", {"messages": MESSAGES}),
    "OllamaChatRequest": ("/api/chat", {**CHAT, "options": {"num_predict": 1}}),
    "OllamaGenerateRequest": ("/api/generate", {"prompt": "Hi", "options": {"num_predict": 1}}),
}
VALUES = (True, False, 3, -1_000_000, 10_000_000, 1.5, "x", "", {}, {"a": 1}, [], [1], ["x"], [{}])
# So many names fit the header of ignored fields.
NAMES_OF_HEADER = 16


def words_of_sources():
    """Every word in quotes that could be the name of a field, in the sources of the HTTP doors."""
    found = set()
    for source in DOORS.rglob("*.cc"):
        if not {"grpc", "api", "ui"} & set(source.parts):
            found.update(re.findall(r'"([a-z][a-z0-9_]*)"', source.read_text()))
    return sorted(found)


def pattern_of(path):
    """What a documented path matches: a name in braces is one character or more."""
    return re.compile(re.escape(re.sub(r"\{.*?\}", "\0", path)).replace("\0", ".+") + r"\Z")


def value_at(body, steps):
    for step in steps:
        body = body[step]
    return body


def objects_in(schema, body, steps=(), path=""):
    """Yields (schema, way to it in the body, its path as errors have it) of each object that the
    body has a value for."""
    yield schema, steps, path
    for name, inner in schema.get("properties", {}).items():
        if name not in value_at(body, steps):
            continue
        here, where = (*steps, name), f"{path}{name}"
        if "properties" in inner:
            yield from objects_in(inner, body, here, where + ".")
        elif "properties" in inner.get("items", {}):
            yield from objects_in(inner["items"], body, (*here, 0), where + "[0].")


class OpenApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.admin, = free_ports(1)
        cls.server = WeftServer(f"--admin-port={cls.admin}").start()
        cls.document = json.loads(cls.server.request("GET", "/openapi.json")[2])
        cls.schemas = cls.document["components"]["schemas"]
        cls.connection = cls.server.connection(timeout_s=60)

    @classmethod
    def tearDownClass(cls):
        cls.connection.close()
        cls.server.stop()

    def send(self, name, steps, changes):
        """The answer to the good body `name` with `changes` to the object at `steps`."""
        path, good = BODIES[name]
        body = copy.deepcopy(good)
        value_at(body, steps).update(changes)
        self.connection.request("POST", path, json.dumps(body))
        response = self.connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()

    def objects(self):
        for name, (_, body) in BODIES.items():
            for schema, steps, path in objects_in(self.schemas[name], body):
                yield name, schema, steps, path

    def test_the_document_is_openapi_3_1(self):
        openapi_spec_validator.validate(self.document)
        self.assertEqual(self.document["openapi"], "3.1.0")
        for name in self.schemas:
            jsonschema.Draft202012Validator.check_schema(self.schemas[name])

    def test_every_body_is_looked_at_below(self):
        used = {reference.rsplit("/", 1)[1] for reference in re.findall(
            r'"\$ref": "([^"]*)"', json.dumps(
                [operation.get("requestBody") for path in self.document["paths"].values()
                 for operation in path.values()]))}
        self.assertEqual(used, set(BODIES))

    def test_every_route_is_in_it_and_no_other(self):
        paths = self.document["paths"]
        served = {re.search(r'route="([^"]*)"', series).group(1)
                  for series in self.server.metrics()
                  if series.startswith("weft_http_requests_total{")} - {"other"}
        self.assertEqual({re.sub(r"\{.*?\}", "*", path) for path in paths}, served)
        for port, number in (("public", None), ("admin", self.admin)):
            for path in paths:
                asked = re.sub(r"\{.*?\}", "x", path)
                allowed = {method for other, operations in paths.items()
                           for method, operation in operations.items()
                           if pattern_of(other).match(asked)
                           and port in operation["x-weft-ports"]}
                connection = self.server.connection() if number is None else \
                    http.client.HTTPConnection("127.0.0.1", number, timeout=60)
                connection.request("PUT", asked)
                response = connection.getresponse()
                response.read()
                said = {word for word in (response.getheader("allow") or "").lower().split(", ")
                        if word not in ("", "head")}
                self.assertEqual(said, allowed, (port, path))
                self.assertEqual(response.status, 405 if allowed else 404, (port, path))
                connection.close()

    def refusal(self, name, steps, path, field, value):
        """The message with which the value is refused, by the field's name."""
        status, _, answer = self.send(name, steps, {field: value})
        what = (name, path + field, value, status, answer)
        self.assertIn(status, (400, 422), what)
        error = json.loads(answer)["error"]
        message = error if isinstance(error, str) else error["message"]
        named = re.match("`([^`]*)`: ", message)
        self.assertIsNotNone(named, what)
        self.assertRegex(named.group(1), "^" + re.escape(path + field) + r"($|[.\[])", what)
        return message

    def test_what_a_schema_refuses_is_refused_by_name(self):
        tried = 0
        for name, schema, steps, path in self.objects():
            for field, inner in schema["properties"].items():
                check = jsonschema.Draft202012Validator(inner)
                for value in VALUES:
                    if check.is_valid(value):
                        continue
                    tried += 1
                    self.refusal(name, steps, path, field, value)
        self.assertGreater(tried, 2000)

    def test_ranges_are_those_that_refusals_say(self):
        tried = 0
        for name, schema, steps, path in self.objects():
            for field, inner in schema["properties"].items():
                if "maximum" not in inner:
                    continue
                tried += 1
                message = self.refusal(name, steps, path, field, "x")
                said = re.search(r" (between|greater than) (\S+) and (?:at most )?(\S+), not",
                                 message)
                self.assertIsNotNone(said, message)
                low = "minimum" if said.group(1) == "between" else "exclusiveMinimum"
                self.assertEqual((float(said.group(2)), float(said.group(3))),
                                 (inner.get(low), inner["maximum"]), (path + field, message))
        self.assertGreater(tried, 60)

    def test_a_default_is_accepted(self):
        tried = 0
        for name, schema, steps, path in self.objects():
            given = value_at(BODIES[name][1], steps)
            for field, inner in schema["properties"].items():
                if "default" not in inner or field in given:
                    continue
                tried += 1
                status, headers, answer = self.send(name, steps, {field: inner["default"]})
                self.assertEqual(status, 200, (name, path + field, inner, answer))
                self.assertNotIn("x-weft-ignored-fields", headers)
        self.assertGreater(tried, 40)

    def known(self, name, steps, path, names):
        """Those of `names` that the reader of an object knows."""
        status, headers, answer = self.send(name, steps, dict.fromkeys(names))
        self.assertEqual(status, 200, (name, path, names, answer))
        ignored = headers.get("x-weft-ignored-fields", "").split(", ")
        return {field for field in names if path + field not in ignored}

    def test_the_names_that_readers_know_are_those_described(self):
        words = words_of_sources()
        self.assertGreater(len(words), 200)
        for name, schema, steps, path in self.objects():
            described = set(schema["properties"])
            given = value_at(BODIES[name][1], steps)
            free = sorted((described | set(words)) - set(given))
            if self.known(name, steps, path, ["no_such_field"]):
                continue  # a JSON schema and the like, of which nobody reports unknown names
            found = set(given)
            for begin in range(0, len(free), NAMES_OF_HEADER):
                found |= self.known(name, steps, path, free[begin:begin + NAMES_OF_HEADER])
            self.assertEqual(found, described, (name, path))


if __name__ == "__main__":
    unittest.main()
