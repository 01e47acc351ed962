"""What a recovery test goes by: its requests, and the router's own record of the groups it lost
(JSON log lines), with the steps that were in flight.
"""

import dataclasses
import datetime
import json
import os
import re

from stream_clients import through
from stream_doors import Ask
from weft_server import wait_until

STREAMS = 16
# Rounds take turns with these, so that no prompt is found in the prefix cache.
BOOKS = 2


def requests(book):
    """One request a stream, through every door: half greedy, half sampled with penalties; every
    fourth has a long prompt. Lengths differ, so that streams end one after another and preempted
    ones come back."""
    words = "river stone paper light garden market winter letter music window".split()
    asks = []
    for index in range(STREAMS):
        count = 180 if index % 4 == 3 else 24 + index
        prompt = f"Story {index} of book {book}. " + " ".join(
            words[(index * 7 + i * i) % 10] for i in range(count))
        sampled = {} if index % 2 == 0 else dict(
            temperature=0.9, top_p=0.95, seed=1000 + index, repetition_penalty=1.1,
            presence_penalty=0.3, frequency_penalty=0.2)
        asks.append(Ask(prompt, max_tokens=34 + 5 * (index % 7), **sampled))
    return through(asks)


@dataclasses.dataclass
class LostStep:
    """A step that was sent and not answered when its group was lost."""
    call: str
    rows: int
    partial_chunks: int
    resumed_chunks: int
    # Unix time at which the router sent it.
    sent: float


@dataclasses.dataclass
class Loss:
    """A group that the router lost, or an attempt to form one that failed."""
    epoch: int
    # What the group was doing: "joining", "warming" or "serving".
    state: str
    at: float
    steps: list = dataclasses.field(default_factory=list)
    # Streams that had been preempted and held no KV blocks then.
    preempted: int = 0
    # All of it has been logged.
    complete: bool = True

    def in_flight_at(self, moment):
        """The lost steps that had been sent before `moment`."""
        return [step for step in self.steps if step.sent < moment]


class ServerLog:
    """The JSON log of a running server, read beside the processes that write it."""

    def __init__(self, server):
        self.descriptor = server.log.fileno()

    def lines(self):
        """(Unix time, process, message) of every complete line so far."""
        size = os.fstat(self.descriptor).st_size
        # pread: the file's offset belongs to the writers.
        for line in os.pread(self.descriptor, size, 0).decode(errors="replace").split("\n")[:-1]:
            if line.startswith("{"):
                entry = json.loads(line)
                at = datetime.datetime.fromisoformat(entry["ts"]).timestamp()
                yield at, entry["process"], entry["msg"]

    def losses(self):
        out = []
        for at, process, message in self.lines():
            if process != "router":
                continue
            field = dict(re.findall(r"(\w+)=(\S+)", message))
            if message.startswith("group lost "):
                out.append(Loss(int(field["epoch"]), field["state"], at,
                                complete=field["state"] != "serving"))
            elif message.startswith("step lost "):
                out[-1].steps.append(LostStep(
                    field["call"], int(field["rows"]), int(field["partial_chunks"]),
                    int(field["resumed_chunks"]), at - int(field["age_us"]) / 1e6))
            elif message.startswith("recovering "):
                out[-1].preempted, out[-1].complete = int(field["preempted"]), True
        return out

    def first_loss_after(self, moment):
        """The loss that a fault at Unix time `moment` caused."""
        return wait_until(
            lambda: next((loss for loss in self.losses()
                          if loss.at >= moment and loss.complete), None),
            "the router to notice a loss")

    def wait_joined(self, rank, since):
        """Waits until the shard of `rank` says that it has joined an epoch."""
        wait_until(lambda: any(at >= since and process == f"shard-{rank}"
                               and message.startswith("joined the group")
                               for at, process, message in self.lines()),
                   f"rank {rank} to join")
