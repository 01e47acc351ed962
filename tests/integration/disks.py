"""Disks that take no more: file systems of a test's own, and a server whose log is on one."""

import contextlib
import pathlib
import subprocess
import tempfile

from weft_server import WeftServer, skip

DISK_KIB = 64


@contextlib.contextmanager
def small_disk():
    """A folder on a file system of its own that holds little; skips where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="weft-disk-") as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k,nr_inodes=16",
                                  "none", folder], capture_output=True, text=True)
        if mounted.returncode != 0:
            skip("mounts", f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            yield pathlib.Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder):
    """Takes all bytes that are left; returns the file that does."""
    path = folder / "filling"
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"." * 512)
    return path


def take_all_names(folder):
    """Takes all inodes that are left."""
    with contextlib.suppress(OSError):
        for index in range(1000):
            (folder / f"name{index}").touch()


class LoggingTo(WeftServer):
    """A server whose stderr is a file of the test's."""

    def __init__(self, path, *flags, **arguments):
        super().__init__(*flags, **arguments)
        self.log.close()
        self.log = open(path, "a+")
