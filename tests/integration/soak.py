"""A soak run: one server under mixed load of several tenants, a fault every so often, and gates on
what must not grow, leak or be wrong meanwhile. tests/soak.sh starts it; --help says what can be
chosen.

A period is load with one fault in it, then silence: everything has to come back to idle, some quiet
streams are timed, and a sample is taken. The first third of the run has all kinds of faults; in the
rest the router and one shard are spared, so that they live long enough for slopes.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import soak_gates
from disks import LoggingTo
from soak_disturb import Disk, Disturber, Shim, mount_namespace
from soak_gates import Row
from soak_load import Load, Windows, book, judge, key_file, view
from soak_watch import QUIET, Watch
from stream_clients import Checker
from stream_doors import Ask, never, new_history, read_stream
from stream_history import TOKEN
from weft_server import BIN, SKIPPED

FLAGS = ["--kv-memory=192MiB", "--running-max=12", "--hang-timeout-ms=1500", "--log-format=json",
         "--record-bytes-max=8388608"]
CLIENTS = 12
# Of the demo model: the end of a text, the beginning and the end of a message.
CONTROL_IDS = {0, 1, 2}
ALL_KINDS_SHARE = 1 / 3
# Each plants one fault in the run itself, and the gate whose name begins so has to find it.
PLANTS = {"memory": "memory of router", "descriptors": "descriptors of router",
          "threads": "threads of router", "blocks": "KV blocks", "gaps": "p99 gap", "log": "log",
          "tokens": "streams"}
LEAKS = {"memory": {"leak_bytes": 65536}, "descriptors": {"leak_descriptors": 1},
         "threads": {"leak_threads": 1}}


def arguments():
    parser = argparse.ArgumentParser(prog="tests/soak.sh", description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long; default %(default)s")
    parser.add_argument("--period-s", type=float, default=None,
                        help="one fault in each; default 30, and 8 in runs below 10 minutes")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("WEFT_SEED", "41")))
    parser.add_argument("--plant", choices=sorted(PLANTS),
                        help="let the run have this fault of its own: it is good when the fault's "
                        "gate fails")
    parser.add_argument("--out", type=pathlib.Path, help="also write the report as JSON")
    return parser.parse_args()


class Judged:
    """What became of all streams."""

    def __init__(self, windows, undisturbed):
        self.windows, self.undisturbed = windows, undisturbed
        self.ends, self.faults, self.tokens = {}, [], 0

    def add(self, streams):
        for stream in streams:
            end, found = judge(stream, self.windows, self.undisturbed(stream.ask))
            self.ends[end] = self.ends.get(end, 0) + 1
            self.tokens += stream.history.count
            self.faults += [f"{stream.history.door} {stream.tenant} {stream.began:.2f}: {fault}"
                            for fault in found]

    def row(self):
        said = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        return Row("streams that the checker finds wrong",
                   f"{len(self.faults)} of {said}; {self.tokens} tokens", "0",
                   not self.faults and bool(self.ends))


class Plant:
    """The fault that a run has of its own."""

    def __init__(self, kind, server, seed):
        self.kind, self.server, self.ended = kind, server, threading.Event()
        self.random = random.Random(seed)
        if kind == "blocks":
            threading.Thread(target=self.hold_blocks, daemon=True).start()

    def hold_blocks(self):
        """A client that never lets its request end."""
        while not self.ended.is_set():
            read_stream(view(self.server, "search"), "gRPC",
                        Ask("Once upon a time", max_tokens=2000), new_history("gRPC"), never)

    def spoil(self, history):
        if self.kind == "tokens" and history.count > 20 and self.random.random() < 0.05:
            history.events.remove(history.of(TOKEN)[10])

    def slow_probe(self, share):
        """Stands in the way of the quiet streams of the run's last part."""
        if self.kind != "gaps" or share < 0.5:
            return None
        pid = self.server.shard_pid(0)
        code = f"while kill -STOP {pid}; do sleep 0.1; kill -CONT {pid}; sleep 0.15; done"
        return subprocess.Popen(["bash", "-c", code], stderr=subprocess.DEVNULL), pid

    @staticmethod
    def end_probe(probe):
        if probe:
            process, pid = probe
            process.kill()
            process.wait()
            os.kill(pid, signal.SIGCONT)


class Run:
    def __init__(self, options, server, disk, shim, files, log_path):
        self.options, self.server, self.log_path = options, server, log_path
        self.random, self.windows = random.Random(options.seed), Windows()
        asks = book(random.Random(options.seed))
        self.checker = Checker(view(server, "search")).learn(
            [ask for _, ask in asks] + [ask for _, ask in QUIET])
        # A control token has bytes and no text, which the checker does not know of every door.
        asks = [(doors, ask) for doors, ask in asks
                if not CONTROL_IDS & set(self.checker.known(ask)[1].ids())]
        self.judged = Judged(self.windows, lambda ask: self.checker.known(ask)[1])
        self.plant = Plant(options.plant, server, options.seed)
        self.load = Load(server, asks, options.seed, CLIENTS, self.windows, self.plant.spoil)
        self.disturber = Disturber(server, self.load, disk, shim, files, self.windows, options.seed)
        self.watch, self.lost = Watch(server), []
        self.sent = self.faults = 0

    def period(self, share):
        """`share` of the run has passed."""
        began, period_s = time.monotonic(), self.options.period_s
        load_s = 0.7 * period_s
        self.load.going.set()
        time.sleep(self.random.uniform(0.15, 0.4) * period_s)
        name, running = self.disturber.one()
        self.faults += 1
        time.sleep(max(0.0, began + load_s - time.monotonic()))
        self.load.pause()
        self.disturber.wait_ready()
        streams = self.load.take()
        self.sent += len(streams) + len(QUIET)
        self.judged.add(streams)
        probe = self.plant.slow_probe(share)
        try:
            quiet = self.watch.take(self.log_path, self.sent, self.faults)
        finally:
            self.plant.end_probe(probe)
        self.checker.check(quiet)
        sample = self.watch.samples[-1]
        router = sample.processes["router"]
        print(f"{sample.at_s:7.1f} s  {name:34} {running:2} ran  {len(streams):4} streams  router "
              f"{router.memory_kb / 1024:6.1f} MiB {router.descriptors} fd {router.threads}+{router.grpc_threads} thr  "
              f"p99 {sample.gap_p99_ms:5.1f} ms (late {sample.late_p99_ms:4.1f})  "
              f"{sample.cpu_us_per_token:5.0f} us/token", flush=True)

    def go(self):
        seconds, watched = 60 * self.options.minutes, 0
        began, spared = time.monotonic(), None
        while (share := (time.monotonic() - began) / seconds) < 1:
            if share >= ALL_KINDS_SHARE and spared is None:
                spared, watched = self.disturber.spare(), len(self.watch.samples)
                print(f"from here on the router and shard {spared} are spared", flush=True)
            self.period(share)
        self.plant.ended.set()
        self.load.close()
        roles = ["launcher", "router", "templates", f"shard-{spared or 0}"]
        # Lives begin anew where the run stopped to end them; the launcher's is the whole run's.
        rows = soak_gates.judge(self.watch.samples, roles)
        rows.append(self.judged.row())
        done = self.disturber.done
        print("faults:", ", ".join(f"{count} {kind}" for kind, count in done.items()))
        kinds = sum(count > 0 for count in done.values())
        rows.append(Row("kinds of faults", f"{kinds} of {len(done)}", "all, in 10 minutes",
                        kinds == len(done) or self.options.minutes < 10))
        return rows


def replays(folder):
    done = subprocess.run([BIN / "weft", "replay", str(folder / "recording")], capture_output=True,
                          text=True, timeout=600)
    said = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]
    return Row("recording replays", said[:70], "exit code 0", done.returncode == 0)


def soak(options):
    mount_namespace()
    with Disk() as disk:
        shim = Shim(disk.folder.name, **LEAKS.get(options.plant, {}))
        files = {name: pathlib.Path(disk.folder.name, name) for name in ("keys", "config")}
        files["keys"].write_text(json.dumps(key_file(), indent=1))
        files["config"].write_text("queue-requests-max = 64\n")
        flags = [*FLAGS, f"--api-keys={files['keys']}", f"--config={files['config']}",
                 f"--record={disk.path / 'recording'}"]
        if options.plant == "log":
            flags.append("--log-level=trace")
        log_path = disk.path / "log"
        with LoggingTo(log_path, *flags, shards=2, environment=shim.environment) as server:
            server.headers = {}
            run = Run(options, server, disk, shim, files, log_path)
            rows = run.go()
            code = server.stop(60)
            rows.append(Row("exit code after SIGTERM", str(code), "0", code == 0))
        rows.append(replays(disk.path))
        return run, rows


def report(options, run, rows, took_s):
    print(f"\nseed {options.seed}, {took_s / 60:.1f} min, a fault every {options.period_s:g} s")
    print(soak_gates.table(rows))
    for fault in run.judged.faults[:20]:
        print(fault)
    if options.out:
        options.out.write_text(json.dumps({
            "seed": options.seed, "minutes": took_s / 60, "period_s": options.period_s,
            "plant": options.plant, "rows": [dataclasses.asdict(row) for row in rows],
            "faults": run.judged.faults,
            "samples": [dataclasses.asdict(sample) for sample in run.watch.samples]}, indent=1))
    bad = [row.gate for row in rows if not row.good]
    if options.plant:
        # Too few samples prove nothing.
        found = any(row.gate.startswith(PLANTS[options.plant]) and not row.good
                    and not row.found.endswith("samples") for row in rows)
        print(f"planted {options.plant}: {'found' if found else 'NOT FOUND'}"
              f"{', by ' + ', '.join(bad) if bad else ''}")
        return 0 if found else 1
    return 1 if bad else 0


def main():
    options = arguments()
    options.period_s = options.period_s or (30 if options.minutes >= 10 else 8)
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    try:
        run, rows = soak(options)
    except unittest.SkipTest as why:
        print(f"SKIPPED soak, {why}", file=sys.stderr)
        return SKIPPED
    return report(options, run, rows, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
