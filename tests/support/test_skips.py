"""Skips are seen, and no skips where WEFT_REQUIRE names what is missing: how tests in C++ and in Python
end. Takes the folder of weft_skip_sample.
"""

import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

SUPPORT = pathlib.Path(__file__).resolve().parent
SAMPLE = pathlib.Path(sys.argv.pop(1)) / "weft_skip_sample" if len(sys.argv) > 1 else None
PYTHON_SAMPLE = textwrap.dedent("""
    import sys, unittest
    sys.path.append(sys.argv.pop(1))
    from skips import run_tests, skip
    class Sample(unittest.TestCase):
        def test_passes(self):
            pass
        def test_cannot_run(self):
            skip("avx2", "asked to")
    run_tests()
""")


def run(*command, **variables):
    """(exit code, output)"""
    env = {name: value for name, value in os.environ.items() if name not in ("WEFT_REQUIRE", "CI")}
    done = subprocess.run(command, env={**env, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.returncode, done.stdout


def sample(test, **variables):
    return run(str(SAMPLE), test, **variables)


def python_sample(*tests, **variables):
    return run(sys.executable, "-c", PYTHON_SAMPLE, str(SUPPORT), *tests, **variables)


class Skips(unittest.TestCase):
    def test_a_test_that_cannot_run_is_neither_passed_nor_failed(self):
        for name in ("cannot run", "cannot run in a section", "lacks all parts"):
            code, text = sample(name)
            self.assertEqual(code, 77, text)
            self.assertIn(f'"{name}", no avx2: asked to', text)
        code, text = python_sample("Sample.test_cannot_run")
        self.assertEqual(code, 77, text)
        self.assertIn("no avx2: asked to", text)

    def test_what_is_required_fails(self):
        for name in ("cannot run", "cannot run in a section", "lacks a part", "lacks all parts"):
            code, text = sample(name, WEFT_REQUIRE="demo,avx2")
            self.assertEqual(code, 1, text)
            self.assertIn("WEFT_REQUIRE names avx2, which is missing: asked to", text)
            self.assertNotEqual(sample(name, WEFT_REQUIRE="demo")[0], 1)
        code, text = python_sample("Sample.test_cannot_run", WEFT_REQUIRE="demo,avx2")
        self.assertEqual(code, 1, text)
        self.assertIn("WEFT_REQUIRE names avx2, which is missing: asked to", text)

    def test_a_requirement_that_nothing_has_is_refused(self):
        for code, text in (sample("passes", WEFT_REQUIRE="avx3"),
                           python_sample("Sample.test_passes", WEFT_REQUIRE="avx3")):
            self.assertNotIn(code, (0, 77), text)
            self.assertIn("avx3", text)

    def test_a_part_left_out_is_told(self):
        code, text = sample("lacks a part")
        self.assertEqual(code, 0, text)
        self.assertIn('LEFT OUT, part of "lacks a part", no avx2: asked to', text)
        # Said twice, told once.
        self.assertEqual(sample("lacks all parts")[1].count("LEFT OUT"), 1)

    def test_skips_hide_no_failure(self):
        self.assertEqual(sample("passes")[0], 0)
        self.assertEqual(sample("fails")[0], 1)
        self.assertEqual(sample("fails,cannot run")[0], 1)
        self.assertEqual(sample("passes,cannot run")[0], 0)
        self.assertEqual(sample("has too many failures")[0], 1)

    def test_a_filter_that_fits_no_test_fails(self):
        for name in ("no such test", "[no-such-tag]", "passes,no such test"):
            self.assertEqual(sample(name)[0], 1, name)

    def test_files_to_compare_with_are_not_rewritten_in_ci(self):
        self.assertNotIn("would rewrite", sample("rewrites")[1])
        self.assertIn("would rewrite", sample("rewrites", WEFT_SAMPLE_REWRITE="1")[1])
        code, text = sample("rewrites", WEFT_SAMPLE_REWRITE="1", CI="true")
        self.assertEqual(code, 1, text)
        self.assertIn("WEFT_SAMPLE_REWRITE is refused where CI=true", text)
        self.assertNotIn("would rewrite", text)


if __name__ == "__main__":
    unittest.main()
