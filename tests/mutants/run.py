#!/usr/bin/env python3
"""Proves that the tests notice each mutant of tests/mutants.

Usage: tests/mutants/run.py [--search] [NAME | FILE.mutant ...]

In a copy of the tree (build/mutants) each mutant's one replacement is made, the test programs that
it names are built, and the tests that it names are run: one of them has to fail. Before that they
have to pass without the mutant. Prints a line for each mutant; exits with 1 when one survives or
cannot be judged. What was built and run is in build/mutants/build/logs.

--search: for mutants whose test is not known. Runs all test programs that the mutant changes and
prints the test cases that failed.
"""

import argparse
import pathlib
import re
import signal
import subprocess
import sys
import time

import catalogue
import mutant as mutants
import scratch

# A test that hangs shows it in this time and a multiple of what it takes without the mutant.
PATIENCE_S = 60
PATIENCE_TIMES = 6
# What the integration tests start.
SERVERS = ["weft", "weft-router", "weft-shard", "weft-template-server"]
# Of a test that lacks what it needs (tests/support/skip.h).
SKIPPED = 77


class Unfit(Exception):
    """A test that can prove nothing: it fails without a mutant, or is not there."""


def catch2_filter(name, known):
    """Catch2's way to say exactly this test case; a filter stays what it is."""
    if name not in known:
        return name
    return re.sub(r"([\\,\[])", r"\\\1", name)


class Runner:
    def __init__(self, tree):
        self.tree = tree
        self.known = {}
        self.seconds = {}

    def targets(self, catcher):
        if catcher.kind == "integration":
            listed = self.tree.ninja("-t", "targets", "all")
            return [name for name in SERVERS if re.search(rf"^{name}: phony", listed, re.MULTILINE)]
        return [catcher.target]

    def command(self, catcher):
        if catcher.kind == "integration":
            file, test = catcher.name.split(".", 1)
            python = subprocess.run(
                ["bash", "-c", "echo $WEFT_CACHE/test-venv/bin/python3"], capture_output=True,
                text=True, env=self.tree.environment).stdout.strip()
            return [python, str(self.tree.tree / "tests/integration" / f"{file}.py"), "-v", test]
        program = [str(self.tree.bin / catcher.target)]
        if catcher.name:
            program.append(catch2_filter(catcher.name, self.names(catcher)))
        return program

    def names(self, catcher):
        """The test cases of a Catch2 program."""
        if catcher.target not in self.known:
            out = subprocess.run([str(self.tree.bin / catcher.target), "--list-test-names-only"],
                                 capture_output=True, text=True, env=self.tree.environment)
            self.known[catcher.target] = out.stdout.splitlines()
        return self.known[catcher.target]

    def selects(self, catcher):
        """How many test cases a unit test's name or filter selects."""
        command = self.command(catcher) + ["--list-test-names-only"]
        out = subprocess.run(command, capture_output=True, text=True, env=self.tree.environment)
        return len([line for line in out.stdout.splitlines() if line.strip()])

    def execute(self, catcher, log, timeout_s, environment=()):
        return scratch.run(self.command(catcher), timeout_s, log, cwd=self.tree.tree,
                           env=self.tree.environment | dict(environment))

    def check(self, catcher, log):
        """The test has to be there and to pass without a mutant."""
        if catcher in self.seconds:
            return
        if catcher.kind == "unit" and self.selects(catcher) == 0:
            raise Unfit(f"{catcher} selects no test case")
        begin = time.monotonic()
        status = self.execute(catcher, log, 1200)
        if status != 0:
            raise Unfit(f"{catcher} fails without a mutant (exit status {status}): {log}")
        self.seconds[catcher] = time.monotonic() - begin

    def patience_s(self, catcher):
        return PATIENCE_S + PATIENCE_TIMES * self.seconds[catcher]

    def judge(self, mutant):
        """("caught" | "survived" | "error", by what or why, seconds to build, seconds to run)."""
        log = self.tree.logs / f"{mutant.name}.log"
        log.write_bytes(b"")
        begin = time.monotonic()
        if mutant.catchers[0].kind == "sim":
            return self.judge_sim(mutant, log)
        original = self.tree.read(mutant.file)
        try:
            self.tree.write(mutant.file, mutant.apply(original))
            targets = sorted({name for one in mutant.catchers for name in self.targets(one)})
            if not self.tree.make(targets, log):
                return "error", f"{', '.join(targets)} does not depend on {mutant.file}", 0, 0
            built = time.monotonic()
            for catcher in mutant.catchers:
                status = self.execute(catcher, log, self.patience_s(catcher),
                                      mutant.environment)
                seconds = built - begin, time.monotonic() - built
                if status is None and not mutant.hangs:
                    return ("error", f"{catcher} ran past {self.patience_s(catcher):.0f} s; a "
                            "mutant that hangs says `hangs: yes`", *seconds)
                if status == SKIPPED:
                    return "error", f"{catcher} was skipped", *seconds
                if status != 0:
                    return "caught", f"by {catcher}", *seconds
            return "survived", f"not by {', '.join(map(str, mutant.catchers))}", *seconds
        except scratch.BuildFailed as error:
            return "error", f"does not compile: {error}", time.monotonic() - begin, 0
        finally:
            self.tree.write(mutant.file, original)

    def judge_sim(self, mutant, log):
        """The program mutates the sources itself and passes when its simulation notices."""
        catcher = mutant.catchers[0]
        begin = time.monotonic()
        try:
            self.tree.make([catcher.target], log)
        except scratch.BuildFailed as error:
            return "error", f"does not compile: {error}", time.monotonic() - begin, 0
        built = time.monotonic()
        status = self.execute(catcher, log, 600, mutant.environment)
        verdict = "caught" if status == 0 else "survived"
        return verdict, f"by {catcher}", built - begin, time.monotonic() - built


def without_mutant(catcher):
    """What has to pass without a mutant, or the catcher proves nothing. A simulation that mutates
    the sources itself says that some invariant broke: without a fault none may."""
    if catcher.kind != "sim":
        return catcher
    return mutants.Catcher("unit", re.match(r"weft_[a-z]+_sim", catcher.target)[0], "")


def prepare(runner, found):
    """Builds and checks the tests without a mutant; a list of (mutant, why none can be judged)."""
    tree = runner.tree
    catchers = {without_mutant(one) for mutant in found for one in mutant.catchers}
    targets = sorted({name for one in catchers for name in runner.targets(one)})
    log = tree.logs / "without.log"
    log.write_bytes(b"")
    if targets:
        tree.make(targets, log)
    unfit = {}
    for catcher in sorted(catchers, key=str):
        try:
            runner.check(catcher, log)
        except Unfit as error:
            unfit[catcher] = str(error)
    return [(mutant, unfit[without_mutant(one)]) for mutant in found for one in mutant.catchers
            if without_mutant(one) in unfit]


def report(mutant, verdict, why, build_s=0.0, test_s=0.0):
    print(f"{verdict:<8} {mutant.name:<34} {build_s + test_s:6.1f} s  {why}  "
          f"(built {build_s:.1f} s, ran {test_s:.1f} s)", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="mutants of tests/mutants, or .mutant files; none: all of the folder")
    parser.add_argument("--search", action="store_true", help="look for tests that notice")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    # As Ctrl-C: what was started is ended first (scratch.run).
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = [mutants.parse(path) for path in mutants.find(arguments.names)]
        for mutant in found:
            mutant.apply((mutants.ROOT / mutant.file).read_text())
            if not mutant.catchers and not arguments.search:
                raise mutants.BadMutant(f"{mutant.name}: no `caught by:` line; --search finds one")
            wrong = [catalogue.missing(one, mutants.ROOT) for one in mutant.catchers]
            if any(wrong):
                raise mutants.BadMutant(f"{mutant.name}: {'; '.join(filter(None, wrong))}")
    except mutants.BadMutant as error:
        sys.exit(f"tests/mutants/run.py: {error}")
    begin = time.monotonic()
    tree = scratch.Scratch(mutants.ROOT)
    try:
        tree.refresh()
        tree.configure()
        if arguments.search:
            import search
            return search.run(tree, found, report)
        runner = Runner(tree)
        counts = {"caught": 0, "survived": 0, "error": 0}
        unfit = prepare(runner, found)
    except scratch.BuildFailed as error:
        sys.exit(f"tests/mutants/run.py: without a mutant: {error}")
    print(f"{len(found)} mutants; their tests pass without them, "
          f"after {time.monotonic() - begin:.0f} s", flush=True)
    # Those of one file one after another: what was mutated before is built again only once.
    def order(mutant):
        return str(mutant.catchers[0]).split()[0], mutant.file, mutant.name

    for mutant in sorted(found, key=order):
        wrong = [why for other, why in unfit if other is mutant]
        verdict = ("error", wrong[0], 0, 0) if wrong else runner.judge(mutant)
        counts[verdict[0]] += 1
        report(mutant, *verdict)
    print(", ".join(f"{counts[verdict]} {name}" for verdict, name in (
        ("caught", "caught"), ("survived", "survived"), ("error", "not judged"))),
          f"in {time.monotonic() - begin:.0f} s")
    return 1 if counts["survived"] or counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
