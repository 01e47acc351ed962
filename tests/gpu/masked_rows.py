"""Rows that are held to something, beside rows that are not: each answer has what its request asked
for, whatever the model. For serve_test.py, with any server."""

import json
import re

from greedy_streams import together
from report import require

ROUNDS = 3
TOKENS = 120
PLACE = {"type": "object", "additionalProperties": False, "required": ["city", "year", "open"],
         "properties": {"city": {"enum": ["Oslo", "Rome", "Paris"]},
                        "year": {"type": "integer", "minimum": 1000, "maximum": 9999},
                        "open": {"type": "boolean"}}}
ALLOWED = [265, 266, 267, 268, 269, 270]


def place(answer, body):
    value = json.loads(answer["choices"][0]["text"])
    require(set(value) == set(PLACE["required"]), value)
    require(value["city"] in PLACE["properties"]["city"]["enum"], value)
    require(1000 <= value["year"] <= 9999 and isinstance(value["open"], bool), value)


def digits(answer, body):
    require(re.fullmatch("[0-9]{3}-[a-f]{2,5}", answer["choices"][0]["text"]), answer)


def choice(answer, body):
    require(answer["choices"][0]["text"] in body["structured_outputs"]["choice"], answer)


def allowed(answer, body):
    ids = answer["choices"][0]["token_ids"]
    require(len(ids) == TOKENS and set(ids) <= set(ALLOWED), ids)


def least(answer, body):
    require(answer["usage"]["completion_tokens"] >= body["min_tokens"], answer)


def anything(answer, body):
    require(answer["usage"]["completion_tokens"] == TOKENS, answer)


# (what the request has beside a prompt, what its answer must be)
KINDS = (
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "place",
                                                                 "schema": PLACE}}}, place),
    ({"ignore_eos": True}, anything),
    ({"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2,5}"}}, digits),
    ({"allowed_token_ids": ALLOWED, "ignore_eos": True, "return_token_ids": True}, allowed),
    ({"structured_outputs": {"choice": ["yes", "no", "perhaps tomorrow"]}}, choice),
    ({"min_tokens": 100}, least),
    ({"ignore_eos": True, "logprobs": 5, "presence_penalty": 0.5}, anything),
)


def masked_rows(server):
    """All kinds at once, greedy and drawn."""
    asks = [({"prompt": f"Number {i}: ", "max_tokens": TOKENS, "seed": i,
              "temperature": 0 if i % 2 else 1, **KINDS[i % len(KINDS)][0]},
             KINDS[i % len(KINDS)][1]) for i in range(ROUNDS * len(KINDS))]

    def ask(one):
        body, check = one
        answer = server.post("/v1/completions", body)
        check(answer, body)
        return answer["usage"]["completion_tokens"]

    tokens = sum(together(ask, asks))
    return f"{len(asks)} answers of {len(KINDS)} kinds, {tokens} tokens"
