"""Router and shards on hosts of their own, made of network namespaces: the test and the router are
on one, each shard on another, and a bridge between them is the network, which a test can cut.

`enter` is called once, before anything else: it puts the calling process into a network and a mount
namespace, so that nothing here is seen outside, and all of it goes with the process.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

from weft_server import BIN, DEMO_MODEL, START_TIMEOUT_S, WeftServer, skip

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
NETWORK = "10.77.0"
# What becomes of packets, as nftables says it.
CUT, WHOLE, SOME_LOST = "drop", "accept", "numgen random mod 200 == 0 drop"
SHARD_PORT = 7000


def run(*argv):
    subprocess.run(argv, check=True, capture_output=True, text=True)


def enter():
    """From here on this process has a network of its own, and an /etc/hosts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
        skip("namespaces", os.strerror(ctypes.get_errno()))
    try:
        run("mount", "--make-rprivate", "/")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        skip("namespaces", str(getattr(error, "stderr", error)))


class Names:
    """What names mean here: a file over /etc/hosts."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile("w", prefix="weft-hosts-")
        self.of = {}
        self.write()
        run("mount", "--bind", self.file.name, "/etc/hosts")

    def write(self):
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self.of.items())]
        self.file.seek(0)
        self.file.write("\n".join(lines) + "\n")
        self.file.truncate()
        self.file.flush()

    def set(self, name, address):
        self.of[name] = address
        self.write()


class Host:
    """A network namespace with one address, held by a process that sleeps."""

    def __init__(self, number):
        self.number, self.port = number, f"port{number}"
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 3600"],
                                       stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.address = None
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns",
            str(self.holder.pid))
        run("ip", "link", "set", self.port, "master", "switch", "up")
        run(*self.within("ip", "link", "set", "lo", "up"))
        run(*self.within("ip", "link", "set", "eth0", "up"))
        self.set_address(f"{NETWORK}.{number}")
        self.filters = [([], self.port), (self.within(), "eth0")]
        for where, device in self.filters:
            run(*where, "nft", f"add table netdev {device}; add chain netdev {device} in "
                f"{{ type filter hook ingress device {device} priority 0; }}")

    def within(self, *argv):
        return ["nsenter", "-t", str(self.holder.pid), "-n", *argv]

    def set_address(self, address):
        """As a pod that comes back: the old address is gone."""
        run(*self.within("ip", "addr", "flush", "dev", "eth0"))
        run(*self.within("ip", "addr", "add", f"{address}/24", "dev", "eth0"))
        self.address = address

    def packets(self, verdict):
        """CUT: packets vanish, in both directions and without a word to anybody."""
        for where, device in self.filters:
            run(*where, "nft", f"flush chain netdev {device} in; "
                f"add rule netdev {device} in {verdict}")

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


def make_certificates(folder, names):
    """An authority, and certificates that it signed for each name."""
    def openssl(*words):
        run("openssl", *words)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=weft-test-ca",
            "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.crt")
    for name in names:
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{folder}/{name}.key",
                "-out", f"{folder}/{name}.csr")
        extension = pathlib.Path(folder, f"{name}.ext")
        extension.write_text(f"subjectAltName=DNS:{name}\n")
        openssl("x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.crt",
                "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", str(extension), "-out", f"{folder}/{name}.crt")


class SpreadServer(WeftServer):
    """A router here and a shard on each of some hosts, which nobody restarts but the test."""

    def __init__(self, *router_flags, shards=2, shard_flags=(), names=None):
        super().__init__(shards=shards)
        self.folder = tempfile.TemporaryDirectory(prefix="weft-spread-")
        self.names = names or Names()
        self.hosts = [Host(10 + rank) for rank in range(shards)]
        self.shard_flags = list(shard_flags)
        shard_names = [f"shard-{rank}" for rank in range(shards)]
        make_certificates(self.folder.name, ["router", *shard_names])
        self.processes = [None] * shards
        tls = [f"--shard-tls-cert={self.path('router.crt')}",
               f"--shard-tls-key={self.path('router.key')}", f"--shard-tls-ca={self.path('ca.crt')}"]
        self.argv = [str(BIN / "weft-router"), f"--model={DEMO_MODEL}", "--http-port=0",
                     "--grpc-port=0", "--log-format=json", *tls, *router_flags,
                     *(f"--shard={name}:{SHARD_PORT}" for name in shard_names)]

    def path(self, name):
        return str(pathlib.Path(self.folder.name, name))

    def start_shard(self, rank):
        host, name = self.hosts[rank], f"shard-{rank}"
        self.names.set(name, host.address)
        argv = [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}", "--device=cpu", f"--rank={rank}",
                f"--world={self.shards}", f"--listen={host.address}:{SHARD_PORT}",
                f"--comm-host={host.address}", f"--tls-cert={self.path(name + '.crt')}",
                f"--tls-key={self.path(name + '.key')}", f"--tls-ca={self.path('ca.crt')}",
                "--threads=1", "--log-format=json", *self.shard_flags]
        self.processes[rank] = subprocess.Popen(host.within(*argv), stdout=subprocess.DEVNULL,
                                                stderr=self.log)

    def start(self):
        for rank in range(self.shards):
            self.start_shard(rank)
        self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=self.log, text=True)
        killer = threading.Timer(START_TIMEOUT_S, self.process.kill)
        killer.start()
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("ready"):
                break
        killer.cancel()
        if not said or not said[-1].startswith("ready"):
            log = self.log_text()
            self.stop()
            raise AssertionError(f"the router did not begin to serve: {said}\n{log}")
        words = dict(word.split("=", 1) for word in said[0].split() if "=" in word)
        self.http, self.grpc = words["http"], words["grpc"]
        return self

    def shard_pid(self, rank):
        return self.processes[rank].pid

    def kill_shard(self, rank):
        self.processes[rank].send_signal(signal.SIGKILL)
        self.processes[rank].wait()

    def stop(self, timeout_s=60):
        try:
            return super().stop(timeout_s)
        finally:
            for process in filter(None, self.processes):
                process.terminate()
            for process in filter(None, self.processes):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait()
            for host in self.hosts:
                host.close()
            self.folder.cleanup()
