"""OpenAI's client for JavaScript: node/openai*_test.mjs against real servers: one as it comes, one
that holds a request at a time, and one with keys."""

import os
import pathlib
import shutil
import subprocess
import unittest

from clients import SMALL, keyed_server
from weft_server import WEFT_CACHE, WeftServer, run_tests, skip

FOLDER = pathlib.Path(__file__).resolve().parent / "node"
TIMEOUT_S = 240


class NodeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        node, modules = shutil.which("node"), WEFT_CACHE / "test-clients-node"
        if node is None or not (modules / "installed").is_file():
            skip("node", "Node.js or the packages of tests/integration/node are missing; "
                 "deploy/setup.sh --tests installs them")
        cls.node = node
        cls.server = WeftServer(SMALL).start()
        cls.addClassCleanup(cls.server.stop)
        small = WeftServer(SMALL, "--running-max=1", "--queue-requests-max=1").start()
        cls.addClassCleanup(small.stop)
        keyed, key = keyed_server(cls)
        cls.environment = {
            **os.environ, "WEFT_NODE_MODULES": str(modules), "WEFT_KEY": key,
            "WEFT_SERVER": f"http://{cls.server.http}", "WEFT_SMALL_SERVER": f"http://{small.http}",
            "WEFT_KEYED_SERVER": f"http://{keyed.http}"}

    def run_file(self, name):
        done = subprocess.run([self.node, "--test", name], cwd=FOLDER, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("\n# pass 0\n", done.stdout)
        self.server.wait_idle()

    def test_openai(self):
        self.run_file("openai_test.mjs")

    def test_tools(self):
        self.run_file("openai_tools_test.mjs")

    def test_responses(self):
        self.run_file("openai_responses_test.mjs")

    def test_anthropic(self):
        self.run_file("anthropic_test.mjs")


if __name__ == "__main__":
    run_tests()
