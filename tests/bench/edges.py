#!/usr/bin/env python3
"""Measures what strangers and neighbours cost: the table of edges in docs/PERFORMANCE.md, with real
servers and plain sockets. The model is the demo model, or WEFT_DEMO_MODEL; flags of the server are
read from the environment too (WEFT_DEVICE, WEFT_WEIGHTS).

  tests/bench/edges.py [case ...]        all cases, or those named
  WEFT_BIN_DIR   binaries (default build/release/bin)
Prints one line a figure as it comes and a Markdown table at the end. Each case has its own server.
"""

import concurrent.futures
import http.client
import json
import multiprocessing
import os
import pathlib
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import measure  # also sets WEFT_BIN_DIR's default and the path to weft_server
from measure import cpu_times_s, row
from weft_server import BIN, WeftServer, grpc_modules

POSTS = 200
POST_BYTES = 4_000_000
PROSE = "The ship left the harbour at dawn, and nobody on the quay knew where it would go. "
# On two cores the shard leaves one to the router.
SHARD_FLAGS = ["--threads=1"] if os.cpu_count() == 2 else []
STREAM = {"prompt": "A long story about the sea", "temperature": 0, "ignore_eos": True,
          "stream": True}


def long_text(size=POST_BYTES):
    return (PROSE * (size // len(PROSE) + 1))[:size]


def rss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def read_stream(server_http, stop, stamps):
    """Puts the time of each event, the system's monotonic clock; None between two streams."""
    host, port = server_http.split(":")
    while not stop.is_set():
        connection = http.client.HTTPConnection(host, int(port), timeout=120)
        connection.request("POST", "/v1/completions", json.dumps({**STREAM, "max_tokens": 1500}),
                           {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data:"):
                stamps.put(time.monotonic())
            if stop.is_set():
                break
        connection.close()
        stamps.put(None)  # between two streams is no gap
    stamps.put("end")


class Stream:
    """One stream that goes on until `stop`, read by a process of its own: the interpreter's lock of
    those who attack must not look like a gap."""

    def __init__(self, server):
        self.stamps, self.queue, self.stopping = [], multiprocessing.Queue(), multiprocessing.Event()
        self.process = multiprocessing.Process(target=read_stream,
                                               args=(server.http, self.stopping, self.queue))
        self.process.start()

    def take(self):
        while not self.queue.empty():
            self.stamps.append(self.queue.get())

    def longest_gap_ms(self, since):
        self.take()
        stamps = [s for s in self.stamps if s is None or s >= since]
        return 1e3 * max(b - a for a, b in zip(stamps, stamps[1:]) if a and b)

    def has_begun(self):
        self.take()
        return len(self.stamps) > 50

    def stop(self):
        self.stopping.set()
        while self.queue.get() != "end":
            pass
        self.process.join()


def abandon_http(server, path, body):
    """A whole request is sent; nobody waits for its answer."""
    host, port = server.http.split(":")
    head = (f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    try:
        with socket.create_connection((host, int(port)), timeout=30) as one:
            one.sendall(head + body)
    except OSError:
        pass  # refused while it was sent


def abandon_grpc(server):
    grpc, messages, services = grpc_modules()
    request = messages.GenerateRequest(text=long_text())

    def one():
        with grpc.insecure_channel(server.grpc) as channel:
            call = services.TextGenerationStub(channel).Generate(request, timeout=0.2)
            try:
                next(iter(call), None)
            except grpc.RpcError:
                pass
    return one


def attacks(server):
    text = long_text()
    messages = [{"role": "user", "content": text}]
    bodies = {"/tokenize": {"inputs": text}, "/chat_tokenize": {"messages": messages},
              "/generate": {"inputs": text}, "/v1/chat/completions": {"messages": messages}}
    for path, body in bodies.items():
        data = json.dumps(body).encode()
        yield path, lambda path=path, data=data: abandon_http(server, path, data)
    try:
        yield "gRPC Generate", abandon_grpc(server)
    except ImportError as error:
        row("gRPC Generate", "not measured", "", str(error))


def small_request_s(server):
    start = time.monotonic()
    server.post("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}})
    return time.monotonic() - start


def case_abandoned():
    """200 abandoned 4 MB posts a route beside a stream, 8 at a time."""
    with WeftServer(*SHARD_FLAGS) as server:
        small_request_s(server)
        start_mib = rss_mib(server.router_pid())
        stream = Stream(server)
        measure.wait_until(stream.has_begun, "the stream")
        quiet_from = time.monotonic()
        quiet_small = [small_request_s(server) for _ in range(20)]
        time.sleep(5)  # the span that is measured
        quiet = stream.longest_gap_ms(quiet_from)
        row("quiet: longest gap of the stream", round(quiet, 1), "ms",
            f"small request worst {max(quiet_small):.3f} s")
        for name, attack in attacks(server):
            since, small, peak = time.monotonic(), [], start_mib
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                posts = [pool.submit(attack) for _ in range(POSTS)]
                while not all(post.done() for post in posts):
                    small.append(small_request_s(server))
                    peak = max(peak, rss_mib(server.router_pid()))
            sent_s = time.monotonic() - since
            time.sleep(1)  # events under way to the reader
            # What was taken in before its client left is still worked on.
            small += [small_request_s(server) for _ in range(5)]
            peak = max(peak, rss_mib(server.router_pid()))
            gap = stream.longest_gap_ms(since)
            row(f"{POSTS} abandoned posts: {name}", f"+{peak - start_mib:.0f}", "MiB",
                f"longest gap {gap:.1f} ms, {gap / quiet:.2f} x quiet; small request worst "
                f"{max(small):.3f} s of {len(small)}; sent in {sent_s:.1f} s")
        stream.stop()
        server.wait_idle()
        time.sleep(4)  # freed memory goes back every two seconds
        row("afterwards", f"+{rss_mib(server.router_pid()) - start_mib:.0f}", "MiB")


def write_keys(folder, **tenants):
    """{tenant: key}; the file is folder/keys.json. A tenant's value: its further fields."""
    path, keys = pathlib.Path(folder) / "keys.json", {}
    for tenant in tenants:
        made = subprocess.run([str(BIN / "weft"), "key", "new", f"--tenant={tenant}",
                               f"--file={path}"], capture_output=True, text=True, check=True)
        keys[tenant] = made.stdout.strip().split()[-1]
    data = json.loads(path.read_text())
    for entry in data["tenants"]:
        entry.update(tenants[entry["name"]])
    path.write_text(json.dumps(data))
    return keys


def refusal_ms(server, path, body, headers, status):
    times = []
    for _ in range(200):
        start = time.monotonic()
        found, _, data = server.request("POST", path, body, headers)
        times.append(1e3 * (time.monotonic() - start))
        if found != status:
            raise RuntimeError(f"HTTP {found}, not {status}: {data[:200]}")
    return sorted(times)


def until_closed(ask):
    """Runs `ask`; the server's end is no error."""
    try:
        ask()
    except (OSError, http.client.HTTPException):
        pass


def case_refusals():
    """401, 422 and 429 while 32 streams run and long texts are tokenised."""
    with tempfile.TemporaryDirectory() as folder:
        keys = write_keys(folder, busy={}, small={"requests_max": 1})
        busy, small = [{"authorization": f"Bearer {keys[name]}"} for name in ("busy", "small")]
        stopping, threads = threading.Event(), []

        def load(path, body, headers):
            while not stopping.is_set():
                until_closed(lambda: server.request("POST", path, body, headers, timeout_s=600))
        endless = {"prompt": "A long story", "max_tokens": 2000, "ignore_eos": True}
        loads = [("/v1/completions", endless, busy)] * 32
        loads += [("/tokenize", {"inputs": long_text(2**20)}, busy)] * 4
        loads += [("/v1/completions", endless, small)]  # holds all that its tenant may have
        with WeftServer(*SHARD_FLAGS, f"--api-keys={folder}/keys.json",
                        "--drain-timeout-s=0") as server:
            for arguments in loads:
                threads.append(threading.Thread(target=load, args=arguments))
                threads[-1].start()
            measure.wait_until(
                lambda: server.metric("weft_num_requests_running") >= 33, "the load", 60)
            body = {"inputs": "Hi", "parameters": {"max_new_tokens": 1}}
            hot = {"inputs": "Hi", "parameters": {"temperature": -1}}
            cases = (("401", body, {"authorization": "Bearer weft-no"}), ("422", hot, busy),
                     ("429", body, small))
            for name, data, headers in cases:
                times = refusal_ms(server, "/generate", data, headers, int(name))
                row(f"refusal {name} under full load", round(statistics.median(times), 2), "ms",
                    f"p99 {times[-3]:.2f} ms, worst {times[-1]:.2f} ms of {len(times)}, a new "
                    f"connection each; the client shares the {os.cpu_count()} cores")
            stopping.set()
        for thread in threads:
            thread.join()


def case_tenants():
    """Weights 1 and 3, both with a backlog, for 20 s."""
    with tempfile.TemporaryDirectory() as folder:
        keys = write_keys(folder, one={"weight": 1}, three={"weight": 3})
        with WeftServer(f"--api-keys={folder}/keys.json", "--running-max=8") as server:
            tokens, stopping = {"one": 0, "three": 0}, threading.Event()
            lock = threading.Lock()

            def client(tenant):
                body = {"prompt": "A story", "max_tokens": 32, "ignore_eos": True}
                headers = {"authorization": f"Bearer {keys[tenant]}"}
                while not stopping.is_set():
                    status, _, data = server.request("POST", "/v1/completions", body, headers)
                    if status == 200 and not stopping.is_set():
                        with lock:
                            tokens[tenant] += sum(json.loads(data)["usage"][part] for part in
                                                  ("prompt_tokens", "completion_tokens"))
            threads = [threading.Thread(target=client, args=(tenant,))
                       for tenant in keys for _ in range(24)]
            for thread in threads:
                thread.start()
            time.sleep(5)  # until both have a backlog
            with lock:
                before = dict(tokens)
            time.sleep(20)  # the span that is measured
            with lock:
                served = {tenant: tokens[tenant] - before[tenant] for tenant in tokens}
            stopping.set()
            for thread in threads:
                thread.join()
            share = served["three"] / sum(served.values())
            row("share of the tenant of weight 3 beside one of 1", round(share, 4), "",
                f"0.75 is just; {sum(served.values())} tokens in requests of 34")


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"],
                   check=True, capture_output=True)


def read_streams(server, streams, requests, headers, context):
    """Runs `requests` completions of 256 tokens, `streams` at a time, over kept connections."""
    host, port = server.http.split(":")
    body = json.dumps({**STREAM, "max_tokens": 256}).encode()
    left = iter(range(requests))
    lock = threading.Lock()

    def client():
        connection = (http.client.HTTPSConnection(host, int(port), context=context) if context
                      else http.client.HTTPConnection(host, int(port)))
        while True:
            with lock:
                if next(left, None) is None:
                    break
            connection.request("POST", "/v1/completions", body,
                               {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            data = response.read()
            if response.status != 200 or data.count(b"data:") < 256:
                raise RuntimeError(f"HTTP {response.status}: {data[:200]}")
        connection.close()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        for done in [pool.submit(client) for _ in range(streams)]:
            done.result()


def case_identity():
    """Router CPU a token at 32 streams, with and without keys and TLS, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        make_certificate(folder)
        key = write_keys(folder, one={})["one"]
        # The demo's certificate is its own root.
        context = ssl.create_default_context(cafile=f"{folder}/tls.crt")
        flags = [f"--api-keys={folder}/keys.json", f"--tls-cert={folder}/tls.crt",
                 f"--tls-key={folder}/tls.key"]
        kinds = {"plain": ([], {}, None),
                 "keys and TLS": (flags, {"authorization": f"Bearer {key}"}, context)}
        found = {name: [] for name in kinds}
        for _ in range(3):
            for name, (extra, headers, tls) in kinds.items():
                with WeftServer(*extra) as server:
                    read_streams(server, 4, 4, headers, tls)
                    before = cpu_times_s(server.router_pid())
                    read_streams(server, 32, 96, headers, tls)
                    after = cpu_times_s(server.router_pid())
                    found[name].append([(b - a) * 1e6 / (96 * 256)
                                        for a, b in zip(before, after)])
        for name, runs in found.items():
            user, system = [statistics.median(part) for part in zip(*runs)]
            row(f"router CPU a token at 32 streams, {name}", round(user + system, 1), "us",
                f"user space {user:.1f} us; median of {len(runs)} runs in turns")


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("case_")}
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__ + "Cases: " + ", ".join(cases))
        return
    for name in sys.argv[1:] or list(cases):
        if name not in cases:
            sys.exit(f"unknown case {name}; known: {', '.join(cases)}")
        cases[name]()
    print("\n| what | measured | note |\n|---|---|---|")
    for what, value, unit, note in measure.ROWS:
        print(f"| {what} | {value} {unit} | {note} |")


if __name__ == "__main__":
    main()
