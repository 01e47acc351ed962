"""in_venv.py VENV TEST [ARGUMENT...]: the test, with the Python of one of the virtual environments
that deploy/setup.sh makes; where it has not made that one, the exit code of a test that cannot
run."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from skips import SKIPPED, required  # noqa: E402


def main():
    venv, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    # Written when all is in it.
    if not (venv / "requirements.txt").is_file():
        print(f"no clients: {venv.name} is missing; deploy/setup.sh --clients installs it",
              file=sys.stderr)
        return 1 if "clients" in required() else SKIPPED
    python = str(venv / "bin/python3")
    os.execv(python, [python, *arguments])


if __name__ == "__main__":
    sys.exit(main())
