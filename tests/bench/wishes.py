#!/usr/bin/env python3
"""What wishes beside the text cost: rows held to a schema, log-probabilities, penalties, several
choices, each against the same rows without, by turns on one server; and how soon an error is there.

  tests/bench/wishes.py [case ...]       all cases, or those named
  WEFT_BIN_DIR   binaries (default build/release/bin); WEFT_DEMO_MODEL, WEFT_DEVICE and WEFT_WEIGHTS
                 choose the model as flags of weft serve do
  ROWS, TOKENS, ROUNDS, SERVE_FLAGS      default 32 rows (64 where the case says so) of 256 tokens
Prints a line a figure, and a Markdown table at the end.
"""

import concurrent.futures
import json
import os
import statistics
import sys
import time

import measure
from measure import row
from weft_server import WeftServer

ROWS = int(os.environ.get("ROWS", 32))
TOKENS = int(os.environ.get("TOKENS", 256))
ROUNDS = int(os.environ.get("ROUNDS", 5))
ERRORS = 1000
PEOPLE = {
    "type": "array", "minItems": 2000, "items": {
        "type": "object", "additionalProperties": False, "required": ["name", "age", "likes"],
        "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer"},
                       "likes": {"type": "array", "maxItems": 4, "items": {
                           "enum": ["rivers", "trees", "books", "music", "long walks"]}}}}}
SCHEMA = {"response_format": {"type": "json_schema",
                              "json_schema": {"name": "people", "schema": PEOPLE}}}
REGEX = {"structured_outputs": {"regex": "([a-z]{1,9} ){4000}"}}


def post(server, body):
    answer = server.post("/v1/completions", body, timeout_s=600)
    return answer["usage"]["completion_tokens"]


def run(server, wish, rows, tokens=TOKENS):
    """Tokens a second of `rows` whole answers at once; and how many tokens came."""
    with concurrent.futures.ThreadPoolExecutor(rows) as pool:
        start = time.monotonic()
        counts = list(pool.map(lambda i: post(server, {
            "prompt": f"{i}: a list of people, as JSON:\n", "max_tokens": tokens, "seed": i,
            "temperature": 1, "ignore_eos": True, **wish}), range(rows)))
        return sum(counts) / (time.monotonic() - start), sum(counts)


def pairs(what, wish, rows=ROWS, flags=()):
    """The wish against nothing, by turns."""
    with WeftServer(*flags, *os.environ.get("SERVE_FLAGS", "").split()) as server:
        run(server, {}, rows, 16)
        run(server, wish, rows, 16)
        plain, wished = [], []
        for turn in range(ROUNDS):
            for name in ("plain", "wish") if turn % 2 == 0 else ("wish", "plain"):
                rate, tokens = run(server, wish if name == "wish" else {}, rows)
                (wished if name == "wish" else plain).append(rate)
                if tokens != rows * TOKENS:
                    raise AssertionError(f"{name}: {tokens} tokens instead of {rows * TOKENS}")
        ratios = sorted(b / a for a, b in zip(plain, wished))
        row(f"{rows} rows, {what}", f"{statistics.median(ratios):.3f}", "x plain",
            f"{statistics.median(wished):.0f} against {statistics.median(plain):.0f} tokens/s; "
            f"ratios {ratios[0]:.3f} to {ratios[-1]:.3f}")


def case_schema():
    pairs("JSON schema", SCHEMA)


def case_regex():
    pairs("regular expression", REGEX)


def case_logprobs():
    pairs("log-probabilities and 5 most likely", {"logprobs": 5}, rows=max(64, ROWS))


def case_penalties():
    pairs("three penalties", {"repetition_penalty": 1.1, "presence_penalty": 0.5,
                              "frequency_penalty": 0.5}, rows=max(64, ROWS))


def case_choices():
    """Prompt work of four choices: tokens of the prompt that were computed, by /metrics."""
    with WeftServer(*os.environ.get("SERVE_FLAGS", "").split()) as server:
        for n in (1, 4):
            ids = [100 + (7 * n + i) % 200 for i in range(1000)]
            before = server.metrics()
            start = time.monotonic()
            server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "n": n, "seed": 1})
            took_ms = 1e3 * (time.monotonic() - start)
            after = server.metrics()
            step = "weft_iteration_tokens_total_sum"
            row(f"n = {n}, prompt of 1,000 tokens", f"{after[step] - before[step]:.0f}",
                "tokens computed", f"{took_ms:.1f} ms")


def case_errors():
    with WeftServer(*os.environ.get("SERVE_FLAGS", "").split()) as server:
        connection = server.connection()
        times_ms = []
        body = json.dumps({"prompt": "Hello", "top_p": 7})
        for _ in range(ERRORS):
            start = time.monotonic()
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            times_ms.append(1e3 * (time.monotonic() - start))
            if response.status != 400:
                raise AssertionError(response.status)
        times_ms.sort()
        row("answer to a bad request, whole", f"{statistics.median(times_ms):.2f}", "ms",
            f"p99 {times_ms[int(0.99 * ERRORS)]:.2f} ms")


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    for name in sys.argv[1:] or cases:
        if name not in cases:
            sys.exit(f"unknown case {name}; known: {', '.join(cases)}")
        cases[name]()
    print("\n| what | measured | note |\n|---|---|---|")
    for what, value, unit, note in measure.ROWS:
        print(f"| {what} | {value} {unit} | {note} |")


if __name__ == "__main__":
    main()
