"""A copy of the tree below build/mutants in which files are mutated and built, so that the sources
that people edit never hold a fault. Owned by run.py; one at a time."""

import fcntl
import filecmp
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

TAIL_LINES = 40


class BuildFailed(Exception):
    pass


def tool_environment(root):
    """What deploy/env.sh sets: the tools, and a compiler cache for any checkout."""
    out = subprocess.run(["bash", "-c", "source deploy/env.sh; env -0"], cwd=root, check=True,
                         capture_output=True).stdout
    environment = dict(item.split("=", 1) for item in out.decode().split("\0") if "=" in item)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment


def run(command, timeout_s, log, **options):
    """The exit status, or None when it ran past its time; what it printed goes to `log`."""
    with open(log, "ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True, **options)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Also what it started and left behind.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


class Scratch:
    def __init__(self, root):
        self.root = root
        self.tree = root / "build" / "mutants"
        # The same place below its tree as any preset's: so the compiler cache knows the objects.
        self.build = self.tree / "build" / "ci"
        self.bin = self.build / "bin"
        self.logs = self.tree / "build" / "logs"
        self.environment = tool_environment(root)
        self.environment["CCACHE_BASEDIR"] = str(self.tree)
        self.environment["WEFT_BIN_DIR"] = str(self.bin)

    def refresh(self):
        """Makes the copy equal to the tracked files, and leaves the times of equal ones alone."""
        self.logs.mkdir(parents=True, exist_ok=True)
        # Held to the end of this process.
        self.lock = open(self.tree / "build" / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BuildFailed(f"another run uses {self.tree}") from None
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=self.root, check=True, capture_output=True).stdout
        wanted = {name for name in listed.decode().split("\0") if (self.root / name).is_file()}
        for name in sorted(wanted):
            source, copy = self.root / name, self.tree / name
            if copy.is_file() and filecmp.cmp(source, copy, shallow=False):
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)
        for folder, folders, files in os.walk(self.tree):
            here = pathlib.Path(folder)
            if here == self.tree:
                folders.remove("build")
            for file in files:
                if str((here / file).relative_to(self.tree)) not in wanted:
                    (here / file).unlink()

    def configure(self):
        log = self.logs / "configure.log"
        log.write_bytes(b"")
        command = ["cmake", "--preset", "ci", "-DWEFT_CUDA=OFF"]
        if run(command, 600, log, cwd=self.tree, env=self.environment) != 0:
            raise BuildFailed(f"cmake failed: {tail(log)}")

    def make(self, targets, log, timeout_s=7200):
        """Builds; False when there was nothing to do."""
        begin = log.stat().st_size if log.exists() else 0
        command = ["cmake", "--build", str(self.build), "--target", *targets]
        if run(command, timeout_s, log, cwd=self.tree, env=self.environment) != 0:
            raise BuildFailed(tail(log))
        return b"ninja: no work to do" not in log.read_bytes()[begin:]

    def ninja(self, *arguments):
        """What one of Ninja's own tools prints."""
        return subprocess.run(["ninja", "-C", str(self.build), *arguments], capture_output=True,
                              text=True, env=self.environment).stdout

    def write(self, name, text):
        """Writes a source file with a time of its own, so that Ninja sees it."""
        path = self.tree / name
        before = path.stat().st_mtime_ns if path.exists() else 0
        path.write_text(text)
        now = max(time.time_ns(), before + 1_000_000)
        os.utime(path, ns=(now, now))

    def read(self, name):
        return (self.tree / name).read_text()


def tail(log):
    """The end of a log, from the first error of a compiler if there is one."""
    text = log.read_text(errors="replace")
    errors = [match.start() for match in re.finditer(r"^.*\berror:", text, re.MULTILINE)]
    lines = text[errors[0]:].splitlines()[:6] if errors else text.splitlines()[-TAIL_LINES:]
    return "\n".join(lines)
