#!/usr/bin/env python3
"""Makes the chart's list of the programs' flags, files/flags.yaml, of what their --help says.

    deploy/helm/flags.py --bin build/release/bin >deploy/helm/weft/files/flags.yaml

The chart refuses what is not in that list, and a test of tests/deploy fails where list and programs
differ. Each line has what a flag takes, in the words of the chart's checks: `whole` or `number`,
with a range where --help ends with one, `boolean`, `text`, or `texts`, which may be a list.
"""

import argparse
import pathlib
import re
import subprocess

PROGRAMS = ("weft serve", "weft-router", "weft-shard")
KINDS = {"UINT": "whole 0 ..", "INT": "whole", "FLOAT": "number", "BOOLEAN": "boolean",
         "TEXT": "text"}
HEAD = """\
# The flags of the programs and what each takes, for the checks of `flags` and `shardFlags`. Made by
# deploy/helm/flags.py of what --help says; a test of tests/deploy compares the two.
"""
# `  --name TYPE=default ... (Env:WEFT_NAME)  what it is; least .. most`; a switch has no type.
FLAG = re.compile(r"^  --([a-z0-9-]+)(?: ([A-Z]+))?(?:=\S*)?( \.\.\.)? \(Env:WEFT_\w+\) *(.*)$")
RANGE = re.compile(r"; (-?[0-9.]+ \.\. -?[0-9.]+)$")


def flags_of(text):
    """{flag: what it takes} of a --help."""
    # Where name and variable are long, what the flag is stands on a line of its own.
    text = re.sub(r"\)\n {10,}(?=\S)", ") ", text)
    found = {}
    for line in text.splitlines():
        if not line.startswith("  --") or line.startswith(("  --version ", "  --config ")):
            continue
        match = FLAG.match(line)
        if not match or (match[2] or "BOOLEAN") not in KINDS:
            raise ValueError(f"--help has a line of another form: {line}")
        name, kind, several, about = match.groups()
        takes = KINDS[kind or "BOOLEAN"] + ("s" if several else "")
        if limits := RANGE.search(about):
            takes = f"{takes.split()[0]} {limits[1]}"
        found[name] = takes
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bin", default="build/release/bin", type=pathlib.Path,
                           help="folder of the programs (default: %(default)s)")
    folder = arguments.parse_args().bin
    print(HEAD, end="")
    for program in PROGRAMS:
        name, *rest = program.split()
        said = subprocess.run([folder / name, *rest, "--help"], check=True, capture_output=True,
                              text=True).stdout
        print(f"{program}:")
        for flag, takes in sorted(flags_of(said).items()):
            print(f"  {flag}: {takes}")


if __name__ == "__main__":
    main()
