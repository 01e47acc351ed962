#!/usr/bin/env python3
"""What many open streams cost the router: a real weft-router over mock shards (weft_mock_shards)
that answer each step after a set time, and `weft bench load` as the client.

  tests/bench/router_streams.py [STREAMS [STEP_MS]]     default 4000 streams, steps of 200 ms
  WEFT_BIN_DIR   binaries (default build/release/bin); WEFT_DEMO_MODEL, VOCAB and CONTEXT choose
                 another model's tokenizer than the demo's; TOKENS of each stream (100)
Prints the router's CPU a token, what failed, and the gaps between tokens.
"""

import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile

from measure import cpu_times_s  # also sets WEFT_BIN_DIR's default and the path to weft_server
from weft_server import BIN, DEMO_MODEL, wait_until

ROWS_MAX = 1024
# Of each stream; a row of the mock shards has room for 512.
TOKENS = int(os.environ.get("TOKENS", 100))
# Of the model whose tokenizer the router has.
VOCAB, CONTEXT = (int(os.environ.get(name, otherwise))
                  for name, otherwise in (("VOCAB", 49152), ("CONTEXT", 8192)))


def main():
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    step_ms = float(sys.argv[2]) if len(sys.argv) > 2 else 200
    groups = -(-streams // ROWS_MAX)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        shards = subprocess.Popen(
            [str(BIN / "weft_mock_shards"), folder, str(groups), str(int(step_ms * 1000)),
             str(VOCAB), str(CONTEXT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert shards.stdout.readline() == "ready\n"
        router = subprocess.Popen(
            [str(BIN / "weft-router"), f"--model={DEMO_MODEL}", f"--groups={groups}",
             *(f"--shard=unix:{folder}/shard-{i}" for i in range(groups)), "--http-port=0",
             "--grpc-port=0", f"--connections-max={2 * streams}"], stdout=subprocess.PIPE, text=True)
        try:
            words = dict(word.split("=", 1) for word in router.stdout.readline().split()[1:])
            wait_until(lambda: ready(words["http"]), "the router", 60)
            run(words["http"], router.pid, streams, step_ms)
        finally:
            router.terminate()
            router.wait()
            shards.stdin.close()
            assert shards.wait() == 0, "the mock shards saw a rule broken"


def ready(address):
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", "/readyz")
    return connection.getresponse().status == 200


def run(address, router_pid, streams, step_ms):
    before = cpu_times_s(router_pid)
    done = subprocess.run(
        [str(BIN / "weft"), "bench", "load", f"--connect={address}", "--json=-",
         f"--streams={streams}", f"--requests={streams}", "--prompt-tokens=16",
         f"--output-tokens={TOKENS}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    after = cpu_times_s(router_pid)
    report = json.loads(done.stdout)
    user_us, system_us = ((b - a) * 1e6 / report["output_tokens"] for a, b in zip(before, after))
    gaps = report["inter_token_ms"]
    print(f"{streams} streams, steps of {step_ms:g} ms: {report['failed']} failed, "
          f"{report['output_tokens']} of {streams * TOKENS} tokens, "
          f"{report['tokens_per_s']:.0f} tokens/s; gap p50 {gaps['p50']:.1f}, "
          f"p99 {gaps['p99']:.1f}, max {gaps['max']:.1f} ms; router CPU a token, prompts and "
          f"requests included: user {user_us:.2f} us, system {system_us:.2f} us")


if __name__ == "__main__":
    main()
