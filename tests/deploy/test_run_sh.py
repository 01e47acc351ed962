"""The command line of tests/run.sh: what it takes and what it refuses, before it does anything."""

import pathlib
import re
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


if __name__ == "__main__":
    unittest.main()
