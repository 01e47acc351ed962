"""What a .mutant file says: the fault, the source file and the text in it that is replaced, and the
test that notices. Owned by whoever reads it; never touches the tree by itself."""

import dataclasses
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]

CATCH = re.compile(r'caught by: (?:(?P<kind>sim|integration) (?P<name>\S+)'
                   r'|(?P<target>weft\w+)(?: "(?P<filter>[^\n]+)")?)')


class BadMutant(Exception):
    """A mutant that proves nothing until somebody mends it."""


@dataclasses.dataclass(frozen=True)
class Catcher:
    """One `caught by:` line.

    kind "unit": the Catch2 program `target`, of which `name` (a test case or a filter; empty for
    all) must fail. "sim": `target` is a program of tests/sim that mutates the sources itself and
    passes when its simulation notices. "integration": `name` is test_file.Class.test of
    tests/integration.
    """
    kind: str
    target: str
    name: str

    def __str__(self):
        if self.kind != "unit":
            return f"{self.kind} {self.target or self.name}"
        return f'{self.target} "{self.name}"' if self.name else self.target


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: pathlib.Path
    what: str
    file: str
    old: str
    new: str
    catchers: tuple
    hangs: bool
    # Of its tests, beside what all have.
    environment: tuple

    @property
    def name(self):
        return self.path.stem

    def apply(self, text):
        """`text` with the fault in it. The text to replace must be there exactly once."""
        times = text.count(self.old)
        if times != 1:
            raise BadMutant(f"{self.name}: its text must occur exactly once in {self.file} and "
                            f"occurs {times} times; mend the mutant")
        return text.replace(self.old, self.new)


def cut(text, begin, end):
    """What stands between two marks on lines of their own; the second may follow at once."""
    first = text.find(f"\n{begin}\n")
    last = text.find(f"\n{end}\n", first + 1)
    if first < 0 or last < first:
        raise BadMutant(f"no text between lines {begin} and {end}")
    return text[first + len(begin) + 2:last]


def read_catcher(line):
    match = CATCH.fullmatch(line)
    if match is None:
        raise BadMutant(f'"{line}": expected `caught by: <target> "<test case or filter>"`, '
                        "`caught by: integration test_file.Class.test` or "
                        "`caught by: sim <target>`")
    if match["kind"] == "sim":
        return Catcher("sim", match["name"], "")
    if match["kind"] == "integration":
        return Catcher("integration", "", match["name"])
    return Catcher("unit", match["target"], match["filter"] or "")


def parse(path):
    path = pathlib.Path(path)
    try:
        text = path.read_text()
        head = text.split("\n<<<<\n", 1)[0].splitlines()
        what, catchers, values, environment = [], [], {}, []
        for line in head:
            if line.startswith("# "):
                what.append(line[2:])
            elif line.startswith("caught by:"):
                catchers.append(read_catcher(line))
            elif (match := re.fullmatch(r"(file|hangs): (\S+)", line)) and match[1] not in values:
                values[match[1]] = match[2]
            elif match := re.fullmatch(r"environment: (\w+)=(\S+)", line):
                environment.append((match[1], match[2]))
            else:
                raise BadMutant(f'what is the line "{line}"?')
        if not what or "file" not in values:
            raise BadMutant("a mutant begins with a sentence (`# ...`) and names its `file: `")
        if values.get("hangs", "yes") != "yes":
            raise BadMutant("`hangs: ` is `yes` or is not there")
        for catcher in catchers:
            # It holds the fault of the file that has its name, whatever this one says.
            if catcher.kind == "sim" and not re.fullmatch(
                    rf"weft_[a-z]+_sim_{re.escape(path.stem.removeprefix('router_'))}",
                    catcher.target):
                raise BadMutant(f"{catcher.target} has another mutant's name")
        old, new = cut(text, "<<<<", "===="), cut(text, "====", ">>>>")
        if not old or old == new:
            raise BadMutant("it replaces nothing")
    except BadMutant as error:
        raise BadMutant(f"{path.name}: {error}") from None
    return Mutant(path, " ".join(what), values["file"], old, new, tuple(catchers),
                  "hangs" in values, tuple(environment))


def all_paths():
    return sorted(FOLDER.glob("*.mutant"))


def find(names):
    """Paths of the mutants named: a file, or the name of one of this folder. None: all of it."""
    if not names:
        return all_paths()
    paths = []
    for name in names:
        path = pathlib.Path(name)
        paths.append(path if path.suffix == ".mutant" else FOLDER / f"{name}.mutant")
    for path in paths:
        if not path.is_file():
            raise BadMutant(f"{path}: no such mutant")
    return paths
