#!/usr/bin/env python3
"""Serves the demo model from GPU shards and looks at it from outside. Standard library only, so
that any machine with a GPU and the binaries can run it:

  tests/gpu/serve_test.py [--bin DIR] [--device cuda|cpu] [--shards 1,2,4] [--only doors,kill]

Without --shards: 1, 2 and 4, as far as there are GPUs (1 and 2 on the CPU). One line a check; exits
non-zero when one failed.
"""

import argparse
import contextlib
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
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("doors", "masks", "greedy", "kill", "router", "stop", "drain", "bad")
HANG_TIMEOUT_MS = 2000
# Of a server's log beside a check that failed.
LOG_LINES = 30
# Of the 50 prompts of tests/goldens/demo, at least so many answers have to be those that
# transformers and the CPU give in float32, where sums in another order leave logits right to about
# 1e-5 and two answers hold a step whose runner-up is closer than 1e-3. In bfloat16, weights that
# the file keeps in four bits, activations and cache are rounded to eight bits of mantissa: logits
# around 20 are right to some hundredths. 27 answers hold a step whose runner-up is within 0.05, and
# each such step may fall either way, which leaves 36; half of all are asked for. A change that
# begins at a margin of 0.5 or more is a fault in any case: these are also the bounds of
# tests/shard/device/cuda/model_test.cc.
EQUAL_MIN = {"float32": 48, "bfloat16": 25}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def parse_arguments():
    parser = argparse.ArgumentParser(description="Serves the demo model and checks the answers.")
    parser.add_argument("--bin", default=os.environ.get("WEFT_BIN_DIR", ROOT / "build/release/bin"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--shards", default="")
    parser.add_argument("--only", default=",".join(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--seed", type=int, default=20)
    return parser.parse_args()


ARGUMENTS = parse_arguments()
os.environ["WEFT_BIN_DIR"] = str(pathlib.Path(ARGUMENTS.bin).resolve())
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests/integration"), str(ROOT / "tests/gpu")]

import bad_input  # noqa: E402
import weft_server  # noqa: E402
from greedy_streams import FLIP_MARGIN, Streams, compare, together, undisturbed  # noqa: E402
from masked_rows import masked_rows  # noqa: E402
from report import Report, gpu_count, require  # noqa: E402
from weft_server import BIN, WeftServer, alive, wait_until  # noqa: E402

# CUDA's libraries load their kernels, and graphs are captured, before a shard is ready.
weft_server.START_TIMEOUT_S = 240
# A stream's length: long enough on either device to be hit while it runs.
STREAM_TOKENS = {"cuda": 1500, "cpu": 40}[ARGUMENTS.device]


def weft(*arguments, text=None):
    result = subprocess.run([str(BIN / "weft"), *arguments], input=text, capture_output=True,
                            text=True, timeout=300)
    require(result.returncode == 0, f"weft {arguments[0]}: {result.stderr}")
    return result.stdout


# -- Doors ----------------------------------------------------------------------------------------
def on_device(server):
    """The shards say what they run on: no test of GPUs may pass on the CPU."""
    lines = [line for line in server.log_text().splitlines()
             if "loaded " in line and " ms on " in line]
    require(len(lines) == server.shards, f"{len(lines)} of {server.shards} say where they run")
    name = lines[0].split(" ms on ")[1].split(",")[0]
    require((name == "cpu") == (ARGUMENTS.device == "cpu"), f"the shards run on {name}")
    return name


def doors(server):
    """One question through every door: one answer."""
    prompt = server.post("/chat_tokenize", {"messages": QUESTION})["templated_text"]
    short = {"max_tokens": 24, "temperature": 0}
    deltas = [event["choices"][0]["delta"] for event in server.events(
        "/v1/chat/completions", {"messages": QUESTION, "stream": True, **short})
        if event["choices"]]
    tgi = {"inputs": prompt, "parameters": {"max_new_tokens": 24, "do_sample": False}}
    answers = {
        "completions": server.post("/v1/completions", {"prompt": prompt, **short})
        ["choices"][0]["text"],
        "generate": server.post("/generate", tgi)["generated_text"],
        "generate_stream": list(server.events("/generate_stream", tgi))[-1]["generated_text"],
        "chat": server.post("/v1/chat/completions", {"messages": QUESTION, **short})
        ["choices"][0]["message"]["content"],
        "chat stream": "".join(delta.get("content") or "" for delta in deltas),
        "gRPC": weft("chat", f"--connect={server.grpc}", "--max-tokens=24",
                     text=QUESTION[0]["content"] + "\n").removesuffix("\n"),
    }
    require(len(set(answers.values())) == 1 and "Paris" in answers["gRPC"], answers)
    require(len(deltas) > 4, f"{len(deltas)} events in the stream")
    return f"{len(answers)} doors say {answers['gRPC']!r}"


def offline(server):
    """Many gRPC streams at once."""
    report = json.loads(weft("bench", "offline", f"--connect={server.grpc}", "--requests=64",
                             "--isl=64", f"--osl={STREAM_TOKENS // 4}", "--json=-"))
    require(report["failed"] == 0 and report["output_tokens"] == 64 * (STREAM_TOKENS // 4), report)
    return f"{report['output_tokens']} tokens"


def sampled(server):
    """Seeds: the same twice, others else."""
    def ask(seed):
        return server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 24,
                                                    "temperature": 1.2, "seed": seed})
    texts = [ask(seed)["choices"][0]["message"]["content"] for seed in (1, 1, 2, 3, 4, 5)]
    require(texts[0] == texts[1], f"seed 1 says {texts[:2]}")
    require(len(set(texts)) > 3, f"five seeds say {texts}")
    return f"{len(set(texts))} answers of 5 seeds"


# -- Greedy answers -------------------------------------------------------------------------------
def golden_cases():
    golden = json.loads((ROOT / "tests/goldens/demo/greedy.json").read_text())
    prompts = (ROOT / "tests/goldens/demo/prompts.txt").read_text().splitlines()
    require([case["prompt"] for case in golden["cases"]] == prompts, "prompts.txt has changed")
    return golden["cases"]


def greedy_ids(server):
    """Ids of every golden prompt's answer, sixteen at a time."""
    def ask(case):
        prompt = server.post("/chat_tokenize", {"messages": [
            {"role": "user", "content": case["prompt"]}]})["templated_text"]
        details = server.post("/generate", {"inputs": prompt, "parameters": {
            "max_new_tokens": 32, "do_sample": False, "details": True}})["details"]
        return [token["id"] for token in details["tokens"]]
    cases = golden_cases()
    out = []
    for begin in range(0, len(cases), 16):
        out += together(ask, cases[begin:begin + 16])
    return out


def greedy(server, dtype, reference):
    """Against the CPU's answers (where given) and the golden ones."""
    equal_cpu = equal_golden = 0
    largest = 0.0
    all_ids = greedy_ids(server)
    for case, ids, cpu in zip(golden_cases(), all_ids, reference or all_ids):
        equal_cpu += ids == cpu
        if ids == case["ids"]:
            equal_golden += 1
            continue
        at = next((i for i, pair in enumerate(zip(ids, case["ids"])) if pair[0] != pair[1]), None)
        require(at is not None, f"{case['prompt']}: {len(ids)} tokens, not {len(case['ids'])}")
        largest = max(largest, case["margins"][at])
    said = f"{equal_cpu} of {len(all_ids)} as the CPU, {equal_golden} as transformers, " \
           f"largest margin flipped {largest:.5f}"
    require(largest < FLIP_MARGIN[dtype], f"{said}: beyond {FLIP_MARGIN[dtype]}")
    require(min(equal_cpu, equal_golden) >= EQUAL_MIN[dtype], f"{said}: too few")
    return said


# -- Faults ---------------------------------------------------------------------------------------
def hit(server, rank, number, expected, dtype, source):
    """A signal to one shard, somewhere in the middle of all streams."""
    # Before the streams, which are over in a second on a GPU in bfloat16.
    pid = server.shard_pid(rank)
    losses = server.metric("weft_group_losses_total")
    streams = Streams(server, STREAM_TOKENS)
    # And a reader in Python falls behind it: early, or the server is done.
    share = 0.6 if dtype == "float32" else 0.1
    after = source.randrange(16, int(streams.total() * share))
    wait_until(lambda: streams.tokens() >= after or streams.ended(), "tokens to come", 120)
    os.kill(pid, number)
    running, at = streams.running(), time.monotonic()
    streams.join()
    took_s = time.monotonic() - at
    require(running > 0, "no stream was running any more")
    require(server.metric("weft_group_losses_total") > losses, "the router lost no group")
    wait_until(lambda: not alive(pid), "the shard to be gone")
    wait_until(lambda: server.shard_pid(rank) not in (None, pid)
               and server.request("GET", "/readyz")[0] == 200, "the group to be whole", 120)
    said = compare(streams.ids, expected, dtype)
    return f"after {after} tokens, {running} running: {said}; " \
           f"silent {streams.silence_s:.2f} s, all done after {took_s:.1f} s"


def as_undisturbed(server, expected, dtype):
    """Nothing is left of the faults."""
    streams = Streams(server, STREAM_TOKENS)
    streams.join()
    server.wait_idle()
    require(server.metric("weft_kv_blocks", state="used") == 0, "KV blocks are still held")
    return compare(streams.ids, expected, dtype)


def kill_router(server, expected, dtype, device):
    """kill -9 of the router under load: its successor serves, and the communicators of a group of
    GPUs are those of before."""
    shards = [server.shard_pid(rank) for rank in range(server.shards)]
    joined = server.log_text().count("joined the group")

    def ask():
        # The answer breaks with the router.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            server.post("/generate", {"inputs": "One", "parameters": {
                "max_new_tokens": STREAM_TOKENS, "ignore_eos_token": True}})

    def ready():
        with contextlib.suppress(OSError):
            return server.request("GET", "/readyz")[0] == 200

    clients = [threading.Thread(target=ask) for _ in range(8)]
    for client in clients:
        client.start()
    wait_until(lambda: server.metric("weft_num_requests_running") == len(clients), "all to run")
    pid, at = server.router_pid(), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid) and ready(), "the next router", 60)
    back_s = time.monotonic() - at
    for client in clients:
        client.join()
    require([server.shard_pid(rank) for rank in range(server.shards)] == shards, "other shards")
    words = [line for line in server.log_text().splitlines() if "joined the group" in line][joined:]
    kept = sum("communicator=kept" in line for line in words)
    if device == "cuda" and server.shards > 1:
        require(kept == server.shards, f"{kept} of {server.shards} kept their communicator")
    return f"back after {back_s:.2f} s, {kept} communicators kept: " + \
        as_undisturbed(server, expected, dtype)


def drain(server):
    """SIGTERM under all streams."""
    streams = Streams(server, STREAM_TOKENS)
    streams.wait_tokens(1)
    server.process.send_signal(signal.SIGTERM)
    running = streams.running()
    streams.join()
    require(running > 0, "no stream was running any more")
    require(server.process.wait(60) == 0, f"exit code {server.process.returncode}")
    return f"{running} streams finished, exit code 0"


# -- Servers --------------------------------------------------------------------------------------
class Checks:
    def __init__(self, arguments):
        self.report = Report()
        self.device = arguments.device
        self.parts = set(arguments.only.split(","))
        self.random = random.Random(arguments.seed)
        self.cpu_ids = None

    def server(self, shards, dtype, *flags):
        # Recovery may take as long as a start.
        return WeftServer(f"--device={self.device}", f"--dtype={dtype}", "--drain-timeout-s=120",
                          "--recovery-timeout-s=120", *flags, shards=shards)

    def reference(self):
        """The CPU's answers in float32."""
        with WeftServer("--device=cpu", "--dtype=float32") as server:
            self.cpu_ids = greedy_ids(server)
        return f"{len(self.cpu_ids)} answers"

    def check(self, server, name, work, *arguments):
        """With the server's last words where it fails."""
        if not self.report.check(name, work, *arguments):
            print("\n".join(server.log_text().splitlines()[-LOG_LINES:]), flush=True)

    def serve(self, shards, dtype):
        """All checks that need nothing but one server."""
        at = f"{self.device} x{shards} {dtype}"
        with self.server(shards, dtype) as server:
            self.check(server, f"{at}: ready",
                       lambda: f"{server.ready_s:.1f} s, {on_device(server)}")
            if "doors" in self.parts:
                self.check(server, f"{at}: doors", doors, server)
                self.check(server, f"{at}: gRPC streams", offline, server)
                self.check(server, f"{at}: seeds", sampled, server)
            if "masks" in self.parts:
                self.check(server, f"{at}: rows held to something", masked_rows, server)
            if "greedy" in self.parts:
                self.check(server, f"{at}: greedy answers", greedy, server, dtype, self.cpu_ids)
            if "kill" in self.parts:
                self.hits(server, at, dtype, signal.SIGKILL,
                          range(shards) if dtype == "float32" else [0])
            if "router" in self.parts:
                expected = undisturbed(server, STREAM_TOKENS)
                for turn in ("first", "second"):
                    self.check(server, f"{at}: {turn} kill of the router", kill_router, server,
                               expected, dtype, self.device)
            if "drain" in self.parts:
                self.check(server, f"{at}: SIGTERM drains", drain, server)

    def hits(self, server, at, dtype, number, ranks):
        expected = undisturbed(server, STREAM_TOKENS)
        self.check(server, f"{at}: streams undisturbed", as_undisturbed, server, expected, dtype)
        for rank in ranks:
            self.check(server, f"{at}: {number.name} rank {rank}", hit, server, rank, number,
                       expected, dtype, self.random)
        self.check(server, f"{at}: streams afterwards", as_undisturbed, server, expected, dtype)

    def stop(self, shards):
        at = f"{self.device} x{shards} float32"
        with self.server(shards, "float32", f"--hang-timeout-ms={HANG_TIMEOUT_MS}") as server:
            self.hits(server, at, "float32", signal.SIGSTOP, range(shards))

    def run(self, counts, gpus):
        if "greedy" in self.parts:
            self.report.check("cpu x1 float32: reference", self.reference)
        for shards in counts:
            for dtype in ("float32", "bfloat16"):
                if self.parts & {"doors", "masks", "greedy", "kill", "router", "drain"}:
                    self.report.check(f"{self.device} x{shards} {dtype}", self.serve, shards, dtype)
            if "stop" in self.parts:
                self.report.check(f"{self.device} x{shards} hangs", self.stop, shards)
        if "bad" in self.parts:
            with tempfile.TemporaryDirectory() as folder:
                bad_input.check_all(self.report, self.device, gpus, folder)
        return self.report.end()


def main():
    gpus = gpu_count()
    most = gpus if ARGUMENTS.device == "cuda" else 2
    counts = [int(word) for word in ARGUMENTS.shards.split(",") if word] or \
        [count for count in (1, 2, 4) if count <= most]
    unknown = set(ARGUMENTS.only.split(",")) - set(PARTS)
    if unknown:
        sys.exit(f"serve_test.py: --only {','.join(sorted(unknown))}: choose of {','.join(PARTS)}")
    if not counts:
        sys.exit("serve_test.py: no GPU here; --device cpu runs the same on the CPU")
    print(f"seed {ARGUMENTS.seed}, {gpus} GPUs, shards {counts}, binaries {BIN}", flush=True)
    sys.exit(Checks(ARGUMENTS).run(counts, gpus))


if __name__ == "__main__":
    main()
