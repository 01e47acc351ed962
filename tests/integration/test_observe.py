"""The board, the rules and the alerts of deploy/ against a real Prometheus that scrapes a real server:
light load, late clients, overload, a stall, kills of shards and of the router, a drain.

Prometheus runs weft's own rules with seconds for minutes (prometheus_server.py). Each part lasts until
the alerts that it is for fire, and the next one begins when they are gone.
"""

import json
import os
import pathlib
import signal
import tempfile
import time
import unittest

from observe_load import TENANTS, Load, completions, key_file, leaves, mixture, overload, too_late
from prometheus_server import PrometheusServer, free_ports
from weft_server import ROOT, WeftServer, run_tests, wait_until

BOARD = ROOT / "deploy/grafana/weft.json"
SHARDS = 2
# A small pool and few places, so that a few clients are an overload.
FLAGS = ["--running-max=16", "--queue-requests-max=60", "--kv-memory=36MiB", "--step-tokens-max=96",
         "--hang-timeout-ms=20000", "--drain-timeout-s=6"]
PATIENCE_S = 120
# Enough for rates over the five seconds that stand for five minutes.
CALM_S = 6
# Panels of which a query has no data here, and why.
NO_DATA = {
    "Most rows for an expert, against the mean": "the demo model has no experts",
}
# Panels that show nothing but zeros here, and why.
ZERO = {
    "Rows without a usable number; keys and values at the limit": "nothing is wrong",
    "Streams resumed here": "no client brings an answer from elsewhere",
    "Threads found stuck": "no thread is stuck",
    "Requests without a group": "a router with one group hands them out at once",
    "Placements": "a router with one group has nothing to choose",
    "Requests given back": "a router with one group has no other that could take them",
    "Log lines dropped": "the test's log takes all lines",
    "Waits for compute helpers": "a shard with one core has no helpers",
    "Compute helpers without a core": "a shard with one core has no helpers",
}


def as_asked(query):
    """A panel's query as the board would ask it, of everything."""
    return (query.replace("$__rate_interval", "5s").replace('=~"$model"', '=~".*"')
            .replace('=~"$instance"', '=~".*"'))


def panels():
    """(title, query) of each query of the board."""
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


class Observe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        keys = tempfile.TemporaryDirectory(prefix="weft-observe-")
        cls.addClassCleanup(keys.cleanup)
        cls.key_file = pathlib.Path(keys.name) / "keys.json"
        cls.key_file.write_text(json.dumps(key_file()))
        cls.admin, *cls.shard_ports = free_ports(1 + SHARDS)
        cls.prometheus = PrometheusServer({
            "weft": [f"127.0.0.1:{cls.admin}"],
            "weft-shards": [f"127.0.0.1:{port}" for port in cls.shard_ports]})
        cls.start_server()
        cls.addClassCleanup(cls.stop_server)
        cls.prometheus.start()
        cls.addClassCleanup(cls.prometheus.stop)

    @classmethod
    def start_server(cls):
        cls.server = WeftServer(f"--admin-port={cls.admin}", f"--api-keys={cls.key_file}",
                                f"--shard-metrics-port={cls.shard_ports[0]}", *FLAGS,
                                shards=SHARDS).start()

    @classmethod
    def stop_server(cls):
        if cls.server.process.poll() is None:
            cls.server.stop()

    # -- What the parts wait for ------------------------------------------------------------------
    def until_firing(self, *names):
        began, seen = time.monotonic(), {}

        def all_fired():
            seen.update(self.prometheus.firing())
            return set(names) <= set(seen)
        try:
            wait_until(all_fired, "alerts to fire", PATIENCE_S)
        except AssertionError:
            self.fail(f"did not fire: {sorted(set(names) - set(seen))}")
        for name in names:
            print(f"{time.monotonic() - began:5.1f} s  {name}: {seen[name]['summary']}", flush=True)

    def until_clear(self):
        wait_until(lambda: not self.prometheus.firing(), "all alerts to clear", PATIENCE_S)

    def calm(self, seconds, condition=lambda: True):
        """Waits until the clock says so and the condition holds."""
        end = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > end and condition(), "light load", PATIENCE_S)

    # -- Parts ------------------------------------------------------------------------------------
    def light_load(self):
        wait_until(self.prometheus.all_up, "the first scrapes", PATIENCE_S)
        self.until_clear()
        with Load(self.server, mixture, 4):
            self.calm(CALM_S)
        # A step that only drops: whoever leaves was alone.
        with Load(self.server, leaves, 1):
            self.calm(0, lambda: self.server.metric("weft_steps_total", kind="filter") > 2)
        for tenant in TENANTS:
            self.assertGreater(self.server.metric("weft_tenant_requests_total", tenant=tenant), 0)
            self.assertEqual(self.server.metric("weft_tenant_rejections_total", tenant=tenant), 0)
        self.assertTrue(self.prometheus.all_up())
        self.assertEqual(self.prometheus.firing(), {})

    def late_clients(self):
        with Load(self.server, too_late, 4):
            self.until_firing("WeftErrorRatio", "WeftErrorRatioSevere")
        self.until_clear()

    def too_many_clients(self):
        with Load(self.server, overload, 100):
            self.until_firing("WeftRejecting", "WeftQueueHigh", "WeftKvHigh", "WeftPreempting")
        self.until_clear()

    def stall(self):
        with Load(self.server, completions, 2):
            self.calm(1)
            shard = self.server.shard_pid(1)
            os.kill(shard, signal.SIGSTOP)
            try:
                self.until_firing("WeftEngineStalled")
            finally:
                os.kill(shard, signal.SIGCONT)
            self.until_clear()

    def shard_that_ends_again_and_again(self):
        with Load(self.server, completions, 2):
            wanted = {"WeftShardFlapping", "WeftShardDown", "WeftNoReady"}
            fired = set()

            def kill_and_look():
                shard = self.server.shard_pid(1)
                if shard:
                    os.kill(shard, signal.SIGKILL)
                fired.update(self.prometheus.firing())
                return wanted <= fired
            wait_until(kill_and_look, str(wanted), PATIENCE_S)
            self.until_clear()

    def router_that_ends_again_and_again(self):
        pids = set()

        def kill_and_look():
            router = self.server.router_pid()
            # Prometheus has to see each process.
            if router and router not in pids and self.prometheus.all_up():
                pids.add(router)
                os.kill(router, signal.SIGKILL)
            return "WeftRouterRestarting" in self.prometheus.firing()
        wait_until(kill_and_look, "WeftRouterRestarting", PATIENCE_S)
        self.until_clear()

    def drain(self):
        with Load(self.server, overload, 8):
            self.calm(1)
            self.server.process.send_signal(signal.SIGTERM)
            self.server.process.wait(PATIENCE_S)
            self.server.close()
            self.until_firing("WeftMetricsAbsent", "WeftModelAbsent")
        self.start_server()
        with Load(self.server, completions, 1):
            self.until_clear()

    # -- Checks -----------------------------------------------------------------------------------
    def values_of(self, query):
        return [value for _, points in self.prometheus.history(query) for _, value in points
                if value == value]

    def check_panels(self):
        empty, zero = set(), set()
        for title, query in panels():
            values = self.values_of(as_asked(query))
            if not values:
                empty.add(title)
            elif not any(values):
                zero.add(title)
        self.assertEqual(empty, set(NO_DATA), "panels without data")
        self.assertLessEqual(zero, set(ZERO), "panels that show zeros alone")

    def check_rules(self):
        groups = self.prometheus.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertEqual([rule for rule in rules if rule["health"] != "ok"], [])
        recorded = [rule["name"] for rule in rules if rule["type"] == "recording"]
        self.assertGreater(len(recorded), 10)
        self.assertEqual([name for name in recorded if not any(self.values_of(name))], [])

    def test_what_happens_is_seen(self):
        for part in (self.light_load, self.late_clients, self.too_many_clients, self.stall,
                     self.shard_that_ends_again_and_again, self.router_that_ends_again_and_again,
                     self.drain):
            began = time.monotonic()
            part()
            print(f"{time.monotonic() - began:5.1f} s  {part.__name__}", flush=True)
        self.check_panels()
        self.check_rules()


if __name__ == "__main__":
    run_tests()
