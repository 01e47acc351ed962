"""A configuration file that changes while servers run: what is taken over, what waits, what is bad.
"""

import json
import os
import pathlib
import signal
import socket
import tempfile
import unittest

from weft_server import WeftServer, run_tests, wait_until

PATIENCE_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ConfigReload(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft-config-")
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "weft.toml"

    def write(self, *lines):
        """In one piece, as editors and Kubernetes exchange files."""
        new = self.file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        os.rename(new, self.file)

    def start(self, *lines):
        self.write(*lines)
        server = WeftServer(f"--config={self.file}", f"--admin-port={free_port()}").start()
        self.addCleanup(server.stop)
        return server

    @staticmethod
    def config(server):
        admin = next(word.split("=")[1] for word in server.argv if word.startswith("--admin-port"))
        public, server.http = server.http, f"127.0.0.1:{admin}"
        try:
            return json.loads(server.request("GET", "/config")[2])
        except OSError:
            return {}
        finally:
            server.http = public

    def wait(self, server, name, value):
        wait_until(lambda: self.config(server).get(name) == value, f"{name} = {value}", PATIENCE_S)

    @staticmethod
    def generates(server):
        server.post("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}})

    def test_new_limits_and_level_are_taken_over_and_outlive_the_router(self):
        server = self.start("queue-requests-max = 50", "running-max = 4")
        self.assertEqual(self.config(server)["queue-requests-max"], "50 (file)")
        self.write("queue-requests-max = 7", "running-max = 8", "threads = 1",
                   'log-level = "debug"')
        self.wait(server, "queue-requests-max", "7 (file)")
        self.assertEqual(self.config(server)["log-level"], "debug (file)")
        self.assertEqual(self.config(server)["running-max"], "4 (file)")
        self.generates(server)
        lines = (
            "configuration: queue-requests-max is 7 (file), was 50 (file)",
            "router: configuration: log-level is debug (file), was info (default)",
            "weft: configuration: log-level is debug (file), was info (default)",
            "configuration: running-max is 8 (file) from the next start on",
            "configuration: threads is 1 (file) from the next start on")
        # Lines of the router come through the launcher, a moment later.
        for line in lines:
            wait_until(lambda: line in server.log_text(), line, PATIENCE_S)
            self.assertEqual(server.log_text().count(line), 1, line)
        router = server.router_pid()
        os.kill(router, signal.SIGKILL)
        wait_until(lambda: server.router_pid() not in (None, router), "another router", PATIENCE_S)
        self.wait(server, "queue-requests-max", "7 (file)")
        wait_until(lambda: server.request("GET", "/readyz")[0] == 200, "it to be ready",
                   PATIENCE_S)
        self.generates(server)

    def test_a_bad_file_changes_nothing_and_sighup_reads_at_once(self):
        server = self.start("queue-requests-max = 50")
        self.write("queue-requests-max = 7", "queue-tokens-max = 0")
        wait_until(lambda: "the configuration stays as it was" in server.log_text(), "an error",
                   PATIENCE_S)
        self.assertEqual(self.config(server)["queue-requests-max"], "50 (file)")
        self.write("queue-requests-max = 9")
        server.process.send_signal(signal.SIGHUP)
        self.wait(server, "queue-requests-max", "9 (file)")
        self.assertIn("the configuration can be read again", server.log_text())
        self.assertEqual(server.log_text().count("the configuration stays as it was"), 1)
        self.generates(server)


if __name__ == "__main__":
    run_tests()
