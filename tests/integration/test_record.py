"""`weft serve --record`: what real processes leave behind can be replayed, also after a kill, and a file that
cannot be written is said at the start."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from weft_server import BIN, WeftServer, wait_until


def replay(path):
    return subprocess.run([BIN / "weft", "replay", path], capture_output=True, text=True, timeout=60)


class Record(unittest.TestCase):
    def test_a_killed_routers_recording_and_the_next_one_replay(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/rec"
            body = {"prompt": "The sea", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
            with WeftServer(f"--record={path}", "--record-bytes-max=2000000") as server:
                answer = server.post("/v1/completions", body)
                # The second after which everything is on disk has passed.
                wait_until(lambda: pathlib.Path(path + ".1").stat().st_size > 500, "records")
                first = server.router_pid()
                os.kill(first, signal.SIGKILL)
                wait_until(lambda: server.router_pid() not in (None, first), "another router")

                def again():
                    try:
                        return server.post("/v1/completions", body)
                    except (OSError, AssertionError):
                        return None
                self.assertEqual(wait_until(again, "an answer")["choices"][0]["text"],
                                 answer["choices"][0]["text"])
                self.assertEqual(server.stop(), 0)
            parts = sorted(os.listdir(folder))
            self.assertEqual(parts, ["rec.1", "rec.2"])
            for name in parts:
                self.assertEqual(os.stat(f"{folder}/{name}").st_mode & 0o777, 0o600)
            # The second has its end, the first has not.
            for name, has_end in (("rec.1", False), ("rec.2", True), ("rec", True)):
                played = replay(f"{folder}/{name}")
                self.assertEqual(played.returncode, 0, played.stderr)
                self.assertIn("all as recorded", played.stdout)
                self.assertEqual("has no end" in played.stdout, not has_end, played.stdout)

    def test_a_file_that_cannot_be_made_is_said_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                [BIN / "weft", "serve", "--http-port=0", "--grpc-port=0",
                 f"--record={folder}/nowhere/rec"], capture_output=True, text=True, timeout=120)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            self.assertIn("--record: ", ended.stderr)
            self.assertIn(f"{folder}/nowhere/", ended.stderr)
            self.assertIn("name a file in a directory", ended.stderr)


if __name__ == "__main__":
    unittest.main()
