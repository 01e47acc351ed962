"""The moments at which recovery tests hit a shard. Each function waits for its moment, hits, and
returns a Hit; `proven` says whether the router's record shows that the moment was met. Forming an
epoch takes milliseconds, so JoinGroup is held open from outside: a rank is stopped (SIGSTOP) while
the others wait for it.
"""

import dataclasses
import os
import pathlib
import signal
import time

from weft_server import wait_until

# How far a round goes before its hit, at random.
STEPS_BEFORE = (2, 8)
TOKENS_BEFORE = (150, 500)
# Answers to the router's polls: one may come from the call that was under way to the dead rank.
INFO_ANSWERS = 2
# Less than the time-out of an Info call, after which the router forgets what the shard said.
JOIN_WAIT_S = 0.9

# Series that moments are told by: (name, label, its value).
CALLS = "weft_shard_rpc_duration_seconds_count"
LEAVE_CALLS, INFO_CALLS = (CALLS, "method", "LeaveGroup"), (CALLS, "method", "Info")
RENDEZVOUS_CALLS = (CALLS, "method", "Rendezvous")
PROMPT_STEPS = ("weft_steps_total", "kind", "prefill")
DECODE_STEPS = ("weft_steps_total", "kind", "decode")
PREEMPTIONS, EPOCH = ("weft_num_preemptions_total",), ("weft_group_epoch",)
WAITING = ("weft_num_requests_waiting",)
GROUP_STATES = ("connecting", "loading", "joining", "warming", "serving", "recovering")


def total(values, series):
    """Sum of a series of /metrics over the labels that it does not name."""
    label = f'{series[1]}="{series[2]}"' if len(series) > 1 else ""
    return sum(value for name, value in values.items()
               if name.partition("{")[0] == series[0] and label in name)


@dataclasses.dataclass
class Hit:
    """A signal that one shard got. `at`: Unix time just before it."""
    pid: int
    at: float
    proven: bool = False
    evidence: str = ""


class Target:
    """A server under streams, and the signal that its shards are hit with."""

    def __init__(self, server, log, streams, signal_number, random_source):
        self.server, self.log, self.streams = server, log, streams
        self.signal_number, self.random = signal_number, random_source
        self.mark()
        # Every shard process that was seen.
        self.pids = {server.shard_pid(rank) for rank in range(server.shards)}

    def mark(self):
        """Counts `grown` from here on."""
        self.before = self.server.metrics()

    def grown(self, series):
        """By how much one of the series above grew since the mark."""
        return total(self.server.metrics(), series) - total(self.before, series)

    def state(self):
        """(state of the group, epochs since the mark)."""
        values = self.server.metrics()
        state = next(state for state in GROUP_STATES
                     if total(values, ("weft_group_state", "state", state)) == 1)
        return state, total(values, EPOCH) - total(self.before, EPOCH)

    def wait(self, condition, what):
        """Waits for a moment of the streams; when they end without it, so does the wait."""
        wait_until(lambda: condition() or self.streams.ended(), what, 120)

    def hit(self, rank, signal_number=None):
        pid = wait_until(lambda: self.server.shard_pid(rank), "a shard to hit")
        self.pids.add(pid)
        at = time.time()
        os.kill(pid, signal_number or self.signal_number)
        return Hit(pid, at)


def hit_serving(target, rank, judge):
    """Hits a serving group; `judge(loss, lost steps)` says how much of the moment was met."""
    hit = target.hit(rank)
    loss = target.log.first_loss_after(hit.at)
    met, hit.evidence = judge(loss, loss.in_flight_at(hit.at))
    hit.proven = loss.state == "serving" and met > 0
    return hit


def in_a_chunked_prompt(target, rank):
    steps = target.random.randrange(*STEPS_BEFORE)
    target.wait(lambda: target.grown(PROMPT_STEPS) >= steps, f"{steps} prompt steps")

    def judge(loss, steps):
        partial = sum(step.partial_chunks for step in steps)
        return partial, f"{partial} pieces of prompts in flight"
    return hit_serving(target, rank, judge)


def wait_decoding(target):
    """Waits for so many tokens of all streams, and then for steps without prompts."""
    tokens = target.random.randrange(*TOKENS_BEFORE)
    steps = 0, 0

    def decoding():
        nonlocal steps
        values, before = target.server.metrics(), steps
        steps = total(values, PROMPT_STEPS), total(values, DECODE_STEPS)
        return (target.streams.tokens() >= tokens and steps[0] == before[0]
                and steps[1] > before[1])
    target.wait(decoding, f"decode steps after {tokens} tokens")


def in_decode(target, rank):
    wait_decoding(target)

    def judge(loss, steps):
        rows = [step.rows for step in steps if step.call == "Decode"]
        return len(rows), f"decode steps of {rows} rows in flight"
    return hit_serving(target, rank, judge)


def while_a_stream_is_preempted(target, rank):
    def preempted():
        values = target.server.metrics()
        return (total(values, PREEMPTIONS) > total(target.before, PREEMPTIONS)
                and total(values, WAITING) > 0)
    target.wait(preempted, "a preempted stream")

    def judge(loss, steps):
        return (min(loss.preempted, len(steps)),
                f"{loss.preempted} preempted, {len(steps)} steps in flight")
    return hit_serving(target, rank, judge)


def as_a_preempted_stream_resumes(target, rank):
    waiting = 0.0

    def resumes():
        nonlocal waiting
        values, before = target.server.metrics(), waiting
        waiting = total(values, WAITING)
        # Those that were preempted come back before those that have not run.
        return (total(values, PREEMPTIONS) > total(target.before, PREEMPTIONS)
                and waiting < before)
    target.wait(resumes, "a preempted stream to come back")

    def judge(loss, steps):
        resumed = sum(step.resumed_chunks for step in steps)
        return resumed, f"{resumed} pieces of preempted streams in flight"
    return hit_serving(target, rank, judge)


def lose_one(target, rank):
    """Kills a shard under decoding streams, so that a new epoch has to form."""
    wait_decoding(target)
    target.mark()
    target.hit(rank, signal.SIGKILL)


def stop(pid):
    """SIGSTOP; returns when every thread has stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(path.read_text().rpartition(")")[2].split()[0] == "T"
                           for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")),
               "the threads to stop")


def hold_join_open(target):
    """Loses rank 0, and stops rank 1 once it has said that it is ready, so that JoinGroup of the
    next epoch waits for it. Returns its pid while it is stopped; None when the group was faster."""
    survivor, dead = target.server.shard_pid(1), target.server.shard_pid(0)
    lose_one(target, 0)
    successor = wait_until(lambda: target.server.shard_pid(0) not in (None, dead)
                           and target.server.shard_pid(0), "a new rank 0")
    # It is to wait with loading until rank 1 is ready.
    stop(successor)
    wait_until(lambda: target.grown(LEAVE_CALLS) > 0, "rank 1 to leave")
    answers = target.grown(INFO_CALLS)
    wait_until(lambda: target.grown(INFO_CALLS) >= answers + INFO_ANSWERS, "rank 1 to be ready")
    stop(survivor)
    os.kill(successor, signal.SIGCONT)
    deadline = time.time() + JOIN_WAIT_S
    while time.time() < deadline:
        # Rendezvous is answered: JoinGroup is on its way to all.
        if target.grown(RENDEZVOUS_CALLS) > 0 and target.state()[0] == "joining":
            return survivor
    os.kill(survivor, signal.SIGCONT)
    return None


def in_join(target, rank):
    """Rank 0 is hit while it waits in JoinGroup for rank 1; rank 1 is killed when it has joined and
    rank 0 has not, or stopped before it joins."""
    survivor = hold_join_open(target)
    if survivor is None:
        return judge_forming(target, target.hit(rank), "joining")
    if rank == 1 and target.signal_number == signal.SIGSTOP:
        return judge_forming(target, target.hit(1), "joining")
    if rank == 0:
        hit = target.hit(0)
        if target.signal_number == signal.SIGSTOP:
            stop(hit.pid)
        os.kill(survivor, signal.SIGCONT)
        return judge_forming(target, hit, "joining")
    peer, since = target.server.shard_pid(0), time.time()
    stop(peer)
    os.kill(survivor, signal.SIGCONT)
    target.log.wait_joined(1, since)
    hit = judge_forming(target, target.hit(1), "joining")
    os.kill(peer, signal.SIGCONT)
    return hit


def in_warmup(target, rank):
    lose_one(target, target.random.randrange(target.server.shards))
    wait_until(lambda: target.state()[0] == "warming" or target.state() == ("serving", 1), "Warmup")
    return judge_forming(target, target.hit(rank), "warming")


def judge_forming(target, hit, state):
    loss = target.log.first_loss_after(hit.at)
    hit.proven = loss.state == state
    hit.evidence = f"epoch {loss.epoch} lost while {loss.state}"
    return hit
