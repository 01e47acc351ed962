"""deploy/compose.yaml, run: one container, and a router and two shards in containers of their own that
speak mutual TLS, each of which is killed and comes back."""

import os
import pathlib
import random
import signal
import socket
import subprocess
import unittest

from containers import UID, Process, WeftContainer, image, podman, tool
from stream_clients import Checker, Streams, mixed, through
from stream_history import CUT
from weft_server import DEMO_MODEL, ROOT, alive, run_tests, seed, wait_until

SEED = seed(15)
STREAMS = 4
PATIENCE_S = 60
ASKS = mixed(STREAMS, random.Random(SEED), tokens=(40, 60))
# What registry.k8s.io/pause does: it sleeps until it is told to end.
PAUSE = """#include <signal.h>
#include <unistd.h>
static void End(int) { _exit(0); }
int main(void) { signal(SIGTERM, End); for (;;) pause(); }
"""
# Who asks whom: each has a certificate for the name by which it is reached.
CERTIFICATES = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=weft-ca -keyout ca.key -out ca.crt
for name in router shard-0 shard-1; do
  mkdir -p $name
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$name -keyout $name/tls.key -out $name/tls.csr
  openssl x509 -req -in $name/tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 \
    -extfile <(echo subjectAltName=DNS:$name) -out $name/tls.crt
  cp ca.crt $name/
  chown -R 10001 $name
done
"""


def free_ports(count):
    """As texts. Compose has no word for "any free one"."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Service(WeftContainer):
    """A container that compose has made; HTTP and gRPC are those of the project."""

    def __init__(self, name, shards):
        super().__init__(shards=shards)
        self.log.close()
        self.name = name
        self.find()

    def find(self):
        self.process = Process(int(podman().inspect(self.name, "{{.State.Pid}}")))
        self.http, self.grpc = (
            podman()("port", "weft_router_1" if self.shards > 1 else self.name, inside
                     ).stdout.strip() for inside in ("8080/tcp", "8081/tcp"))


class Compose(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = podman().folder
        cls.environment = {
            **os.environ, "WEFT_IMAGE": image()[0], "WEFT_CERTS": f"{cls.folder}/certs",
            "WEFT_MODELS": str(pathlib.Path(DEMO_MODEL).parent),
            "WEFT_MODEL_NAME": pathlib.Path(DEMO_MODEL).name,
            "WEFT_PAUSE_IMAGE": "localhost/pause",
            **dict(zip(("WEFT_PUBLIC_HTTP_PORT", "WEFT_PUBLIC_GRPC_PORT"), free_ports(2)))}
        subprocess.run(["cc", "-static", "-x", "c", "-", "-o", cls.folder / "pause"], input=PAUSE,
                       text=True, check=True)
        subprocess.run(["tar", "-C", cls.folder, "-cf", cls.folder / "pause.tar", "pause"], check=True)
        podman()("import", "--change", 'ENTRYPOINT ["/pause"]', str(cls.folder / "pause.tar"),
                 "localhost/pause")
        (cls.folder / "certs").mkdir()
        subprocess.run(["bash", "-euc", CERTIFICATES], cwd=cls.folder / "certs", check=True,
                       capture_output=True)

    def compose(self, *arguments, check=True):
        done = subprocess.run(
            [tool("podman-compose"), "--podman-path", podman().command, "--file",
             ROOT / "deploy/compose.yaml", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment)
        if check and done.returncode != 0:
            raise AssertionError(f"compose {arguments}: {done.returncode}\n{done.stdout}")
        return done.stdout

    def up(self, *arguments, profile=()):
        self.addCleanup(self.compose, *profile, "down", "--timeout=1", check=False)
        self.compose(*profile, "up", "--detach", *arguments)

    def ready(self, service):
        wait_until(service.ready, "readiness", PATIENCE_S)
        return service

    def test_one_container(self):
        self.up("weft")
        server = self.ready(Service("weft_weft_1", 1))
        self.assertEqual(server.status()["Uid"].split()[0], str(UID))
        self.assertEqual(int(server.status()["CapBnd"], 16), 0)
        server.post("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}})
        podman()("stop", "--time=60", server.name)
        self.assertEqual(server.wait_end(), 0)

    def test_a_router_and_two_shards(self):
        self.up("router", profile=("--profile", "split"))
        router = self.ready(Service("weft_router_1", 2))
        shards = [Service(f"weft_shard-{rank}_1", 2) for rank in range(2)]
        for service in (router, *shards):
            self.assertEqual(service.status()["Uid"].split()[0], str(UID))
            self.assertEqual(int(service.status()["CapBnd"], 16), 0)
        # Nobody outside reaches a shard.
        for shard in shards:
            self.assertEqual(podman()("port", shard.name).stdout, "")
        checker = Checker(router).learn(ASKS)
        for shard in shards:
            with self.subTest(shard.name):
                self.kill_under_streams(router, shard, checker)
        streams = Streams(router, through(ASKS))
        streams.wait_tokens(4)
        self.kill(router)
        checker.check(streams.join(), CUT)
        wait_until(router.running, "another router", PATIENCE_S)
        router.find()
        self.ready(router)
        checker.check(Streams(router, through(ASKS)).join())

    @staticmethod
    def kill(service):
        pid = service.process.pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), "the killed to be gone")

    def kill_under_streams(self, router, shard, checker):
        streams = Streams(router, through(ASKS))
        streams.wait_tokens(4)
        self.assertGreater(len(streams.open()), STREAMS // 2)
        killed = shard.process.pid
        self.kill(shard)
        checker.check(streams.join())
        shard.find()
        self.assertNotEqual(shard.process.pid, killed)


if __name__ == "__main__":
    run_tests()
