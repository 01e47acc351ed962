"""How late this machine lets a thread run that could. A test that promises a time measures this in
the same time, and allows for it: a busy neighbour is no fault of weft's.
"""

import os
import pathlib
import subprocess
import sys
import threading
import time

# Threads that run one after another between a kill and the router's word: the killed process's own
# last one, the launcher's or the one that reads the shard's connection, the one that decides.
WAKE_UPS = 3

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
    """How long threads wait for a CPU from here on. Entered, it reads that again and again, so that
    it is also known of processes that end meanwhile."""

    READ_EVERY_S = 0.025

    def __init__(self, *pids):
        self.before = {pid: queue_waits_s(pid) for pid in pids}
        # What each thread was last seen with, and what was the longest of each process when.
        self.seen = {pid: dict(waits) for pid, waits in self.before.items()}
        self.history = []

    def __enter__(self):
        self.over = threading.Event()
        self.reader = threading.Thread(target=self.read_on)
        self.reader.start()
        return self

    def __exit__(self, kind, value, traceback):
        self.over.set()
        self.reader.join()

    def read_on(self):
        while not self.over.wait(self.READ_EVERY_S):
            self.read()

    def read(self):
        for pid, seen in self.seen.items():
            seen.update(queue_waits_s(pid))
        self.history.append((time.time(), {pid: self.longest_of(pid) for pid in self.seen}))

    def longest_of(self, pid):
        before = self.before[pid]
        return max((wait - before.get(thread, 0.0) for thread, wait in self.seen[pid].items()),
                   default=0.0)

    def longest_s(self, pid, until=None):
        """Of the thread of a process that waited longest, until now or a time.time() in the past; of
        its whole life where it is new."""
        if until is None:
            self.seen.setdefault(pid, {}).update(queue_waits_s(pid))
            self.before.setdefault(pid, {})
            return self.longest_of(pid)
        return max((longest[pid] for at, longest in self.history
                    if at <= until + self.READ_EVERY_S), default=0.0)
