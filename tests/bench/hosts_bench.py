#!/usr/bin/env python3
"""Two CPU shards on hosts of their own (network namespaces, a bridge, mutual TLS) against two that
share memory: time to the first token and between tokens of one stream, and the processor time that
the shards take, in turns. The model is the demo model. Needs root.

  tests/bench/hosts_bench.py [turns]     default 20
  WEFT_BIN_DIR   binaries (default build/release/bin)
Prints a Markdown table: medians over the turns, and the least.
"""

import pathlib
import random
import statistics
import sys
import time

import measure  # noqa: F401 - sets WEFT_BIN_DIR's default and the path to the tests
import hosts
from weft_server import WeftServer

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
# Prompts of about so many tokens, and tokens to generate.
PROMPTS, TOKENS = (16, 128, 1024), 32
ONE, MANY = "shared memory", "TCP between hosts"


def cpu_ms(pid):
    """Of all threads of a process that live."""
    total = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text().split()[0])
    return total / 1e6


def one_stream(server, prompt):
    """(ms to the first token, ms between tokens, ms of shards' CPU for each token after it)."""
    pids = [server.shard_pid(rank) for rank in range(2)]
    began, times, before = time.perf_counter(), [], 0.0
    body = {"inputs": prompt, "parameters": {"max_new_tokens": TOKENS, "ignore_eos_token": True}}
    for _ in server.events("/generate_stream", body):
        times.append(time.perf_counter())
        if len(times) == 1:
            before = sum(map(cpu_ms, pids))
    after = sum(map(cpu_ms, pids))
    count = len(times) - 1
    return (1e3 * (times[0] - began), 1e3 * (times[-1] - times[0]) / count,
            (after - before) / count)


def main():
    hosts.enter()
    source = random.Random(14)
    words = "river stone paper light garden market winter letter music window".split()
    servers = {ONE: WeftServer("--threads=1", shards=2).start(), MANY: hosts.SpreadServer().start()}
    print("| prompt | shards | first token, ms | between tokens, ms | shards' CPU a token, ms |")
    print("|---|---|---|---|---|")
    try:
        for tokens in PROMPTS:
            seen = {ONE: [], MANY: []}
            for turn in range(TURNS + 1):
                # No prompt begins like another one, so that none is in the prefix cache.
                prompt = f"{source.randrange(10**9)} " + " ".join(source.choices(words, k=tokens - 8))
                for name in (ONE, MANY) if turn % 2 else (MANY, ONE):
                    figures = one_stream(servers[name], prompt)
                    if turn > 0:
                        seen[name].append(figures)
            for name, figures in seen.items():
                cells = [f"{statistics.median(column):.1f} ({min(column):.1f})"
                         for column in zip(*figures)]
                print(f"| {tokens} | {name} | {' | '.join(cells)} |", flush=True)
    finally:
        for server in servers.values():
            server.stop()


if __name__ == "__main__":
    main()
