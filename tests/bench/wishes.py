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
REGEX = {"structured_outputs": {"regex": "([a-z]{1,9} )+"}}
COUNTED_REGEX = {"structured_outputs": {"regex": "([a-z]{1,9} ){4000}"}}


def post(server, body):
    status, _, data = server.request("POST", "/v1/completions", body, timeout_s=600)
    if status != 200:
        raise AssertionError(f"HTTP {status}: {data.decode(errors='replace')}")
    return data


def run(server, wish, rows, tokens=TOKENS):
    """(tokens a second of `rows` whole answers at once, how many tokens came, device time of a
    decode step in ms). What came is parsed afterwards: the reader's time is not the server's."""
    def steps():
        return [server.metric(f"weft_batch_forward_duration_seconds_{part}", phase="decode")
                for part in ("sum", "count")]

    before = steps()
    with concurrent.futures.ThreadPoolExecutor(rows) as pool:
        start = time.monotonic()
        answers = list(pool.map(lambda i: post(server, {
            "prompt": f"{i}: a list of people, as JSON:\n", "max_tokens": tokens, "seed": i,
            "temperature": 1, "ignore_eos": True, **wish}), range(rows)))
        took_s = time.monotonic() - start
    seconds, count = (b - a for a, b in zip(before, steps()))
    came = sum(json.loads(answer)["usage"]["completion_tokens"] for answer in answers)
    return came / took_s, came, 1e3 * seconds / count


def pairs(what, wish, rows=ROWS, flags=()):
    """The wish against nothing, by turns."""
    with WeftServer(*flags, *os.environ.get("SERVE_FLAGS", "").split()) as server:
        run(server, {}, rows, 16)
        run(server, wish, rows, 16)
        rates, steps_ms = {"plain": [], "wish": []}, {"plain": [], "wish": []}
        for turn in range(ROUNDS):
            for name in ("plain", "wish") if turn % 2 == 0 else ("wish", "plain"):
                rate, tokens, step_ms = run(server, wish if name == "wish" else {}, rows)
                rates[name].append(rate)
                steps_ms[name].append(step_ms)
                if tokens != rows * TOKENS:
                    raise AssertionError(f"{name}: {tokens} tokens instead of {rows * TOKENS}")
        ratios = sorted(b / a for a, b in zip(rates["plain"], rates["wish"]))
        middle = {name: statistics.median(values) for name, values in rates.items()}
        step = {name: statistics.median(values) for name, values in steps_ms.items()}
        row(f"{rows} rows, {what}", f"{statistics.median(ratios):.3f}", "x plain",
            f"{middle['wish']:.0f} against {middle['plain']:.0f} tokens/s; ratios {ratios[0]:.3f} to "
            f"{ratios[-1]:.3f}; step on the device {step['wish']:.3f} against {step['plain']:.3f} ms")


def case_schema():
    pairs("JSON schema", SCHEMA)


def case_regex():
    pairs("regular expression", REGEX)


def case_counted_regex():
    """Each token is in a state of its own: nothing of a mask is known from before."""
    pairs("regular expression that counts to 4,000", COUNTED_REGEX)


def case_watermark():
    pairs("watermark", {"watermark": True})


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
            before = server.metric("weft_iteration_tokens_total_sum")
            start = time.monotonic()
            server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "n": n, "seed": 1})
            took_ms = 1e3 * (time.monotonic() - start)
            computed = server.metric("weft_iteration_tokens_total_sum") - before
            row(f"n = {n}, prompt of 1,000 tokens", f"{computed:.0f}", "tokens computed",
                f"{took_ms:.1f} ms")


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
