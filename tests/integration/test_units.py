"""The units of deploy/systemd under a real systemd, which runs in a container: set up as
docs/CONTAINERS.md says, with all their hardening; stops, deaths, and a start that cannot succeed."""

import contextlib
import json
import pathlib
import random
import subprocess
import unittest

from containers import TOOLS, Process, podman
from stream_clients import Checker, Streams, mixed, through
from weft_server import BIN, DEMO_MODEL, ROOT, WeftServer, run_tests, seed, skip, wait_until

SEED = seed(16)
STREAMS = 4
PATIENCE_S = 60
ASKS = mixed(STREAMS, random.Random(SEED), tokens=(40, 60))
SYSTEM = TOOLS.parent / "systemd.tar"
MODEL = f"/srv/models/{pathlib.Path(DEMO_MODEL).name}"
NAME = "weft-units"
SETTINGS = {
    "weft": f"WEFT_MODEL={MODEL}\nWEFT_SHARDS=2\nWEFT_HOST=0.0.0.0\n",
    "shard": f"WEFT_MODEL={MODEL}\nWEFT_DEVICE=cpu\nWEFT_WORLD=2\n",
    "router": f"WEFT_MODEL={MODEL}\nWEFT_HOST=0.0.0.0\n"
              "WEFT_SHARD=unix:/run/weft-shards/0.sock,unix:/run/weft-shards/1.sock\n"}


def run(script):
    """A shell's words inside; what they print."""
    return podman()("exec", NAME, "sh", "-euc", script).stdout.strip()


def show(unit, field):
    return run(f"systemctl show {unit} --property {field} --value")


class Host(WeftServer):
    """What a unit of the container serves."""

    def __init__(self):
        super().__init__(shards=2)
        self.log.close()
        ports = json.loads(podman().inspect(NAME, "{{json .NetworkSettings.Ports}}"))
        self.http, self.grpc = (f"127.0.0.1:{ports[inside][0]['HostPort']}"
                                for inside in ("8080/tcp", "8081/tcp"))
        self.process = Process(int(podman().inspect(NAME, "{{.State.Pid}}")))

    def ready(self):
        with contextlib.suppress(OSError):
            return self.request("GET", "/readyz", timeout_s=5)[0] == 200
        return False

    def log_text(self):
        return run("journalctl --no-pager --unit 'weft*'")


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        podman()
        if not SYSTEM.is_file():
            skip("containers", f"{SYSTEM} is not there (deploy/setup.sh --images)")
        bundle = podman().folder / "bundle"
        subprocess.run([ROOT / "deploy/bundle.sh", BIN.parent, f"{bundle}/"], check=True,
                       stdout=subprocess.DEVNULL)
        podman()("import", str(SYSTEM), "localhost/systemd")
        podman()("run", "--detach", f"--name={NAME}", "--privileged", "--systemd=always",
                 f"--volume={bundle}:/opt/weft:ro", f"--volume={ROOT}/deploy/systemd:/units:ro",
                 f"--volume={pathlib.Path(DEMO_MODEL).parent}:/srv/models:ro",
                 "--publish=127.0.0.1::8080", "--publish=127.0.0.1::8081", "localhost/systemd",
                 "/sbin/init")
        wait_until(lambda: podman()("exec", NAME, "systemctl", "is-system-running",
                                    check=False).stdout.strip() in ("running", "degraded"),
                   "systemd", PATIENCE_S)
        run("cp /units/*.service /etc/systemd/system/; mkdir -p /etc/weft;"
            "install -Dm644 /units/sysusers.conf /etc/sysusers.d/weft.conf; systemd-sysusers")
        for name, text in SETTINGS.items():
            cls.set(name, text)
        run("systemctl daemon-reload")
        cls.host = Host()

    @staticmethod
    def set(name, text):
        run(f"cat >/etc/weft/{name}.env <<'TEXT'\n{text}TEXT")

    def setUp(self):
        self.addCleanup(run, "systemctl stop 'weft*'; systemctl reset-failed")

    def started(self, *units):
        run(f"systemctl start {' '.join(units)}")
        wait_until(self.host.ready, f"readiness of {units}", PATIENCE_S)
        return Checker(self.host).learn(ASKS)

    def streams(self):
        streams = Streams(self.host, through(ASKS))
        streams.wait_tokens(4)
        self.assertGreater(len(streams.open()), STREAMS // 2)
        return streams

    def kill(self, unit):
        old = show(unit, "MainPID")
        run(f"kill -9 {old}")
        wait_until(lambda: show(unit, "MainPID") not in ("0", old), f"another {unit}", PATIENCE_S)
        self.assertEqual(show(unit, "NRestarts"), "1")

    def restarts_inside(self):
        return self.host.log_text().count("starting it again")

    def test_it_has_no_rights_and_drains_when_it_is_stopped(self):
        checker = self.started("weft")
        status = dict(line.split(":\t", 1) for line in run(
            f"cat /proc/{show('weft', 'MainPID')}/status").splitlines() if ":\t" in line)
        self.assertNotEqual(status["Uid"].split()[0], "0")
        self.assertEqual(int(status["CapBnd"], 16), 0)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        # Templates are other processes, with limits that they set themselves.
        self.host.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})
        run("systemctl reload weft")
        streams, restarts = self.streams(), self.restarts_inside()
        run("systemctl stop weft")
        checker.check(streams.join())
        # The signal is the launcher's: shards that got it too would end, and be started again.
        self.assertEqual(self.restarts_inside(), restarts)
        self.assertEqual((show("weft", "Result"), show("weft", "ExecMainStatus")), ("success", "0"))

    def test_it_is_started_again(self):
        checker = self.started("weft")
        self.kill("weft")
        wait_until(self.host.ready, "readiness", PATIENCE_S)
        checker.check(Streams(self.host, through(ASKS)).join())

    def test_a_start_that_cannot_succeed_is_not_tried_again(self):
        self.set("weft", "WEFT_MODEL=/srv/models/none\n")
        self.addCleanup(self.set, "weft", SETTINGS["weft"])
        run("systemctl start weft")
        wait_until(lambda: show("weft", "ActiveState") != "active", "its end", PATIENCE_S)
        self.assertEqual((show("weft", "SubState"), show("weft", "ExecMainStatus"),
                          show("weft", "NRestarts")), ("failed", "1", "0"))
        self.assertIn("/srv/models/none does not exist", self.host.log_text())

    def test_router_and_shards_apart(self):
        checker = self.started("weft-router", "weft-shard@0", "weft-shard@1")
        for rank in range(2):
            streams = self.streams()
            self.kill(f"weft-shard@{rank}")
            checker.check(streams.join())
        streams = self.streams()
        run("systemctl stop weft-router")
        checker.check(streams.join())
        self.assertEqual(show("weft-router", "Result"), "success")


if __name__ == "__main__":
    run_tests()
