"""Greedy streams whose every token is known: ids as they come, and what they have to be.

An undisturbed run says each token's id and how far the runner-up was behind. Where sums are made in
another order (another batch, a prompt instead of single steps) only a step with two nearly equal
candidates may come out differently; what follows it is another text. A token that was lost or came
twice shows as a text that goes on shifted.
"""

import random
import threading
import time

STREAMS = 16
STREAM_TIMEOUT_S = 120
# Logits may differ by this much; a step whose margin is larger may not.
FLIP_MARGIN = {"float32": 1e-3, "bfloat16": 0.5}
# So many equal tokens at an offset are no chance.
SHIFT_RUN = 12
SHIFT_MAX = 4
WORDS = "river stone paper light garden market winter letter music window".split()


def prompt_of(index):
    words = random.Random(index)
    count = 150 if index % 4 == 3 else 20 + index
    return f"Story {index}. " + " ".join(words.choice(WORDS) for _ in range(count)) + ". Once"


def body_of(index, tokens, **parameters):
    return {"inputs": prompt_of(index),
            "parameters": {"max_new_tokens": tokens + index, "do_sample": False,
                           "ignore_eos": True, "details": True, **parameters}}


def margins_of(details):
    """Of each token: its log-probability less the other best one's."""
    margins = []
    for token, top in zip(details["tokens"], details["top_tokens"]):
        others = [other["logprob"] for other in top if other["id"] != token["id"]]
        margins.append(token["logprob"] - max(others) if others else float("inf"))
    return margins


def together(work, items):
    """Results of work(item), all at once; raises the first error."""
    results, errors = [None] * len(items), []

    def run(index):
        try:
            results[index] = work(items[index])
        except Exception as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(items))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def undisturbed(server, tokens):
    """[(ids, margins)] of every stream."""
    def ask(index):
        details = server.post("/generate", body_of(index, tokens, top_n_tokens=2),
                              timeout_s=STREAM_TIMEOUT_S)["details"]
        return [token["id"] for token in details["tokens"]], margins_of(details)
    return together(ask, range(STREAMS))


class Streams:
    """All streams at once."""

    def __init__(self, server, tokens):
        self.server, self.tokens_each = server, tokens
        self.ids = [[] for _ in range(STREAMS)]
        self.ends = [None] * STREAMS
        # When the last token came, and the longest time without one of any stream.
        self.last_at, self.silence_s = time.monotonic(), 0.0
        self.lock = threading.Lock()
        self.errors = []
        self.threads = [threading.Thread(target=self.run, args=(index,))
                        for index in range(STREAMS)]
        for thread in self.threads:
            thread.start()

    def run(self, index):
        try:
            for event in self.server.events("/generate_stream", body_of(index, self.tokens_each),
                                            STREAM_TIMEOUT_S):
                self.take(index, event)
        except Exception as error:  # noqa: BLE001 - every failure of a stream is a finding
            self.errors.append((index, repr(error)))

    def take(self, index, event):
        if "token" not in event:
            raise AssertionError(f"stream {index}: {event}")
        self.ids[index].append(event["token"]["id"])
        if event["index"] != len(self.ids[index]):
            raise AssertionError(f"stream {index}: event {event['index']} is its "
                                 f"{len(self.ids[index])}th")
        if event["details"]:
            self.ends[index] = event["details"]
        with self.lock:
            now = time.monotonic()
            self.silence_s = max(self.silence_s, now - self.last_at)
            self.last_at = now

    def count(self):
        return sum(len(ids) for ids in self.ids)

    def total(self):
        return sum(self.tokens_each + index for index in range(STREAMS))

    def running(self):
        return sum(end is None for end in self.ends)

    def join(self):
        for thread in self.threads:
            thread.join(STREAM_TIMEOUT_S)
            if thread.is_alive():
                raise AssertionError("a stream hangs")
        if self.errors:
            raise AssertionError(f"{len(self.errors)} streams failed, the first: {self.errors[0]}")
        for index, (ids, end) in enumerate(zip(self.ids, self.ends)):
            wanted = self.tokens_each + index
            if end is None or len(ids) != wanted or end["generated_tokens"] != wanted or \
                    end["finish_reason"] != "length":
                raise AssertionError(f"stream {index}: {len(ids)} tokens of {wanted}, end {end}")


def shift_of(ids, expected, at):
    """The offset by which `ids` goes on as `expected` from `at`; 0 = by none."""
    for offset in range(1, SHIFT_MAX + 1):
        run = ids[at:at + SHIFT_RUN]
        if len(run) == SHIFT_RUN and expected[at + offset:at + offset + SHIFT_RUN] == run:
            return offset  # lost
        run = expected[at:at + SHIFT_RUN]
        if len(run) == SHIFT_RUN and ids[at + offset:at + offset + SHIFT_RUN] == run:
            return -offset  # repeated
    return 0


def compare(all_ids, expected, dtype):
    """"16 of 16 equal", or what differs where only nearly equal candidates do; raises where more
    does."""
    equal, largest = 0, 0.0
    for index, (ids, (wanted, margins)) in enumerate(zip(all_ids, expected)):
        if ids == wanted:
            equal += 1
            continue
        at = next((i for i, pair in enumerate(zip(ids, wanted)) if pair[0] != pair[1]),
                  min(len(ids), len(wanted)))
        if at >= min(len(ids), len(wanted)):
            raise AssertionError(f"stream {index}: {len(ids)} tokens, expected {len(wanted)}")
        # A text that runs in circles looks shifted wherever it leaves the other.
        shift = shift_of(ids, wanted, at)
        if shift and margins[at] >= FLIP_MARGIN[dtype]:
            raise AssertionError(f"stream {index}: {abs(shift)} tokens "
                                 f"{'lost' if shift > 0 else 'repeated'} at {at}")
        if margins[at] >= FLIP_MARGIN[dtype]:
            raise AssertionError(f"stream {index}: token {at} is {ids[at]}, expected {wanted[at]} "
                                 f"with a margin of {margins[at]:.4f}")
        largest = max(largest, margins[at])
    said = f"{equal} of {len(all_ids)} equal"
    return said if equal == len(all_ids) else f"{said}, largest margin flipped {largest:.5f}"
