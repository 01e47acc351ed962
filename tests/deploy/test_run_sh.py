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
    """What it starts: a copy of it in a tree of its own, with programs that say how they were
    called, and fail where FAIL is their name."""

    SAY = '#!/bin/sh\necho "$(basename "$0") $*"\n[ "$FAIL" != "$(basename "$0")" ] || exit 3\n'

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


class FuzzShTest(unittest.TestCase):
    """tests/fuzz/run.sh with fuzzers that only say that they ran, and end as told."""

    RAN = "echo 'stat::number_of_executed_units: 7'\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "deploy").mkdir()
        (self.root / "deploy/env.sh").write_text("")
        (self.root / "build/fuzz/bin").mkdir(parents=True)
        for target in ("a", "b", "c"):
            (self.root / "tests/fuzz/corpora" / target).mkdir(parents=True)
            self.fuzzer(target, self.RAN)
        shutil.copy(ROOT / "tests/fuzz/run.sh", self.root / "tests/fuzz")

    def fuzzer(self, target, text):
        path = self.root / f"build/fuzz/bin/weft_fuzz_{target}"
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)

    def fuzz(self, *arguments):
        return subprocess.run([self.root / "tests/fuzz/run.sh", "--no-build", *arguments],
                              capture_output=True, text=True, timeout=60, cwd="/")

    def test_runs_that_find_nothing_are_a_success(self):
        done = self.fuzz()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(re.findall(r"^[abc] +7 runs.* ok$", done.stdout, re.MULTILINE)), 3)

    def test_a_fault_fails_with_the_way_to_it_wherever_it_stands(self):
        for target in ("a", "b", "c"):
            with self.subTest(target):
                self.setUp()
                self.fuzzer(target, self.RAN + 'for it; do case "$it" in -artifact_prefix=*) '
                            'fault="${it#*=}crash-1"; echo bad >"$fault"; '
                            'echo "Test unit written to $fault";; esac; done\nexit 77\n')
                done = self.fuzz()
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                again = re.search(rf"^  again: .* build/fuzz/bin/weft_fuzz_{target} (\S+)$",
                                  done.stdout, re.MULTILINE)
                self.assertEqual((self.root / again[1]).read_text(), "bad\n")
                self.assertEqual(done.stdout.count(" ok\n"), 2)

    def test_what_did_not_run_is_no_success(self):
        for text in ("", "echo 'stat::number_of_executed_units: 0'\n"):
            self.fuzzer("b", text)
            self.assertEqual(self.fuzz().returncode, 1)
        (self.root / "build/fuzz/bin/weft_fuzz_b").unlink()
        self.assertEqual(self.fuzz().returncode, 1)

    def test_nothing_is_judged_by_the_run_before(self):
        self.assertEqual(self.fuzz().returncode, 0)
        found = self.root / "build/fuzz/runs/c/found"
        found.rmdir()
        found.write_text("in the way")
        self.assertNotEqual(self.fuzz().returncode, 0)

    def test_what_it_does_not_know_is_refused(self):
        for arguments in (["--sceonds", "3"], ["--seconds"], ["--seconds", "0"], ["--jobs", "many"],
                          ["--seed", "-1"], ["d"], ["../corpora/a/.."]):
            done = self.fuzz(*arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stdout, done.stderr))


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
