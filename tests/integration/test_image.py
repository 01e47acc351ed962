"""The container image, run as docs/CONTAINERS.md says: no capability, no privilege, nothing
writable but /tmp, limits of memory, processor time and processes. What it holds and says, and what
becomes of streams when parts of it are killed.
"""

import contextlib
import errno
import json
import os
import pathlib
import random
import re
import signal
import time
import unittest

from containers import HARDENED, MODEL, UID, WeftContainer, image, podman
from stream_clients import Checker, Streams, mixed, through
from stream_history import CUT
from weft_server import DEMO_MODEL, alive, children_of, run_tests, seed, wait_until

SEED = seed(14)
STREAMS = 6
MEMORY_MIB, CPUS, PROCESSES = 1024, 1, 200
LIMITS = (f"--memory={MEMORY_MIB}m", f"--cpus={CPUS}", f"--pids-limit={PROCESSES}")
# Without CUDA's libraries, unpacked.
IMAGE_MB_MAX = 150
PATIENCE_S = 60
ASKS = mixed(STREAMS, random.Random(SEED), tokens=(40, 60))


def setUpModule():
    image()


def alone(*arguments, options=()):
    """`weft serve` without a network, until it ends by itself: exit code, lines of log."""
    code, said = podman().run("--network=none", *HARDENED, *options,
                              f"--volume={pathlib.Path(DEMO_MODEL).parent}:/models:ro",
                              image()[0], *arguments)
    return code, said


class Files(unittest.TestCase):
    def test_it_is_small(self):
        sizes = {}
        for layer in json.loads(podman()("history", "--format=json", image()[0]).stdout):
            sizes[layer["CreatedBy"].removeprefix("deploy/image.sh: ")] = layer["size"] / 1e6
        print(f"MB unpacked: {sizes}")
        self.assertLessEqual({"system", "weft"}, set(sizes))
        self.assertLess(sum(mb for layer, mb in sizes.items() if layer != "cuda"), IMAGE_MB_MAX)

    def test_all_commands_are_found_by_name(self):
        for command in ("weft", "weft-router", "weft-shard"):
            code, said = podman().run("--network=none", f"--entrypoint={command}", image()[0],
                                      "--version")
            self.assertEqual(code, 0, said)
            self.assertIn(command, said)


class Refusals(unittest.TestCase):
    """Where it cannot start: exit code 1, and one line that says why and what to do."""

    def refused(self, expected, *arguments, options=(), processes=1):
        """`processes`: how many of them may find it, each with a line of its own; the last line of
        all may repeat one."""
        code, said = alone(*arguments, options=options)
        self.assertEqual(code, 1, said)
        self.assertIn(len(re.findall(expected, said)), range(1, processes + 2), said)
        self.assertRegex(said.splitlines()[-1], expected)

    def test_a_memory_limit_that_the_model_does_not_fit(self):
        self.refused(r"the shard would take \d+ MiB of 380 MiB RAM for this container .*"
                     r"raise the limit",
                     f"--model={MODEL}", options=["--memory=380m"])

    def test_a_memory_limit_that_the_processes_do_not_fit(self):
        self.refused(r"launcher, router and 1 shard take \d+ MiB before they load anything, of "
                     r"120 MiB RAM for this container .*raise the limit",
                     f"--model={MODEL}", options=["--memory=120m"])

    def test_a_kv_pool_that_the_memory_limit_does_not_hold(self):
        self.refused(r"of 512 MiB RAM for this container .*--kv-memory", f"--model={MODEL}",
                     "--kv-memory=1GiB", options=["--memory=512m"])

    def test_a_limit_of_processes(self):
        self.refused(r"raise the limit of processes and threads \(ulimit -u, docker --pids-limit",
                     f"--model={MODEL}", options=["--pids-limit=8"], processes=2)

    def test_a_root_without_a_writable_folder(self):
        code, said = podman().run(
            "--network=none", "--read-only", "--read-only-tmpfs=false",
            f"--volume={pathlib.Path(DEMO_MODEL).parent}:/models:ro", image()[0],
            f"--model={MODEL}")
        self.assertEqual(code, 1, said)
        self.assertIn("cannot make a run directory for sockets: /tmp: Read-only file system", said)

    def test_a_model_that_is_not_there(self):
        self.refused("--model: /models/none does not exist", "--model=/models/none")


class Hardened(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftContainer("--drain-timeout-s=60", options=LIMITS, shards=2).start()
        cls.checker = Checker(cls.server).learn(ASKS)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def setUp(self):
        wait_until(lambda: self.server.ready() and len(self.children()) == 3, "it to be whole",
                   PATIENCE_S)
        self.server.find()

    def children(self):
        return children_of(self.server.process.pid)

    def streams(self):
        streams = Streams(self.server, through(ASKS))
        streams.wait_tokens(4)
        self.assertGreater(len(streams.open()), STREAMS // 2)
        return streams

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), "the killed to be gone")

    def unreaped(self):
        """Processes that have ended, and for which the launcher has not waited."""
        found = []
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                text = status.read_text()
                if re.search(rf"^State:\tZ.*\n(.*\n)*PPid:\t{self.server.process.pid}$", text, re.M):
                    found.append(status.parent.name)
        return found

    def test_it_has_no_rights(self):
        for pid in (self.server.process.pid, *self.children()):
            status = self.server.status(pid)
            self.assertEqual(status["Uid"].split(), [str(UID)] * 4)
            self.assertEqual(status["Gid"].split(), [str(UID)] * 4)
            for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                self.assertEqual(int(status[name], 16), 0, name)
            self.assertEqual(status["NoNewPrivs"], "1")
            self.assertEqual(status["Seccomp"], "2")
        root = pathlib.Path(f"/proc/{self.server.process.pid}/root")
        for folder in ("", "etc", "opt/weft/bin", "models"):
            with self.assertRaises(OSError) as caught:
                (root / folder / "written").touch()
            self.assertEqual(caught.exception.errno, errno.EROFS, folder)
        run_folders = list((root / "tmp").iterdir())
        self.assertEqual(len(run_folders), 1)
        self.assertEqual({path.name for path in run_folders[0].iterdir()},
                         {"lock", "supervisor.sock", "shard-0.sock", "shard-1.sock"})

    def test_it_keeps_its_limits(self):
        said = self.server.log_text()
        self.assertRegex(said, rf"1 threads \({CPUS}\.0 of \d+ cores by \S+ / 2 shards\)")
        self.assertRegex(said, rf"of {MEMORY_MIB} MiB RAM for this container")
        cpu, version = self.server.group("cpuacct")
        started, used = time.monotonic(), self.cpu_s(cpu, version)
        self.checker.check(self.streams().join())
        # Its own periods of 100 ms are not ours.
        self.assertLess(self.cpu_s(cpu, version) - used,
                        CPUS * (time.monotonic() - started + 0.2))
        memory, version = self.server.group("memory")
        if version == 1:
            self.assertIn("oom_kill 0\n", (memory / "memory.oom_control").read_text())
            peak = int((memory / "memory.max_usage_in_bytes").read_text())
        else:
            self.assertIn("oom_kill 0\n", (memory / "memory.events").read_text())
            peak = int((memory / "memory.current").read_text())
        self.assertLessEqual(peak, MEMORY_MIB << 20)
        processes, _ = self.server.group("pids")
        current = int((processes / "pids.current").read_text())
        print(f"peak {peak >> 20} MiB of {MEMORY_MIB}, {current} threads of {PROCESSES}")
        self.assertLess(current, PROCESSES // 2)

    @staticmethod
    def cpu_s(group, version):
        if version == 1:
            return int((group / "cpuacct.usage").read_text()) / 1e9
        return int(re.search(r"usage_usec (\d+)", (group / "cpu.stat").read_text()).group(1)) / 1e6

    def test_a_killed_shard_is_replaced_under_open_streams(self):
        streams, shard = self.streams(), self.server.shard_pid(1)
        self.kill(shard)
        self.checker.check(streams.join())
        self.assertNotEqual(self.server.shard_pid(1), shard)

    def test_a_killed_router_is_replaced(self):
        streams, router = self.streams(), self.server.router_pid()
        shards = [self.server.shard_pid(rank) for rank in range(2)]
        self.kill(router)
        self.checker.check(streams.join(), CUT)
        wait_until(self.server.ready, "readiness", PATIENCE_S)
        self.assertNotEqual(self.server.router_pid(), router)
        self.assertEqual([self.server.shard_pid(rank) for rank in range(2)], shards)
        # Its children, which had no other parent left than process 1.
        wait_until(lambda: not self.unreaped(), "all that ended to be waited for")
        self.checker.check(Streams(self.server, through(ASKS)).join())


class Ends(unittest.TestCase):
    def started(self, *flags, options=()):
        server = WeftContainer(*flags, options=(*LIMITS, *options), shards=2).start()
        self.addCleanup(server.stop)
        checker = Checker(server).learn(ASKS)
        streams = Streams(server, through(ASKS))
        streams.wait_tokens(4)
        self.assertEqual(len(streams.open()), STREAMS)
        return server, checker, streams

    def test_it_drains_on_sigterm_under_open_streams(self):
        server, checker, streams = self.started("--drain-timeout-s=60")
        server.signal("TERM")
        checker.check(streams.join())
        self.assertEqual(server.wait_end(), 0, server.log_text())

    def test_its_restart_policy_brings_back_one_whose_launcher_was_killed(self):
        server, checker, streams = self.started(options=["--restart=on-failure"])
        launcher, children = server.process.pid, list(children_of(server.process.pid))
        os.kill(launcher, signal.SIGKILL)
        checker.check(streams.join(), CUT)
        wait_until(lambda: not any(alive(pid) for pid in (launcher, *children)),
                   "all processes of the container to be gone")
        wait_until(server.ready, "readiness on the same ports", PATIENCE_S)
        server.find()
        self.assertNotEqual(server.process.pid, launcher)
        checker.check(Streams(server, through(ASKS)).join())

    def test_any_user_may_run_it(self):
        """As OpenShift chooses one: without a name, of the group root."""
        server = WeftContainer(options=("--user=54321:0",)).start()
        self.addCleanup(server.stop)
        self.assertEqual(server.status()["Uid"].split()[0], "54321")
        server.post("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}})


if __name__ == "__main__":
    run_tests()
