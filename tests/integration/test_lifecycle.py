"""Starting, stopping and dying: rows of the failure table that concern whole processes."""

import json
import os
import signal
import socket
import subprocess
import threading
import unittest

from weft_server import BIN, DEMO_MODEL, WeftServer, alive, children_of, wait_until


def serve_fails(*flags, model=DEMO_MODEL):
    """Runs `weft serve`, which must exit by itself with an error; returns what it said."""
    result = subprocess.run(
        [str(BIN / "weft"), "serve", f"--model={model}", "--grpc-port=0",
         *(flags if any(flag.startswith("--http-port") for flag in flags) else
           ("--http-port=0", *flags))],
        capture_output=True, text=True, timeout=60)
    if result.returncode == 0:
        raise AssertionError("the server exited with 0")
    return result.stdout + result.stderr


class LifecycleTest(unittest.TestCase):
    def drained(self, after_sigterm):
        """Texts of a stream of 200 tokens whose server gets SIGTERM after its first token."""
        with WeftServer("--drain-timeout-s=60", shards=2) as server:
            texts = []
            body = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 0,
                    "ignore_eos": True, "stream": True}
            first = threading.Event()

            def read():
                for event in server.events("/v1/completions", body):
                    if event["choices"]:
                        texts.append(event["choices"][0]["text"])
                        first.set()

            thread = threading.Thread(target=read)
            thread.start()
            self.assertTrue(first.wait(30))
            server.process.send_signal(signal.SIGTERM)
            after_sigterm(server)
            thread.join(60)
            self.assertEqual(server.process.wait(30), 0)
        return texts

    def test_sigterm_lets_running_requests_finish(self):
        texts = self.drained(lambda server: None)
        self.assertEqual(len(texts), 200)
        # Also when a shard is lost meanwhile.
        again = self.drained(lambda server: os.kill(server.shard_pid(1), signal.SIGKILL))
        self.assertEqual(again, texts)

    def test_no_process_outlives_the_launcher(self):
        server = WeftServer(shards=2).start()
        pids = list(children_of(server.process.pid))
        self.assertEqual(len(pids), 3)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids), "the children to die")
        server.close()

    def test_a_killed_router_is_back_within_a_second_and_the_shards_keep_their_weights(self):
        with WeftServer(shards=2) as server:
            shards = [server.shard_pid(0), server.shard_pid(1)]
            pid = server.router_pid()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not alive(pid), "the router to be gone")

            def answers():
                try:
                    return server.request("POST", "/generate", {
                        "inputs": "Hello", "parameters": {"max_new_tokens": 1}})[0] == 200
                except OSError:
                    return False

            wait_until(answers, "the router to serve again", 5)
            self.assertEqual([server.shard_pid(0), server.shard_pid(1)], shards)

    def test_ports_are_kept_when_the_router_restarts(self):
        with WeftServer() as server:
            os.kill(server.router_pid(), signal.SIGKILL)
            wait_until(lambda: self.ready(server), "readiness on the same port", 10)

    @staticmethod
    def ready(server):
        try:
            return server.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def test_a_taken_port_is_named(self):
        with WeftServer() as server:
            port = server.http.split(":")[1]
            said = serve_fails(f"--http-port={port}")
            self.assertIn(port, said)

    def test_an_unknown_flag_is_an_error(self):
        self.assertIn("--no-such-flag", serve_fails("--no-such-flag=1"))


class CommandsTest(unittest.TestCase):
    def run_weft(self, *arguments):
        return subprocess.run([str(BIN / "weft"), *arguments], capture_output=True, text=True,
                              timeout=120)

    def test_inspect(self):
        result = self.run_weft("inspect", "--json", DEMO_MODEL)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["layers"], report["heads"], report["kv_heads"]), (30, 9, 3))
        self.assertEqual(report["plans"][0]["kv_bytes_per_token"], 23040)

    def test_chat_says_that_it_waits_and_that_nobody_answers(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            chat = self.run_weft("chat", f"--connect={address}", "--prompt=x",
                                 "--connect-timeout-s=2")
        self.assertEqual(chat.returncode, 1)
        self.assertIn(f"waiting for {address}, up to 2 s", chat.stderr)
        self.assertIn(f"no gRPC server answers at {address}", chat.stderr)
        self.assertIn("weft serve", chat.stderr)

    def test_chat_and_bench(self):
        with WeftServer() as server:
            chat = self.run_weft("chat", f"--connect={server.grpc}",
                                 "--prompt=What is the capital of France?", "--max-tokens=24")
            self.assertEqual(chat.returncode, 0, chat.stderr)
            self.assertIn("Paris", chat.stdout)
            for flags in (["--streams=4"], ["--rate-per-s=20"], ["--route=chat"], ["--route=tgi"]):
                bench = self.run_weft("bench", "load", f"--connect={server.http}", "--requests=6",
                                      "--output-tokens=16", "--json=-", *flags)
                self.assertEqual(bench.returncode, 0, bench.stderr)
                report = json.loads(bench.stdout)
                self.assertEqual(report["failed"], 0)
                self.assertEqual(report["output_tokens"], 6 * 16, (flags, report))


if __name__ == "__main__":
    unittest.main()
