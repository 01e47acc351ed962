"""The commands and the program of docs/GRPC.md, as they stand there."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from weft_server import ROOT, WeftServer

TEXT = (ROOT / "docs/GRPC.md").read_text()
DOCUMENTED_ADDRESS = "127.0.0.1:8081"


class GrpcDocTest(unittest.TestCase):
    def test_the_stubs_and_the_program(self):
        command = re.search(r"^python -m grpc_tools.*$", TEXT, re.MULTILINE).group(0)
        program, *more = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
        self.assertEqual(len(more), 2)
        # Inside of the program's channel.
        program += "".join(f"    {line}\n" for line in "".join(more).splitlines())
        self.assertIn(DOCUMENTED_ADDRESS, program)
        with tempfile.TemporaryDirectory() as folder, WeftServer() as server:
            # In a folder that looks like the checkout: the stubs are written beside proto/.
            (pathlib.Path(folder) / "proto").symlink_to(ROOT / "proto")
            subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=folder, check=True,
                           timeout=60)
            script = pathlib.Path(folder) / "ask.py"
            script.write_text(program.replace(DOCUMENTED_ADDRESS, server.grpc))
            answer = subprocess.run([sys.executable, str(script)], cwd=folder, check=True,
                                    capture_output=True, text=True, timeout=120).stdout
        self.assertIn("Paris", answer)
        self.assertRegex(answer, r"\n\d+ tokens\n")
        self.assertRegex(answer, r"\n0 '")
        self.assertRegex(answer, r"\n1 '")
        self.assertNotIn("failed", answer)
        self.assertRegex(answer, r"\nget_weather {'city': '(Oslo|Rome)'}\n")

    def test_the_stubs_of_other_tests_go_with_them(self):
        program = "import os, weft_server; weft_server.grpc_modules(); print(os.listdir())"
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run(
                [sys.executable, "-c", program], cwd=folder, check=True, timeout=60, text=True,
                capture_output=True, env={**os.environ, "TMPDIR": folder,
                                          "PYTHONPATH": str(ROOT / "tests/integration")}).stdout
            self.assertIn("weft-proto-", said)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
