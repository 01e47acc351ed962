"""Looks at the server of a soak run from outside, between its loads."""

import contextlib
import os
import pathlib
import time

from machine_delay import WakeDelays
from soak_gates import Process, Sample
from soak_load import view
from stream_clients import Streams
from stream_doors import COMPLETIONS, GRPC, TGI, Ask
from weft_server import children_of, wait_until

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The same streams in each quiet phase.
QUIET = [(door, Ask(f"Count the {what} of the harbour.", max_tokens=64))
         for door, what in zip((GRPC, TGI, COMPLETIONS) * 2,
                               ("ships", "ropes", "gulls", "lamps", "bells", "steps"))]
IDLE_S, SETTLE_S = 20, 5


def status_of(pid):
    """{field of /proc/PID/status: text}"""
    return dict(line.split(":", 1) for line in
                pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)


# As gRPC names its threads, cut to the 15 characters that Linux keeps.
GRPC_THREADS = ("default-executo", "event_engine", "grpc_global_tim", "nexting_thread",
                "resolver-execut", "timer_manager")


def threads_of(pid):
    """(ours, gRPC's)"""
    names = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm"):
        # One that ends meanwhile.
        with contextlib.suppress(OSError):
            names.append(path.read_text().strip())
    of_grpc = sum(name in GRPC_THREADS for name in names)
    return len(names) - of_grpc, of_grpc


def process_of(pid, *others):
    """Sums over a process and those that belong to it. Memory is what is its own: pages of files
    come and go with the page cache."""
    memory_kb = descriptors = threads = grpc_threads = 0
    for one in (pid, *others):
        fields = status_of(one)
        memory_kb += sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))
        descriptors += len(os.listdir(f"/proc/{one}/fd"))
        ours, of_grpc = threads_of(one)
        threads, grpc_threads = threads + ours, grpc_threads + of_grpc
    return Process(pid, memory_kb, descriptors, threads, grpc_threads)


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def descendants(pid):
    found = []
    for child in children_of(pid):
        found += [child, *descendants(child)]
    return found


class Watch:
    def __init__(self, server):
        self.server, self.began = server, time.monotonic()
        self.quiet = view(server, "search")
        self.samples, self.floor = [], {}

    def pids(self):
        return {"launcher": self.server.process.pid, "router": self.server.router_pid(),
                **{f"shard-{rank}": self.server.shard_pid(rank)
                   for rank in range(self.server.shards)}}

    def processes(self):
        pids = self.pids()
        found = {role: process_of(pid) for role, pid in pids.items()}
        templates = descendants(pids["router"])
        if templates:
            found["templates"] = process_of(*templates)
        return found

    def settled(self):
        """Processes, once each has as few descriptors as it ever had, or after a while."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            found = self.processes()
            if time.monotonic() > deadline or all(
                    process.descriptors <= self.floor.get(process.pid, process.descriptors)
                    for process in found.values()):
                break
            time.sleep(0.1)
        for process in found.values():
            self.floor[process.pid] = min(process.descriptors,
                                          self.floor.get(process.pid, process.descriptors))
        return found

    def requests(self):
        return int(self.server.metric("weft_num_requests_running")
                   + self.server.metric("weft_num_requests_waiting"))

    def used(self):
        return int(self.server.metric("weft_kv_blocks", state="used"))

    def probe(self):
        """(Streams, p99 of their gaps, p99 of how late threads ran meanwhile, CPU a token)."""
        pids = [pid for role, pid in self.pids().items() if role != "launcher"]
        before = sum(map(cpu_s, pids))
        with WakeDelays() as delays:
            began = time.time()
            streams = Streams(self.quiet, QUIET).join()
            took_s = time.time() - began
        spent_s = sum(map(cpu_s, pids)) - before
        gaps = sorted(b.at - a.at for history in streams.histories
                      for a, b in zip(history.tokens(), history.tokens()[1:]))
        late = sorted(ran - due for due, ran in delays.late)
        # Those that were in time are not written down.
        above = int(0.01 * took_s * 1000 * len(delays.probes))
        late_s = late[-1 - above] if above < len(late) else 0.0
        return (streams, 1e3 * gaps[int(0.99 * len(gaps))], 1e3 * late_s,
                1e6 * spent_s / max(1, streams.tokens()))

    def take(self, log_path, sent, faults):
        """A sample; the streams of the quiet phase."""
        try:
            wait_until(lambda: self.requests() == 0 and self.used() == 0, "idleness", IDLE_S)
        except AssertionError:
            pass  # The sample says so.
        blocks, requests = self.used(), self.requests()
        streams, gap_ms, late_ms, cpu_us = self.probe()
        processes = self.settled()
        self.samples.append(Sample(
            time.monotonic() - self.began, processes, blocks, requests,
            int(self.server.metric("weft_http_connections")), os.stat(log_path).st_size, sent,
            faults, gap_ms, late_ms, cpu_us))
        return streams
