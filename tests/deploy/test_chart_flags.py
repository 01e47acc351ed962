#!/usr/bin/env python3
"""The list by which the Helm chart checks flags against the programs: it has what their --help says,
and what it calls wrong they refuse. Needs no Helm."""

import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("WEFT_BIN_DIR", ROOT / "build/ci/bin"))
LIST = ROOT / "deploy/helm/weft/files/flags.yaml"
sys.path.append(str(ROOT / "deploy/helm"))
import flags  # noqa: E402

HELP = """\
  -h,--help                                 Print this help message and exit
  --version                                 Display program version information and exit
  --config TEXT (Env:WEFT_CONFIG)           File with values

Group (router):
  --name TEXT=a (Env:WEFT_NAME)             What it is
  --several TEXT=[] ... (Env:WEFT_SEVERAL)  None, one or more
  --switch=false (Env:WEFT_SWITCH)          On or off
  --public BOOLEAN=true (Env:WEFT_PUBLIC)   On or off
  --free UINT=0 (Env:WEFT_FREE)             Tokens, 1 .. 9; 0 = as it likes
  --with-a-long-name-s FLOAT=10 (Env:WEFT_WITH_A_LONG_NAME_S)
                                            For a header, s; 0.001 .. 86400
  --port INT=-1 (Env:WEFT_PORT)             Port, -1 = off; -1 .. 65535
"""


class ChartFlags(unittest.TestCase):
    def test_the_charts_list_of_flags_is_what_the_programs_say(self):
        done = subprocess.run([ROOT / "deploy/helm/flags.py", "--bin", BIN], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(LIST.read_text(), done.stdout,
                         f"run deploy/helm/flags.py --bin {BIN} >{LIST.relative_to(ROOT)}")
        for program in flags.PROGRAMS:
            self.assertIn(f"\n{program}:\n", done.stdout)
        self.assertIn("\n  queue-requests-max: whole 1 .. 8192\n", done.stdout)

    def test_what_the_list_calls_wrong_the_programs_refuse(self):
        """One value of each kind, so that the words of the list mean what the programs do."""
        for value, said in (("queue-requests-max=0", "0 is not in 1 .. 8192"),
                            ("queue-requests-max=1.5", "1.5 is not in 1 .. 8192"),
                            ("trace-sample=1.01", "1.01 is not in 0 .. 1"),
                            ("prefix-cache=maybe", "maybe is neither true nor false"),
                            ("no-such-flag=1", "--no-such-flag")):
            done = subprocess.run([BIN / "weft-router", f"--{value}"], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 1, value)
            self.assertIn(said, done.stderr)

    def test_each_form_of_help_is_understood(self):
        self.assertEqual(flags.flags_of(HELP), {
            "name": "text", "several": "texts", "switch": "boolean", "public": "boolean",
            "free": "whole 0 ..", "with-a-long-name-s": "number 0.001 .. 86400",
            "port": "whole -1 .. 65535"})

    def test_another_form_is_no_flag_less(self):
        for line in ("  --of-another-type DATE=now (Env:WEFT_OF_ANOTHER_TYPE)  When",
                     "  --without-a-variable UINT=1          How many"):
            with self.assertRaises(ValueError) as refused:
                flags.flags_of(HELP + line + "\n")
            self.assertIn(line.split()[0], str(refused.exception))


if __name__ == "__main__":
    unittest.main()
