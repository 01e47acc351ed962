#!/usr/bin/env python3
"""deploy/find_cuda.cmake and deploy/env.sh: what WEFT_CUDA means, and that a folder configured
before CUDA was there takes it once it is. Cases that need a CUDA compiler are skipped without
one."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from skips import run_tests, skip  # noqa: E402

CMAKE = os.environ.get("WEFT_CMAKE") or shutil.which("cmake")
PROJECT = f"""cmake_minimum_required(VERSION 3.31)
project(probe LANGUAGES CXX)
include({ROOT}/deploy/find_cuda.cmake)
"""


def environment(**changes):
    """Ours without a CUDA compiler, with `changes`; a value of None removes."""
    path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep)
                           if not os.path.exists(os.path.join(folder, "nvcc")))
    env = {**os.environ, "PATH": path, "CUDACXX": None, "WEFT_NCCL": None, **changes}
    return {key: value for key, value in env.items() if value is not None}


def sourced(variable, **changes):
    """What `variable` is after deploy/env.sh."""
    command = f'source "{ROOT}/deploy/env.sh"; echo "${{{variable}:-}}"'
    return subprocess.run(["bash", "-c", command], env=environment(**changes), check=True,
                          capture_output=True, text=True).stdout.strip()


class FindCuda(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-find-cuda-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "CMakeLists.txt").write_text(PROJECT)

    def configure(self, *arguments, env=None):
        done = subprocess.run([CMAKE, "-S", self.folder, "-B", self.folder / "build", *arguments],
                              env=env or environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        # Messages are wrapped at words.
        return done.returncode, " ".join(done.stdout.split())

    def with_cuda(self):
        compiler = sourced("CUDACXX")
        if not compiler:
            skip("cuda_compiler", "nvcc is neither in $PATH nor where deploy/setup.sh puts it")
        return environment(CUDACXX=compiler, WEFT_NCCL=sourced("WEFT_NCCL") or None)

    def test_all_of_cmakes_words_for_off_mean_off(self):
        for word in ("OFF", "off", "0", "NO", "false"):
            code, text = self.configure(f"-DWEFT_CUDA={word}")
            self.assertEqual(code, 0, text)
            self.assertIn(f"CUDA: OFF (WEFT_CUDA={word})", text)

    def test_another_word_is_refused(self):
        code, text = self.configure("-DWEFT_CUDA=maybe")
        self.assertNotEqual(code, 0)
        self.assertIn('WEFT_CUDA is "maybe"; it may be ON, OFF or AUTO', text)

    def test_sanitizers_say_why_there_is_no_cuda(self):
        code, text = self.configure("-DWEFT_CUDA=AUTO", "-DWEFT_SANITIZE=thread")
        self.assertEqual(code, 0, text)
        self.assertIn("CUDA: OFF (WEFT_SANITIZE=thread", text)

    def test_a_compiler_that_is_not_there_is_named(self):
        env = environment(CUDACXX="/nonexistent/nvcc")
        code, text = self.configure("-DWEFT_CUDA=AUTO", env=env)
        self.assertEqual(code, 0, text)
        self.assertIn("CUDA: OFF (CUDACXX=/nonexistent/nvcc does not compile", text)
        code, text = self.configure("-DWEFT_CUDA=ON", env=env)
        self.assertNotEqual(code, 0)
        self.assertIn("deploy/setup.sh --cuda", text)

    def test_a_folder_configured_without_cuda_takes_it_later(self):
        env = self.with_cuda()
        code, text = self.configure("-DWEFT_CUDA=AUTO",
                                    env=environment(CUDACXX="/nonexistent/nvcc"))
        self.assertEqual(code, 0, text)
        self.assertIn("CUDA: OFF", text)
        code, text = self.configure(env=env)
        self.assertEqual(code, 0, text)
        self.assertIn("CUDA: ON", text)
        code, text = self.configure()
        self.assertIn("CUDA: ON", text)

    def test_without_nccl_auto_warns_and_on_fails(self):
        env = self.with_cuda()
        empty = f"-DNCCL_INCLUDE_DIR={self.folder}"
        code, text = self.configure("-DWEFT_CUDA=AUTO", empty, env=env)
        self.assertEqual(code, 0, text)
        self.assertIn("CMake Warning", text)
        self.assertIn("CUDA: OFF (no NCCL 2.28 for CUDA", text)
        code, text = self.configure("-DWEFT_CUDA=ON", empty, env=env)
        self.assertNotEqual(code, 0)
        self.assertIn("no NCCL 2.28", text)
        code, text = self.configure(env=env)
        self.assertIn("CUDA: ON", text, "the folder does not recover")


class Environment(unittest.TestCase):
    def test_nccl_alone_is_handed_over_beside_an_installed_cuda(self):
        with tempfile.TemporaryDirectory(prefix="weft-env-") as folder:
            cache = pathlib.Path(folder)
            (cache / "bin").mkdir()
            nvcc = cache / "bin" / "nvcc"
            nvcc.write_text("#!/bin/sh\n")
            nvcc.chmod(0o755)
            changes = {"WEFT_CACHE": folder, "PATH": f"{cache}/bin:{os.environ['PATH']}"}
            self.assertEqual(sourced("WEFT_NCCL", **changes), "")
            (cache / "nccl").mkdir()
            (cache / "nccl" / "wheels").touch()
            self.assertEqual(sourced("WEFT_NCCL", **changes), f"{folder}/nccl/nvidia/nccl")
            self.assertEqual(sourced("CUDACXX", **changes), str(nvcc))


if __name__ == "__main__":
    run_tests()
