#!/usr/bin/env python3
"""deploy/bundle.sh on a program that needs a library called as NCCL is: what is packed, what is
left out and said, and which command lines are refused before any work."""

import pathlib
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def compile_program(folder):
    """build/bin/probe, which needs build/lib/libnccl.so.2."""
    for name in ("bin", "lib"):
        (folder / "build" / name).mkdir(parents=True)
    library = folder / "build/lib/libnccl.so.2"
    subprocess.run(["c++", "-x", "c++", "-", "-shared", "-fPIC", "-o", library,
                    "-Wl,-soname,libnccl.so.2"], input="int Seven() { return 7; }", text=True,
                   check=True)
    subprocess.run(["c++", "-x", "c++", "-", "-x", "none", library,
                    "-o", folder / "build/bin/probe", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"], text=True, check=True,
                   input="int Seven(); int main() { return Seven(); }")


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="weft-bundle-")
        cls.folder = pathlib.Path(cls.temporary.name)
        compile_program(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def bundle(self, *arguments):
        done = subprocess.run([ROOT / "deploy/bundle.sh", *arguments], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def names(self, tarball):
        with tarfile.open(self.folder / tarball) as tar:
            return {member.name for member in tar if member.isfile()}

    def refused(self, expected, *arguments):
        code, text = self.bundle(*arguments)
        self.assertNotEqual(code, 0, text)
        self.assertIn(expected, text)
        self.assertEqual(text.count("\n"), 1, text)

    def test_cudas_libraries_are_packed(self):
        code, text = self.bundle("build", "with.tar.gz", "probe")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.names("with.tar.gz"), {"weft/bin/probe", "weft/lib/libnccl.so.2"})
        self.assertNotIn("not in it", text)
        subprocess.run(["tar", "xf", "with.tar.gz"], cwd=self.folder, check=True)
        self.assertEqual(subprocess.run([self.folder / "weft/bin/probe"]).returncode, 7)

    def test_what_is_left_out_is_said(self):
        code, text = self.bundle("--without-cuda", "build", "without.tar.gz", "probe")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.names("without.tar.gz"), {"weft/bin/probe"})
        self.assertIn("not in it, and to be installed where it runs: libnccl.so.2", text)

    def test_options_may_stand_anywhere(self):
        code, text = self.bundle("build", "late.tar.gz", "--without-cuda", "probe")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.names("late.tar.gz"), {"weft/bin/probe"})

    def test_a_folder_is_filled_and_not_packed(self):
        code, text = self.bundle("build", "unpacked/", "probe")
        self.assertEqual(code, 0, text)
        self.assertIn("unpacked/: 1 binaries, 1 libraries", text)
        self.assertEqual(subprocess.run([self.folder / "unpacked/bin/probe"]).returncode, 7)
        self.refused("unpacked/ is there already", "build", "unpacked/", "probe")

    def test_what_cannot_work_is_refused_at_once_in_one_line(self):
        self.refused("name a build folder", "build")
        self.refused("unknown option --cuda", "--cuda", "build", "x.tar.gz")
        self.refused("no folder nowhere/bin", "nowhere", "x.tar.gz")
        self.refused("cannot write to the folder of /nonexistent/x.tgz", "build",
                     "/nonexistent/x.tgz", "probe")
        self.refused("build/bin/weft is not built", "build", "x.tar.gz")
        self.refused("does not end in .tar.gz", "build", "probe")


if __name__ == "__main__":
    unittest.main()
