"""Clients that write down what they see: one request, sent through any streaming door, becomes a
History (stream_history.py). A test starts many at once with Streams, does its harm, and has a
Checker look at all of them.
"""

import dataclasses
import threading
import time

import stream_history
from stream_doors import GRPC, TEXT_DOORS, TIMEOUT_S, Ask, never, new_history, read_stream
from stream_history import WHOLE
from weft_server import grpc_modules, wait_until


def mixed(count, source, tokens=(24, 64), words=(8, 60)):
    """`count` requests, by turns greedy and seeded with penalties, of different lengths."""
    vocabulary = "river stone paper light garden market winter letter music window".split()
    asks = []
    for index in range(count):
        prompt = f"Story {source.randrange(10**6)}. " + " ".join(
            source.choice(vocabulary) for _ in range(source.randrange(*words)))
        sampled = {} if index % 2 == 0 else dict(
            temperature=0.9, top_p=0.95, seed=source.randrange(2**31), repetition_penalty=1.1,
            presence_penalty=0.3, frequency_penalty=0.2)
        asks.append(Ask(prompt, max_tokens=source.randrange(*tokens), **sampled))
    return asks


def through(asks, doors=TEXT_DOORS):
    """[(door, ask)], with the doors by turns so that each has greedy and sampled ones."""
    return [(doors[index // 2 % len(doors)], ask) for index, ask in enumerate(asks)]


class Streams:
    """Sends all of [(door, ask)] at once. `leave[index](history)` says when a client goes away;
    `read` is a client, read_stream or one that does more."""

    def __init__(self, server, requests, leave=None, read=read_stream):
        self.requests = list(requests)
        self.histories = [new_history(door) for door, _ in self.requests]
        self.threads = [
            threading.Thread(target=read, daemon=True,
                             args=(server, door, ask, self.histories[index],
                                   (leave or {}).get(index, never)))
            for index, (door, ask) in enumerate(self.requests)]
        for thread in self.threads:
            thread.start()

    def tokens(self):
        return sum(history.count for history in self.histories)

    def open(self):
        """Histories that have begun and not ended."""
        return [history for history in self.histories
                if history.closed is None and history.count]

    def ended(self):
        return not any(thread.is_alive() for thread in self.threads)

    def wait_tokens(self, count=1, timeout_s=TIMEOUT_S):
        """Until every stream has had so many tokens, or its end."""
        wait_until(lambda: all(history.closed or history.count >= count
                               for history in self.histories),
                   f"{count} tokens of every stream", timeout_s)

    def wait_all_speak(self, timeout_s=TIMEOUT_S, enough=all):
        """Until every stream that is open now has had another token, or its end; `enough` any: one
        of them."""
        silent = [(history, history.count) for history in self.open()]
        wait_until(lambda: enough(history.closed or history.count > count
                                  for history, count in silent),
                   f"a token of {enough.__name__} of the open streams", timeout_s)

    def join(self, timeout_s=TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        for thread, history in zip(self.threads, self.histories):
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                raise AssertionError(f"a stream hangs ({history.door}) after "
                                     f"{history.count} tokens")
        return self

    def gaps_s(self, since):
        """(longest time after `since` without a token of any stream, time from `since` until every
        stream that had more to say has spoken after it)."""
        arrivals = [[token.at for token in history.tokens()] for history in self.histories]
        times = [since, *sorted(at for times in arrivals for at in times if at > since)]
        silence, end = max(((b - a, b) for a, b in zip(times, times[1:])), default=(0.0, since))
        returns = [min((at for at in times if at >= end), default=since) for times in arrivals]
        return silence, max(returns) - since


def of_any_length(ask):
    """What a request's tokens depend on: how many it may have says only where they end."""
    return dataclasses.replace(ask, max_tokens=0)


class Checker:
    """Looks at histories of one server. Made while the server lives; what it has learnt of the
    requests (their undisturbed runs) it also knows of histories that end with the server, or come
    from another one with the same shards."""

    def __init__(self, server):
        self.server, self.undisturbed, self.texts = server, {}, {}

    def detokenize(self, ids):
        """What the server says of the ids as a whole, without any stream."""
        key = tuple(ids)
        if key not in self.texts:
            grpc, pb, pb_grpc = grpc_modules()
            with grpc.insecure_channel(self.server.grpc) as channel:
                self.texts[key] = pb_grpc.TextGenerationStub(channel).Detokenize(
                    pb.DetokenizeRequest(ids=ids), timeout=TIMEOUT_S,
                    metadata=tuple(self.server.headers.items())).text
        return self.texts[key]

    def learn(self, asks):
        """Runs the requests while nothing disturbs them."""
        new = [ask for ask in dict.fromkeys(asks)
               if ask.repeatable() and self.known(ask)[0] != ask.max_tokens]
        streams = Streams(self.server, [(GRPC, ask) for ask in new]).join()
        self.check(streams)
        for ask, history in zip(new, streams.histories):
            self.undisturbed[of_any_length(ask)] = ask.max_tokens, history
        return self

    def known(self, ask):
        """(max_tokens, History) of the undisturbed run that has a request's tokens, or the first of
        them, or more."""
        return self.undisturbed.get(of_any_length(ask), (None, None))

    def check(self, streams, end=WHOLE, ends=None):
        """`ends[index]`: of single streams, where they differ from `end`."""
        if not streams.requests:
            raise AssertionError("there is no stream to look at")
        failed = []
        for index, ((_, ask), history) in enumerate(zip(streams.requests, streams.histories)):
            tokens, undisturbed = self.known(ask)
            same_length = tokens == ask.max_tokens
            # Ids that equal the undisturbed ones have the text that was compared then, but for text
            # that an end brought.
            is_known = undisturbed and (same_length or not history.finished())
            try:
                stream_history.require(
                    history, f"stream {index}", end=(ends or {}).get(index, end),
                    max_tokens=ask.max_tokens, stops=ask.stop, ends_itself=not ask.ignore_eos,
                    undisturbed=undisturbed, same_length=same_length,
                    detokenize=None if is_known else self.detokenize)
            except AssertionError as error:
                failed.append(str(error))
        if failed:
            raise AssertionError(f"{len(failed)} of {len(streams.histories)} streams: "
                                 + "\n".join(failed[:8]))
