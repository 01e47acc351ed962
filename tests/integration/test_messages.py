"""What people are told who start something wrongly: what it is, why, and the way out, in one line."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

from weft_server import BIN, DEMO_MODEL, ROOT, WeftServer, run_tests, skip

GOLDEN = ROOT / "tests/goldens/llama_nine_heads_f16"
KEY = "weft-" + "Ab_d" + "x" * 39


def weft(*arguments, environment=None):
    """(exit code, stdout, stderr) of a command that ends by itself."""
    result = subprocess.run([str(BIN / "weft"), *map(str, arguments)], capture_output=True,
                            text=True, timeout=120, env={**os.environ, **(environment or {})})
    return result.returncode, result.stdout, result.stderr


def free_port():
    """A port that nobody listens on: bound once, and let go."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class MessagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-messages-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refused(self, words, *arguments):
        """One line of stderr, which holds `words`."""
        code, _, said = weft(*arguments)
        self.assertEqual(code, 1, said)
        self.assertEqual(len(said.splitlines()), 1, said)
        for word in words:
            self.assertIn(word, said)
        return said

    # -- Start ------------------------------------------------------------------------------------
    def test_flags(self):
        self.refused(["--model: its value is missing; write --model=VALUE"], "serve", "--model")
        self.refused(["--host: `no.such.host` is no IP address", "127.0.0.1", "0.0.0.0"],
                     "serve", "--host=no.such.host")
        self.refused(["--admin-host: `x` is no IP address"], "serve", "--admin-host", "x")
        for arguments in (["--connict=h:1"], ["--connict", "h:1"]):
            self.refused(["unknown flag --connict; the nearest known one is --connect"], "chat",
                         *arguments)
        self.refused(["--no-prefix-cache; the nearest known one is --prefix-cache=false"], "serve",
                     "--no-prefix-cache")

    def test_taken_ports(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for flag in ("--http-port", "--grpc-port", "--admin-port"):
                ports = {"--http-port": 0, "--grpc-port": 0, flag: port}
                code, _, said = weft("serve", f"--model={DEMO_MODEL}", "--device=cpu",
                                     *(f"{name}={value}" for name, value in ports.items()))
                self.assertEqual(code, 1)
                self.assertIn(f"{flag} {port}: cannot listen on 127.0.0.1:{port}: address already "
                              "in use; name another port", said.splitlines()[-1])

    def test_a_start_that_cannot_work_ends_with_the_reason(self):
        arguments = ["serve", f"--model={DEMO_MODEL}", "--device=cpu", "--http-port=0",
                     "--grpc-port=0", "--kv-memory=1KiB"]
        reason = (f"shard-0 could not start (exit code 1): {DEMO_MODEL}: --kv-memory 1024 bytes hold "
                  "no KV block")
        code, _, said = weft(*arguments)
        self.assertEqual(code, 1, said)
        self.assertIn(f" error weft: {reason}", said.splitlines()[-1])
        code, _, said = weft(*arguments, "--log-format=json")
        self.assertEqual(code, 1, said)
        last = json.loads(said.splitlines()[-1])
        self.assertEqual((last["process"], last["level"]), ("weft", "error"))
        self.assertTrue(last["msg"].startswith(reason), last)
        # Of the router it is an error of its log.
        for form in ("text", "json"):
            code, _, said = weft(*arguments[:-1], f"--log-format={form}", "--api-keys=no-keys.json")
            self.assertEqual(code, 1, said)
            self.assertIn("router could not start (exit code 1): --api-keys: no-keys.json: ",
                          said.splitlines()[-1])

    def test_a_gpu_that_is_not_here(self):
        if pathlib.Path("/proc/driver/nvidia/version").exists():
            skip("no_gpu", "this host has NVIDIA's driver")
        code, _, said = weft("serve", f"--model={DEMO_MODEL}", "--device=cuda", "--http-port=0",
                             "--grpc-port=0")
        self.assertEqual(code, 1, said)
        # Once by the shard, and as the last line.
        self.assertEqual(said.count("--device cuda: no NVIDIA driver on this host: install"), 2, said)
        self.assertIn("or use --device cpu", said.splitlines()[-1])

    def test_variables_that_nobody_reads_and_a_model_that_nobody_named(self):
        wrong = {"WEFT_MODLE": "/no/such", "WEFT_CACHE": os.environ.get("WEFT_CACHE", "/tmp"),
                 "WEFT_DEMO_MODEL": DEMO_MODEL}
        warning = ("the environment variable WEFT_MODLE is none of weft's and changes nothing; the "
                   "nearest known one is WEFT_MODEL")
        with WeftServer(model="", environment=wrong) as server:
            log = server.log_text()
        self.assertEqual(log.count(warning), 1, log)
        self.assertEqual(log.count("is none of weft's"), 1, log)
        self.assertEqual(log.count("no model was named"), 1, log)
        self.assertIn(DEMO_MODEL, log[log.index("no model was named"):].splitlines()[0])
        self.assertIn("--model DIR_OR_GGUF", log)
        code, _, said = weft("inspect", DEMO_MODEL, environment={**wrong, "WEFT_HTTP_PORT": "1"})
        self.assertEqual((code, said), (0, f"weft inspect: {warning}\n"))
        # Commands whose flags have no variables; a server's are no mistake beside them.
        wrong = {"WEFT_API_KYE": "weft-x", "WEFT_HTTP_PORT": "1"}
        warning = warning.replace("WEFT_MODLE", "WEFT_API_KYE").replace("WEFT_MODEL",
                                                                        "WEFT_API_KEY")
        for command in (("chat", "--connect=127.0.0.1:x"), ("key", "list"),
                        ("bench", "load", "--connect=127.0.0.1:x")):
            code, _, said = weft(*command, environment=wrong)
            self.assertEqual(said.splitlines()[0], f"weft {command[0]}: {warning}")
            self.assertEqual((code, said.count("is none of weft's")), (1, 1), said)

    # -- Models -----------------------------------------------------------------------------------
    def test_serve_and_inspect_say_the_same_of_a_broken_model(self):
        broken = {
            "no config": ["config.json", "tokenizer.json", "model.safetensors"],
            "no tensors": ["tokenizer.json", "model.safetensors"],
            "no tokenizer": ["tokenizer.json"],
        }
        for name, missing in broken.items():
            model = self.folder / name.replace(" ", "-")
            shutil.copytree(GOLDEN, model)
            for file in missing:
                (model / file).unlink()
            self.same_words(model)
        model = self.folder / "typed"
        shutil.copytree(GOLDEN, model)
        config = json.loads((model / "config.json").read_text())
        for key in ("max_position_embeddings", "num_hidden_layers", "rms_norm_eps"):
            (model / "config.json").write_text(json.dumps({**config, key: "x"}))
            said = self.same_words(model)
            for word in (f"{model}/config.json", key, "expected a", 'found "x"'):
                self.assertIn(word, said)

    def same_words(self, model):
        served = self.refused([str(model)], "serve", f"--model={model}", "--http-port=0",
                              "--grpc-port=0", "--device=cpu")
        inspected = self.refused([str(model)], "inspect", model)
        self.assertEqual(served.replace("weft serve: ", ""),
                         inspected.replace("weft inspect: ", ""))
        return served

    # -- Clients ----------------------------------------------------------------------------------
    def test_benches(self):
        address = f"127.0.0.1:{free_port()}"
        self.refused([f"no server answers at {address}", "refused", "weft serve", "--connect"],
                     "bench", "load", f"--connect={address}")
        self.refused([f"no gRPC server answers at {address}", "weft serve", "--connect"],
                     "bench", "offline", f"--connect={address}", "--requests=1")
        self.refused(["--model: name a model directory or a .gguf file"], "bench", "step")
        self.refused(["--model: /no/such does not exist", ".gguf"], "bench", "step",
                     "--model=/no/such")
        self.refused(["--batches: \"x\"", "as in 1,8,32"], "bench", "step",
                     f"--model={DEMO_MODEL}", "--batches=x")

    def test_keys(self):
        self.refused(["--tenant: name whose key it is", "--tenant=search"], "key", "new")
        none = self.folder / "none.json"
        self.refused([f"--file: {none} does not exist", "weft key new"], "key", "list",
                     f"--file={none}")
        self.refused([f"--file: {none} does not exist", "weft key new"], "key", "revoke", "12345678",
                     f"--file={none}")
        self.refused([f"the folder {self.folder}/no does not exist", f"mkdir -p {self.folder}/no"],
                     "key", "new", "--tenant=a", f"--file={self.folder}/no/keys.json")

    def trial_certificates(self, name):
        """A folder with what the recipe of docs/OPERATIONS.md makes."""
        text = (ROOT / "docs/OPERATIONS.md").read_text()
        text = text[text.index("To try it, a certificate"):]
        recipe = text[text.index("  openssl"):text.index("  weft serve")]
        folder = self.folder / name
        folder.mkdir()
        subprocess.run(["bash", "-ec", recipe], check=True, capture_output=True, timeout=60,
                       cwd=folder)
        return folder

    def test_a_certificate_that_is_not_trusted_is_told_in_our_words_alone(self):
        served, other = self.trial_certificates("served"), self.trial_certificates("other")
        flags = (f"--tls-cert={served}/tls.crt", f"--tls-key={served}/tls.key")
        with WeftServer(*flags) as server:
            code, said, errors = weft("chat", "--tls", f"--ca={other}/ca.crt",
                                      f"--connect={server.grpc}", "--prompt=x",
                                      "--connect-timeout-s=2")
            self.assertEqual(code, 1)
            self.assertEqual(said, "")
            self.assertEqual([line.split(":")[0].split(" ")[0] for line in errors.splitlines()],
                             ["waiting", "weft"], errors)
            self.assertIn("signed by --ca", errors)
            code, said, errors = weft("chat", "--tls", f"--ca={served}/ca.crt",
                                      f"--connect={server.grpc}", "--prompt=Hi", "--max-tokens=2")
            self.assertEqual((code, errors), (0, ""))

    # -- Logs -------------------------------------------------------------------------------------
    def test_a_key_as_request_id_is_not_in_the_log(self):
        with WeftServer() as server:
            _, headers, _ = server.request("POST", "/generate", {"inputs": 1},
                                           headers={"x-request-id": KEY})
            self.assertEqual(headers["x-request-id"], KEY)
            server.stop()
            log = server.log_text()
        self.assertNotIn(KEY, log)
        self.assertIn("correlation_id=weft-Ab_d[...]", log)


if __name__ == "__main__":
    run_tests()
