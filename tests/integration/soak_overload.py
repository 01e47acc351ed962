"""What ten times the load does to the streams that run: the p99 of their gaps beside that at 80 %
load, with as many streams running in both. tests/soak.sh --overload starts it.

Two servers with the demo model: one has 10 places and 8 clients, each with one stream after the
other; the other has 8 places and requests that come at ten times the rate at which the first one
ended its own, so that 8 run, the queue is full and the rest is refused. By turns, because a machine
changes.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from machine_delay import QueueWaits
from weft_server import BIN, WeftServer

RUNNING, PLACES, QUEUE = 8, 10, 16
OVERLOAD, LIMIT = 10, 1.5
OUTPUT_TOKENS = 48


def load(server, seed, *flags):
    done = subprocess.run(
        [str(BIN / "weft"), "bench", "load", f"--connect={server.http}", f"--seed={seed}",
         f"--output-tokens={OUTPUT_TOKENS}", "--json=-", *flags], capture_output=True, text=True)
    try:
        # The report as JSON is one line; a table follows it.
        return json.loads(done.stdout.splitlines()[0])
    except (IndexError, ValueError):
        raise AssertionError(f"weft bench load: {done.stderr}") from None


def one(server, seed, *flags):
    """(report, how long the router's slowest thread waited for a CPU, as a part of the time)."""
    router = server.router_pid()
    waits = QueueWaits(router)
    report = load(server, seed, *flags)
    return report, waits.longest_s(router) / report["wall_s"]


def main():
    parser = argparse.ArgumentParser(prog="tests/soak.sh --overload",
                                     description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=12, help="of each turn, about")
    parser.add_argument("--seed", type=int, default=43)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("flags", nargs="*", help="behind --: flags of both servers")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rounds = []
    flags = ["--log-level=warn", *options.flags]
    with WeftServer(f"--running-max={PLACES}", *flags, shards=2) as base, \
            WeftServer(f"--running-max={RUNNING}", f"--queue-requests-max={QUEUE}", *flags,
                       shards=2) as full:
        rate = load(base, options.seed, f"--streams={RUNNING}", "--requests=24")
        for number in range(options.rounds):
            per_s = rate["requests"] / rate["wall_s"]
            seed = options.seed + number
            rate, waited = one(base, seed, f"--streams={RUNNING}",
                               f"--requests={max(RUNNING, round(per_s * options.seconds))}")
            per_s = rate["requests"] / rate["wall_s"]
            asked_per_s = OVERLOAD * per_s
            over, waited_over = one(full, seed, f"--rate-per-s={asked_per_s:.2f}",
                                    f"--requests={round(asked_per_s * options.seconds)}")
            served = over["requests"] - over["failed"]
            row = {"base_per_s": per_s, "asked_per_s": asked_per_s,
                   "served_per_s": served / over["wall_s"], "refused": over["failed"],
                   "base_p50_ms": rate["inter_token_ms"]["p50"],
                   "base_p99_ms": rate["inter_token_ms"]["p99"],
                   "over_p50_ms": over["inter_token_ms"]["p50"],
                   "over_p99_ms": over["inter_token_ms"]["p99"]}
            rounds.append(row)
            print(f"{number}: 80 %: {per_s:5.1f} req/s, gap p50 {row['base_p50_ms']:5.1f} p99 "
                  f"{row['base_p99_ms']:6.1f} ms (router waited for a CPU {100 * waited:2.0f} % of "
                  f"the time)   10 x: {asked_per_s:6.1f} req/s asked, {row['served_per_s']:5.1f} "
                  f"served, {row['refused']} refused, p50 {row['over_p50_ms']:5.1f} p99 "
                  f"{row['over_p99_ms']:6.1f} ms ({100 * waited_over:2.0f} %)", flush=True)
    medians = {name: statistics.median(row[name] for row in rounds) for name in rounds[0]}
    ratio = medians["over_p99_ms"] / medians["base_p99_ms"]
    best = min(row["over_p99_ms"] for row in rounds) / min(row["base_p99_ms"] for row in rounds)
    was_full = all(row["refused"] for row in rounds)
    print(f"p99 gap, medians of {len(rounds)} rounds: {medians['base_p99_ms']:.1f} ms at 80 %, "
          f"{medians['over_p99_ms']:.1f} ms at 10 x: {ratio:.2f} x (of the quietest rounds "
          f"{best:.2f} x), must {LIMIT} x")
    if options.out:
        options.out.write_text(json.dumps({"rounds": rounds, "ratio": ratio}, indent=1))
    return 0 if was_full and ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
