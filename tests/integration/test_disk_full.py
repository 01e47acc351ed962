"""Disks that take no more: behind the log, under the run directory, and where commands write.
Streams go on, and what cannot be done is said in one line with the way out.
"""

import contextlib
import errno
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import unittest

from disks import LoggingTo, fill, small_disk, take_all_names
from stream_clients import Checker, Streams, mixed, through
from weft_server import BIN, DEMO_MODEL, WeftServer, run_tests, seed, skip, wait_until

SEED = seed(37)
STREAMS = 8
NO_SPACE = os.strerror(errno.ENOSPC)
PATIENCE_S = 60


class DiskFull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.requests = through(mixed(STREAMS, random.Random(SEED), tokens=(60, 100)))
        with WeftServer(shards=2) as server:
            cls.checker = Checker(server).learn([ask for _, ask in cls.requests])

    def streams_and_a_kill(self, server):
        """Streams that lose a shard, and are whole all the same."""
        streams = Streams(server, self.requests)
        streams.wait_tokens(4)
        self.assertGreater(len(streams.open()), STREAMS // 2)
        os.kill(server.shard_pid(1), signal.SIGKILL)
        self.checker.check(streams.join())
        self.assertGreater(server.metric("weft_group_losses_total"), 0)

    def test_a_log_that_takes_nothing_stops_nothing(self):
        server = LoggingTo("/dev/full", "--log-level=debug", "--drain-timeout-s=120", shards=2)
        server.log_text = lambda: ""
        with server:
            self.streams_and_a_kill(server)
            streams = Streams(server, self.requests)
            streams.wait_tokens(4)
            server.process.send_signal(signal.SIGTERM)
            self.checker.check(streams.join())
            self.assertEqual(server.process.wait(PATIENCE_S), 0)

    def test_a_log_on_a_full_disk_stops_nothing_and_goes_on_when_there_is_room(self):
        with small_disk() as disk:
            with LoggingTo(disk / "log", "--log-level=debug", shards=2) as server:
                filling = fill(disk)
                self.streams_and_a_kill(server)
                # The rest of its last page it still got.
                size = os.stat(disk / "log").st_size
                self.assertEqual(size % os.sysconf("SC_PAGE_SIZE"), 0)
                filling.unlink()
                server.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 1}})
                wait_until(lambda: os.stat(disk / "log").st_size > size, "the log to go on",
                           PATIENCE_S)
                wait_until(lambda: "route=/generate " in server.log_text(), "the last request",
                           PATIENCE_S)
                # What fitted into the buffer came after all, without a torn line.
                log = server.log_text()
                self.assertIn("group lost", log)
                self.assertEqual(log.count(" output_tokens="), STREAMS + 1)
                for text in log.splitlines():
                    begins = re.findall(r"\d\d:\d\d:\d\d\.\d{3} (?:debug|info |warn |error) ", text)
                    self.assertTrue(len(begins) == 1 and text.startswith(begins[0]), text)
                self.assertEqual(server.stop(), 0)

    def test_a_run_directory_on_a_full_disk_is_one_elsewhere(self):
        with small_disk() as disk:
            take_all_names(disk)
            with WeftServer(environment={"XDG_RUNTIME_DIR": str(disk)}) as server:
                self.assertIn(f"{disk}: {NO_SPACE}", server.log_text())
                self.streams_of_one(server)

    def test_a_run_directory_needs_names_and_no_room(self):
        with small_disk() as disk:
            fill(disk)
            with WeftServer(environment={"XDG_RUNTIME_DIR": str(disk)}) as server:
                self.assertEqual(sum(name.startswith("weft-") for name in os.listdir(disk)), 1)
                self.streams_of_one(server)

    def streams_of_one(self, server):
        """One shard has other numbers than two: the ids' text is what is looked at."""
        Checker(server).check(Streams(server, self.requests[:2]).join())

    def test_no_run_directory_at_all_is_said_with_the_way_out(self):
        with small_disk() as disk:
            take_all_names(disk)
            # In a mount namespace of its own /tmp is the full disk; the binaries may lie below it.
            done = subprocess.run(
                ["unshare", "--mount", "sh", "-c",
                 'mount --bind "$1" /mnt && mount --bind "$2" /tmp && shift 2 && exec "$@"',
                 "sh", str(BIN), str(disk), "/mnt/weft", "serve", f"--model={DEMO_MODEL}",
                 "--http-port=0", "--grpc-port=0"],
                capture_output=True, text=True, timeout=PATIENCE_S,
                env={name: value for name, value in os.environ.items()
                     if name != "XDG_RUNTIME_DIR"})
            if "unshare" in done.stderr or "mount:" in done.stderr:
                skip("mounts", done.stderr.strip())
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(f"/tmp: {NO_SPACE}", done.stderr)
            self.assertIn("set XDG_RUNTIME_DIR", done.stderr)

    def test_a_key_file_on_a_full_disk_stays_as_it_is(self):
        with small_disk() as disk:
            keys = disk / "keys.json"
            command = [str(BIN / "weft"), "key", "new", f"--file={keys}"]
            subprocess.run([*command, "--tenant=a"], check=True, capture_output=True)
            before = keys.read_text()
            fill(disk)
            done = subprocess.run([*command, "--tenant=b"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"{keys}: cannot be written: {NO_SPACE}", done.stderr)
            self.assertEqual(keys.read_text(), before)
            self.assertEqual({path.name for path in disk.iterdir()}, {"keys.json", "filling"})

    def test_a_command_whose_output_is_lost_has_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = f"--file={folder}/keys.json"
            for command in (["key", "new", "--tenant=a", keys], ["key", "list", keys],
                            ["inspect", "--json", DEMO_MODEL], ["--help"], ["--version"],
                            ["serve", "--help"]):
                with open("/dev/full", "w") as full:
                    done = subprocess.run([str(BIN / "weft"), *command], stdout=full, text=True,
                                          stderr=subprocess.PIPE, timeout=PATIENCE_S)
                self.assertEqual(done.returncode, 1, command)
                self.assertIn("standard output: not all of it could be written", done.stderr,
                              command)
        # Somebody who has read enough is no fault.
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([str(BIN / "weft"), "inspect", DEMO_MODEL], stdout=writer, text=True,
                              stderr=subprocess.PIPE, timeout=PATIENCE_S)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    run_tests()
