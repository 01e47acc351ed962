"""The tests that exist, read from the sources, so that it is known without a build whether a mutant
names one. Owned by test_mutants.py; reads files and runs nothing."""

import ast
import fnmatch
import functools
import pathlib
import re

NAMES = r'((?:"(?:[^"\\\n]|\\.)*"\s*)+)'
TEST_CASE = re.compile(rf"\bTEST_CASE\(\s*{NAMES}(?:,\s*{NAMES})?\)")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
PROGRAM = re.compile(r"\bweft_add_test\(\s*(\S+)(?:\s+[A-Z]+)*?\s+SOURCES\s+(.*?)\bLIBRARIES\b",
                     re.DOTALL)


def joined(literals):
    return "".join(STRING.findall(literals)).replace('\\"', '"').replace("\\\\", "\\")


def test_cases(text):
    """(name, tags) of each test case of a source file."""
    return [(joined(match[1]), joined(match[2] or "")) for match in TEST_CASE.finditer(text)]


@functools.lru_cache(maxsize=None)
def programs(root):
    """Test program -> the (name, tags) of its test cases."""
    found = {}
    variables = {"sim": "tests/sim", "PROJECT_SOURCE_DIR": "."}
    for listing in sorted(pathlib.Path(root, "tests").rglob("CMakeLists.txt")):
        text = re.sub(r"#.*", "", listing.read_text())
        for name, sources in PROGRAM.findall(text):
            cases = found.setdefault(name, [])
            for source in sources.split():
                path = listing.parent / source
                if source.startswith("${"):
                    named = re.sub(r"\$\{(\w+)\}", lambda m: variables.get(m[1], "-"), source)
                    path = pathlib.Path(root, named)
                if path.suffix == ".cc" and path.is_file():
                    cases += test_cases(path.read_text())
    return found


def matches(wanted, name, tags):
    """Whether Catch2 runs the test case for this filter: its name, a name with stars, or tags."""
    if wanted == name:
        return True
    if wanted.startswith(("[", "~[")):
        return all((tag in tags) != bool(no)
                   for no, tag in re.findall(r"(~?)(\[[^\]]*\])", wanted))
    return "*" in wanted and fnmatch.fnmatchcase(name, wanted.replace("[", "[[]"))


def missing(catcher, root):
    """Why the tests that `catcher` names do not exist; empty when they do."""
    if catcher.kind == "integration":
        return missing_integration(catcher.name, root)
    if catcher.kind == "sim":
        # Its name is made of the mutant's in a loop.
        paths = pathlib.Path(root, "tests/sim").rglob("CMakeLists.txt")
        listings = [path.read_text() for path in paths]
        for listing in listings:
            stems = re.findall(r"(?:weft_add_test|add_executable)\((\w+_)\$\{", listing)
            items = " ".join(re.findall(r"foreach\(\w+ IN ITEMS ([^)]*)\)", listing)).split()
            if catcher.target in {stem + item for stem in stems for item in items}:
                return ""
        return f"tests/sim makes no program {catcher.target}"
    known = programs(root)
    if catcher.target not in known:
        return f"there is no test program {catcher.target}"
    if not catcher.name:
        return ""
    if any(matches(catcher.name, *case) for case in known[catcher.target]):
        return ""
    return f'{catcher.target} has no test case "{catcher.name}"'


def missing_integration(name, root):
    parts = name.split(".")
    path = pathlib.Path(root, "tests/integration", parts[0] + ".py")
    if len(parts) != 3 or not path.is_file():
        return f"{name}: expected test_file.Class.test of tests/integration"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == parts[1]:
            tests = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
            if parts[2] in tests:
                return ""
    return f"tests/integration/{parts[0]}.py has no {parts[1]}.{parts[2]}"
