"""What happens to the server of a soak run (soak.py): each kind of fault, done for real, and what it
excuses written down as a window (soak_load.py).
"""

import contextlib
import ctypes
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import time

from disks import fill
from soak_load import TENANTS, key_file, key_of
from weft_server import alive, skip, wait_until

HERE = pathlib.Path(__file__).resolve().parent
DISK_MIB = 48
PATIENCE_S = 120
# Shorter than the time after which a shard that shows no life is killed (soak.py), and longer.
PAUSE_S = 0.8
FROZEN_S, FULL_S, JUMPED_S, SMALL_QUEUE_S = 2.0, 3.0, 3.0, 3.0
CLOCK_JUMPS_S = (3600, -3600)


def run(*argv):
    subprocess.run(argv, check=True, capture_output=True, text=True)


class Disk:
    """A small ext4 on a loop device. It can stand still, so that writers hang in the kernel, and it
    can be full."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft-soak-")
        image, self.path = f"{self.folder.name}/image", pathlib.Path(self.folder.name, "disk")
        self.path.mkdir()
        with open(image, "wb") as file:
            file.truncate(DISK_MIB << 20)
        try:
            run("mkfs.ext4", "-q", "-m", "0", image)
            run("mount", "-o", "loop", image, str(self.path))
        except (OSError, subprocess.CalledProcessError) as error:
            self.folder.cleanup()
            skip("mounts", str(getattr(error, "stderr", error)))
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.CalledProcessError):
            run("umount", "--lazy", str(self.path))
        self.folder.cleanup()

    @contextlib.contextmanager
    def still(self):
        run("fsfreeze", "--freeze", str(self.path))
        try:
            yield
        finally:
            run("fsfreeze", "--unfreeze", str(self.path))

    @contextlib.contextmanager
    def full(self):
        filling = fill(self.path)
        try:
            yield
        finally:
            filling.unlink()


class Shim:
    """soak_shim.c, built, and the file through which it is steered."""
    FIELDS = ("clock_offset_s", "leak_bytes", "leak_descriptors", "leak_threads")

    def __init__(self, folder, **planted):
        self.library, self.control = f"{folder}/soak_shim.so", f"{folder}/control"
        run(os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", self.library,
            str(HERE / "soak_shim.c"), "-ldl", "-pthread")
        self.values = {name: planted.get(name, 0) for name in self.FIELDS}
        pathlib.Path(self.control).write_bytes(self.bytes())
        self.environment = {"LD_PRELOAD": self.library, "WEFT_SOAK_CONTROL": self.control}

    def bytes(self):
        return struct.pack("=4q", *self.values.values())

    def set(self, **values):
        self.values.update(values)
        with open(self.control, "r+b") as file:
            file.write(self.bytes())


class Disturber:
    """Does the faults. From spare() on some kinds are left out and one rank is left alone, so that
    there are processes that live long enough to be watched."""
    KINDS = ("kill shard", "pause shard", "hang shard", "kill router", "slow disk", "full disk",
             "clock jump", "keys", "bad keys", "limits", "cut", "kill client", "flood")

    def __init__(self, server, load, disk, shim, files, windows, seed):
        self.server, self.load, self.disk, self.shim = server, load, disk, shim
        self.keys_file, self.config_file, self.windows = files["keys"], files["config"], windows
        self.random = random.Random(seed)
        self.spared_kinds, self.spared_rank = (), None
        self.bag, self.done = [], {kind: 0 for kind in self.KINDS}

    def spare(self):
        """From here on the router and one rank, drawn from the seed, are left alive."""
        self.spared_kinds, self.spared_rank = ("kill router",), self.random.randrange(2)
        self.bag = []
        return self.spared_rank

    def one(self):
        """Does the next fault; each kind comes once before any comes again. Returns (its name, how
        many streams ran)."""
        if not self.bag:
            self.bag = [kind for kind in self.KINDS if kind not in self.spared_kinds]
            self.random.shuffle(self.bag)
            if not any(self.done.values()):
                # Early, so that a short run has it before it is spared.
                self.bag.remove("kill router")
                self.bag.insert(len(self.bag) - self.random.randrange(3), "kill router")
        kind = self.bag.pop()
        running = len(self.load.running())
        said = getattr(self, kind.replace(" ", "_"))()
        self.done[kind] += 1
        return f"{kind}{f' ({said})' if said else ''}", running

    # -- Processes --------------------------------------------------------------------------------
    def rank(self):
        return self.random.randrange(2) if self.spared_rank is None else 1 - self.spared_rank

    def shard(self):
        rank = self.rank()
        return rank, wait_until(lambda: self.server.shard_pid(rank), "a shard", PATIENCE_S)

    def ready(self):
        try:
            return self.server.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def wait_ready(self):
        wait_until(self.ready, "the server to be ready", PATIENCE_S)

    def kill_shard(self):
        rank, pid = self.shard()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), "the shard to be gone", PATIENCE_S)
        return f"rank {rank}"

    def pause_shard(self):
        rank, pid = self.shard()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return f"rank {rank}"

    def hang_shard(self):
        """Stopped until it is replaced."""
        rank, pid = self.shard()
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: not alive(pid), "the stopped shard to be replaced", PATIENCE_S)
        return f"rank {rank}"

    def kill_router(self):
        pid = wait_until(self.server.router_pid, "a router", PATIENCE_S)
        self.windows.begin("router gone")
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid) and self.ready(), "the router to be back", PATIENCE_S)
        back_s = time.monotonic() - at
        self.windows.end("router gone")
        return f"back after {back_s:.2f} s"

    # -- Disk and clock ---------------------------------------------------------------------------
    def slow_disk(self):
        with self.disk.still():
            time.sleep(FROZEN_S)

    def full_disk(self):
        with self.disk.full():
            time.sleep(FULL_S)

    def clock_jump(self):
        for offset_s in CLOCK_JUMPS_S:
            self.shim.set(clock_offset_s=offset_s)
            time.sleep(JUMPED_S)
        self.shim.set(clock_offset_s=0)

    # -- Files that are read again ----------------------------------------------------------------
    @staticmethod
    def exchange(path, text):
        """In one piece, as editors and Kubernetes exchange files."""
        new = path.with_suffix(".new")
        new.write_text(text)
        os.rename(new, path)

    def reload(self):
        """Half of the times by the signal, else by the file's change alone."""
        if self.random.random() < 0.5:
            self.server.process.send_signal(signal.SIGHUP)

    def guest_status(self):
        try:
            return self.server.request("GET", "/v1/models",
                                       headers={"x-api-key": key_of("guest")})[0]
        except OSError:
            return None

    def key_files(self):
        """(with the guest, without)"""
        without = {name: limits for name, limits in TENANTS.items() if name != "guest"}
        return tuple(json.dumps(key_file(tenants), indent=1) for tenants in (TENANTS, without))

    def wait_guest(self, status):
        wait_until(lambda: self.guest_status() == status, f"the guest's key to be {status}",
                   PATIENCE_S)

    def keys(self):
        with_guest, without = self.key_files()
        self.windows.begin("guest out")
        self.exchange(self.keys_file, without)
        self.reload()
        self.wait_guest(401)
        self.exchange(self.keys_file, with_guest)
        self.reload()
        self.wait_guest(200)
        self.windows.end("guest out")

    def bad_keys(self):
        """Nothing changes but a line in the log."""
        self.exchange(self.keys_file, '{"tenants": [')
        self.reload()
        time.sleep(1.5)
        status = self.guest_status()
        if status != 200:
            raise AssertionError(f"a bad key file took a key away: HTTP {status}")
        self.exchange(self.keys_file, self.key_files()[0])
        self.reload()

    def limits(self):
        self.windows.begin("small queue")
        self.exchange(self.config_file, "queue-requests-max = 1\nlog-level = \"debug\"\n")
        self.reload()
        time.sleep(SMALL_QUEUE_S)
        self.exchange(self.config_file, "queue-requests-max = 64\n")
        self.reload()
        time.sleep(1.5)
        self.windows.end("small queue")

    # -- Clients ----------------------------------------------------------------------------------
    def cut(self):
        return f"{self.load.cut_some()} connections"

    def kill_client(self):
        """kill -9 of a process in the middle of its answers."""
        body = json.dumps({"inputs": "Tell me of the sea", "parameters": {
            "max_new_tokens": 600, "ignore_eos": True}})
        clients = [subprocess.Popen(
            ["curl", "-sN", f"http://{self.server.http}/generate_stream", "-d", body,
             "-H", "content-type: application/json", "-H", f"x-api-key: {key_of('search')}"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
        for client in clients:
            client.stdout.readline()
            client.kill()
            client.wait()
            client.stdout.close()

    def flood(self):
        """One tenant asks for more than it may have."""
        self.load.flooding.set()
        time.sleep(3)
        self.load.flooding.clear()


def mount_namespace():
    """From here on mounts are this process's own, and go with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0:
        skip("namespaces", os.strerror(ctypes.get_errno()))
    run("mount", "--make-rprivate", "/")
