"""docs/examples/generate: the client of each language is built from the protos as its README says,
streams the text that HTTP gives for the same request, and names what is refused."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import grpc

from weft_server import ROOT, WeftServer, run_tests, skip

FOLDER = ROOT / "docs/examples/generate"
PROMPT = "Once upon a time"
CACHE = pathlib.Path(os.environ.get("WEFT_CACHE", pathlib.Path.home() / ".cache/weft"))


def tool(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/local/go/bin")
    if found is None:
        raise AssertionError(f"{name} is missing: run deploy/setup.sh --tests")
    return found


def new_go():
    """Go that knows what the modules of gRPC need; Debian's is older."""
    said = subprocess.run([tool("go"), "version"], capture_output=True, text=True, timeout=60,
                          check=True, env={**os.environ, "GOTOOLCHAIN": "local"}).stdout
    if tuple(map(int, re.search(r"go(\d+)\.(\d+)", said).groups())) < (1, 26):
        skip("go", f"grpc-go needs Go 1.26, here is {said.strip()}")
    return tool("go")


class GenerateExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer().start()
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        cls.expected = cls.server.post("/generate", {"inputs": PROMPT, "parameters": {
            "max_new_tokens": 32}})["generated_text"] + "\n"

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def make(self, *argv, cwd=None, **environment):
        done = subprocess.run([str(word) for word in argv], cwd=cwd, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=500,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout)

    def check(self, *argv, **environment):
        def run(prompt, address):
            return subprocess.run([*map(str, argv), prompt, address], capture_output=True, text=True,
                                  timeout=120, env={**os.environ, **environment})
        done = run(PROMPT, self.server.grpc)
        self.assertEqual((done.returncode, done.stdout), (0, self.expected), done.stderr)
        # Refused for good: it says by what name, and does not try again.
        done = run("", self.server.grpc)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("`text`", done.stderr)
        self.assertEqual(done.stderr.count("request "), 1, done.stderr)
        self.check_retry(run)

    def check_retry(self, run):
        """A server that is full twice and then serves: its RetryInfo is heeded."""
        from concurrent import futures
        sys.path.insert(0, str(self.stubs()))
        from google.rpc import error_details_pb2
        from weft.v1 import generation_pb2, generation_pb2_grpc
        calls = []

        class Full(generation_pb2_grpc.TextGenerationServicer):
            def Generate(self, request, context):
                calls.append(context.time_remaining())
                if len(calls) < 3:
                    status = error_details_pb2.Status(code=8, message="full")
                    retry = error_details_pb2.RetryInfo()
                    retry.retry_delay.nanos = 10_000_000
                    status.details.add().Pack(retry)
                    context.set_trailing_metadata(
                        (("grpc-status-details-bin", status.SerializeToString()),))
                    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
                yield generation_pb2.GenerateResponse(output={"text": "served"})

        server = grpc.server(futures.ThreadPoolExecutor(2))
        generation_pb2_grpc.add_TextGenerationServicer_to_server(Full(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            done = run(PROMPT, f"127.0.0.1:{port}")
        finally:
            server.stop(None).wait()
        self.assertEqual((done.returncode, done.stdout), (0, "served\n"), done.stderr)
        self.assertEqual(len(calls), 3)
        self.assertTrue(all(30 < left < 61 for left in calls), calls)

    @classmethod
    def stubs(cls):
        """Python's, by the command of the README."""
        folder = cls.out / "python"
        if not folder.exists():
            folder.mkdir()
            (folder / "proto").symlink_to(ROOT / "proto")
            text = (FOLDER / "README.md").read_text()
            command = next(line.strip() for line in text.splitlines()
                           if line.strip().startswith("python -m grpc_tools"))
            subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=folder, check=True,
                           timeout=60)
        return folder

    def test_python(self):
        self.check(sys.executable, FOLDER / "python/generate.py", PYTHONPATH=str(self.stubs()))

    def test_go(self):
        go = new_go()
        source = shutil.copytree(FOLDER / "go", self.out / "go")
        self.make(tool("protoc"), "-I", ROOT / "proto", f"--go_out={source}",
                  f"--go-grpc_out={source}", "weft/v1/types.proto", "weft/v1/generation.proto")
        self.make(go, "build", "-o", source / "generate", ".", cwd=source,
                  GOTOOLCHAIN="local", GOFLAGS="-buildvcs=false")
        self.check(source / "generate")

    def test_node(self):
        source = shutil.copytree(FOLDER / "node", self.out / "node")
        self.make(tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=source)
        self.check(tool("node"), source / "generate.mjs", WEFT_PROTO=str(ROOT / "proto"))

    def test_rust(self):
        # Kept between runs: tonic takes minutes from nothing.
        target = CACHE / "examples-cargo"
        self.make(tool("cargo"), "build", "--locked", "--quiet", cwd=FOLDER / "rust",
                  CARGO_TARGET_DIR=str(target), WEFT_PROTO=str(ROOT / "proto"))
        self.check(target / "debug/generate")

    def test_cpp(self):
        self.make("cmake", "-G", "Ninja", "-S", FOLDER / "cpp", "-B", self.out / "cpp")
        self.make("cmake", "--build", self.out / "cpp")
        self.check(self.out / "cpp/generate")


if __name__ == "__main__":
    run_tests()
