"""Clients that do what docs/API.md ("Resuming a stream") says: a stream that breaks is asked for
again with what came of it, and all of its parts together are one History (stream_history.py).
"""

import dataclasses
import http.client
import json
import time

from stream_doors import (GRPC, TGI, TIMEOUT_S, SseParser, grpc_request, http_body, new_history,
                          take_grpc)
from stream_history import BROKEN, CLEAN, ERROR, FINISH, HEAD, STRANGE, TOKEN
from weft_server import grpc_modules

# Between two tries.
PAUSE_S = 0.1


@dataclasses.dataclass
class Had:
    """What a client gives back to go on."""
    ids: list = dataclasses.field(default_factory=list)
    seed: int | None = None
    fingerprint: str = ""
    # "exact" or "inexact", of each part but the first.
    matches: list = dataclasses.field(default_factory=list)

    def began(self):
        return self.seed is not None

    def json(self):
        return {"output_ids": self.ids, "seed": self.seed, "fingerprint": self.fingerprint}


def resumed_body(door, ask, had):
    """The body of an HTTP door that goes on behind `had`, and asks for what that takes."""
    body = http_body(door, ask)
    parameters = body["parameters"] if door == TGI else body
    if door != TGI:
        body["return_token_ids"] = True
    if had.began():
        parameters["resume"] = had.json()
    return body


def resumed_request(pb, ask, had):
    request = grpc_request(pb, ask)
    if had.began():
        request.resume.output_ids.extend(had.ids)
        request.resume.seed, request.resume.fingerprint = had.seed, had.fingerprint
    return request


class Part(SseParser):
    """One part of an HTTP stream: its events go to the history of the whole."""

    def __init__(self, history, had):
        super().__init__(history)
        self.had, self.later = had, had.began()

    def event(self, text, at):
        event = json.loads(text) if text != "[DONE]" else {}
        before = len(self.history.events)
        super().event(text, at)
        resume = event.get("resume")
        if resume:
            self.had.seed, self.had.fingerprint = resume["seed"], resume["fingerprint"]
        if "resumed" in event:
            self.had.matches.append(event["resumed"])
        choices = event.get("choices") or [{}]
        ids = choices[0].get("token_ids", [])
        for new in self.history.events[before:]:
            if new.kind == TOKEN and self.history.door != TGI:
                new.id = ids[0] if len(ids) == 1 else None
            if self.later:
                new.cached_tokens = None  # each replica finds what it has
            if new.kind == TOKEN:
                self.had.ids.append(new.id)


def read_http_part(server, door, ask, history, had):
    """True when the stream has ended, False when it broke and may go on."""
    connection = server.connection(TIMEOUT_S)
    try:
        part = Part(history, had)
        connection.request("POST", door.split(" ")[0], json.dumps(resumed_body(door, ask, had)),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            text = response.read().decode(errors="replace")
            if response.status in (429, 502, 503, 504):
                return False
            history.add(ERROR, at=time.time(), reason=f"HTTP {response.status} {text}")
            history.closed = CLEAN
            return True
        while True:
            data = response.read1(1 << 16)
            if not data:
                part.end()
                history.closed = CLEAN
                return bool(history.of(FINISH, ERROR))
            part.take(data)
    except (OSError, http.client.HTTPException) as error:
        history.why = repr(error)
        return False
    finally:
        connection.close()


def read_grpc_part(server, ask, history, had):
    grpc, pb, pb_grpc = grpc_modules()
    later = had.began()
    with grpc.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1),
                                             ("grpc.enable_retries", 0)]) as channel:
        call = pb_grpc.TextGenerationStub(channel).Generate(resumed_request(pb, ask, had),
                                                            timeout=TIMEOUT_S)
        try:
            for response in call:
                if response.HasField("prompt_info"):
                    info = response.prompt_info
                    had.seed, had.fingerprint = info.seed, info.fingerprint
                    if later:
                        had.matches.append({1: "exact", 2: "inexact"}.get(info.resume_match))
                had.ids.extend(response.output.token_ids)
                before = len(history.events)
                take_grpc(response, history)
                if later:
                    history.events[before:] = [new for new in history.events[before:]
                                               if new.kind != HEAD]
            history.closed = CLEAN
            return True
        except grpc.RpcError as error:
            history.why = f"{error.code().name}: {error.details()}"
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                history.add(ERROR, at=time.time(), reason=history.why)
                history.closed = CLEAN
                return True
            return False


def read_part(server, door, ask, history, had):
    if door == GRPC:
        return read_grpc_part(server, ask, history, had)
    return read_http_part(server, door, ask, history, had)


class Resuming:
    """Reads streams to their end, however often they break. For Streams(read=...)."""

    def __init__(self):
        # By id of the history.
        self.had = {}

    def of(self, history):
        return self.had[id(history)]

    def __call__(self, server, door, ask, history, leave=None):
        had = self.had[id(history)] = Had()
        end = time.monotonic() + TIMEOUT_S
        try:
            while not read_part(server, door, ask, history, had):
                if history.of(FINISH):  # only its marks were cut off
                    history.closed, history.wants_done = CLEAN, False
                    return
                if time.monotonic() > end:
                    history.closed = BROKEN
                    return
                time.sleep(PAUSE_S)
        except Exception as error:  # noqa: BLE001 - a reader that fails is a finding of its test
            history.add(STRANGE, reason=f"the reader failed: {error!r}")
            history.closed = history.closed or BROKEN


def up_to(history, count):
    """What a client had written down when the stream broke behind `count` tokens."""
    part = new_history(history.door)
    for event in history.events:
        if event.kind == TOKEN and part.count == count or event.kind not in (HEAD, TOKEN):
            break
        part.events.append(event)
        part.count += event.kind == TOKEN
    return part
