"""How late this machine lets a thread run that could. A test that promises a time measures this in
the same time, and allows for it: a busy neighbour is no fault of weft's.
"""

import os
import pathlib
import subprocess
import sys

# A thread on one CPU that is due every millisecond, and says when it was later than that: the time
# at which it was due and the time at which it ran, both time.time().
PROBE = """
import os, select, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
end, late = select.poll(), []
end.register(0, select.POLLIN | select.POLLHUP)
print(flush=True)
while not end.poll(0):
    due = time.time() + 0.001
    time.sleep(0.001)
    now = time.time()
    if now > due + 0.001:
        late.append((due, now))
for due, now in late:
    print(due, now)
"""


class WakeDelays:
    """Measures while it is entered, on every CPU that this process may use."""

    def __enter__(self):
        self.probes = [subprocess.Popen([sys.executable, "-c", PROBE, str(cpu)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                       for cpu in sorted(os.sched_getaffinity(0))]
        for probe in self.probes:
            probe.stdout.readline()
        return self

    def __exit__(self, kind, value, traceback):
        self.late = []
        for probe in self.probes:
            out, _ = probe.communicate("\n", timeout=60)
            self.late += [tuple(map(float, line.split())) for line in out.splitlines()]

    def worst_s(self, since, until):
        """The latest thread that was due between two times of time.time(); after the end."""
        return max((min(ran, until) - due for due, ran in self.late
                    if due < until and ran > since), default=0.001)


def queue_waits_s(pid):
    """{thread: how long it could have run and did not}; empty where the kernel does not say."""
    waits = {}
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waits[path.parent.name] = int(path.read_text().split()[1]) / 1e9
        except OSError:
            continue
    return waits


class QueueWaits:
    """How long threads wait for a CPU from here on."""

    def __init__(self, *pids):
        self.before = {pid: queue_waits_s(pid) for pid in pids}

    def longest_s(self, pid):
        """Of the thread of a process that waited longest; of its whole life where it is new."""
        before = self.before.get(pid, {})
        return max((wait - before.get(thread, 0.0)
                    for thread, wait in queue_waits_s(pid).items()), default=0.0)
