"""What a soak run must not do, judged from its samples. Pure: no server and no clock, so that
test_soak_gates.py can show that each gate fails on what it is for.
"""

import dataclasses
import math
import statistics

# Of a run's promise: "memory slope < 1 MB/h".
MEMORY_KB_PER_H_MAX = 1000.0
# What heaps and page tables move without a leak: over a window this is no slope.
MEMORY_RESOLUTION_KB = 512
# From this window on the slope itself has to keep the limit, not only the low end of its range.
LONG_WINDOW_H = 0.5
# A life's first samples are of caches that fill.
WARM_UP_SHARE, WARM_UP_MIN = 0.25, 2
SAMPLES_MIN = 6
# By how much a count may grow. gRPC's pool starts a thread where all are at work, and keeps it.
SLACK = {"descriptors": 0, "threads": 0, "grpc_threads": 8}
GAP_GROWTH_MAX, CPU_GROWTH_MAX = 1.5, 1.5
# The log: what a request may add, a fault (with all that clients see of it), and the start.
LOG_REQUEST_BYTES, LOG_FAULT_BYTES, LOG_START_BYTES = 700, 30_000, 30_000


@dataclasses.dataclass
class Process:
    pid: int
    memory_kb: int
    descriptors: int
    # Ours, and those that gRPC starts for itself.
    threads: int
    grpc_threads: int


@dataclasses.dataclass
class Sample:
    """Taken while nothing runs. `at_s`: since the run began."""
    at_s: float
    processes: dict
    blocks_used: int = 0
    requests: int = 0
    connections: int = 0
    log_bytes: int = 0
    # All requests and faults so far.
    sent: int = 0
    faults: int = 0
    # Of the quiet streams before it.
    gap_p99_ms: float = 0.0
    late_p99_ms: float = 0.0
    cpu_us_per_token: float = 0.0


@dataclasses.dataclass
class Row:
    gate: str
    found: str
    limit: str
    good: bool


def life(samples, role):
    """[(hours, Process)] of the longest life of a process, after its warm-up."""
    lives = {}
    for sample in samples:
        if role in sample.processes:
            process = sample.processes[role]
            lives.setdefault(process.pid, []).append((sample.at_s / 3600, process))
    longest = max(lives.values(), key=len, default=[])
    return longest[max(WARM_UP_MIN, int(len(longest) * WARM_UP_SHARE)):]


def slope(points):
    """(slope, low, high) of [(x, y)]: the median of the slopes of all pairs, and the range that
    holds the true one in 95 of 100 cases (Theil and Sen). Single outliers do not move it."""
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0])
                    for index, a in enumerate(points) for b in points[index + 1:] if b[0] > a[0])
    if not slopes:
        return 0.0, -math.inf, math.inf
    n = len(points)
    reach = 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    low = max(0, int((len(slopes) - reach) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))
    return statistics.median(slopes), slopes[low], slopes[high]


def memory(samples, role):
    points = [(at, process.memory_kb) for at, process in life(samples, role)]
    if len(points) < SAMPLES_MIN:
        return Row(f"memory of {role}", f"{len(points)} samples", f">= {SAMPLES_MIN}", False)
    found, low, high = slope(points)
    hours = points[-1][0] - points[0][0]
    limit = MEMORY_KB_PER_H_MAX
    if hours < LONG_WINDOW_H:
        good = low <= limit + MEMORY_RESOLUTION_KB / hours
    else:
        good = found <= limit
    return Row(f"memory of {role}",
               f"{found / 1000:+.2f} MB/h ({low / 1000:+.2f} .. {high / 1000:+.2f}) over "
               f"{60 * hours:.1f} min, {points[0][1] / 1024:.1f} to {points[-1][1] / 1024:.1f} MiB",
               f"{limit / 1000:.0f} MB/h" + ("" if hours >= LONG_WINDOW_H else
                                             f" + {MEMORY_RESOLUTION_KB} KB in the window"), good)


def thirds(values, of=statistics.median):
    """One number for the first third of the values, and one for the last."""
    third = max(1, len(values) // 3)
    return of(values[:third]), of(values[-third:])


def count(samples, role, field):
    values = [getattr(process, field) for _, process in life(samples, role)]
    if len(values) < SAMPLES_MIN:
        return Row(f"{field} of {role}", f"{len(values)} samples", f">= {SAMPLES_MIN}", False)
    first, last = thirds(values)
    slack = SLACK[field]
    return Row(f"{field} of {role}", f"{first:.0f} to {last:.0f}",
               f"{slack} more" if slack else "no more", last <= first + slack)


def idle(samples, field, what, limit=0):
    worst = max((getattr(sample, field) for sample in samples), default=0)
    return Row(what, f"{worst} at most, {len(samples)} times", f"{limit}", worst <= limit)


def growth(samples, field, what, most, unit, allowance=0.0):
    """By the best sample of each third: what others do on the machine only makes samples worse."""
    first, last = thirds([getattr(sample, field) for sample in samples], of=min)
    return Row(what, f"{first:.1f} to {last:.1f} {unit}",
               f"{most:.1f} x" + (f" + {allowance:.1f} {unit}" if allowance else ""),
               last <= most * first + allowance)


def log_volume(samples):
    last = samples[-1]
    most = (LOG_START_BYTES + LOG_REQUEST_BYTES * last.sent + LOG_FAULT_BYTES * last.faults)
    return Row("log", f"{last.log_bytes} bytes, {last.sent} requests, {last.faults} faults",
               f"{most}", last.log_bytes <= most)


def judge(samples, roles):
    """All gates that look at samples."""
    rows = [memory(samples, role) for role in roles]
    rows += [count(samples, role, field) for role in roles for field in SLACK]
    rows.append(idle(samples, "blocks_used", "KV blocks in use when idle"))
    rows.append(idle(samples, "requests", "requests let in when idle"))
    # The one that asks.
    rows.append(idle(samples, "connections", "HTTP connections when idle", limit=1))
    # A neighbour's share of the machine is no fault of the server's.
    late_ms = thirds([sample.late_p99_ms for sample in samples], of=min)[1]
    rows.append(growth(samples, "gap_p99_ms", "p99 gap of quiet streams", GAP_GROWTH_MAX, "ms",
                       3 * late_ms))
    rows.append(growth(samples, "cpu_us_per_token", "CPU a token of quiet streams", CPU_GROWTH_MAX,
                       "us"))
    rows.append(log_volume(samples))
    return rows


def table(rows):
    widths = [max(len(getattr(row, field)) for row in rows) for field in ("gate", "found", "limit")]
    lines = []
    for row in rows:
        cells = (row.gate, row.found, row.limit)
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths))
                     + ("  ok" if row.good else "  FAIL"))
    return "\n".join(lines)
