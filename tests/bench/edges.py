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
import struct
import subprocess
import sys
import tempfile
import threading
import time

import measure  # also sets WEFT_BIN_DIR's default and the path to weft_server
from measure import cpu_times_s, row
import test_grpc_flood
from weft_server import BIN, WeftServer, grpc_modules

POSTS = 200
POST_BYTES = 4_000_000
REFUSALS = 1000
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


def connect_and_close(address, stop):
    """Connections that come and go at once, as fast as one process makes them. They end by a reset:
    else the client's machine soon has no port left."""
    reset = struct.pack("ii", 1, 0)
    while not stop.is_set():
        try:
            with socket.create_connection(address, timeout=1) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        except OSError:
            pass  # no place left for this one


class AcceptFlood:
    """Four processes of connect_and_close."""

    def __init__(self, server):
        host, port = server.http.split(":")
        self.stopping = multiprocessing.Event()
        self.processes = [multiprocessing.Process(target=connect_and_close,
                                                  args=((host, int(port)), self.stopping))
                          for _ in range(4)]
        for process in self.processes:
            process.start()

    def stop(self):
        self.stopping.set()
        for process in self.processes:
            process.join()


class Held:
    """Connections that say `first` and no more, or then one byte of `trickle` each second."""

    def __init__(self, address, count, first, trickle=b""):
        host, port = address.split(":")
        self.stopping = threading.Event()
        self.sockets = []
        for _ in range(count):
            one = socket.create_connection((host, int(port)), timeout=5)
            one.sendall(first)
            self.sockets.append(one)
        self.thread = threading.Thread(target=self.run, args=(trickle,))
        self.thread.start()

    def run(self, trickle):
        while not self.stopping.wait(1):  # the trickle's rate
            for one in self.sockets if trickle else []:
                try:
                    one.send(trickle)
                except OSError:
                    pass  # ended by the server, as it should be

    def stop(self):
        self.stopping.set()
        self.thread.join()
        for one in self.sockets:
            one.close()


class Resets:
    """Calls that are reset at once, as in tests/integration/test_grpc_flood.py."""

    def __init__(self, server, path, message):
        self.flood = test_grpc_flood.Flood(int(server.grpc.split(":")[1]), path, message)

    def stop(self):
        self.flood.join()


def connection_attacks(server):
    body_head = (b"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                 b"Content-Length: 4000000\r\n\r\n")
    generate = b"/weft.v1.TextGeneration/Generate"
    return {
        "connections that come and go": lambda: AcceptFlood(server),
        "4,000 silent HTTP connections": lambda: Held(server.http, 4000, b""),
        "1,100 silent gRPC connections": lambda: Held(server.grpc, 1100, test_grpc_flood.PREFACE),
        "300 bodies of 4 MB, a byte a second": lambda: Held(server.http, 300, body_head, b" "),
        "rapid reset of Generate": lambda: Resets(server, generate, b"\x1a\x02Hi"),
        "rapid reset of no method": lambda: Resets(server, b"/none/None", b""),
    }


def health_s(server):
    start = time.monotonic()
    status, _, _ = server.request("GET", "/health", timeout_s=10)
    if status != 200:
        raise RuntimeError(f"/health: HTTP {status}")
    return time.monotonic() - start


def case_connections():
    """Connections without end, silent, trickling or resetting, five seconds each, beside a stream."""
    with WeftServer(*SHARD_FLAGS) as server:
        small_request_s(server)
        stream = Stream(server)
        measure.wait_until(stream.has_begun, "the stream")
        quiet_from = time.monotonic()
        time.sleep(5)  # the span that is measured
        quiet = stream.longest_gap_ms(quiet_from)
        row("quiet: longest gap of the stream", round(quiet, 1), "ms")
        for name, attack in connection_attacks(server).items():
            start_mib = peak = rss_mib(server.router_pid())
            since, health = time.monotonic(), []
            running = attack()
            while time.monotonic() < since + 5:
                health.append(health_s(server))
                peak = max(peak, rss_mib(server.router_pid()))
                time.sleep(0.005)  # the probe's rate
            gap = stream.longest_gap_ms(since)
            running.stop()
            health.sort()
            row(name, f"+{peak - start_mib:.0f}", "MiB",
                f"/health median {health[len(health) // 2] * 1e3:.1f}, worst "
                f"{health[-1] * 1e3:.1f} ms of {len(health)}; longest gap {gap:.1f} ms, "
                f"{gap / quiet:.2f} x quiet")
        stream.stop()


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


def ask_refused(address, body, headers, status, times):
    host, port = address.split(":")
    found = []
    for _ in range(REFUSALS):
        start = time.monotonic()
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.request("POST", "/generate", json.dumps(body),
                           {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        found.append(1e3 * (time.monotonic() - start))
        if response.status != status:
            times.put(f"HTTP {response.status}, not {status}: {data[:200]}")
            return
    times.put(sorted(found))


def refusal_ms(server, body, headers, status):
    """Asked by a process of its own: the lock of the interpreter that reads the answers of the load,
    some of them of megabytes, must not look like the server's time."""
    times = multiprocessing.Queue()
    process = multiprocessing.Process(target=ask_refused,
                                      args=(server.http, body, headers, status, times))
    process.start()
    found = times.get(timeout=300)
    process.join()
    if isinstance(found, str):
        raise RuntimeError(found)
    return found


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
                times = refusal_ms(server, data, headers, int(name))
                row(f"refusal {name} under full load", round(statistics.median(times), 2), "ms",
                    f"p99 {times[-1 - REFUSALS // 100]:.2f} ms, worst {times[-1]:.2f} ms of "
                    f"{REFUSALS}, a new connection each; clients share the {os.cpu_count()} cores")
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


def queue_ms(server, tenant):
    """Queue times of the tenant's requests as the access log has them, in its order."""
    lines = [line for line in server.log_text().splitlines() if f" tenant={tenant} " in line]
    return [float(word.split("=")[1]) for line in lines for word in line.split()
            if word.startswith("queue_ms=")]


def case_flooded():
    """A tenant that uses a fifth of its share, alone and beside one that floods: its queue times."""
    with tempfile.TemporaryDirectory() as folder:
        keys = write_keys(folder, calm={}, flood={})
        headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
        body = {"prompt": "A story", "max_tokens": 32, "ignore_eos": True}
        with WeftServer(*SHARD_FLAGS, f"--api-keys={folder}/keys.json",
                        "--running-max=16") as server:
            def ask(tenant):
                server.request("POST", "/v1/completions", body, headers[tenant])

            def flood(stopping):
                while not stopping.is_set():
                    ask("flood")

            def flooding(act):
                stopping = threading.Event()
                threads = [threading.Thread(target=flood, args=(stopping,)) for _ in range(48)]
                for thread in threads:
                    thread.start()
                try:
                    measure.wait_until(lambda: server.metric("weft_num_requests_waiting") >= 16,
                                       "a backlog", 30)
                    act()
                finally:
                    stopping.set()
                    for thread in threads:
                        thread.join()

            def calm(rate, count):
                """`count` requests at times a rate apart, however long each takes."""
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    for _ in range(count):
                        pool.submit(ask, "calm")
                        time.sleep(1 / rate)  # the tenant's rate

            ended = []

            def count_flood():
                before = server.metric("weft_generation_tokens_total")
                time.sleep(5)  # the span that is measured
                ended.append((server.metric("weft_generation_tokens_total") - before) / 32 / 5)
            flooding(count_flood)
            rate = ended[0] / 2 / 5  # a fifth of half of all
            count = min(300, max(30, round(rate * 20)))
            calm(rate, 20)  # warms up
            calm(rate, count)
            flooding(lambda: calm(rate, count))
            server.wait_idle()
            lines = queue_ms(server, "calm")
            alone, beside = sorted(lines[20:20 + count]), sorted(lines[20 + count:])
            row("queue time of a tenant at a fifth of its share, beside one that floods",
                round(statistics.median(beside), 2), "ms",
                f"alone {statistics.median(alone):.2f} ms; worst {beside[-1]:.2f}, alone "
                f"{alone[-1]:.2f} ms of {count}; {rate:.1f} requests of 32 tokens a second of {ended[0]:.0f}")


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"],
                   check=True, capture_output=True)


def open_connections(server, count, context):
    host, port = server.http.split(":")
    return [http.client.HTTPSConnection(host, int(port), context=context) if context
            else http.client.HTTPConnection(host, int(port)) for _ in range(count)]


def read_streams(connections, requests, tokens, headers):
    """Runs `requests` completions of `tokens` tokens, one at a time on each of `connections`."""
    body = json.dumps({**STREAM, "max_tokens": tokens}).encode()
    left = iter(range(requests))
    lock = threading.Lock()

    def client(connection):
        while True:
            with lock:
                if next(left, None) is None:
                    break
            connection.request("POST", "/v1/completions", body,
                               {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            data = response.read()
            if response.status != 200 or data.count(b"data:") < tokens:
                raise RuntimeError(f"HTTP {response.status}: {data[:200]}")
    with concurrent.futures.ThreadPoolExecutor(len(connections)) as pool:
        for done in [pool.submit(client, one) for one in connections]:
            done.result()


def cpu_us(pid):
    """CPU time of all threads by the scheduler's own clock; /proc's stat counts in steps of 10 ms."""
    return sum(int(path.read_text().split()[0])
               for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e3


def router_cpu_us(server, act):
    """(all, the part in user space) of the router while `act` runs."""
    pid = server.router_pid()
    before, user_before = cpu_us(pid), cpu_times_s(pid)[0]
    act()
    return cpu_us(pid) - before, (cpu_times_s(pid)[0] - user_before) * 1e6


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
        opened = {name: [] for name in kinds}
        for _ in range(3):
            for name, (extra, headers, tls) in kinds.items():
                with WeftServer(*extra) as server:
                    read_streams(open_connections(server, 4, tls), 4, 256, headers)
                    many = open_connections(server, 256, tls)
                    opened[name].append(router_cpu_us(
                        server, lambda: [one.connect() for one in many])[0] / len(many))
                    streams = many[:32]
                    read_streams(streams, 32, 8, headers)
                    used = router_cpu_us(server, lambda: read_streams(streams, 384, 256, headers))
                    found[name].append([us / (384 * 256) for us in used])
        for name, runs in found.items():
            total, user = [statistics.median(part) for part in zip(*runs)]
            row(f"router CPU a token at 32 streams, {name}", round(total, 2), "us",
                f"user space {user:.1f} us; runs in turns: "
                f"{', '.join(f'{run[0]:.2f}' for run in runs)}")
            row(f"router CPU to open a connection, {name}",
                round(statistics.median(opened[name])), "us")


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
