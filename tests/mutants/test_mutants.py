"""Every mutant fits the code and names a test that exists, so that no change of the code or of a
test silently leaves one behind; and the rules by which mutants are read and judged."""

import pathlib
import tempfile
import types
import unittest

import catalogue
import mutant as mutants
import run
import scratch
import search

GOOD = """# A count is one too low.
file: a.cc
caught by: weft_a_test "A, [b] and c"
<<<<
  return 1;
====
  return 0;
>>>>
"""


def parsed(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "low.mutant")
        path.write_text(text)
        return mutants.parse(path)


class CommittedTest(unittest.TestCase):
    """The mutants of this folder."""

    def test_each_fits_the_code_and_names_a_test_that_exists(self):
        paths = mutants.all_paths()
        self.assertGreater(len(paths), 5)
        for path in paths:
            with self.subTest(path.name):
                mutant = mutants.parse(path)
                mutant.apply((mutants.ROOT / mutant.file).read_text())
                self.assertTrue(mutant.catchers, "no `caught by:` line")
                for catcher in mutant.catchers:
                    self.assertEqual(catalogue.missing(catcher, mutants.ROOT), "")


class ReadTest(unittest.TestCase):
    def refused(self, text, why):
        with self.assertRaisesRegex(mutants.BadMutant, why):
            parsed(text)

    def test_a_mutant_is_read(self):
        mutant = parsed(GOOD)
        self.assertEqual((mutant.name, mutant.file, mutant.hangs), ("low", "a.cc", False))
        self.assertEqual((mutant.old, mutant.new), ("  return 1;", "  return 0;"))
        self.assertEqual(mutant.catchers, (mutants.Catcher("unit", "weft_a_test", "A, [b] and c"),))
        self.assertEqual(mutant.apply("{\n  return 1;\n}\n"), "{\n  return 0;\n}\n")
        self.assertTrue(parsed(GOOD.replace("<<<<", "hangs: yes\n<<<<", 1)).hangs)
        self.assertEqual(parsed(GOOD.replace("<<<<", "environment: A=b\n<<<<", 1)).environment,
                         (("A", "b"),))
        self.assertEqual(parsed(GOOD.replace("  return 0;\n", "")).new, "")

    def test_what_a_mutant_lacks_is_said(self):
        self.refused(GOOD.replace("# A count is one too low.\n", ""), "begins with a sentence")
        self.refused(GOOD.replace("file: a.cc\n", ""), "names its `file: `")
        self.refused(GOOD.replace("====\n", ""), "no text between")
        self.refused(GOOD.replace("return 0", "return 1"), "replaces nothing")
        self.refused(GOOD.replace("file: a.cc", "fiel: a.cc"), 'what is the line "fiel: a.cc"')
        self.refused(GOOD.replace("caught by: weft_a_test", "caught by:"), "expected `caught by: ")
        simulated = GOOD.replace('weft_a_test "A, [b] and c"', "sim weft_router_sim_low")
        self.assertEqual(parsed(simulated).catchers[0].target, "weft_router_sim_low")
        self.refused(simulated.replace("_low", "_high"), "has another mutant's name")

    def test_the_text_to_replace_is_there_once(self):
        for times in (0, 2):
            with self.assertRaisesRegex(mutants.BadMutant, f"occurs {times} times"):
                parsed(GOOD).apply("{\n" + times * "  return 1;\n" + "}\n")

    def test_tests_are_found_in_the_sources(self):
        text = 'TEST_CASE("A name " "in two", "[x][y]") {}\nTEST_CASE("Says \\"b\\"") {}\n'
        self.assertEqual(catalogue.test_cases(text),
                         [("A name in two", "[x][y]"), ('Says "b"', "")])
        self.assertTrue(catalogue.matches("[x]", "A name", "[x][y]"))
        self.assertFalse(catalogue.matches("[x]~[y]", "A name", "[x][y]"))
        self.assertTrue(catalogue.matches("A [n]*", "A [n] name", ""))
        self.assertFalse(catalogue.matches("A", "A name", ""))

    def test_tests_that_do_not_exist_are_missed(self):
        root = mutants.ROOT
        for line, why in (
                ('caught by: weft_no_test "x"', "no test program"),
                ('caught by: weft_common_test "No such case"', "no test case"),
                ("caught by: integration test_doors.Nobody.test_x", "has no Nobody.test_x"),
                ("caught by: integration nowhere.A.b", "expected test_file.Class.test"),
                ("caught by: sim weft_nothing", "makes no program"),
                ("caught by: sim weft_router_sim_nothing", "makes no program")):
            self.assertIn(why, catalogue.missing(mutants.read_catcher(line), root), line)


class FakeTree:
    """A tree whose builds and tests do as they are told."""

    def __init__(self, folder, built=True):
        self.root = self.tree = self.build = self.bin = self.logs = pathlib.Path(folder)
        self.environment = {}
        self.built = built
        self.text = "  return 1;\n"
        self.written = []

    def read(self, name):
        return self.text

    def write(self, name, text):
        self.text = text
        self.written.append(text)

    def make(self, targets, log):
        if isinstance(self.built, Exception):
            raise self.built
        return self.built


class JudgeTest(unittest.TestCase):
    def verdict(self, status, built=True, text=GOOD):
        with tempfile.TemporaryDirectory() as folder:
            tree = FakeTree(folder, built)
            runner = run.Runner(tree)
            runner.execute = lambda *_: status
            mutant = parsed(text)
            runner.seconds = {one: 0.1 for one in mutant.catchers}
            verdict = runner.judge(mutant)
            self.assertEqual(tree.written, ["  return 0;\n", "  return 1;\n"])
            return verdict[:2]

    def test_a_test_that_fails_or_dies_has_caught_it(self):
        self.assertEqual(self.verdict(1), ("caught", 'by weft_a_test "A, [b] and c"'))
        self.assertEqual(self.verdict(-11)[0], "caught")

    def test_a_test_that_passes_has_not(self):
        self.assertEqual(self.verdict(0)[0], "survived")

    def test_a_test_that_was_skipped_has_not(self):
        self.assertEqual(self.verdict(77), ("error", 'weft_a_test "A, [b] and c" was skipped'))

    def test_a_hang_counts_only_where_it_is_announced(self):
        self.assertEqual(self.verdict(None)[0], "error")
        hangs = GOOD.replace("<<<<", "hangs: yes\n<<<<", 1)
        self.assertEqual(self.verdict(None, text=hangs)[0], "caught")

    def test_what_is_not_built_proves_nothing(self):
        failure = self.verdict(1, scratch.BuildFailed("a.cc:1: error"))
        self.assertEqual(failure, ("error", "does not compile: a.cc:1: error"))
        verdict, why = self.verdict(1, built=False)
        self.assertEqual(verdict, "error")
        self.assertIn("does not depend on a.cc", why)

    def test_a_test_that_fails_anyway_proves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            runner = run.Runner(FakeTree(folder))
            catcher = parsed(GOOD).catchers[0]
            runner.selects = lambda _: 0
            with self.assertRaisesRegex(run.Unfit, "selects no test case"):
                runner.check(catcher, None)
            runner.selects = lambda _: 1
            runner.execute = lambda *_: 1
            with self.assertRaisesRegex(run.Unfit, "fails without a mutant"):
                runner.check(catcher, None)

    def test_a_simulation_that_breaks_without_a_mutant_proves_nothing(self):
        simulated = GOOD.replace('weft_a_test "A, [b] and c"', "sim weft_router_sim_low")
        with tempfile.TemporaryDirectory() as folder:
            runner = run.Runner(FakeTree(folder))
            runner.selects = lambda _: 1
            runner.execute = lambda catcher, *_: catcher.target == "weft_router_sim"
            wrong = run.prepare(runner, [parsed(simulated), parsed(GOOD)])
            self.assertEqual([mutant.catchers[0].kind for mutant, _ in wrong], ["sim"])
            self.assertIn("weft_router_sim fails without a mutant", wrong[0][1])

    def test_names_are_said_to_catch2_as_they_are(self):
        self.assertEqual(run.catch2_filter("A, [b]", ["A, [b]"]), "A\\, \\[b]")
        self.assertEqual(run.catch2_filter("[tag]", ["A, [b]"]), "[tag]")

    def test_failures_are_read_from_a_report(self):
        xml = ('<TestCase name="fine" tags=""><OverallResult success="true"/></TestCase>'
               '<TestCase name="a &lt; b" tags=""><OverallResult success="false"/></TestCase>'
               '<TestCase name="it died" tags="">')
        self.assertEqual(search.failed_cases(xml), ["a < b", "it died"])


class CopyTest(unittest.TestCase):
    def test_a_written_file_is_newer_than_before(self):
        tree = types.SimpleNamespace()
        with tempfile.TemporaryDirectory() as folder:
            tree.tree = pathlib.Path(folder)
            scratch.Scratch.write(tree, "a.cc", "1")
            before = (tree.tree / "a.cc").stat().st_mtime_ns
            scratch.Scratch.write(tree, "a.cc", "2")
            self.assertGreater((tree.tree / "a.cc").stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
