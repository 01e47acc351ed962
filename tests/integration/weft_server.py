"""Starts real `weft serve` processes for the integration tests and looks at them from outside.

The build's binaries are found through WEFT_BIN_DIR (set by ctest); the demo model through
WEFT_DEMO_MODEL or the cache that deploy/setup.sh fills.
"""

import atexit
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from skips import SKIPPED, run_tests, skip  # noqa: E402, F401 - for the tests that start servers

BIN = pathlib.Path(os.environ.get("WEFT_BIN_DIR", ROOT / "build/ci/bin"))
WEFT_CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or pathlib.Path(
    os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "weft")
DEMO_MODEL = os.environ.get("WEFT_DEMO_MODEL") or str(
    WEFT_CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
START_TIMEOUT_S = 60
POLL_S = 0.005


def wait_until(condition, what, timeout_s=30):
    """Polls `condition` until it is true; fails by name after the time-out."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout_s} s waiting for {what}")
        time.sleep(POLL_S)


def children_of(pid):
    """{pid: command name} of the living direct children of a process."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name = text[text.index("(") + 1:text.rindex(")")]
        state, parent = text[text.rindex(")") + 2:].split()[:2]
        if int(parent) == pid and state not in "ZX":
            found[int(stat.parent.name)] = name
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class WeftServer:
    """One `weft serve`. Use as a context manager."""

    # Carried by every stream of stream_doors.py, as HTTP headers or gRPC metadata: a key, say.
    headers: dict = {}

    def __init__(self, *flags, model=DEMO_MODEL, shards=1, environment=None):
        self.argv = [str(BIN / "weft"), "serve", f"--model={model}", f"--shards={shards}",
                     "--http-port=0", "--grpc-port=0", *flags]
        self.shards = shards
        self.environment = {**os.environ, **(environment or {})}
        self.log = tempfile.TemporaryFile(mode="w+")
        self.last_log = ""

    def start(self):
        self.started = time.monotonic()
        self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=self.environment)
        killer = threading.Timer(START_TIMEOUT_S, self.process.kill)
        killer.start()
        line = self.process.stdout.readline()
        killer.cancel()
        if not line.startswith("ready "):
            self.process.wait()
            self.close()
            raise AssertionError(f"the server did not start:\n{self.log_text()}")
        self.ready_s = time.monotonic() - self.started
        words = dict(word.split("=", 1) for word in line.split()[1:])
        self.http, self.grpc = words["http"], words["grpc"]
        return self

    def log_text(self):
        """All of stderr; also after the end."""
        if not self.log.closed:
            # pread: the file's offset belongs to the writers.
            descriptor = self.log.fileno()
            self.last_log = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(
                errors="replace")
        return self.last_log

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, traceback):
        if kind is not None:
            print(self.log_text()[-8000:], file=sys.stderr)
        self.stop()

    def stop(self, timeout_s=30):
        """SIGTERM, then waits. Returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server did not stop:\n{self.log_text()}")
        finally:
            self.close()

    def close(self):
        """Lets go of the pipes of a server that has ended."""
        self.process.stdout.close()
        self.log_text()
        self.log.close()

    # -- Processes --------------------------------------------------------------------------------
    def pid_of(self, kind, rank=None):
        """Pid of "weft-router" or of the shard of `rank`; None while it is not running."""
        for pid, name in children_of(self.process.pid).items():
            if name != kind:
                continue
            try:
                argv = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if rank is None or f"--rank={rank}".encode() in argv:
                return pid
        return None

    def router_pid(self):
        return self.pid_of("weft-router")

    def shard_pid(self, rank):
        return self.pid_of("weft-shard", rank)

    # -- HTTP -------------------------------------------------------------------------------------
    def connection(self, timeout_s=120):
        host, port = self.http.split(":")
        return http.client.HTTPConnection(host, int(port), timeout=timeout_s)

    def request(self, method, path, body=None, headers=None, timeout_s=120):
        """(status, headers, body bytes)."""
        connection = self.connection(timeout_s)
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data,
                               {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def post(self, path, body, **arguments):
        status, _, data = self.request("POST", path, body, **arguments)
        if status != 200:
            raise AssertionError(f"POST {path}: HTTP {status}: {data.decode(errors='replace')}")
        return json.loads(data)

    def events(self, path, body, timeout_s=120):
        """Yields the parsed `data:` events of a stream; raises on another status."""
        connection = self.connection(timeout_s)
        try:
            connection.request("POST", path, json.dumps(body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(f"POST {path}: HTTP {response.status}: {response.read()}")
            for line in response:
                line = line.strip()
                if line.startswith(b"data:") and line != b"data: [DONE]":
                    yield json.loads(line[5:])
        finally:
            connection.close()

    def metrics(self):
        """{series with labels: value} of /metrics."""
        _, _, data = self.request("GET", "/metrics")
        values = {}
        for line in data.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, name, **labels):
        """Sum over the series of `name` that carry all `labels`."""
        total, found = 0.0, False
        for series, value in self.metrics().items():
            if series.split("{")[0] == name and \
                    all(f'{key}="{text}"' in series for key, text in labels.items()):
                total, found = total + value, True
        if not found:
            raise AssertionError(f"no metric {name} {labels}")
        return total

    def wait_idle(self, timeout_s=30):
        """Waits until nothing runs or waits."""
        wait_until(lambda: self.metric("weft_num_requests_running") == 0
                   and self.metric("weft_num_requests_waiting") == 0,
                   "running = waiting = 0", timeout_s)


GRPC_LOCK, GRPC_MODULES = threading.Lock(), []


def grpc_modules():
    """(grpc, generation_pb2, generation_pb2_grpc), of Python stubs made from proto/ once."""
    with GRPC_LOCK:
        if not GRPC_MODULES:
            GRPC_MODULES.extend(make_grpc_modules())
        return tuple(GRPC_MODULES)


def make_grpc_modules():
    import grpc
    from grpc_tools import protoc
    out = tempfile.mkdtemp(prefix="weft-proto-")
    # Messages of other files are imported when they are needed: the stubs stay until the end.
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    code = protoc.main(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={out}",
                        f"--grpc_python_out={out}", *[str(path.relative_to(ROOT / "proto")) for path in
                                                      (ROOT / "proto").rglob("*.proto")]])
    if code != 0:
        raise AssertionError("protoc failed")
    sys.path.insert(0, out)
    from weft.v1 import generation_pb2, generation_pb2_grpc
    return grpc, generation_pb2, generation_pb2_grpc


def seed(usual):
    """What a test draws from: WEFT_SEED, or the usual one. Printed, so that a run can be repeated."""
    number = int(os.environ.get("WEFT_SEED", usual))
    print(f"seed {number}", flush=True)
    return number
