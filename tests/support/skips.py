"""How tests in Python say that they cannot run here, as tests/support/skip.h for those in C++: by name
of the capability that the machine lacks (capabilities.inc) and with the reason. ctest then shows
"Skipped"; where WEFT_REQUIRE names the capability the test fails instead.
"""

import os
import pathlib
import re
import sys
import unittest

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt
CAPABILITIES = frozenset(re.findall(
    r'^"(\w+)"', pathlib.Path(__file__).with_name("capabilities.inc").read_text(), re.MULTILINE))


def required():
    names = {name for name in os.environ.get("WEFT_REQUIRE", "").split(",") if name}
    unknown = sorted(names - CAPABILITIES)
    if unknown:
        sys.exit(f"WEFT_REQUIRE: no capability is called {', '.join(unknown)}; "
                 "tests/support/capabilities.inc has those that are known")
    return names


def skip(capability, reason):
    """Ends the test here."""
    assert capability in CAPABILITIES, capability
    if capability in required():
        raise AssertionError(f"WEFT_REQUIRE names {capability}, which is missing: {reason}")
    raise unittest.SkipTest(f"no {capability}: {reason}")


def run_tests():
    """unittest.main, but a run in which something was skipped, and nothing failed, says so by its
    exit code, and why by its last lines."""
    required()
    program = unittest.main(module="__main__", exit=False)
    for test, why in program.result.skipped:
        print(f'SKIPPED "{test}", {why}', file=sys.stderr)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if program.result.skipped else 0)
