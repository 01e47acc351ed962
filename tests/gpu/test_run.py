#!/usr/bin/env python3
"""tests/gpu/run.sh with programs that only exit: what runs with a GPU, without one and with a
broken driver, and what its exit code is. Needs no GPU."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_DRIVER = "echo 'NVIDIA-SMI has failed' >&2; exit 9"
ONE_GPU = "echo 'GPU 0: of a test'"


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-gpu-run-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "path").mkdir()
        (self.folder / "bin").mkdir()

    def program(self, path, text):
        file = self.folder / path
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def run_sh(self, *arguments):
        """Exit code and output; the only nvidia-smi is ours."""
        others = [folder for folder in os.environ["PATH"].split(os.pathsep)
                  if not os.path.exists(os.path.join(folder, "nvidia-smi"))]
        done = subprocess.run(
            [ROOT / "tests/gpu/run.sh", self.folder, "--logs", self.folder / "logs", *arguments],
            env={**os.environ, "PATH": os.pathsep.join([f"{self.folder}/path", *others])},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_without_a_gpu_what_needs_none_runs(self):
        self.program("bin/weft_cuda_memory_plan_test", "exit 0")
        self.program("bin/weft_cuda_kernels_test", "exit 1")
        self.program("bin/weft", "exit 1")
        code, text = self.run_sh()
        self.assertEqual(code, 0, text)
        self.assertNotIn("command not found", text)
        self.assertRegex(text, r"device +pass")
        self.assertRegex(text, r"serve +not here")
        self.assertIn("10 parts, 0 failed, 9 not run", text)

    def test_nothing_that_ran_is_no_success(self):
        self.program("bin/weft_cuda_kernels_test", "exit 0")
        for nvidia_smi in (None, NO_DRIVER):
            if nvidia_smi:
                self.program("path/nvidia-smi", nvidia_smi)
            code, text = self.run_sh("--only", "kernels")
            self.assertEqual(code, 77, text)
            self.assertIn("nothing ran: no GPU here", text)
        self.assertIn("NVIDIA-SMI has failed", text)

    def test_a_program_that_finds_no_gpu_did_not_run(self):
        self.program("path/nvidia-smi", ONE_GPU)
        self.program("bin/weft_cuda_kernels_test", "exit 77")
        code, text = self.run_sh("--only", "kernels")
        self.assertEqual(code, 77, text)

    def test_with_a_gpu_a_failure_fails(self):
        self.program("path/nvidia-smi", ONE_GPU)
        self.program("bin/weft_cuda_kernels_test", "exit 0")
        code, text = self.run_sh("--only", "kernels")
        self.assertEqual(code, 0, text)
        self.program("bin/weft_cuda_kernels_test", "exit 1")
        code, text = self.run_sh("--only", "kernels")
        self.assertEqual(code, 1, text)

    def test_options(self):
        code, text = self.run_sh("--help")
        self.assertEqual(code, 0, text)
        self.assertIn("--limit", text)
        for arguments, expected in ((["--limit", "abc"], "--limit"), (["--only", ","], "--only"),
                                    (["--only", "nothing"], "unknown part nothing"),
                                    (["--what"], "unknown option --what")):
            code, text = self.run_sh(*arguments)
            self.assertEqual(code, 2, text)
            self.assertIn(expected, text)


if __name__ == "__main__":
    unittest.main()
