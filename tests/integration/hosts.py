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
import sys
import tempfile
import time

from weft_server import BIN, DEMO_MODEL, START_TIMEOUT_S, WeftServer, skip, wait_until

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

    def clear(self):
        self.of.clear()
        self.write()

    def close(self):
        run("umount", "/etc/hosts")
        self.file.close()


class MemoryGroup:
    """A control group with a limit of memory, of either version."""

    def __init__(self, limit_bytes):
        first = pathlib.Path("/sys/fs/cgroup/memory")
        version_1 = first.is_dir()
        self.path = (first if version_1 else first.parent) / f"weft-test-{os.getpid()}"
        try:
            self.path.mkdir()
            limit = "memory.limit_in_bytes" if version_1 else "memory.max"
            (self.path / limit).write_text(str(limit_bytes))
        except OSError as error:
            skip("memory_groups", str(error))

    def within(self):
        """In front of a command that is to run in it."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh"]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.path.rmdir()


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


def make_certificates(folder, names, days=2):
    """An authority, where there is none yet, and certificates that it signed for each name; of -1
    days: they have expired."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if not pathlib.Path(folder, "ca.crt").exists():
        run("openssl", "req", "-x509", *key, "-days", "2", "-subj", "/CN=weft-test-ca",
            "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.crt")
    for name in names:
        run("openssl", "req", *key, "-subj", f"/CN={name}", "-keyout", f"{folder}/{name}.key",
            "-out", f"{folder}/{name}.csr")
        extension = pathlib.Path(folder, f"{name}.ext")
        extension.write_text(f"subjectAltName=DNS:{name}\n")
        run("openssl", "x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.crt",
            "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", str(days),
            "-extfile", str(extension), "-out", f"{folder}/{name}.crt")


def sign_for_seconds(folder, name, seconds):
    """The certificate of make_certificates anew, for so long from now on."""
    end = time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
    pathlib.Path(folder, "index").write_text("")
    pathlib.Path(folder, "ca.cnf").write_text(f"""[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
""")
    run("openssl", "ca", "-batch", "-notext", "-config", f"{folder}/ca.cnf", "-cert",
        f"{folder}/ca.crt", "-keyfile", f"{folder}/ca.key", "-in", f"{folder}/{name}.csr",
        "-extfile", f"{folder}/{name}.ext", "-enddate", end, "-out", f"{folder}/{name}.crt")


class SpreadServer(WeftServer):
    """A router here and a shard on each of some hosts, which nobody restarts but the test."""

    def __init__(self, *router_flags, shards=2, shard_flags=(), names=None):
        super().__init__(shards=shards)
        self.folder = tempfile.TemporaryDirectory(prefix="weft-spread-")
        self.own_names = None if names else Names()
        self.names = names or self.own_names
        self.hosts = [Host(10 + rank) for rank in range(shards)]
        self.shard_flags = list(shard_flags)
        shard_names = [f"shard-{rank}" for rank in range(shards)]
        make_certificates(self.folder.name, ["router", *shard_names])
        self.processes, self.process = [None] * shards, None
        tls = [f"--shard-tls-cert={self.path('router.crt')}",
               f"--shard-tls-key={self.path('router.key')}", f"--shard-tls-ca={self.path('ca.crt')}"]
        self.argv = [str(BIN / "weft-router"), f"--model={DEMO_MODEL}", "--http-port=0",
                     "--grpc-port=0", "--log-format=json", *tls, *router_flags,
                     *(f"--shard={name}:{SHARD_PORT}" for name in shard_names)]

    def path(self, name):
        return str(pathlib.Path(self.folder.name, name))

    def build_revision(self):
        said = subprocess.run([str(BIN / "weft-shard"), "--version"], check=True,
                              capture_output=True, text=True).stdout
        return said[said.index("(") + 1:said.index(")")]

    def start_shard(self, rank, *flags, binary=BIN / "weft-shard"):
        """`flags` come last and win."""
        host, name = self.hosts[rank], f"shard-{rank}"
        if self.names:
            self.names.set(name, host.address)
        argv = [str(binary), f"--model={DEMO_MODEL}", "--device=cpu", f"--rank={rank}",
                f"--world={self.shards}", f"--listen={host.address}:{SHARD_PORT}",
                f"--comm-host={host.address}", f"--tls-cert={self.path(name + '.crt')}",
                f"--tls-key={self.path(name + '.key')}", f"--tls-ca={self.path('ca.crt')}",
                "--threads=1", "--log-format=json", *self.shard_flags, *flags]
        self.processes[rank] = subprocess.Popen(host.within(*argv), stdout=subprocess.DEVNULL,
                                                stderr=self.log)

    def start(self):
        for rank in range(self.shards):
            self.start_shard(rank)
        self.start_router()
        try:
            wait_until(self.ready, "the router to serve", START_TIMEOUT_S)
        except AssertionError:
            print(self.log_text()[-8000:], file=sys.stderr)
            self.stop()
            raise
        return self

    def start_router(self, *flags):
        """Returns when its ports are open, long before it serves."""
        self.process = subprocess.Popen([*self.argv, *flags], stdout=subprocess.PIPE,
                                        stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening "):
            raise AssertionError(f"the router opened no ports: {line}\n{self.log_text()}")
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        self.http, self.grpc = words["http"], words["grpc"]
        return self

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the router ended with {self.process.returncode}:\n"
                                 + self.log_text()[-4000:])
        return self.request("GET", "/readyz")[0] == 200

    def shard_pid(self, rank):
        return self.processes[rank].pid

    def kill_shard(self, rank):
        self.processes[rank].send_signal(signal.SIGKILL)
        self.processes[rank].wait()

    def stop(self, timeout_s=60):
        try:
            if self.process is None:
                return self.log.close()
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
            if self.own_names:
                self.own_names.close()
            self.folder.cleanup()
