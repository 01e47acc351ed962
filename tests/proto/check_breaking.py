#!/usr/bin/env python3
"""Holds the public protos against those of the last release, tests/proto/released: what a client
that was built then relies on must still be there. buf judges, by its rules of the category FILE:
nothing deleted, renamed, renumbered or of another type; additions pass.

Usage: check_breaking.py NODE_MODULES               compares
       check_breaking.py NODE_MODULES --self-test   plants faults, each of which has to be found
       check_breaking.py --update                   makes today's protos those of the last release
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASED = ROOT / "tests/proto/released"
CONFIG = json.dumps({"version": "v2", "breaking": {"use": ["FILE"]}})
GENERATION = "weft/v1/generation.proto"

# (what is wrong, file, text, its replacement).
FAULTS = (
    ("removed field", GENERATION, "  uint32 top_k = 2;\n", ""),
    ("removed and reserved field", GENERATION, "  uint32 top_k = 2;\n", "  reserved 2;\n"),
    ("renumbered field", GENERATION, "uint32 top_k = 2;", "uint32 top_k = 62;"),
    ("reused number", GENERATION, "uint32 top_k = 2;", "uint32 top_q = 2;"),
    ("changed type", GENERATION, "uint32 top_k = 2;", "string top_k = 2;"),
    ("changed label", GENERATION, "uint32 top_k = 2;", "repeated uint32 top_k = 2;"),
    ("presence gone", GENERATION, "optional float top_p = 3;", "float top_p = 3;"),
    ("changed json name", GENERATION, "uint32 top_k = 2;",
     'uint32 top_k = 2 [json_name = "k"];'),
    ("removed enum value", GENERATION, "  RESUME_MATCH_INEXACT = 2;\n", ""),
    ("renamed enum value", GENERATION, "RESUME_MATCH_INEXACT = 2;", "RESUME_MATCH_OTHER = 2;"),
    ("removed method", GENERATION, "  rpc Cancel(CancelRequest) returns (CancelResponse);\n", ""),
    ("no stream any more", GENERATION, "(stream GenerateResponse)", "(GenerateResponse)"),
    ("moved into a oneof", GENERATION, "  string cache_salt = 20;\n",
     "  oneof salt {\n    string cache_salt = 20;\n  }\n"),
    ("other package", "weft/v1/types.proto", 'go_package = "weft/v1;weftv1"',
     'go_package = "weft/v2;weftv2"'),
)
ADDITIONS = (
    ("added field", GENERATION, "uint32 top_k = 2;", "uint32 top_k = 2;\n  bool planted = 500;"),
    ("added enum value", GENERATION, "RESUME_MATCH_INEXACT = 2;",
     "RESUME_MATCH_INEXACT = 2;\n  RESUME_MATCH_PLANTED = 99;"),
    ("added method", GENERATION, "  rpc Cancel(",
     "  rpc Planted(CancelRequest) returns (CancelResponse);\n  rpc Cancel("),
    ("comment", GENERATION, "  uint32 top_k = 2;", "  // Planted.\n  uint32 top_k = 2;"),
)


def breaks(buf, protos, against):
    """What buf finds; empty when clients of `against` can go on."""
    # In a folder of its own: buf reads configuration files of the folders above.
    with tempfile.TemporaryDirectory(prefix="weft-buf-") as folder:
        names = []
        for name, source in (("now", protos), ("released", against)):
            names.append(shutil.copytree(source, pathlib.Path(folder) / name))
        # What is not public has no part in it; what the released files do not import neither.
        for path in sorted(pathlib.Path(names[0]).glob("*")):
            if path.name == "weft":
                for inner in path.glob("*"):
                    if inner.name != "v1":
                        shutil.rmtree(inner)
        done = subprocess.run([buf, "breaking", names[0], "--against", names[1], "--config", CONFIG],
                              cwd=folder, capture_output=True, text=True, timeout=60, check=False,
                              env={"PATH": "/usr/bin:/bin", "HOME": folder})
    if done.returncode not in (0, 100):
        raise AssertionError(f"buf: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def self_test(buf):
    failed = False
    for wanted, changes in ((True, FAULTS), (False, ADDITIONS)):
        for what, file, old, new in changes:
            with tempfile.TemporaryDirectory(prefix="weft-protos-") as folder:
                protos = shutil.copytree(RELEASED, pathlib.Path(folder) / "protos")
                text = (protos / file).read_text()
                if text.count(old) != 1:
                    raise AssertionError(f"{what}: `{old}` is not once in {file}")
                (protos / file).write_text(text.replace(old, new))
                found = breaks(buf, protos, RELEASED)
            good = bool(found) == wanted
            failed |= not good
            print(f"{what}: {'ok' if good else 'WRONG'}: {found or 'passes'}")
    return 1 if failed else 0


def update():
    shutil.rmtree(RELEASED)
    for folder in ("weft/v1", "inference"):
        for path in sorted((ROOT / "proto" / folder).glob("*.proto")):
            target = RELEASED / folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    print(f"{RELEASED.relative_to(ROOT)} are today's protos; look at git diff")
    return 0


def main():
    if sys.argv[1:] == ["--update"]:
        return update()
    # Of the packages of all machines npm installs the one that fits.
    found = list(pathlib.Path(sys.argv[1]).resolve().glob("@bufbuild/buf-*/bin/buf"))
    if not found:
        raise SystemExit("buf is missing: run deploy/setup.sh --tests")
    buf = found[0]
    if sys.argv[2:] == ["--self-test"]:
        return self_test(buf)
    found = breaks(buf, ROOT / "proto", RELEASED)
    print(found or "nothing that was released has changed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
