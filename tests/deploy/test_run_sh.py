"""The command line of tests/run.sh: what it takes and what it refuses, before it does anything."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = "known: --quick, --full, --only P,..., --label L, --help"


def run(*arguments):
    """From elsewhere, as people do."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([ROOT / "tests/run.sh", *arguments], capture_output=True, text=True,
                              timeout=60, cwd=folder)


class RunShTest(unittest.TestCase):
    def refused(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn(KNOWN, result.stderr)
        return result.stderr

    def test_help_names_each_option(self):
        for flag in ("--help", "-h"):
            result = run(flag)
            self.assertEqual(result.returncode, 0, result.stderr)
            for option in ("--quick", "--full", "--only P", "--label L", "--help"):
                self.assertIn(option, result.stdout)

    def test_what_it_does_not_know_is_refused_with_what_it_does(self):
        self.assertIn("unknown option --lable", self.refused("--lable", "unit"))
        self.assertIn("unknown option unit", self.refused("unit"))

    def test_labels_are_those_that_tests_have(self):
        texts = [path.read_text() for path in (ROOT / "tests").rglob("CMakeLists.txt")]
        used = set(re.findall(r'LABELS "?([a-z]+)', "\n".join(texts)))
        said = self.refused("--label", "slow")
        self.assertIn("\"slow\"", said)
        listed = re.search(r"is not one of ([a-z ]+) \(", said).group(1).split()
        # `long` and `full` are not for asking: they say what --quick and a change leave out.
        self.assertEqual(sorted(listed), sorted((used | {"unit"}) - {"full", "long"}))
        self.assertIn("needs one of", self.refused("--label"))
        self.refused("--label=")
        self.refused("--label=uni")

    def test_parts_are_those_that_there_are(self):
        said = self.refused("--only", "lint")
        listed = re.search(r"is not one of ([a-z ]+) \(", said).group(1).split()
        text = (ROOT / "tests/run.sh").read_text()
        self.assertEqual(sorted(listed), sorted(re.findall(r"^part_([a-z]+)\(\)", text, re.M)))
        for arguments in (("--only",), ("--only=",), ("--only", ","), ("--only=build,lint",)):
            self.refused(*arguments)

    def test_a_part_of_another_mode_is_refused(self):
        self.assertIn("no part of this mode", self.refused("--only", "mutants"))
        self.assertIn("no part of this mode", self.refused("--quick", "--only=build,fuzz"))

    def test_it_is_quick_or_full(self):
        self.assertIn("exclude each other", self.refused("--quick", "--full"))


class PartsTest(unittest.TestCase):
    """What it starts: a copy of it in a tree of its own, with programs that say how they were called,
    and fail where their name is in FAIL."""

    SAY = '#!/bin/sh\necho "$(basename "$0") $*"\ncase " $FAIL " in *" $(basename "$0") "*) exit 3;; esac\n'

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "tree")
        (self.root / "deploy").mkdir(parents=True)
        (self.root / "tests/fuzz").mkdir(parents=True)
        (self.root / "bin").mkdir()
        shutil.copy(ROOT / "tests/run.sh", self.root / "tests")
        (self.root / "deploy/env.sh").write_text("WEFT_CACHE=/nowhere\n")
        for name in ("deploy/setup.sh", "tests/fuzz/run.sh", "tests/sanitizers.sh",
                     *(f"bin/{tool}" for tool in ("cmake", "ctest", "clang-format-14"))):
            (self.root / name).write_text(self.SAY)
            (self.root / name).chmod(0o755)
        cmake = self.root / "bin/cmake"
        cmake.write_text(self.SAY + "echo '-- CUDA: none'\n")
        for command in (["git", "init", "-q"], ["git", "add", "."]):
            subprocess.run(command, cwd=self.root, check=True)
        (self.root / "new.cc").write_text("")

    def run_parts(self, *arguments, fail="", program=None):
        env = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "FAIL": fail}
        return subprocess.run([program or self.root / "tests/run.sh", *arguments], env=env,
                              capture_output=True, text=True, timeout=60, cwd="/")

    def parts(self, result):
        return re.findall(r"^== (\w+) ", result.stdout, re.MULTILINE)

    def test_all_parts_of_a_mode_run(self):
        done = self.run_parts()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.parts(done), ["format", "build", "sanitizers", "fuzz", "tests"])

    def test_a_part_that_fails_ends_it(self):
        for fail, last in (("clang-format-14", "format"), ("cmake", "build"),
                           ("sanitizers.sh", "sanitizers"), ("run.sh", "fuzz"), ("ctest", "tests")):
            done = self.run_parts(fail=fail)
            self.assertNotEqual(done.returncode, 0, fail)
            self.assertEqual(self.parts(done)[-1], last)
        self.assertEqual(self.parts(self.run_parts(fail="setup.sh")), [])

    def test_parts_and_labels_that_are_named_twice_are_both_run(self):
        done = self.run_parts("--only=tests", "--only", "format", "--label=unit", "--label", "sim")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.parts(done), ["format", "tests"])
        self.assertIn("-L ^(unit|sim)$", done.stdout)

    def test_no_test_at_all_is_no_success(self):
        self.assertIn("--no-tests=error", self.run_parts("--only=tests").stdout)

    def test_a_new_file_is_formatted_too(self):
        self.assertRegex(self.run_parts("--only=format").stdout, r"clang-format-14 .*new\.cc")

    def test_it_may_be_a_link(self):
        link = self.root.parent / "run"
        link.symlink_to(self.root / "tests/run.sh")
        done = self.run_parts("--only=format", program=link)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.run_parts("--help", program=link).returncode, 0)


class OtherScriptsTest(unittest.TestCase):
    def test_help_from_any_folder(self):
        for name in ("run.sh", "sanitizers.sh", "coverage.sh", "fuzz/run.sh"):
            path = ROOT / "tests" / name
            done = subprocess.run([f"./{path.name}", "--help"], cwd=path.parent, text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            self.assertGreater(len(done.stdout.splitlines()), 3, name)


if __name__ == "__main__":
    unittest.main()
