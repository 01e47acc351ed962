"""One line a check, as it ends, and what a machine has to offer."""

import os
import subprocess
import time
import traceback


class Report:
    """Runs checks and remembers which failed."""

    def __init__(self):
        self.passed = 0
        self.failed = []

    def check(self, name, work, *arguments):
        """`work` returns what to say beside "pass", or raises. True when it passed."""
        begin = time.monotonic()
        try:
            said, verdict = work(*arguments), "pass"
            self.passed += 1
        except Exception as error:  # noqa: BLE001 - whatever happens is the check's result
            said, verdict = in_short(" ".join(str(error).split()) or repr(error)), "FAIL"
            self.failed.append(name)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        print(f"{verdict}  {name:44} {time.monotonic() - begin:6.1f} s  {said or ''}", flush=True)
        return verdict == "pass"

    def end(self):
        """Prints the sum; the exit code."""
        print(f"{self.passed} passed, {len(self.failed)} failed"
              + "".join(f"\n  failed: {name}" for name in self.failed))
        return 1 if self.failed else 0


def in_short(text):
    """Begin and end of a text: a log's last lines say most."""
    return text if len(text) <= 900 else f"{text[:200]} ... {text[-700:]}"


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def gpu_count():
    """GPUs that a process started here sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip()])
    try:
        result = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in result.stdout.splitlines())
