"""The processes of the rendered pods, with the rendered flags and nothing but paths and addresses
changed: probes answer as Kubernetes will ask, requests are served, SIGTERM drains within the grace
period, and memory stays within what deploy/helm/resources.py proposes."""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import yaml

from helm_chart import ROOT, chart_of_tomorrow, containers, merged, render
from skips import run_tests, skip

sys.path.append(str(ROOT / "tests/integration"))
from weft_server import BIN, DEMO_MODEL, wait_until  # noqa: E402

MODEL = pathlib.Path(DEMO_MODEL)
ADDRESSES = ("127.0.0.1", "127.0.0.2")


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Serves(unittest.TestCase):
    def setUp(self):
        if not MODEL.exists():
            skip("demo", f"{MODEL} is missing: run deploy/setup.sh")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.children = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait(timeout=60)

    def start(self, container, replace=(), rank=0):
        """The container's process; `replace` is (pattern, text) for its arguments. A rank has an
        address of its own, as its pod would."""
        arguments = container["args"]
        for pattern, text in (("^--model=/model", f"--model={MODEL.parent}"),
                              ("=/etc/weft/group-tls", f"={self.folder}"), *replace):
            arguments = [re.sub(pattern, text, one) for one in arguments]
        environment = {"PATH": os.environ["PATH"]}
        if container["command"] == ["weft-shard"]:
            environment["WEFT_RANK"] = str(rank)
            arguments = [one.replace("$(POD_IP)", "127.0.0.1").replace("127.0.0.1", ADDRESSES[rank])
                         for one in arguments]
        for one in container["env"]:
            if one["name"] == "XDG_RUNTIME_DIR":
                environment["XDG_RUNTIME_DIR"] = str(self.folder)
        log = open(self.folder / f"{len(self.children)}.log", "wb")
        child = subprocess.Popen([BIN / container["command"][0], *arguments], stdout=log,
                                 stderr=log, env=environment)
        log.close()
        self.children.append(child)
        return child

    def log(self, index):
        return (self.folder / f"{index}.log").read_text()

    def probe(self, container, name):
        """The HTTP status that a probe of the container gets; None while nobody listens."""
        asked = container[name]["httpGet"]
        (port,) = [one["containerPort"] for one in container["ports"]
                   if one["name"] == asked["port"]]
        return self.get(port, asked["path"])[0]

    def get(self, port, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST" if body else "GET", path, body and json.dumps(body),
                               {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None, ""
        finally:
            connection.close()

    def wait_ready(self, container, child):
        def ready():
            self.assertIsNone(child.poll(), self.log(self.children.index(child)))
            if self.probe(container, "readinessProbe") == 200:
                return True
            live = self.probe(container, "livenessProbe")
            self.assertIn(live, (None, 200), "a pod that loads would be restarted")
            return False

        wait_until(ready, "the readiness probe", 60)
        self.assertEqual(self.probe(container, "startupProbe"), 200)

    def ask(self, port, tokens=8):
        return self.get(port, "/generate", {"inputs": "The sea", "parameters": {
            "max_new_tokens": tokens}})

    def pss_bytes(self, pid):
        total, waiting = 0, [pid]
        while waiting:
            one = waiting.pop()
            text = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text()
            for kind in ("Anon", "Shmem"):
                total += 1024 * int(re.search(rf"^Pss_{kind}: +(\d+)", text, re.M)[1])
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        return total

    def test_a_replica_serves_and_ends_as_its_pod_will(self):
        ports = dict(zip(("http", "grpc", "admin", "shardMetrics"), free_ports(4)))
        proposed = yaml.safe_load(subprocess.run(
            [ROOT / "deploy/helm/resources.py", MODEL, "--device=cpu", "--shards=1", "--weft",
             BIN / "weft"], capture_output=True, text=True, check=True).stdout)
        values = merged(proposed, {
            "model": {"path": MODEL.name, "servedName": "demo"}, "ports": ports,
            "listenHost": "127.0.0.1", "drain": {"timeoutS": 20}})
        (container,) = dict(containers(render(values))).values()
        child = self.start(container)
        self.wait_ready(container, child)
        self.assertEqual(self.ask(ports["http"])[0], 200)
        self.assertIn('"id":"demo"', self.get(ports["http"], "/v1/models")[1].replace(" ", ""))
        # Operations are for the admin port alone, and each shard's metrics for its own.
        self.assertEqual(self.get(ports["http"], "/metrics")[0], 404)
        self.assertIn("weft_kv_cache_usage_perc", self.get(ports["admin"], "/metrics")[1])
        self.assertIn("weft_shard_steps_total", self.get(ports["shardMetrics"], "/metrics")[1])
        limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
        used = self.pss_bytes(child.pid)
        print(f"memory: {used >> 20} of {limit >> 20} MiB", file=sys.stderr)
        self.assertTrue(limit / 20 < used < limit, used)
        self.end_in_its_drain(child, container, ports["http"])

    def end_in_its_drain(self, child, container, port):
        stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        stream.request("POST", "/generate_stream", json.dumps(
            {"inputs": "The sea", "parameters": {"max_new_tokens": 64}}),
            {"content-type": "application/json"})
        answer = stream.getresponse()
        self.assertTrue(answer.readline().startswith(b"data:"))
        child.send_signal(signal.SIGTERM)
        wait_until(lambda: self.probe(container, "readinessProbe") in (503, None), "the drain")
        rest = answer.read().decode()
        stream.close()
        self.assertIn('"finish_reason":"length"', rest.replace(" ", ""))
        self.assertEqual(child.wait(timeout=45), 0)

    def certificates(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=self.folder, check=True,
                           capture_output=True)

        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                "/CN=both", "-keyout", "tls.key", "-out", "tls.csr")
        (self.folder / "names").write_text("subjectAltName=" + ",".join(
            f"IP:{one}" for one in ADDRESSES))
        openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "tls.crt")

    def test_a_router_and_shards_of_split_meet_over_mutual_tls(self):
        self.certificates()
        ports = dict(zip(("http", "grpc", "admin", "shardMetrics", "shard"), free_ports(5)))
        values = {"mode": "split", "device": "cpu", "shards": 2, "ports": ports,
                  "listenHost": "127.0.0.1", "model": {"path": MODEL.name},
                  "shardFlags": {"kv-memory": "256MiB", "threads": 1},
                  "groupTls": {"routerSecret": "router", "shardSecret": "shard"}}
        found = dict(containers(render(values, chart=chart_of_tomorrow())))
        shard = found["StatefulSet weft-group-0 shard"]
        router = found["Deployment weft-router router"]
        for rank in range(2):
            self.start(shard, rank=rank)
        child = self.start(router, [(r"weft-group-0-(\d)\.weft-shards\.llm\.svc",
                                     lambda found: ADDRESSES[int(found[1])])])
        self.wait_ready(router, child)
        self.assertEqual(self.ask(ports["http"])[0], 200)
        # A shard's process is replaced, as Kubernetes would.
        self.children[1].kill()
        self.children[1].wait()
        self.start(shard, rank=1)
        wait_until(lambda: self.ask(ports["http"])[0] == 200, "the new shard", 60)
        metrics = self.get(ports["admin"], "/metrics")[1]
        self.assertIn('weft_group_losses_total{', metrics)
        self.assertRegex(metrics, r'weft_group_losses_total\{[^}]*state="serving"[^}]*\} 1')


if __name__ == "__main__":
    run_tests()
