"""Looks for the test that notices a mutant: builds the test programs that the mutant changes, those
of its own folder first, and runs all their tests until one fails. Part of run.py."""

import html
import os
import re
import time

import catalogue
import scratch

# Of one program.
TIMEOUT_S = 900
TEST_CASE = re.compile(r'<TestCase name="([^"]*)"(.*?)(?=<TestCase |\Z)', re.DOTALL)


def objects_of(tree, file):
    """Object files that were compiled with this source file or header."""
    wanted = str(tree.tree / file)
    found, current = set(), None
    for line in tree.ninja("-t", "deps").splitlines():
        if line.startswith("    "):
            if os.path.normpath(os.path.join(tree.build, line.strip())) == wanted:
                found.add(current)
        elif ": #deps" in line:
            current = line.split(": #deps")[0]
    return found


def changed_programs(tree, programs, file):
    """Of these, the ones with an object file in them that was compiled with `file`."""
    objects = objects_of(tree, file)
    changed = []
    for program in programs:
        if objects & set(tree.ninja("-t", "inputs", program).splitlines()):
            changed.append(program)
    return changed


def distance(root, program, file):
    """How far the folder of a program's tests is from the file's, as a sort key."""
    for listing in (root / "tests").rglob("CMakeLists.txt"):
        if re.search(rf"weft_add_test\({program}\b", listing.read_text()):
            folder = str(listing.parent.relative_to(root / "tests"))
            return -len(os.path.commonprefix([folder + "/", file])), len(folder), program
    return 0, 0, program


def failed_cases(xml):
    """The names in a Catch2 report of the test cases that failed, or that nothing came after."""
    failed = []
    for name, rest in TEST_CASE.findall(xml):
        if '<OverallResult success="true"' not in rest:
            failed.append(html.unescape(name))
    return failed


def search(tree, mutant, programs, log):
    """The program that noticed, the test cases of it that failed, and the programs that did not."""
    silent = []
    original = tree.read(mutant.file)
    tree.write(mutant.file, mutant.apply(original))
    try:
        changed = changed_programs(tree, programs, mutant.file)
        for program in sorted(changed, key=lambda one: distance(tree.root, one, mutant.file)):
            tree.make([program], log)
            report = tree.logs / f"{mutant.name}.{program}.xml"
            report.write_text("")
            command = [str(tree.bin / program), "-r", "xml", "-o", str(report), "~[slow]~[.]"]
            status = scratch.run(command, TIMEOUT_S, log, env=tree.environment, cwd=tree.tree)
            if status != 0:
                cases = failed_cases(report.read_text(errors="replace"))
                return program, cases + (["(it hangs)"] if status is None else []), silent
            silent.append(program)
        return None, [], silent
    finally:
        tree.write(mutant.file, original)


def run(tree, found, report):
    programs = sorted(name for name in catalogue.programs(tree.tree) if "$" not in name
                      and "cuda" not in name)
    log = tree.logs / "without.log"
    log.write_bytes(b"")
    tree.make(programs, log)
    survived = 0
    for mutant in found:
        log = tree.logs / f"{mutant.name}.log"
        log.write_bytes(b"")
        begin = time.monotonic()
        try:
            program, cases, silent = search(tree, mutant, programs, log)
        except scratch.BuildFailed as error:
            report(mutant, "error", f"does not compile: {error}", time.monotonic() - begin)
            survived += 1
            continue
        seconds = time.monotonic() - begin
        if program is None:
            report(mutant, "survived", "all of " + (", ".join(silent) or "no program"), 0, seconds)
            survived += 1
        else:
            report(mutant, "caught", "", 0, seconds)
            for case in cases or ["(no test case; it ended early)"]:
                print(f'         caught by: {program} "{case}"', flush=True)
    print(f"{len(found) - survived} of {len(found)} noticed")
    return 1 if survived else 0
