"""Greedy streams whose every token is known: ids as they come, and what they have to be.

An undisturbed run says each token's id and which others were close behind. Where sums are made in
another order (another batch, a prompt instead of single steps) only a step with nearly equal
candidates may come out differently, and only as one of them; what follows it is another text. A token
that was lost or came twice is none of them, and shows as a text that goes on shifted.
"""

import random
import threading
import time

import stream_clients
from stream_doors import TGI, Ask
from stream_history import require

STREAMS = 16
STREAM_TIMEOUT_S = 120
# Logits may differ by this much: a candidate that was further behind may not be chosen.
FLIP_MARGIN = {"float32": 1e-3, "bfloat16": 0.5}
# As many as doors tell.
CANDIDATES = 5
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


def candidates_of(details):
    """Of each token: {id: how far its log-probability was behind} of those that could have come."""
    return [{other["id"]: token["logprob"] - other["logprob"] for other in top}
            for token, top in zip(details["tokens"], details["top_tokens"], strict=True)]


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
    """[(ids, candidates)] of every stream."""
    def ask(index):
        details = server.post("/generate", body_of(index, tokens, top_n_tokens=CANDIDATES),
                              timeout_s=STREAM_TIMEOUT_S)["details"]
        return [token["id"] for token in details["tokens"]], candidates_of(details)
    return together(ask, range(STREAMS))


class Streams(stream_clients.Streams):
    """All streams at once."""

    def __init__(self, server, tokens):
        self.started = time.time()
        super().__init__(server, [(TGI, Ask(prompt_of(index), max_tokens=tokens + index))
                                  for index in range(STREAMS)])

    def total(self):
        return sum(ask.max_tokens for _, ask in self.requests)

    def running(self):
        return sum(not history.finished() for history in self.histories)

    def join(self):
        """Until all have ended. Each has to be whole, whatever its tokens are."""
        super().join(STREAM_TIMEOUT_S)
        for index, (history, (_, ask)) in enumerate(zip(self.histories, self.requests)):
            require(history, f"stream {index}", max_tokens=ask.max_tokens)
        self.ids = [history.ids() for history in self.histories]
        self.silence_s, _ = self.gaps_s(self.started)


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
    """"16 of 16 equal", or what differs where a nearly equal candidate came; raises where more
    does."""
    equal, largest = 0, 0.0
    for index, (ids, (wanted, candidates)) in enumerate(zip(all_ids, expected, strict=True)):
        if ids == wanted:
            equal += 1
            continue
        at = next((i for i, pair in enumerate(zip(ids, wanted)) if pair[0] != pair[1]),
                  min(len(ids), len(wanted)))
        if at >= min(len(ids), len(wanted)):
            raise AssertionError(f"stream {index}: {len(ids)} tokens, expected {len(wanted)}")
        behind = candidates[at].get(ids[at], float("inf"))
        if behind >= FLIP_MARGIN[dtype]:
            shift = shift_of(ids, wanted, at)
            how = f"; {abs(shift)} tokens {'lost' if shift > 0 else 'repeated'}" if shift else ""
            raise AssertionError(f"stream {index}: token {at} is {ids[at]}, which was behind "
                                 f"{wanted[at]} by {behind:.4f}{how}")
        largest = max(largest, behind)
    said = f"{equal} of {len(all_ids)} equal"
    return said if equal == len(all_ids) else f"{said}, largest margin flipped {largest:.5f}"
