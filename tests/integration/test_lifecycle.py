"""Starting, stopping and dying: rows of the failure table that concern whole processes."""

import ctypes
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc
import grpc_health
from stream_clients import Checker, Streams
from stream_doors import GRPC, TGI, Ask
from weft_server import (BIN, DEMO_MODEL, WeftServer, alive, children_of, run_tests, skip,
                         wait_until)


EXIT_STARTUP, EXIT_FATAL = 1, 4  # common/exit_code.h
PR_CAPBSET_DROP, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 24, 21, 24


def serve_fails(*flags, model=DEMO_MODEL, **arguments):
    """Runs `weft serve`, which must exit by itself with an error; returns what it said."""
    result = subprocess.run(
        [str(BIN / "weft"), "serve", f"--model={model}", "--grpc-port=0",
         *(flags if any(flag.startswith("--http-port") for flag in flags) else
           ("--http-port=0", *flags))],
        capture_output=True, text=True, timeout=60, **arguments)
    if result.returncode == 0:
        raise AssertionError("the server exited with 0")
    return result.stdout + result.stderr


def router_waits(shards, model=DEMO_MODEL):
    """What a router by hand says in /readyz of shards that do not fit, and its log; it goes on
    waiting for ones that do."""
    with tempfile.TemporaryFile("w+") as log:
        router = subprocess.Popen(
            [str(BIN / "weft-router"), f"--model={model}", "--http-port=0", "--grpc-port=0",
             *(f"--shard={shard}" for shard in shards)], stdout=subprocess.PIPE, stderr=log,
            text=True)
        try:
            line = router.stdout.readline()
            address = dict(word.split("=", 1) for word in line.split()[1:])["http"]

            def reason():
                try:
                    with urllib.request.urlopen(f"http://{address}/readyz", timeout=30):
                        raise AssertionError("the router serves")
                except urllib.error.HTTPError as answer:
                    detail = json.loads(answer.read())["detail"]
                    return detail if "same" in detail else None
            detail = wait_until(reason, "the router to say what does not fit", 60)
            if router.poll() is not None:
                raise AssertionError(f"the router ended with {router.returncode}")
        finally:
            router.terminate()
            router.wait(30)
            router.stdout.close()
        log.seek(0)
        return detail, log.read()


class UnreadServer(WeftServer):
    """A server whose stderr is a pipe that was full before it started, and that nobody reads."""

    def __init__(self, *flags, **arguments):
        super().__init__(*flags, **arguments)
        self.log.close()
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"." * 512)
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        self.log = os.fdopen(writer, "wb", buffering=0)

    def log_text(self):
        return ""

    def close(self):
        super().close()
        os.close(self.reader)


class LifecycleTest(unittest.TestCase):
    def test_a_stderr_that_nobody_reads_stops_neither_streams_nor_recovery_nor_sigterm(self):
        ask = Ask("Once upon a time", max_tokens=150)
        with UnreadServer("--log-level=debug", "--drain-timeout-s=60", shards=2) as server:
            checker = Checker(server).learn([ask])
            streams = Streams(server, [(door, ask) for door in (TGI, GRPC)])
            streams.wait_tokens(3)
            old = server.shard_pid(1)
            os.kill(old, signal.SIGKILL)
            streams.wait_tokens(60)
            self.assertNotIn(server.shard_pid(1), (None, old))
            self.assertEqual(server.metric("weft_group_losses_total"), 1)
            server.process.send_signal(signal.SIGTERM)
            checker.check(streams.join())
            self.assertEqual(server.process.wait(30), 0)

    def test_a_killed_launcher_leaves_nothing_that_the_next_one_does_not_remove(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as parent:
            environment = {"XDG_RUNTIME_DIR": parent}
            server = WeftServer(environment=environment).start()
            pids = list(children_of(server.process.pid))
            server.process.kill()
            server.process.wait()
            server.close()
            wait_until(lambda: not any(alive(pid) for pid in pids), "the children to die")
            left = os.listdir(parent)
            self.assertEqual(len(left), 1)
            with WeftServer(environment=environment) as server:
                now = os.listdir(parent)
                self.assertEqual(len(now), 1)
                self.assertNotEqual(now, left)
                self.assertEqual(os.stat(f"{parent}/{now[0]}").st_mode & 0o777, 0o700)
            self.assertEqual(os.listdir(parent), [])

    def test_a_runtime_directory_with_a_long_path_is_passed_over(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as parent:
            deep = pathlib.Path(parent, "x" * 120)
            deep.mkdir()
            with WeftServer(environment={"XDG_RUNTIME_DIR": str(deep)}) as server:
                self.assertIn("too long for the path of a Unix socket", server.log_text())
                self.assertEqual(os.listdir(deep), [])

    def test_a_router_whose_shards_do_not_fit_together_says_so_and_waits(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            shards = [subprocess.Popen(
                [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}", f"--rank={rank}", "--world=2",
                 f"--socket={folder}/{rank}.sock", "--device=cpu", f"--dtype={dtype}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for rank, dtype in enumerate(("float32", "bfloat16"))]
            try:
                detail, log = router_waits([f"unix:{folder}/{rank}.sock" for rank in (0, 1)])
            finally:
                for shard in shards:
                    shard.terminate()
                    shard.wait(30)
        self.assertIn("rank 1 differs from rank 0: dtype bfloat16 instead of float32", detail)
        self.assertEqual(log.count(detail), 1, log)

    def test_a_router_whose_model_has_another_context_says_so_before_it_serves(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            shorter = pathlib.Path(folder, "shorter.gguf")
            key = b"llama.context_length" + struct.pack("<I", 4)  # of type uint32
            model = pathlib.Path(DEMO_MODEL).read_bytes()
            self.assertEqual(model.count(key + struct.pack("<I", 8192)), 1)
            shorter.write_bytes(model.replace(key + struct.pack("<I", 8192),
                                              key + struct.pack("<I", 4096)))
            shard = subprocess.Popen(
                [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}", f"--socket={folder}/0.sock",
                 "--device=cpu"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                detail, _ = router_waits([f"unix:{folder}/0.sock"], model=shorter)
            finally:
                shard.terminate()
                shard.wait(30)
        self.assertIn("the router's model has a context of 4096 tokens, rank 0's 8192", detail)

    def test_a_router_that_a_later_start_takes_over_from_ends_with_its_own_code(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            shard = subprocess.Popen(
                [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}", f"--socket={folder}/0.sock",
                 "--device=cpu"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            routers = []
            try:
                for generation in (1, 2):
                    routers.append(subprocess.Popen(
                        [str(BIN / "weft-router"), f"--model={DEMO_MODEL}", "--http-port=0",
                         "--grpc-port=0", "--launcher-id=7", f"--launcher-generation={generation}",
                         f"--shard=unix:{folder}/0.sock"], stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE, text=True))
                    self.assertTrue(routers[-1].stdout.readline().startswith("listening"))
                    self.assertEqual(routers[-1].stdout.readline(), "ready\n")
                _, said = routers[0].communicate(timeout=60)
            finally:
                for process in (*routers, shard):
                    process.terminate()
                    process.wait(30)
                for router in routers:
                    router.stdout.close()
                    router.stderr.close()
        self.assertEqual(routers[0].returncode, EXIT_FATAL, said)
        self.assertEqual(said.count("another router has taken over"), 1, said)

    def test_a_model_that_is_gone_when_a_shard_dies_is_told_and_waited_for(self):
        """/readyz says what the shard says, and it is not started again faster than the back-off."""
        with tempfile.TemporaryDirectory(prefix="weft-model-") as folder:
            model, away = pathlib.Path(folder, "model.gguf"), pathlib.Path(folder, "away")
            shutil.copyfile(DEMO_MODEL, model)
            with WeftServer(model=model, shards=2) as server:
                model.rename(away)
                os.kill(server.shard_pid(1), signal.SIGKILL)

                def told():
                    status, _, body = server.request("GET", "/readyz")
                    detail = json.loads(body)["detail"]
                    return status == 503 and f"rank 1: --model: {model} does not exist" in detail
                wait_until(told, "/readyz to say why")
                again = "starting it again in "
                wait_until(lambda: server.log_text().count(again) >= 7, "starts again", 60)
                waits_ms = [int(line.split(again)[1].split()[0])
                            for line in server.log_text().splitlines() if again in line]
                # At once after a life of some length, and then twice as late each time.
                later_ms = [wait for wait in waits_ms if wait > 0]
                self.assertEqual(later_ms[:5], [100 << step for step in range(5)])
                self.assertTrue(told())
                away.rename(model)
                wait_until(lambda: server.request("GET", "/readyz")[0] == 200, "readiness", 60)

    def test_a_socket_that_a_shard_listens_on_stays_its_own(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            path = f"{folder}/0.sock"
            command = [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}", f"--socket={path}",
                       "--device=cpu"]
            first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     text=True)
            try:
                self.assertEqual(first.stdout.readline(), f"listening on unix:{path}\n")
                owner = os.stat(path).st_ino
                second = subprocess.run(command, capture_output=True, text=True, timeout=60)
                self.assertEqual(second.returncode, EXIT_STARTUP)
                self.assertIn(f"listens on {path}; stop it first", second.stderr)
                self.assertEqual(os.stat(path).st_ino, owner)
                # What a killed shard leaves is replaced.
                first.kill()
                first.wait(30)
                self.assertTrue(os.path.exists(path))
                first.stdout.close()
                first = subprocess.Popen(command, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True)
                self.assertEqual(first.stdout.readline(), f"listening on unix:{path}\n")
            finally:
                first.terminate()
                first.wait(30)
                first.stdout.close()

    def test_a_shards_metrics_have_a_port_of_their_own(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            command = [str(BIN / "weft-shard"), f"--model={DEMO_MODEL}",
                       f"--socket={folder}/0.sock", "--device=cpu"]
            shard = subprocess.Popen([*command, "--metrics-port=0"], stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True)
            try:
                line = shard.stdout.readline()
                self.assertTrue(line.startswith("metrics on http://127.0.0.1:"), line)
                url = line.split()[-1]
                with urllib.request.urlopen(url, timeout=30) as answer:
                    self.assertIn(b"weft_shard_steps_total", answer.read())
                self.check_health(f"unix:{folder}/0.sock", url.removesuffix("/metrics"))
                port = url.split(":")[2].split("/")[0]
                taken = subprocess.run([*command, f"--metrics-port={port}"], capture_output=True,
                                       text=True, timeout=60)
            finally:
                shard.terminate()
                shard.wait(30)
                shard.stdout.close()
        self.assertEqual(taken.returncode, EXIT_STARTUP)
        self.assertIn(f"--metrics-port: cannot listen on 127.0.0.1:{port}", taken.stderr)

    def check_health(self, address, routes):
        """grpc.health.v1 says of the shard what /readyz says, from its first moment on."""
        with grpc.insecure_channel(address) as channel:
            wait_until(lambda: grpc_health.code_of(lambda: grpc_health.check(channel)) == "OK",
                       "the shard to answer")
            said = []

            def serving():
                said.append(grpc_health.check(channel, grpc_health.SERVICE))
                return said[-1] == "SERVING"
            wait_until(serving, "the shard to serve")
            self.assertLessEqual(set(said[:-1]), {"NOT_SERVING"})
            with urllib.request.urlopen(f"{routes}/readyz", timeout=30) as answer:
                self.assertEqual(answer.status, 200)
            self.assertEqual(grpc_health.check(channel), "SERVING")
            self.assertEqual(grpc_health.code_of(lambda: grpc_health.check(channel, "x")),
                             "NOT_FOUND")

    def test_what_the_command_does_not_know_ends_with_one_code(self):
        for words in ([], ["bogus"], ["key"], ["key", "bogus"], ["key", "new", "--bogus"],
                      ["bench"], ["bench", "bogus"], ["bench", "load", "--bogus"],
                      ["serve", "--bogus"], ["chat", "--bogus"], ["inspect", "--bogus"]):
            done = subprocess.run([str(BIN / "weft"), *words], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, EXIT_STARTUP, words)
            self.assertTrue(done.stderr, words)
        for words in (["--help"], ["key", "--help"], ["bench", "--help"]):
            done = subprocess.run([str(BIN / "weft"), *words], capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, words)
            self.assertTrue(done.stdout, words)

    def test_a_limit_of_processes_that_is_too_small_ends_the_start_by_name(self):
        def few():
            if os.getuid() == 0:
                # The limit binds neither root nor who holds one of these rights; files stay root's.
                for right in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE):
                    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, right, 0, 0, 0)
                os.setresuid(54321, 0, 0)
            resource.setrlimit(resource.RLIMIT_NPROC, (5, 5))

        said = serve_fails(preexec_fn=few)
        self.assertIn("raise the limit of processes and threads (ulimit -u", said)
        self.assertNotIn("terminate called", said)

    def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(self):
        with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
            pipe = f"{folder}/pipe"
            os.mkfifo(pipe)
            self.assertIn("neither a file nor a directory", serve_fails(model=pipe))
            self.assertIn("not a regular file", serve_fails(f"--config={pipe}"))
            os.rename(pipe, f"{folder}/config.json")
            self.assertIn("not a regular file", serve_fails(model=folder))

    def test_sighup_reloads_and_ends_nothing(self):
        with WeftServer() as server:
            router, shard = server.router_pid(), server.shard_pid(0)
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "SIGHUP" in server.log_text(), "the router's word")
            os.kill(shard, signal.SIGHUP)
            server.post("/generate", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}})
            self.assertEqual((server.router_pid(), server.shard_pid(0)), (router, shard))

    def test_the_environment_of_the_launcher_reaches_its_children_as_flags_alone(self):
        environment = {"WEFT_METRICS_PORT": "1", "WEFT_RANK": "7", "WEFT_QUEUE_REQUESTS_MAX": "77"}
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write("idle-timeout-s = 50\n")
            file.flush()
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                admin = probe.getsockname()[1]
            with WeftServer(f"--config={file.name}", f"--admin-port={admin}", shards=2,
                            environment=environment) as server:
                self.assertEqual(server.request("GET", "/config")[0], 404)
                server.http = f"127.0.0.1:{admin}"
                config = json.loads(server.request("GET", "/config")[2])
        config = config.get("flags", config)
        self.assertEqual(config["queue-requests-max"], "77 (environment)")
        self.assertEqual(config["idle-timeout-s"], "50 (file)")
        self.assertTrue(config["http-port"].endswith(" (flag)"), config["http-port"])
        self.assertTrue(config["shard"].endswith(" (weft serve)"), config["shard"])
        self.assertEqual(config["public-ops"], "true (default)")

    def test_the_progress_of_the_load_is_shown(self):
        with WeftServer(shards=2) as server:
            self.assertRegex(server.log_text(), r"info  weft: shard-0 .*shard-1 (\[|ready|starting)")

    def test_a_model_is_served_by_the_name_of_its_file(self):
        name = pathlib.Path(DEMO_MODEL).name
        with WeftServer() as server:
            for alias in (name, name.removesuffix(".gguf")):
                server.post("/v1/completions", {"model": alias, "prompt": "Hi", "max_tokens": 1})

    def test_an_ipv6_host_serves_both_doors(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            skip("ipv6", str(error))
        with WeftServer("--host=::1") as server:
            self.assertTrue(server.http.startswith("[::1]:"))
            self.assertTrue(server.grpc.startswith("[::1]:"))
            for address in (server.http, server.grpc):
                host, port = address.rsplit(":", 1)
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            connection = http.client.HTTPConnection("::1", int(server.http.rsplit(":", 1)[1]))
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()

    def test_no_process_outlives_the_launcher(self):
        server = WeftServer(shards=2).start()
        pids = list(children_of(server.process.pid))
        self.assertEqual(len(pids), 3)
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids), "the children to die")
        server.close()

    def test_a_killed_template_process_is_started_again(self):
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        with WeftServer() as server:
            router = server.router_pid()

            def templates(but=None):
                return next((pid for pid, name in children_of(router).items()
                             if name == "weft-templates" and pid != but), None)

            def ask():
                status, headers, _ = server.request("POST", "/v1/chat/completions", chat)
                if status != 200:
                    self.assertEqual(status, 503)
                    self.assertIn("retry-after", {name.lower() for name in headers})
                return status

            self.assertEqual(ask(), 200)
            pid = templates()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: templates(but=pid), "another template process", 10)
            wait_until(lambda: ask() == 200, "a chat", 10)
            self.assertEqual(server.router_pid(), router)
            self.assertEqual(server.log_text().count("the process that runs chat templates"), 1)
            # One that is killed again and again is not there any more.
            while self.ready(server):
                pid = templates()
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            answer = json.loads(server.request("GET", "/readyz")[2])
            self.assertIn("runs chat templates", answer["detail"])
            self.assertEqual(server.request("POST", "/generate", {
                "inputs": "Hello", "parameters": {"max_new_tokens": 1}})[0], 200)
            wait_until(lambda: self.ready(server), "readiness", 30)
            wait_until(lambda: ask() == 200, "a chat", 10)

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
            self.assertIn(port, serve_fails(f"--http-port={port}"))
            port = server.grpc.split(":")[1]
            said = serve_fails(f"--grpc-port={port}")
            self.assertIn(f"--grpc-port {port}: cannot listen on 127.0.0.1:{port}: address already in use", said)
            self.assertNotIn("chttp2", said)  # what the library would say of it

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
        self.assertIn("wants --tls or https://", chat.stderr)
        alone = self.run_weft("chat", "--connect=127.0.0.1", "--prompt=x")
        self.assertEqual(alone.returncode, 1)
        self.assertIn("--connect: 127.0.0.1 lacks the port", alone.stderr)

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

    def test_chat_and_bench_with_tls_and_a_key(self):
        with tempfile.TemporaryDirectory() as folder:
            def path(name):
                return os.path.join(folder, name)

            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=weft-test",
                 "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout",
                 path("tls.key"), "-out", path("tls.crt")], check=True, capture_output=True)
            new = self.run_weft("key", "new", "--tenant=test", f"--file={path('keys.json')}")
            self.assertEqual(new.returncode, 0, new.stderr)
            pathlib.Path(path("key")).write_text(new.stdout)
            safe = [f"--ca={path('tls.crt')}", f"--api-key-file={path('key')}"]
            with WeftServer(f"--tls-cert={path('tls.crt')}", f"--tls-key={path('tls.key')}",
                            f"--api-keys={path('keys.json')}") as server:
                ask = ["--prompt=What is the capital of France?", "--max-tokens=24",
                       "--connect-timeout-s=5"]
                for address in ([f"--connect=https://{server.grpc}"],
                                [f"--connect={server.grpc.replace('127.0.0.1', 'localhost')}",
                                 "--tls"]):
                    chat = self.run_weft("chat", *address, *ask, *safe)
                    self.assertEqual(chat.returncode, 0, chat.stderr)
                    self.assertIn("Paris", chat.stdout)
                load = ["bench", "load", "--requests=2", "--output-tokens=4", "--json=-"]
                for address in (server.http, server.http.replace("127.0.0.1", "localhost")):
                    bench = self.run_weft(*load, f"--connect=https://{address}", *safe)
                    self.assertEqual(bench.returncode, 0, bench.stderr)
                    self.assertEqual(json.loads(bench.stdout)["output_tokens"], 8)
                offline = self.run_weft("bench", "offline", f"--connect={server.grpc}", "--tls",
                                        "--requests=2", "--isl=4", "--osl=4", *safe)
                self.assertEqual(offline.returncode, 0, offline.stderr)
                # Without the authority, without the key, without TLS.
                https = f"--connect=https://{server.grpc}"
                for command, words in (
                        (["chat", https, *ask, safe[1]], "signed by --ca"),
                        (["chat", https, *ask, safe[0]], "key"),
                        (["chat", f"--connect={server.grpc}", *ask, safe[1]], "--tls"),
                        ([*load, f"--connect=https://{server.http}", safe[1]], "TLS (see --ca)"),
                        ([*load, f"--connect=https://{server.http}", safe[0]], "HTTP 401")):
                    refused = self.run_weft(*command)
                    self.assertEqual(refused.returncode, 1, command)
                    self.assertIn(words, refused.stderr)


if __name__ == "__main__":
    run_tests()
