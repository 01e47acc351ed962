#!/usr/bin/env python3
"""Measures the table of docs/PERFORMANCE.md on this machine with real servers and `weft bench load`.

  tests/bench/measure.py [case ...]        all cases, or those named
  WEFT_BIN_DIR   binaries (default build/release/bin)
  PEER_SERVER    llama-server binary: the same load on it, in the same run
Prints one line a figure as it comes and a Markdown table at the end. Each server case runs alone.
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
os.environ.setdefault("WEFT_BIN_DIR", str(ROOT / "build/release/bin"))

from weft_server import BIN, DEMO_MODEL, WeftServer, alive, children_of, wait_until  # noqa: E402

ROWS = []
# Extra flags of the long-prompt case, for trying step budgets.
LONG_PROMPT_FLAGS = os.environ.get("LONG_PROMPT_FLAGS", "").split()


def row(what, value, unit, note=""):
    ROWS.append((what, value, unit, note))
    print(f"{what}: {value} {unit} {note}", flush=True)


def bench(address, *flags):
    result = subprocess.run([str(BIN / "weft"), "bench", "load", f"--connect={address}", "--json=-",
                             *flags], capture_output=True, text=True, timeout=600)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return json.loads(result.stdout)


def pids(server):
    """--process flags for all processes of a server."""
    flags = []
    for pid, name in sorted(children_of(server.process.pid).items()):
        flags.append(f"--process={name}-{pid}={pid}")
    return flags


class PeerServer:
    """llama-server with the same file, threads = cores, as many slots as streams."""

    def __init__(self, slots, context=2048):
        self.port = 18000 + os.getpid() % 1000
        self.argv = [os.environ["PEER_SERVER"], "-m", DEMO_MODEL, "--host", "127.0.0.1", "--port",
                     str(self.port), "-np", str(slots), "-c", str(slots * context), "--offline"]
        self.http = f"127.0.0.1:{self.port}"

    def __enter__(self):
        self.started = time.monotonic()
        self.process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        import http.client

        def healthy():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
            except OSError:
                return False
        wait_until(healthy, "the peer", 60)
        self.ready_s = time.monotonic() - self.started
        return self

    def __exit__(self, *ignored):
        self.process.terminate()
        self.process.wait()


def router_pid(server):
    return next(pid for pid, name in children_of(server.process.pid).items() if "router" in name)


def cpu_times_s(pid):
    """User and system time of a process, all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]]


def decode_rate(report):
    """Tokens/s of one stream between its tokens."""
    return round(1000 / report["inter_token_ms"]["p50"], 1)


def kv_pool_mib(pid):
    """Resident part of weft's KV pool: its one mapping of half a GiB and more."""
    kib, size_kib = 0, 0
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        key, value = (line.split() + [""])[:2]
        if key == "Size:":
            size_kib = int(value)
        elif key == "Pss:" and size_kib >= 512 * 1024:
            kib += int(value)
    return kib / 1024


def servers(slots, *flags, shards=1):
    """(name, server) of weft and, where given, the peer."""
    yield "weft", WeftServer(*flags, shards=shards)
    if "PEER_SERVER" in os.environ:
        yield "llama-server", PeerServer(slots)


def warm(address):
    bench(address, "--requests=2", "--output-tokens=16", "--seed=99")


def case_bandwidth():
    with WeftServer() as server:
        report = bench(server.http, "--requests=1", "--output-tokens=1", "--bandwidth")
        row("memory read bandwidth", round(report["read_gbytes_per_s"], 1), "GB/s")


def case_batch1():
    for name, server in servers(1):
        with server:
            warm(server.http)
            report = bench(server.http, "--requests=5", "--output-tokens=128", "--prompt-tokens=48")
            row(f"{name}: batch-1 decode, one process, two threads", decode_rate(report), "tokens/s",
                f"whole run {report['tokens_per_s']:.0f}")
            row(f"{name}: time to first token, 48-token prompt",
                round(report["ttft_ms"]["p50"], 1), "ms")


def case_neighbour():
    for name, server in servers(1):
        with server:
            warm(server.http)
            neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            try:
                report = bench(server.http, "--requests=5", "--output-tokens=128")
            finally:
                neighbour.kill()
                neighbour.wait()
            total = sum([report["inter_token_ms"]["p50"]])
            row(f"{name}: the same with one busy neighbour", round(report["tokens_per_s"], 1),
                "tokens/s", f"whole run; p50 gap {total:.1f} ms")


def case_two_shards():
    with WeftServer("--threads=1", shards=2) as server:
        warm(server.http)
        report = bench(server.http, "--requests=5", "--output-tokens=128")
        row("weft: two shards of one thread, batch 1", decode_rate(report), "tokens/s")


def case_prompt():
    for name, server in servers(1):
        with server:
            warm(server.http)
            report = bench(server.http, "--requests=7", "--prompt-tokens=512", "--output-tokens=1")
            ttft = report["ttft_ms"]["p50"]
            row(f"{name}: prompt of 512 tokens", round(512e3 / ttft), "tokens/s", f"{ttft:.0f} ms")


def case_streams():
    for streams, tokens in ((8, 128), (32, 128)):
        for name, server in servers(streams):
            with server:
                warm(server.http)
                report = bench(server.http, f"--streams={streams}", f"--requests={streams * 2}",
                               "--prompt-tokens=48", f"--output-tokens={tokens}")
                row(f"{name}: {streams} streams, total", round(report["tokens_per_s"], 1), "tokens/s",
                    f"gap p50 {report['inter_token_ms']['p50']:.1f} p99 "
                    f"{report['inter_token_ms']['p99']:.1f} ms, first token p50 "
                    f"{report['ttft_ms']['p50']:.0f} ms")


def case_router_cpu():
    """Long enough for /proc's 10 ms; prompts and everything else of a request counted in."""
    for streams in (8, 32):
        with WeftServer() as server:
            warm(server.http)
            before = cpu_times_s(router_pid(server))
            report = bench(server.http, f"--streams={streams}", "--requests=128",
                           "--prompt-tokens=48", "--output-tokens=256")
            after = cpu_times_s(router_pid(server))
            user, system = [(b - a) * 1e6 / report["output_tokens"] for a, b in zip(before, after)]
            row(f"weft: router CPU a token at {streams} streams", round(user + system, 1), "us",
                f"user space {user:.1f} us, {report['tokens_per_s']:.0f} tokens/s")


def case_long_prompt():
    """A 2,000-token prompt enters while 8 streams run."""
    for name, server in servers(9, *LONG_PROMPT_FLAGS):
        with server:
            warm(server.http)
            alone = bench(server.http, "--requests=3", "--prompt-tokens=2000", "--output-tokens=1")
            quiet = bench(server.http, "--streams=8", "--requests=8", "--output-tokens=200")
            result = {}
            background = threading.Thread(target=lambda: result.update(
                bench(server.http, "--streams=8", "--requests=8", "--output-tokens=400",
                      "--seed=5")))
            background.start()
            time.sleep(1.5)  # well inside the decode of the eight
            entering = bench(server.http, "--requests=1", "--prompt-tokens=2000",
                             "--output-tokens=1", "--seed=77")
            background.join()
            gap, loaded = quiet["inter_token_ms"]["p99"], result["inter_token_ms"]
            row(f"{name}: 8 streams' gap p99 while 2,000 tokens enter", round(loaded["p99"], 1), "ms",
                f"quiet {gap:.1f} ms, {loaded['p99'] / gap:.2f} x; longest {loaded['max']:.0f} ms")
            row(f"{name}: first token of the 2,000-token prompt",
                round(entering["ttft_ms"]["p50"]), "ms",
                f"alone {alone['ttft_ms']['p50']:.0f} ms, "
                f"{entering['ttft_ms']['p50'] / alone['ttft_ms']['p50']:.2f} x")


def pss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def case_start():
    for name, factory in (("weft", lambda: WeftServer()), ("llama-server", lambda: PeerServer(1))):
        if name != "weft" and "PEER_SERVER" not in os.environ:
            continue
        times, memory, beside = [], [], []
        for _ in range(5):
            started = time.monotonic()
            with factory() as server:
                bench(server.http, "--requests=1", "--prompt-tokens=45", "--output-tokens=1")
                times.append(time.monotonic() - started)
                own = [server.process.pid, *children_of(server.process.pid)]
                memory.append(sum(pss_mib(pid) for pid in own))
                beside.append(memory[-1] - sum(kv_pool_mib(pid) for pid in own))
        row(f"{name}: process start to first token", round(statistics.median(times), 3), "s",
            "the load generator's own start included")
        row(f"{name}: memory of all processes", round(statistics.median(memory)), "MiB (PSS)",
            "the touched part of the KV pool included" if name != "weft" else
            f"{statistics.median(beside):.0f} MiB beside the KV pool")


def case_recovery():
    with WeftServer(shards=2) as server:
        warm(server.http)
        stamps = []
        body = {"prompt": "A long story about the sea", "max_tokens": 600, "temperature": 0,
                "ignore_eos": True, "stream": True}

        def read():
            for _ in server.events("/v1/completions", body):
                stamps.append(time.monotonic())
        streams = [threading.Thread(target=read) for _ in range(8)]
        for stream in streams:
            stream.start()
        wait_until(lambda: len(stamps) > 400, "the streams to run")
        killed = time.monotonic()
        os.kill(server.shard_pid(1), signal.SIGKILL)
        count = len(stamps)
        wait_until(lambda: len(stamps) > count + 40, "the streams to flow again")
        gaps = [stamp for stamp in stamps if stamp > killed]
        longest = max(b - a for a, b in zip([killed, *gaps], gaps))
        row("weft: kill -9 of a shard until all streams flow", round(longest, 2), "s",
            "8 streams, longest silence")
        for stream in streams:
            stream.join()


def cpu_s(pid):
    return sum(cpu_times_s(pid))


def case_idle():
    with WeftServer(shards=2) as server:
        warm(server.http)
        server.wait_idle()
        own = [server.process.pid, *children_of(server.process.pid)]
        before, start = sum(map(cpu_s, own)), time.monotonic()
        time.sleep(20)  # the span that is measured
        share = (sum(map(cpu_s, own)) - before) / (time.monotonic() - start)
        row("weft: idle, all processes together", round(share * 100, 2), "% of a core")


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__ + "Cases: " + ", ".join(cases))
        return
    chosen = sys.argv[1:] or list(cases)
    for name in chosen:
        if name not in cases:
            sys.exit(f"unknown case {name}; known: {', '.join(cases)}")
        cases[name]()
    print("\n| what | measured | note |\n|---|---|---|")
    for what, value, unit, note in ROWS:
        print(f"| {what} | {value} {unit} | {note} |")


if __name__ == "__main__":
    main()
