"""`weft trace` on a real server: the file is good, and says what the metrics say."""

import http.client
import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest

import timeline_checks
from weft_server import BIN, WeftServer, run_tests, wait_until

SHARDS = 2
REQUESTS = 6
TOKENS = 24


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        cls.admin = f"127.0.0.1:{port}"
        cls.server = WeftServer(f"--admin-port={port}", shards=SHARDS).start()
        cls.addClassCleanup(cls.server.stop)

    def get(self, path, host=None):
        """(status, body) of the admin port."""
        connection = http.client.HTTPConnection(self.admin, timeout=30)
        try:
            connection.request("GET", path, headers={"Host": host} if host else {})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def generate(self):
        return self.server.post("/generate", {"inputs": "Once upon a time", "parameters": {
            "max_new_tokens": TOKENS, "ignore_eos_token": True}})

    def trace_under_load(self, folder):
        """(timeline, metrics before, metrics after): all requests begin and end within."""
        out = pathlib.Path(folder) / "trace.json"
        before = self.server.metrics()
        process = subprocess.Popen(
            [str(BIN / "weft"), "trace", f"--connect={self.admin}", "--seconds=4", f"--out={out}"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        # The server's first words are there when the timeline has begun.
        wait_until(out.with_name("trace.json.part").exists, "the timeline's beginning")
        self.assertEqual(self.get("/debug/trace?seconds=1")[0], 409)
        threads = [threading.Thread(target=self.generate) for _ in range(REQUESTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = self.server.metrics()
        self.assertEqual(process.wait(60), 0)
        self.assertIn(str(out), process.stdout.read())
        self.assertFalse(out.with_name("trace.json.part").exists())
        return json.loads(out.read_text()), before, after

    def test_a_timeline_is_nested_and_agrees_with_the_metrics(self):
        with tempfile.TemporaryDirectory(prefix="weft-trace-") as folder:
            trace, before, after = self.trace_under_load(folder)
        timeline_checks.check(trace)
        self.assertEqual(trace["otherData"]["dropped_events"], "0")
        grown = lambda name: sum(value - before.get(series, 0) for series, value in after.items()  # noqa: E731
                                 if series.startswith(name))
        steps = grown("weft_iteration_tokens_total_count")
        self.assertGreater(steps, TOKENS)
        for rank in range(SHARDS):
            device = timeline_checks.slices(trace, cat="device", pid=1000 + rank)
            self.assertGreaterEqual(len(device), steps)
            device_s = sum(event["args"]["device_us"] for event in device
                           if event["name"] != "FilterBatch") * 1e-6
            if rank == 0:
                forward_s = grown("weft_batch_forward_duration_seconds_sum")
                self.assertAlmostEqual(device_s, forward_s, delta=0.01 * forward_s)
            drawn_s = sum(event["dur"] for event in device) * 1e-6
            self.assertLessEqual(drawn_s, device_s * 1.001)
            self.assertGreater(drawn_s, 0.95 * device_s)
            self.assertTrue(timeline_checks.slices(trace, cat="host", pid=1000 + rank))
            # Two ranks wait for each other in every step.
            self.assertTrue(timeline_checks.slices(trace, cat="communication", pid=1000 + rank))
        sends = timeline_checks.slices(trace, name="send")
        self.assertEqual(sum(event["args"]["tokens"] for event in sends),
                         grown("weft_iteration_tokens_total_sum"))
        texts = timeline_checks.slices(trace, name="text out")
        self.assertEqual(sum(event["args"]["tokens"] for event in texts),
                         grown("weft_generation_tokens_total"))

    def test_requests_are_arrows_with_the_ids_of_the_log(self):
        with tempfile.TemporaryDirectory(prefix="weft-trace-") as folder:
            trace, _, _ = self.trace_under_load(folder)
        requests = timeline_checks.requests(trace)
        self.assertEqual(len(requests), REQUESTS)
        flows = {event["args"]["request_id"] for event in trace["traceEvents"]
                 if event["ph"] == "f"}
        self.assertEqual(flows, set(requests))
        for request, phases in requests.items():
            self.assertIn(f"id={request} ", self.server.log_text())
            self.assertEqual(set(phases), {"", "text in", "queue", "prefill", "decode"})
            whole = phases.pop("")
            for begin, end in phases.values():
                self.assertLessEqual(whole[0], begin)
                self.assertLessEqual(end, whole[1])
            self.assertEqual(phases["prefill"][1], phases["decode"][0])

    def test_the_route_is_of_the_admin_port_and_takes_a_number(self):
        self.assertEqual(self.server.request("GET", "/debug/trace?seconds=1")[0], 404)
        for query in ("seconds=0", "seconds=61", "seconds=x", "minutes=1", "seconds=1&x=2"):
            status, body = self.get(f"/debug/trace?{query}")
            self.assertEqual(status, 400, query)
            self.assertIn("1 .. 60", body)
        self.assertEqual(self.get("/debug/trace?seconds=1", host="evil.example")[0], 421)

    def test_a_reader_that_leaves_gives_the_place_back(self):
        connection = http.client.HTTPConnection(self.admin, timeout=30)
        connection.request("GET", "/debug/trace?seconds=60")
        self.assertEqual(connection.getresponse().status, 200)
        self.assertEqual(self.get("/debug/trace?seconds=1")[0], 409)
        connection.sock.close()
        connection.close()
        wait_until(lambda: self.get("/debug/trace?seconds=1")[0] == 200, "its place", 10)

    def test_what_cannot_be_is_said_in_one_line(self):
        def refused(*flags):
            done = subprocess.run([str(BIN / "weft"), "trace", *flags], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            return done.stderr
        self.assertIn("1 .. 60", refused("--seconds=61"))
        self.assertIn("--admin-port", refused("--connect=127.0.0.1:1"))
        self.assertIn("is it the admin port", refused(f"--connect={self.server.http}"))
        self.assertIn("--out", refused(f"--connect={self.admin}", "--out=/nowhere/trace.json"))


if __name__ == "__main__":
    run_tests()
