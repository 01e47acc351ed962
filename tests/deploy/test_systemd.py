#!/usr/bin/env python3
"""deploy/systemd: that systemd understands the units, what `systemd-analyze security` gives for their
hardening, and that stopping waits for a drain."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from skips import run_tests, skip  # noqa: E402

UNITS = {"weft.service": "weft", "weft-router.service": "weft-router",
         "weft-shard@.service": "weft-shard"}
# Of 10; what a network service cannot be without (addresses, processor, memory) makes one.
EXPOSURE_MAX = 2.0


def setUpModule():
    if not shutil.which("systemd-analyze"):
        skip("systemd", "systemd-analyze is not installed")


class Systemd(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weft-systemd-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name in UNITS:
            # Verification asks whether the binary is there.
            text = re.sub(r"/opt/weft/bin/\S+", "/bin/true", self.text(name))
            (self.folder / name).write_text(text)

    @staticmethod
    def text(name):
        return (ROOT / "deploy/systemd" / name).read_text()

    def use_gpus(self, name):
        (self.folder / f"{name}.d").mkdir()
        shutil.copy(ROOT / "deploy/systemd/gpu.conf", self.folder / f"{name}.d")

    def analyze(self, *arguments):
        return subprocess.run(["systemd-analyze", *arguments], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "SYSTEMD_UNIT_PATH": f"{self.folder}:",
                                   "LC_ALL": "C"})

    def verify(self, name):
        done = self.analyze("verify", "--man=no", name.replace("@.", "@0."))
        # It also says what is wrong with units of the host.
        said = [line for line in done.stdout.splitlines() if "weft" in line or "gpu.conf" in line]
        self.assertEqual(said, [], name)

    def exposure(self, name):
        done = self.analyze("security", "--offline=true", "--no-pager", f"./{name}")
        found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
        self.assertTrue(found, done.stdout)
        print(f"{name}: exposure {found.group(1)} of 10")
        return float(found.group(1))

    def test_units_are_understood(self):
        for name in UNITS:
            self.verify(name)
        for name in ("weft.service", "weft-shard@.service"):
            self.use_gpus(name)
            self.verify(name)

    def test_units_are_hardened(self):
        for name in UNITS:
            self.assertLess(self.exposure(name), EXPOSURE_MAX, name)

    def test_units_for_gpus_are_hardened(self):
        # Offline, a drop-in is not read: its lines at the end say the same.
        for name in ("weft.service", "weft-shard@.service"):
            with open(self.folder / name, "a") as unit:
                unit.write(self.text("gpu.conf"))
            self.assertLess(self.exposure(name), EXPOSURE_MAX, name)

    def test_a_stop_waits_for_the_drain(self):
        help_text = subprocess.run(
            [pathlib.Path(os.environ["WEFT_BIN_DIR"]) / "weft", "serve", "--help"], text=True,
            capture_output=True).stdout
        drain_s = float(re.search(r"--drain-timeout-s FLOAT=(\d+)", help_text).group(1))
        # What the launcher gives the router and then the shards besides.
        for name, more_s in (("weft.service", 15), ("weft-router.service", 5)):
            stop_s = float(re.search(r"^TimeoutStopSec=(\d+)$", self.text(name), re.M).group(1))
            self.assertGreaterEqual(stop_s, drain_s + more_s, name)

    def test_units_run_what_is_in_a_bundle(self):
        for name, command in UNITS.items():
            start = re.search(r"^ExecStart=/opt/weft/bin/(\S+)", self.text(name), re.M)
            self.assertEqual(start.group(1), command)
            help_text = subprocess.run(
                [pathlib.Path(os.environ["WEFT_BIN_DIR"]) / command, "--help"], text=True,
                capture_output=True).stdout
            for flag in re.findall(r"^ExecStart=.*?(--[a-z-]+)=", self.text(name), re.M):
                self.assertIn(f"{flag} ", help_text)


if __name__ == "__main__":
    run_tests()
