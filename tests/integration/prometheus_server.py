"""A real Prometheus in a folder of its own, with weft's rules in a hurry: a minute is a second."""

import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

import yaml
from weft_server import ROOT, wait_until

sys.path.append(str(ROOT / "tests/support"))
from prometheus_tools import tool  # noqa: E402

RULES = ROOT / "deploy/prometheus"
INTERVAL = "250ms"
START_TIMEOUT_S = 60


def in_a_hurry(text):
    """Rules whose minutes are seconds; a stall is one of more than a second."""
    text = re.sub(r"(for: |offset |\[)(\d+)m\b", r"\1\2s", text)
    return text.replace("_timestamp_seconds) > 60", "_timestamp_seconds) > 1")


def free_ports(count):
    """Ports that follow each other and were free a moment ago."""
    for _ in range(100):
        sockets = [socket.socket() for _ in range(count)]
        try:
            sockets[0].bind(("127.0.0.1", 0))
            first = sockets[0].getsockname()[1]
            for i, other in enumerate(sockets[1:], 1):
                other.bind(("127.0.0.1", first + i))
            return list(range(first, first + count))
        except (OSError, OverflowError):
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError(f"no {count} free ports in a row")


class PrometheusServer:
    """Scrapes `jobs` ({name: [address]})."""

    def __init__(self, jobs):
        self.binary = tool("prometheus")
        self.jobs = jobs

    def start(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft-prometheus-")
        folder = pathlib.Path(self.folder.name)
        for name in ("rules.yaml", "alerts.yaml"):
            (folder / name).write_text(in_a_hurry((RULES / name).read_text()))
        (folder / "prometheus.yml").write_text(yaml.safe_dump({
            "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": ["rules.yaml", "alerts.yaml"],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": targets}]}
                               for job, targets in self.jobs.items()]}))
        self.port = free_ports(1)[0]
        self.log = open(folder / "log", "w+")
        self.began = time.time()
        self.process = subprocess.Popen(
            [self.binary, f"--config.file={folder}/prometheus.yml",
             f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=self.log, stderr=self.log)
        wait_until(self.ready, "Prometheus", START_TIMEOUT_S)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def ready(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f"Prometheus ended:\n{self.log.read()}")
        try:
            return self.get("/-/ready")[0] == 200
        except OSError:
            return False

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, path, **parameters):
        status, body = self.get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        if status != 200:
            raise AssertionError(f"{path} {parameters}: {status} {body.decode()}")
        return json.loads(body)["data"]

    def history(self, query, step_s=0.5):
        """[(labels, [(time, value)])] of the query from this server's start until now."""
        data = self.ask("query_range", query=query, start=self.began, end=time.time(), step=step_s)
        return [(one["metric"], [(at, float(value)) for at, value in one["values"]])
                for one in data["result"]]

    def firing(self):
        """{name: annotations} of the alerts that fire now."""
        return {alert["labels"]["alertname"]: alert["annotations"]
                for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}

    def all_up(self):
        """Whether the last scrape of each target was good."""
        targets = self.ask("targets")["activeTargets"]
        return bool(targets) and all(target["health"] == "up" for target in targets)
