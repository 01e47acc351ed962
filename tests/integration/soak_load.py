"""What a soak run sends: streams of several tenants through every door, each written down and
judged.

The requests are a fixed book, learnt once while nothing disturbs the server, so that every stream
of the run can be compared with its undisturbed one, token by token.
"""

import copy
import dataclasses
import hashlib
import random
import socket
import struct
import threading
import time

import stream_history
from stream_clients import mixed
from stream_doors import (CHAT_DOORS, TEXT_DOORS, TIMEOUT_S, Ask, after, never, new_history,
                          read_stream)
from stream_history import BROKEN, CUT, ERROR, HUNG_UP, LEFT, WHOLE

# "flood" may have few requests at a time and asks for many; "guest" is taken out of the key file
# and put back.
TENANTS = {"search": {"weight": 3}, "chat": {}, "batch": {"tokens_per_minute": 10_000_000},
           "guest": {}, "flood": {"requests_max": 3}}
SYSTEM = ("You are a careful assistant of a small library. You answer in whole sentences, you name "
          "the shelf, and you say so when you do not know. ") * 4
# Requests that are in order and turned away all the same.
REFUSED = "refused"
REFUSALS = ("HTTP 429", "HTTP 503", "HTTP 401", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
            "UNAUTHENTICATED")


def key_of(tenant):
    return f"weft-{hashlib.sha256(tenant.encode()).hexdigest()}"


def key_file(tenants=TENANTS):
    return {"tenants": [
        {"name": name, **limits, "keys": [
            f"sha256:{hashlib.sha256(key_of(name).encode()).hexdigest()}"]}
        for name, limits in tenants.items()]}


def view(server, tenant, **addresses):
    """The server as a client of one tenant reaches it."""
    seen = copy.copy(server)
    seen.headers = {"x-api-key": key_of(tenant)}
    for name, address in addresses.items():
        setattr(seen, name, address)
    return seen


def book(source):
    """[(doors, Ask)]: short and long prompts, greedy and seeded, with a common beginning and
    without, texts and conversations."""
    asks = [(TEXT_DOORS, ask) for ask in mixed(20, source, tokens=(8, 64))]
    asks += [(TEXT_DOORS, ask) for ask in mixed(4, source, tokens=(8, 24), words=(500, 800))]
    asks += [(TEXT_DOORS, dataclasses.replace(ask, prompt=SYSTEM + ask.prompt))
             for ask in mixed(12, source, tokens=(16, 48), words=(4, 20))]
    asks += [(CHAT_DOORS, dataclasses.replace(ask, prompt="", message=ask.prompt))
             for ask in mixed(8, source, tokens=(16, 48), words=(4, 30))]
    return asks


class Relay:
    """A way to one port of the server, for one client, that can be cut: both sides see a reset."""

    def __init__(self, address):
        host, port = address.split(":")
        self.target, self.sockets, self.was_cut = (host, int(port)), [], False
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                # Nobody is there: the client is to see that, too.
                client.close()
                continue
            with self.lock:
                self.sockets += [client, server]
                if self.was_cut:
                    self.reset()
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # What one side sees the other one sees, too.
            with self.lock:
                self.reset()

    def reset(self):
        """Of what is open, with the lock held. A reset, not an end: no byte is said to be the
        last."""
        for one in self.sockets:
            try:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        self.sockets = []

    def cut(self):
        with self.lock:
            self.was_cut = True
            self.reset()
        self.listener.close()

    def close(self):
        self.listener.close()
        with self.lock:
            self.reset()


@dataclasses.dataclass
class Stream:
    """One that has ended."""
    ask: Ask
    tenant: str
    history: stream_history.History
    began: float
    ended: float
    was_cut: bool = False


class Windows:
    """Times in which a fault excuses something: [begin, end), open while end is None."""

    def __init__(self):
        self.spans, self.lock = {}, threading.Lock()

    def begin(self, name):
        with self.lock:
            self.spans.setdefault(name, []).append([time.time(), None])

    def end(self, name):
        with self.lock:
            self.spans[name][-1][1] = time.time()

    def met(self, name, stream):
        with self.lock:
            return any(stream.began <= (end or stream.ended) and stream.ended >= begin
                       for begin, end in self.spans.get(name, []))


def is_refusal(history):
    errors = history.of(ERROR)
    return bool(errors) and history.count == 0 and any(
        word in errors[0].reason for word in REFUSALS)


def expectation(stream, windows):
    """What this stream was to be: WHOLE unless something that happened excuses another end."""
    history = stream.history
    if history.closed == LEFT:
        return HUNG_UP
    if history.closed == BROKEN and (stream.was_cut or windows.met("router gone", stream)):
        return CUT
    if is_refusal(history):
        said = history.of(ERROR)[0].reason
        excuses = {"HTTP 429": "small queue", "RESOURCE_EXHAUSTED": "small queue",
                   "HTTP 503": "router gone", "UNAVAILABLE": "router gone",
                   "HTTP 401": "guest out", "UNAUTHENTICATED": "guest out"}
        excuse = next(excuses[word] for word in REFUSALS if word in said)
        if excuse == "guest out" and stream.tenant != "guest":
            return WHOLE
        if excuse == "small queue" and stream.tenant == "flood" or windows.met(excuse, stream):
            return REFUSED
    return WHOLE


class Load:
    """`clients` threads that send one stream after the other while they are let, from the book."""

    def __init__(self, server, asks, seed, clients, windows, spoil=None):
        self.server, self.asks, self.windows = server, asks, windows
        self.going, self.closing = threading.Event(), False
        self.lock, self.done, self.open, self.relays = threading.Lock(), [], {}, set()
        self.busy = 0
        self.flooding = threading.Event()
        # Changes a history before it is judged: a run that plants a fault of the client's view.
        self.spoil = spoil
        self.threads = [threading.Thread(target=self.run, daemon=True,
                                         args=(random.Random(seed * 1000 + number), number))
                        for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, source, number):
        while not self.closing:
            if not self.going.wait(0.1) or (number % 4 == 3 and not self.flooding.is_set()):
                time.sleep(0.01)
                continue
            with self.lock:
                if not self.going.is_set():
                    continue
                self.busy += 1
            try:
                self.stream(source, "flood" if number % 4 == 3 else source.choice(
                    ("search", "chat", "batch", "guest")))
            finally:
                with self.lock:
                    self.busy -= 1

    def stream(self, source, tenant):
        doors, ask = source.choice(self.asks)
        door, leave, relay, addresses = source.choice(doors), never, None, {}
        kind = source.random()
        if kind < 0.15:
            leave = after(source.choice((0, 1, 3, 10)))
        elif kind < 0.4:
            name = "grpc" if door == "gRPC" else "http"
            relay = Relay(getattr(self.server, name))
            addresses[name] = relay.address
        history, began = new_history(door), time.time()
        with self.lock:
            self.open[id(history)] = history
            if relay:
                self.relays.add(relay)
        read_stream(view(self.server, tenant, **addresses), door, ask, history, leave)
        with self.lock:
            del self.open[id(history)]
            self.relays.discard(relay)
            if self.spoil:
                self.spoil(history)
            self.done.append(Stream(ask, tenant, history, began, time.time(),
                                    bool(relay and relay.was_cut)))
        if relay:
            relay.close()
        if is_refusal(history) or (history.closed == BROKEN and not history.count):
            time.sleep(0.05)

    def running(self):
        """Streams that have begun and not ended."""
        with self.lock:
            return [history for history in self.open.values() if history.count]

    def cut_some(self):
        """Cuts every connection that goes through a relay now; how many."""
        with self.lock:
            relays = list(self.relays)
        for relay in relays:
            relay.cut()
        return len(relays)

    def pause(self, timeout_s=TIMEOUT_S):
        """Nothing new; those under way end as they would."""
        with self.lock:
            self.going.clear()
        deadline = time.monotonic() + timeout_s
        while self.busy:
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.busy} streams hang: " + ", ".join(
                    f"{history.door} after {history.count}" for history in self.open.values()))
            time.sleep(0.01)

    def take(self):
        """The streams that have ended since the last call."""
        with self.lock:
            done, self.done = self.done, []
        return done

    def close(self):
        self.closing = True
        self.going.clear()


def judge(stream, windows, undisturbed):
    """(what the stream was to be, everything that is wrong with it)."""
    end = expectation(stream, windows)
    if end == REFUSED:
        return end, []
    ask, history = stream.ask, stream.history
    found = stream_history.faults(
        history, end=end, max_tokens=ask.max_tokens, stops=ask.stop,
        ends_itself=not ask.ignore_eos, undisturbed=undisturbed)
    if end == CUT and history.finished():
        # Cut between its end and the mark that nothing follows.
        found = [fault for fault in found if "in a stream that was cut" not in fault]
    return end, found
