#!/usr/bin/env python3
"""Makes a recording of a real run: `weft serve --record` with the demo model on the CPU under a mixed load.

    WEFT_BIN_DIR=build/ci/bin tests/transcripts/recordings/make.py OUT

200 requests of two tenants from 24 clients at a time: chats behind three shared beginnings, prompts of many lengths,
priorities, limits of 1 to 80 tokens; one in eight is left by its client. The KV pool is small, so that
sequences are preempted, and the shard is killed once in the middle. Writes OUT.1 ... and says what happened.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "integration"))
import weft_server  # noqa: E402

REQUESTS = 200
CLIENTS = 24
SEED = 13
WORDS = "tell me about the sea and its ships in a storm of winter when nobody sails home".split()


def new_key(folder, tenant):
    return subprocess.run(
        [weft_server.BIN / "weft", "key", "new", "--tenant", tenant, "--file", f"{folder}/keys.json"],
        check=True, capture_output=True, text=True).stdout.split()[-1]


def prompts():
    """(tenant, body, whether its client leaves) of every request, the same each time."""
    chance = random.Random(SEED)
    shared = [" ".join(chance.choices(WORDS, k=length)) for length in (40, 90, 160)]
    for number in range(REQUESTS):
        text = chance.choice(shared) if chance.random() < 0.7 else ""
        text += " " + " ".join(chance.choices(WORDS, k=chance.choice((3, 10, 30, 150))))
        body = {"prompt": text, "max_tokens": chance.choice((1, 8, 16, 40, 80)), "stream": True,
                "temperature": 0.8, "seed": number}
        if chance.random() < 0.2:
            body["priority"] = chance.choice((-2, -1, 1, 2))
        yield chance.randrange(2), body, number % 8 == 0


def run(server, key, body, leaves):
    host, port = server.http.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=300)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        if response.status != 200:
            return f"HTTP {response.status}"
        for line in response:
            if leaves and line.startswith(b"data:"):
                return "left"
        return "ended"
    finally:
        connection.close()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        keys = [new_key(folder, tenant) for tenant in ("north", "south")]
        flags = (f"--record={out}", f"--api-keys={folder}/keys.json", "--device=cpu",
                 "--running-max=12", "--kv-memory=20MiB", "--context-tokens-max=1024")
        with weft_server.WeftServer(*flags) as server:
            ends = {}
            started = threading.Semaphore(0)

            def one(work):
                started.release()
                tenant, body, leaves = work
                return run(server, keys[tenant], body, leaves)

            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                jobs = [pool.submit(one, work) for work in prompts()]
                for _ in range(REQUESTS // 2):
                    started.acquire()
                os.kill(server.shard_pid(0), signal.SIGKILL)
                for job in jobs:
                    ends[job.result()] = ends.get(job.result(), 0) + 1
            print(ends)
            for name in ("weft_num_preemptions_total", "weft_prefix_cache_hits_total",
                         "weft_group_recovery_duration_seconds_count"):
                print(name, [value for series, value in server.metrics().items()
                             if series.startswith(name)])


if __name__ == "__main__":
    main()
