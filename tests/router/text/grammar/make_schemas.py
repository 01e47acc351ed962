#!/usr/bin/env python3
"""Writes schemas.json: 200 JSON schemas of the kinds that structured output is asked for, each with
instances that fit it. Everything is drawn from one seed; run it anew after a change. Needs jsonschema,
which checks that the instances fit. Usage: make_schemas.py FILE"""

import json
import random
import sys

import jsonschema

SEED = 15
NOUNS = ("name city street country order item price status user account invoice ship color weight height "
         "region team member project ticket label branch commit review sensor reading unit batch device "
         "route driver hotel room guest flight seat meal recipe author title chapter page genre score").split()
WORDS = "alpha bravo delta golf hotel kilo lima nova oscar papa quebec romeo sierra tango victor zulu".split()
TEXTS = ["A short text.", "Two lines\nof text", "quote \" and backslash \\ and slash /", "caf\u00e9 \u4f60\u597d \U0001F600",
         "", "tab\there", "x" * 30, "The quick brown fox jumps over the lazy dog, twice."]


class Maker:
    """Draws pairs of a schema and a function that draws an instance of it."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def names(self, count):
        chosen = self.rng.sample(NOUNS, min(count, len(NOUNS)))
        while len(chosen) < count:
            name = f"{self.rng.choice(NOUNS)}_{self.rng.choice(WORDS)}_{len(chosen)}"
            chosen.append(name)
        return chosen

    def text(self):
        return {"type": "string"}, lambda: self.rng.choice(TEXTS)

    def sized_text(self):
        low, high = self.rng.choice([(1, 20), (3, 10), (0, 5), (10, 40), (1, 255)])
        return ({"type": "string", "minLength": low, "maxLength": high},
                lambda: "".join(self.rng.choice("abc xyz\u00e9\u4f60") for _ in range(self.rng.randint(low, min(high, 50)))))

    def choice(self):
        options = self.rng.sample(WORDS, self.rng.randint(2, 8))
        return {"enum": options}, lambda: self.rng.choice(options)

    def typed_choice(self):
        options = self.rng.sample(WORDS, self.rng.randint(2, 12))
        return {"type": "string", "enum": options}, lambda: self.rng.choice(options)

    def mixed_choice(self):
        options = self.rng.sample([1, 2, 3, None, True, False, "auto", "none", 2.5, [1, 2], {"a": 1}], 5)
        return {"enum": options}, lambda: self.rng.choice(options)

    def constant(self):
        value = self.rng.choice([1, "v1", True, None, "application/json", -7, 0.5, ["a"], {"k": "v"}])
        return {"const": value}, lambda: value

    def integer(self):
        return {"type": "integer"}, lambda: self.rng.choice([0, -1, 7, 123456, 10**12])

    def ranged(self):
        low = self.rng.choice([-1000, -5, 0, 1, 17, 1900])
        high = low + self.rng.choice([1, 9, 99, 86400, 10**6])
        schema = {"type": "integer", "minimum": low, "maximum": high}
        if self.rng.random() < 0.3:
            schema = {"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
        return schema, lambda: self.rng.randint(low, high)

    def number(self):
        return {"type": "number"}, lambda: self.rng.choice([0, 1.5, -2.25, 1e10, 3.14159, 1e-7])

    def ranged_number(self):
        low, high = self.rng.choice([(0, 1), (-90, 90), (0.5, 99.5), (-180, 180), (0, 1000000)])
        return ({"type": "number", "minimum": low, "maximum": high},
                lambda: round(self.rng.uniform(low, high), 3))

    def multiple(self):
        step = self.rng.choice([5, 10, 0.5, 25])
        top = 400
        return ({"type": "number", "multipleOf": step} if step < 1 else {"type": "integer", "multipleOf": step},
                lambda: self.rng.randint(0, top) * step if step >= 1 else round(self.rng.randint(0, top) * step, 2))

    def truth(self):
        return {"type": "boolean"}, lambda: self.rng.random() < 0.5

    def nullable(self):
        schema, draw = self.rng.choice([self.text, self.integer, self.ranged_number, self.truth])()
        return dict(schema, type=[schema["type"], "null"]), lambda: None if self.rng.random() < 0.4 else draw()

    def formatted(self, name=None):
        rng = self.rng
        hexa = "0123456789abcdef"
        date = lambda: f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        time = lambda: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
        run = lambda n: "".join(rng.choice(hexa) for _ in range(n))
        table = {
            "date": lambda: rng.choice([date(), "2024-02-29"]),
            "time": lambda: time() + rng.choice(["Z", "+02:00", ".125Z"]),
            "date-time": lambda: date() + "T" + time() + rng.choice(["Z", "-05:30", ".5Z"]),
            "uuid": lambda: "-".join([run(8), run(4), run(4), run(4), run(12)]),
            "email": lambda: f"{rng.choice(WORDS)}.{rng.choice(WORDS)}@{rng.choice(WORDS)}.example.org",
            "ipv4": lambda: ".".join(str(rng.randint(0, 255)) for _ in range(4)),
            "ipv6": lambda: rng.choice(["::1", "fe80::1", "2001:db8:0:0:0:0:0:1", "2001:db8::ff00:42:8329"]),
            "hostname": lambda: f"{rng.choice(WORDS)}.example.com",
            "uri": lambda: rng.choice(["https://example.com/a/b?c=d#e", "mailto:a@example.com", "urn:isbn:0451450523"]),
            "uri-reference": lambda: rng.choice(["/a/b", "https://example.com", "../x?y=z", "#part"]),
            "duration": lambda: rng.choice(["P1D", "PT2H30M", "P1Y2M3D", "P4W"]),
            "json-pointer": lambda: rng.choice(["", "/a/b", "/a~1b/0"]),
        }
        name = name or rng.choice(list(table))
        return {"type": "string", "format": name}, table[name]

    def patterned(self):
        rng = self.rng
        digits = lambda n: "".join(rng.choice("0123456789") for _ in range(n))
        upper = lambda n: "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(n))
        pattern, draw = rng.choice([
            (r"^[A-Z]{3}-\d{4}$", lambda: f"{upper(3)}-{digits(4)}"),
            (r"^\d{3}-\d{2}-\d{4}$", lambda: f"{digits(3)}-{digits(2)}-{digits(4)}"),
            (r"^[a-z][a-z0-9_]*$", lambda: rng.choice(WORDS) + "_" + digits(2)),
            (r"^#[0-9a-fA-F]{6}$", lambda: "#" + "".join(rng.choice("0123456789abcdef") for _ in range(6))),
            (r"^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$", lambda: rng.choice(["", f"({digits(3)})"]) + f"{digits(3)}-{digits(4)}"),
            (r"^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$", lambda: f"v{rng.randint(0, 9)}.{rng.randint(0, 9)}.{rng.randint(0, 9)}" + rng.choice(["", "-rc.1"])),
            (r"^(\d{4})-W(0[1-9]|[1-4][0-9]|5[0-3])$", lambda: f"2024-W{rng.randint(10, 49)}"),
            (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", lambda: f"{rng.choice(WORDS)}@{rng.choice(WORDS)}.org"),
            (r"^(?:[A-Za-z0-9+/]{4})*$", lambda: "QUJD" * rng.randint(0, 4)),
            (r"foo|bar", lambda: rng.choice(["foo", "a bar b", "xfoox"])),
            (r"^\S+$", lambda: rng.choice(WORDS)),
            (r"^arn:aws:[a-z0-9-]+:[a-z0-9-]*:\d{12}:.+$", lambda: f"arn:aws:iam:eu-west-1:{digits(12)}:role/x"),
        ])
        return {"type": "string", "pattern": pattern}, draw

    def leaf(self):
        return self.rng.choice([self.text, self.text, self.sized_text, self.choice, self.typed_choice, self.integer,
                                self.ranged, self.number, self.truth, self.nullable, self.formatted,
                                self.patterned, self.constant])()

    def record(self, count, required=0.6, part=None, closed=None, titles=False):
        part = part or self.leaf
        fields = [(name, *part()) for name in self.names(count)]
        needed = [name for name, _, _ in fields if self.rng.random() < required]
        schema = {"type": "object", "properties": {name: inner for name, inner, _ in fields}}
        if titles:
            for name, inner in schema["properties"].items():
                inner["description"] = f"The {name.replace('_', ' ')}."
        if needed:
            schema["required"] = needed
        if closed if closed is not None else self.rng.random() < 0.5:
            schema["additionalProperties"] = False

        def draw():
            return {name: value() for name, _, value in fields if name in needed or self.rng.random() < 0.5}

        return schema, draw

    def listed(self, part, low=None, high=None):
        schema, draw = part()
        low = self.rng.choice([0, 0, 1, 2]) if low is None else low
        high = low + self.rng.choice([0, 1, 3, 20]) if high is None else high
        out = {"type": "array", "items": schema}
        if low:
            out["minItems"] = low
        if self.rng.random() < 0.7:
            out["maxItems"] = high
        return out, lambda: [draw() for _ in range(self.rng.randint(low, min(high, low + 4)))]

    def nested(self, depth):
        if depth == 0:
            return self.leaf()
        kind = self.rng.random()
        if kind < 0.25:
            return self.listed(lambda: self.nested(depth - 1))
        if kind < 0.75:
            return self.record(self.rng.randint(2, 5), part=lambda: self.nested(depth - 1))
        return self.leaf()


def flat(m):
    return m.record(m.rng.randint(3, 18), titles=True)


def strict(m):
    return m.record(m.rng.randint(3, 12), required=1, closed=True)


def nested(m):
    return m.record(m.rng.randint(2, 5), part=lambda: m.nested(3))


def arrays(m):
    kind = m.rng.randrange(3)
    if kind == 0:
        return m.listed(lambda: m.record(m.rng.randint(2, 6)))
    if kind == 1:
        parts = [m.leaf() for _ in range(3)]
        schema = {"type": "array", "prefixItems": [s for s, _ in parts], "items": False, "minItems": 3}
        return schema, lambda: [draw() for _, draw in parts]
    return m.record(3, part=lambda: m.listed(m.leaf))


def enums(m):
    return m.record(m.rng.randint(2, 5), part=m.rng.choice([m.typed_choice, m.choice, m.mixed_choice]))


def variants(m, word="oneOf"):
    options = []
    for tag in m.rng.sample(WORDS, m.rng.randint(2, 5)):
        schema, draw = m.record(m.rng.randint(1, 4), closed=False)
        schema["properties"] = {"kind": {"const": tag}, **schema["properties"]}
        schema["required"] = ["kind"] + schema.get("required", [])
        options.append((schema, lambda tag=tag, draw=draw: {"kind": tag, **draw()}))
    schema = {word: [s for s, _ in options]}
    if m.rng.random() < 0.5:
        return {"type": "object", "properties": {"event": schema, "id": {"type": "integer"}}, "required": ["event"]}, \
            lambda: {"event": m.rng.choice(options)[1](), "id": 3}
    return schema, lambda: m.rng.choice(options)[1]()


def one_of_types(m):
    parts = [m.text(), m.integer(), ({"type": "null"}, lambda: None), m.listed(m.text, 0, 3)]
    chosen = m.rng.sample(parts, 3)
    schema = {"type": "object", "properties": {"value": {"oneOf": [s for s, _ in chosen]}}, "required": ["value"]}
    return schema, lambda: {"value": m.rng.choice(chosen)[1]()}


def one_of_keys(m):
    schema, draw = m.record(3, required=0, closed=True)
    keys = list(schema["properties"])[:2]
    schema["oneOf"] = [{"required": [key]} for key in keys]

    def one():
        value = draw()
        value.pop(keys[0], None)
        value.pop(keys[1], None)
        key = m.rng.choice(keys)
        inner = schema["properties"][key]
        for _ in range(200):
            candidate = draw()
            if key in candidate:
                value[key] = candidate[key]
                break
        else:
            raise AssertionError(inner)
        return {name: value[name] for name in schema["properties"] if name in value}

    return schema, one


def any_of(m):
    kind = m.rng.randrange(3)
    if kind == 0:
        return variants(m, "anyOf")
    parts = [m.leaf() for _ in range(m.rng.randint(2, 4))]
    if kind == 1:
        return m.record(3, part=lambda: ({"anyOf": [s for s, _ in parts]}, lambda: m.rng.choice(parts)[1]()))
    records = [m.record(m.rng.randint(1, 3), required=1) for _ in range(2)]
    return {"anyOf": [s for s, _ in records]}, lambda: m.rng.choice(records)[1]()


def all_of(m):
    first, draw_first = m.record(3, closed=False)
    second = {"type": "object", "properties": {"created_at": {"type": "string", "format": "date-time"},
                                               "version": {"type": "integer", "minimum": 1}},
              "required": ["version"]}
    return {"allOf": [first, second]}, lambda: {**draw_first(), "created_at": "2024-05-06T07:08:09Z", "version": 2}


def tree(m):
    leaf, draw_leaf = m.leaf()
    schema = {"$ref": "#/$defs/node",
              "$defs": {"node": {"type": "object",
                                 "properties": {"value": leaf,
                                                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                                 "required": ["value"], "additionalProperties": False}}}

    def draw(depth=3):
        out = {"value": draw_leaf()}
        if depth and m.rng.random() < 0.8:
            out["children"] = [draw(depth - 1) for _ in range(m.rng.randint(0, 2))]
        return out

    return schema, draw


def linked(m):
    inner, draw_inner = m.record(m.rng.randint(2, 4))
    word = m.rng.choice(["definitions", "$defs"])
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
              "properties": {"head": {"$ref": f"#/{word}/part"},
                             "rest": {"type": "array", "items": {"$ref": f"#/{word}/part"}},
                             "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
              "required": ["head"], word: {"part": inner}}

    def draw(depth=2):
        out = {"head": draw_inner(), "rest": [draw_inner() for _ in range(m.rng.randint(0, 2))]}
        out["next"] = draw(depth - 1) if depth and m.rng.random() < 0.5 else None
        return out

    return schema, draw


def expression(m):
    schema = {"$ref": "#/$defs/expr", "$defs": {
        "expr": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/op"}]},
        "leaf": {"type": "number"},
        "op": {"type": "object", "properties": {"op": {"enum": ["+", "-", "*", "/"]},
                                               "left": {"$ref": "#/$defs/expr"}, "right": {"$ref": "#/$defs/expr"}},
               "required": ["op", "left", "right"], "additionalProperties": False}}}

    def draw(depth=3):
        if depth == 0 or m.rng.random() < 0.4:
            return m.rng.randint(-9, 9)
        return {"op": m.rng.choice("+-*/"), "left": draw(depth - 1), "right": draw(depth - 1)}

    return schema, draw


def formats(m):
    return m.record(m.rng.randint(2, 5), required=1, part=m.formatted)


def patterns(m):
    return m.record(m.rng.randint(1, 4), required=1, part=m.patterned)


def numbers(m):
    return m.record(m.rng.randint(2, 5), required=1,
                    part=lambda: m.rng.choice([m.ranged, m.ranged_number, m.multiple, m.number])())


def lengths(m):
    return m.record(m.rng.randint(1, 4), part=m.sized_text)


def optional(m):
    return m.record(m.rng.choice([5, 10, 20, 40, 60]), required=m.rng.choice([0, 0.2, 0.5]))


def dictionary(m):
    part, draw = m.rng.choice([m.leaf, lambda: m.record(3)])()
    schema = {"type": "object", "additionalProperties": part}
    if m.rng.random() < 0.5:
        schema["properties"] = {"id": {"type": "string"}}
        schema["required"] = ["id"]
        return schema, lambda: {"id": "x", **{name: draw() for name in m.names(2)}}
    return schema, lambda: {name: draw() for name in m.names(3)}


def pattern_properties(m):
    part, draw = m.leaf()
    other, draw_other = m.integer()
    schema = {"type": "object", "patternProperties": {"^x-[a-z]+$": part, "^[0-9]{2,4}$": other},
              "additionalProperties": False}
    if m.rng.random() < 0.5:
        schema["properties"] = {"kind": {"type": "string"}}
        return schema, lambda: {"kind": "k", "x-" + m.rng.choice(WORDS): draw(), "2024": draw_other()}
    return schema, lambda: {"x-" + m.rng.choice(WORDS): draw(), "17": draw_other()}


def kubernetes(m):
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    meta = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
                                             "namespace": {"type": "string"}, "labels": labels, "annotations": labels},
            "required": ["name"]}
    quantity = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(m|Ki|Mi|Gi)?$"}]}
    port = {"type": "object", "properties": {"name": {"type": "string"}, "containerPort": {"type": "integer", "minimum": 1, "maximum": 65535},
                                             "protocol": {"enum": ["TCP", "UDP", "SCTP"]}}, "required": ["containerPort"]}
    container = {"type": "object", "properties": {
        "name": {"type": "string"}, "image": {"type": "string"}, "command": {"type": "array", "items": {"type": "string"}},
        "env": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}, "required": ["name"]}},
        "ports": {"type": "array", "items": port},
        "resources": {"type": "object", "properties": {"limits": {"type": "object", "additionalProperties": quantity},
                                                       "requests": {"type": "object", "additionalProperties": quantity}}}},
        "required": ["name", "image"]}
    kind = m.rng.choice(["Deployment", "StatefulSet", "DaemonSet"])
    extra, draw_extra = m.record(m.rng.randint(1, 5), required=0, closed=False)
    schema = {"type": "object", "properties": {
        "apiVersion": {"const": "apps/v1"}, "kind": {"const": kind}, "metadata": {"$ref": "#/definitions/meta"},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "minimum": 0, "maximum": 1000},
            "selector": {"type": "object", "properties": {"matchLabels": labels}, "required": ["matchLabels"]},
            "template": {"type": "object", "properties": {
                "metadata": {"$ref": "#/definitions/meta"},
                "spec": {"type": "object", "properties": {"containers": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/container"}},
                                                          "restartPolicy": {"enum": ["Always", "OnFailure", "Never"]}},
                         "required": ["containers"]}}, "required": ["spec"]}},
            "required": ["selector", "template"]}, "status": extra},
        "required": ["apiVersion", "kind", "metadata", "spec"], "definitions": {"meta": meta, "container": container}}

    def draw():
        name = m.rng.choice(WORDS)
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": {"app": name}},
                "spec": {"replicas": m.rng.randint(0, 9), "selector": {"matchLabels": {"app": name}},
                         "template": {"metadata": {"name": name},
                                      "spec": {"containers": [{"name": name, "image": "nginx:1.25", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                                                               "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}}},
                "status": draw_extra()}

    return schema, draw


def openapi(m):
    kind = {"type": "object", "properties": {"type": {"enum": ["string", "integer", "number", "boolean", "array", "object"]},
                                             "format": {"type": "string"}, "items": {"$ref": "#/components/schemas/Schema"},
                                             "properties": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Schema"}}},
            "required": ["type"], "additionalProperties": False}
    parameter = {"type": "object", "properties": {"name": {"type": "string"}, "in": {"enum": ["query", "path", "header", "cookie"]},
                                                  "required": {"type": "boolean"}, "schema": {"$ref": "#/components/schemas/Schema"}},
                 "required": ["name", "in"], "additionalProperties": False}
    extra, draw_extra = m.leaf()
    schema = {"type": "object", "properties": {
        "operationId": {"type": "string", "pattern": "^[a-zA-Z][a-zA-Z0-9_]*$"}, "summary": {"type": "string", "maxLength": 120, "example": "List"},
        "deprecated": {"type": "boolean", "default": False}, "x-note": extra,
        "parameters": {"type": "array", "items": {"$ref": "#/components/schemas/Parameter"}},
        "responses": {"type": "object", "patternProperties": {"^[1-5][0-9]{2}$": {"type": "object", "properties": {"description": {"type": "string"}}, "required": ["description"]}},
                      "additionalProperties": False}},
        "required": ["operationId", "responses"], "components": {"schemas": {"Schema": kind, "Parameter": parameter}}}
    return schema, lambda: {"operationId": "listThings", "summary": "List", "x-note": draw_extra(),
                            "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer"}},
                                           {"name": "ids", "in": "query", "required": True, "schema": {"type": "array", "items": {"type": "string"}}}],
                            "responses": {"200": {"description": "ok"}, "404": {"description": "none"}}}


def github(m):
    user = {"type": "object", "properties": {"login": {"type": "string"}, "id": {"type": "integer"}, "type": {"enum": ["User", "Bot", "Organization"]},
                                             "site_admin": {"type": "boolean"}, "html_url": {"type": "string", "format": "uri"}},
            "required": ["login", "id"]}
    label = {"type": "object", "properties": {"name": {"type": "string"}, "color": {"type": "string", "pattern": "^[0-9a-f]{6}$"}}, "required": ["name"]}
    extra, draw_extra = m.leaf()
    schema = {"type": "object", "properties": {
        "action": {"enum": ["opened", "edited", "closed", "reopened", "labeled"]}, "number": {"type": "integer", "minimum": 1},
        "issue": {"type": "object", "properties": {"title": {"type": "string"}, "body": {"type": ["string", "null"]}, "state": {"enum": ["open", "closed"]},
                                                   "user": {"$ref": "#/$defs/user"}, "assignees": {"type": "array", "items": {"$ref": "#/$defs/user"}},
                                                   "labels": {"type": "array", "items": {"$ref": "#/$defs/label"}},
                                                   "created_at": {"type": "string", "format": "date-time"},
                                                   "closed_at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}},
                  "required": ["title", "state", "user"]},
        "extra": extra, "sender": {"$ref": "#/$defs/user"}}, "required": ["action", "issue", "sender"], "$defs": {"user": user, "label": label}}
    who = {"login": "octo", "id": 7, "type": "User", "html_url": "https://example.com/octo"}
    return schema, lambda: {"action": "opened", "number": m.rng.randint(1, 9999),
                            "issue": {"title": m.rng.choice(TEXTS), "body": None, "state": "open", "user": who, "assignees": [who],
                                      "labels": [{"name": "bug", "color": "d73a4a"}], "created_at": "2024-01-02T03:04:05Z", "closed_at": None},
                            "extra": draw_extra(), "sender": who}


def dependent(m):
    schema = {"type": "object", "properties": {"card": {"type": "string"}, "cvc": {"type": "integer"}, "note": {"type": "string"}},
              "dependentRequired": {"card": ["cvc"]}}
    return schema, lambda: m.rng.choice([{"card": "4111", "cvc": 123}, {"note": "cash"}, {}, {"cvc": 1}])


def conditional(m):
    schema = {"type": "object", "properties": {"country": {"enum": ["US", "CA"]}, "code": {"type": "string"}},
              "if": {"properties": {"country": {"const": "US"}}}, "then": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}}}
    return schema, lambda: {"country": "US", "code": "12345"}


def unique(m):
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    return schema, lambda: [1, 2, 3]


KINDS = [(flat, 20), (strict, 8), (nested, 20), (arrays, 15), (enums, 10), (variants, 10), (one_of_types, 3),
         (one_of_keys, 2), (any_of, 12), (all_of, 8), (tree, 4), (linked, 4), (expression, 2), (formats, 14),
         (patterns, 14), (numbers, 10), (lengths, 8), (optional, 10), (dictionary, 6), (pattern_properties, 6),
         (kubernetes, 4), (openapi, 3), (github, 3), (dependent, 2), (conditional, 1), (unique, 1)]


def main():
    out = []
    for make, count in KINDS:
        for i in range(count):
            maker = Maker(f"{SEED} {make.__name__} {i}")
            schema, draw = make(maker)
            instances = [draw() for _ in range(5)]
            for instance in instances:
                jsonschema.Draft202012Validator(schema).validate(instance)
            # As models write them: compact, as Python does, indented.
            styles = [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 4}, {}]
            texts = [json.dumps(instance, ensure_ascii=False, **style) for instance, style in zip(instances, styles)]
            out.append({"name": f"{make.__name__} {i}", "schema": schema, "instances": texts})
    assert len(out) == 200, len(out)
    with open(sys.argv[1], "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry) for entry in out) + "\n]\n")


if __name__ == "__main__":
    main()
