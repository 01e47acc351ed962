"""Each gate of a soak run (soak_gates.py) passes what is sound and fails on what it is for. No
server."""

import random
import unittest

import soak_gates
from soak_gates import Process, Sample
from soak_load import REFUSED, Stream, Windows, expectation
from stream_doors import Ask
from stream_history import BROKEN, CLEAN, CUT, ERROR, HUNG_UP, LEFT, TOKEN, WHOLE, History

ROLES = ["router"]
SHORT_S, LONG_S = 600, 3600
SAMPLES = 40


def samples(length_s=SHORT_S, change=None):
    """Of a sound server: memory that fills and then trembles. `change(sample, share)` spoils it."""
    source, found = random.Random(3), []
    for index in range(SAMPLES):
        share = index / SAMPLES
        memory_kb = 18000 + int(600 * (1 - 2 ** (-20 * share))) + source.randrange(40)
        sample = Sample(share * length_s, {"router": Process(7, memory_kb, 38, 15, 10)}, 0, 0, 1,
                        40_000 + 30_000 * index, 60 * (index + 1), index + 1,
                        30 + 8 * source.random(), 2.0, 2800 + 200 * source.random())
        if change:
            change(sample, share)
        found.append(sample)
    return found


def failed(found):
    return {row.gate for row in soak_gates.judge(found, ROLES) if not row.good}


def grow(field, by):
    """`by` in all, evenly, of a process's field."""
    def change(sample, share):
        process = sample.processes["router"]
        setattr(process, field, getattr(process, field) + int(by * share))
    return change


class SoakGates(unittest.TestCase):
    def test_a_sound_run_passes(self):
        for length_s in (SHORT_S, LONG_S):
            self.assertEqual(failed(samples(length_s)), set())

    def test_memory_that_grows(self):
        # 18 MB/h in ten minutes, 1.5 MB/h in an hour.
        self.assertEqual(failed(samples(SHORT_S, grow("memory_kb", 5000))), {"memory of router"})
        self.assertEqual(failed(samples(LONG_S, grow("memory_kb", 1500))), {"memory of router"})
        self.assertEqual(failed(samples(LONG_S, grow("memory_kb", 500))), set())

    def test_single_jumps_are_no_slope(self):
        def jump(sample, share):
            if 0.5 < share < 0.55:
                sample.processes["router"].memory_kb += 50_000
        self.assertEqual(failed(samples(LONG_S, jump)), set())

    def test_another_process_begins_anew(self):
        def restart(sample, share):
            if share > 0.3:
                sample.processes["router"].pid = 8
            else:
                sample.processes["router"].memory_kb -= 9000
        self.assertEqual(failed(samples(LONG_S, restart)), set())

    def test_too_few_samples_prove_nothing(self):
        self.assertIn("memory of router", failed(samples()[:6]))

    def test_descriptors_and_threads_that_grow(self):
        self.assertEqual(failed(samples(change=grow("descriptors", 4))), {"descriptors of router"})
        self.assertEqual(failed(samples(change=grow("threads", 8))), {"threads of router"})
        self.assertEqual(failed(samples(change=grow("threads", 2))), {"threads of router"})
        self.assertEqual(failed(samples(change=grow("grpc_threads", 8))), set())
        self.assertEqual(failed(samples(change=grow("grpc_threads", 24))),
                         {"grpc_threads of router"})

    def test_what_is_held_when_idle(self):
        for field, gate in (("blocks_used", "KV blocks in use when idle"),
                            ("requests", "requests let in when idle"),
                            ("connections", "HTTP connections when idle")):
            def hold(sample, share, field=field):
                if share > 0.9:
                    setattr(sample, field, getattr(sample, field) + 1)
            self.assertEqual(failed(samples(change=hold)), {gate})

    def test_gaps_cpu_and_log_that_grow(self):
        def slower(sample, share):
            sample.gap_p99_ms *= 1 + 2 * share
        self.assertEqual(failed(samples(change=slower)), {"p99 gap of quiet streams"})

        def dearer(sample, share):
            sample.cpu_us_per_token *= 1 + share
        self.assertEqual(failed(samples(change=dearer)), {"CPU a token of quiet streams"})

        def wordy(sample, share):
            sample.log_bytes *= 4
        self.assertEqual(failed(samples(change=wordy)), {"log"})

    def test_a_late_machine_is_no_gap(self):
        def late(sample, share):
            sample.gap_p99_ms += 60 * share
            sample.late_p99_ms = 30 * share
        self.assertEqual(failed(samples(change=late)), set())

        def neighbour(sample, share):
            if share > 0.6 and sample.sent % 120:
                sample.gap_p99_ms *= 8
        self.assertEqual(failed(samples(change=neighbour)), set())


class Expectations(unittest.TestCase):
    """What excuses an end that is no whole answer, and what does not."""

    def expect(self, wanted, closed, tenant="search", window=None, error=None, tokens=0, cut=False):
        history = History("gRPC")
        for index in range(tokens):
            history.add(TOKEN, id=index)
        if error:
            history.add(ERROR, reason=error)
        history.closed = closed
        windows = Windows()
        if window:
            windows.begin(window)
            windows.end(window)
        at = windows.spans[window][0][0] if window else 100.0
        stream = Stream(Ask("x"), tenant, history, at - 1, at + 1, cut)
        self.assertEqual(expectation(stream, windows), wanted)

    def test_ends(self):
        self.expect(WHOLE, CLEAN, tokens=3)
        self.expect(HUNG_UP, LEFT, tokens=3)
        self.expect(CUT, BROKEN, tokens=3, cut=True)
        self.expect(CUT, BROKEN, tokens=3, window="router gone")
        self.expect(WHOLE, BROKEN, tokens=3)
        self.expect(WHOLE, BROKEN, tokens=3, window="small queue")

    def test_refusals(self):
        self.expect(REFUSED, CLEAN, tenant="flood", error="HTTP 429 too many")
        self.expect(WHOLE, CLEAN, error="HTTP 429 too many")
        self.expect(REFUSED, CLEAN, window="small queue", error="RESOURCE_EXHAUSTED: full")
        self.expect(REFUSED, CLEAN, window="router gone", error="HTTP 503 loading")
        self.expect(WHOLE, CLEAN, error="HTTP 503 group lost")
        self.expect(REFUSED, CLEAN, tenant="guest", window="guest out", error="HTTP 401 key")
        self.expect(WHOLE, CLEAN, window="guest out", error="HTTP 401 key")
        self.expect(WHOLE, CLEAN, tenant="flood", error="HTTP 429 too many", tokens=1)


if __name__ == "__main__":
    unittest.main()
