"""The streaming doors as a client sees them: a request becomes a door's body, and what the door sends
becomes the History of a stream (stream_history.py).
"""

import codecs
import dataclasses
import http.client
import json
import socket
import struct
import time

from stream_history import (BROKEN, CLEAN, DONE, ERROR, FINISH, HEAD, LEFT, LENGTH, SILENT, STOP,
                            STRANGE, TEXT, TOKEN, USAGE, History)
from weft_server import grpc_modules

# What a stream may take on a machine that others use.
TIMEOUT_S = 180
TGI, COMPLETIONS, CHAT, GRPC = "/generate_stream", "/v1/completions", "/v1/chat/completions", "gRPC"
# As most clients ask: no log-probabilities and no counts between, so that a chunk is text alone.
PLAIN_COMPLETIONS, PLAIN_CHAT = "/v1/completions plain", "/v1/chat/completions plain"
# Of a prompt. A conversation goes through CHAT, PLAIN_CHAT and GRPC.
TEXT_DOORS = (TGI, COMPLETIONS, GRPC, PLAIN_COMPLETIONS)
CHAT_DOORS = (CHAT, GRPC, PLAIN_CHAT)
TGI_REASONS = {"length": LENGTH, "eos_token": STOP, "stop_sequence": STOP}
GRPC_REASONS = {1: LENGTH, 2: STOP, 3: STOP, 5: STOP}


@dataclasses.dataclass(frozen=True)
class Ask:
    """A request in the words of no door: the same one can be sent through each."""
    prompt: str = ""
    # Content of a user's message, in the prompt's place.
    message: str = ""
    max_tokens: int = 32
    # 0 = greedy.
    temperature: float = 0.0
    seed: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple = ()
    # What the answer is made of: these ids alone, and none of these words.
    allowed_token_ids: tuple = ()
    bad_words: tuple = ()
    ignore_eos: bool = True

    def repeatable(self):
        return self.temperature == 0 or self.seed is not None

    def sampling(self):
        """The parameters that all doors name alike."""
        given = {name: getattr(self, name) for name in
                 ("seed", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
                 if getattr(self, name) is not None}
        for name in ("stop", "allowed_token_ids", "bad_words"):
            if getattr(self, name):
                given[name] = list(getattr(self, name))
        return {**given, "ignore_eos": self.ignore_eos}


# -- Bodies ---------------------------------------------------------------------------------------
def http_body(door, ask):
    if door == TGI:
        sampled = {} if ask.temperature == 0 else {"temperature": ask.temperature,
                                                   "do_sample": True}
        return {"inputs": ask.prompt, "parameters": {
            "max_new_tokens": ask.max_tokens, "details": True, **sampled, **ask.sampling()}}
    body = {"max_tokens": ask.max_tokens, "temperature": ask.temperature, "stream": True,
            "stream_options": {"include_usage": True}, **ask.sampling()}
    if door in (CHAT, PLAIN_CHAT):
        body["messages"] = [{"role": "user", "content": ask.message}]
    else:
        body["prompt"] = ask.prompt
    if door in (CHAT, COMPLETIONS):
        body["stream_options"]["continuous_usage_stats"] = True
        body["logprobs"] = True if door == CHAT else 0
    return body


def grpc_request(pb, ask):
    request = pb.GenerateRequest(text=ask.prompt) if ask.prompt else pb.GenerateRequest()
    if not ask.prompt:
        request.chat.messages.add(role="user", content=ask.message)
    request.sampling.temperature = ask.temperature
    for group, names in ((request.sampling, ("seed", "top_p")),
                         (request.decoding, ("repetition_penalty", "presence_penalty",
                                             "frequency_penalty"))):
        for name in names:
            if getattr(ask, name) is not None:
                setattr(group, name, getattr(ask, name))
    request.decoding.allowed_token_ids.extend(ask.allowed_token_ids)
    request.decoding.bad_words.extend(ask.bad_words)
    request.stopping.max_tokens = ask.max_tokens
    request.stopping.stop_sequences.extend(ask.stop)
    request.stopping.ignore_eos = ask.ignore_eos
    return request


# -- What events say ------------------------------------------------------------------------------
def tgi_events(event, history, at):
    if "token" not in event:
        history.add(ERROR if "error" in event else STRANGE, at=at, reason=json.dumps(event))
        return
    token, details = event["token"], event["details"]
    # A control token shows its own text, which is not the answer's.
    text = "" if token["special"] else token["text"]
    last = (history.tokens() or [None])[-1]
    if details and last and (last.number, last.id) == (event["index"], token["id"]):
        history.add(TEXT, at=at, text=token["text"])
    else:
        history.add(TOKEN, at=at, number=event["index"], id=token["id"], text=text)
    if details:
        whole = event["generated_text"]
        if token["special"]:
            # The text that was held back is in the whole alone.
            rest = whole.removeprefix(history.text())
            if rest:
                history.add(TEXT, at=at, text=rest)
        reason = details["finish_reason"]
        history.add(FINISH, at=at, reason=TGI_REASONS.get(reason, reason), whole_text=whole,
                    output_tokens=details["generated_tokens"],
                    prompt_tokens=details["input_length"])


def openai_counts(usage):
    return dict(prompt_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"],
                cached_tokens=usage["prompt_tokens_details"]["cached_tokens"])


def openai_piece(door, logprobs):
    if door == CHAT:
        return bytes(logprobs["content"][0]["bytes"])
    text = logprobs["tokens"][0]
    # A part of a character is not shown as its bytes.
    return None if "\ufffd" in text else text.encode()


def openai_events(event, history, at):
    if "choices" not in event:
        history.add(ERROR if "error" in event else STRANGE, at=at, reason=json.dumps(event))
        return
    # One choice was asked for.
    if "error" in event or [choice["index"] for choice in event["choices"]] not in ([], [0]):
        history.add(STRANGE, at=at, reason=json.dumps(event))
        return
    if not event["choices"]:
        history.add(USAGE, at=at, **openai_counts(event["usage"]))
        return
    choice = event["choices"][0]
    text = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
    reason, detailed = choice["finish_reason"], history.door in (CHAT, COMPLETIONS)
    if detailed and choice["logprobs"]:
        counts = openai_counts(event["usage"])
        history.add(TOKEN, at=at, text=text, number=counts.pop("output_tokens"),
                    piece=openai_piece(history.door, choice["logprobs"]), **counts)
    elif not detailed and (text or not reason):
        history.add(TOKEN, at=at, text=text)
    elif text or not reason:
        history.add(TEXT, at=at, text=text)
    else:
        history.finish_may_be_a_token = not detailed
    if reason:
        history.add(FINISH, at=at, reason=reason)


class SseParser:
    """Bytes of an SSE stream to events of a History. An event is one line of data and an empty
    line: without the latter a client goes on reading the same event."""

    def __init__(self, history):
        self.history, self.decoder, self.rest = history, codecs.getincrementaldecoder("utf-8")(), ""
        self.data = None

    def end(self):
        """The stream has ended: with a whole event."""
        rest = (self.data or "") + self.rest + self.decoder.decode(b"", final=True)
        if rest:
            self.history.add(STRANGE, reason=f"an event without an end: {rest[:200]}")

    def take(self, data):
        lines = (self.rest + self.decoder.decode(data)).split("\n")
        self.rest = lines.pop()
        at = time.time()
        for line in lines:
            line = line.removesuffix("\r")
            if line.startswith("data:") and self.data is None:
                self.data = line[5:].strip()
            elif not line and self.data is not None:
                self.event(self.data, at)
                self.data = None
            elif line and not line.startswith(":"):
                self.history.add(STRANGE, at=at, reason=line)

    def event(self, text, at):
        if text == "[DONE]":
            self.history.add(DONE, at=at)
            return
        try:
            (tgi_events if self.history.door == TGI else openai_events)(
                json.loads(text), self.history, at)
        except (ValueError, LookupError, TypeError) as error:
            self.history.add(STRANGE, at=at, reason=f"{error!r} in {text[:200]}")


# -- Streams --------------------------------------------------------------------------------------
def never(history):
    return False


def after(tokens):
    """A client that goes away when it has had so many tokens; with 0 before it has read a byte."""
    return lambda history: history.count >= tokens


def read_http(server, door, ask, history, leave, timeout_s=TIMEOUT_S):
    """Reads one stream to its end, or until leave(history); then the connection is reset."""
    connection = server.connection(timeout_s)
    try:
        connection.request("POST", door.split(" ")[0], json.dumps(http_body(door, ask)),
                           {"Content-Type": "application/json", **server.headers})
        response = connection.getresponse()
        if response.status != 200:
            history.add(ERROR, at=time.time(), reason=f"HTTP {response.status} "
                        + response.read().decode(errors="replace"))
            history.wants_done, history.closed = False, CLEAN
            return
        parser = SseParser(history)
        while not leave(history):
            # Not by lines: http.client takes a chunked body that breaks off for one that ended.
            data = response.read1(1 << 16)
            if not data:
                parser.end()
                history.closed = CLEAN
                return
            parser.take(data)
        response.fp.raw._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                         struct.pack("ii", 1, 0))
        history.closed = LEFT
    except TimeoutError as error:
        # Nobody ended it: not the server, and not the way there.
        history.closed, history.why = SILENT, repr(error)
    except (OSError, http.client.HTTPException) as error:
        history.closed, history.why = BROKEN, repr(error)
    finally:
        connection.close()


def take_grpc(response, history):
    at = time.time()
    if response.HasField("prompt_info"):
        history.add(HEAD, at=at, prompt_tokens=response.prompt_info.prompt_tokens,
                    cached_tokens=response.prompt_info.cached_tokens)
    output = response.output
    for index, token_id in enumerate(output.token_ids):
        history.add(TOKEN, at=at, id=token_id, text=output.text if index == 0 else "")
    if not output.token_ids and response.HasField("output"):
        history.add(TEXT, at=at, text=output.text)
    if response.HasField("finish_info"):
        info = response.finish_info
        history.add(FINISH, at=at, reason=GRPC_REASONS.get(info.reason, str(info.reason)),
                    output_tokens=info.output_tokens, prompt_tokens=info.prompt_tokens)


def read_grpc(server, ask, history, leave, timeout_s=TIMEOUT_S):
    grpc, pb, pb_grpc = grpc_modules()
    # A connection of its own, as each HTTP stream has.
    with grpc.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = pb_grpc.TextGenerationStub(channel).Generate(
            grpc_request(pb, ask), timeout=timeout_s, metadata=tuple(server.headers.items()))
        try:
            while not leave(history):
                response = next(call, None)
                if response is None:
                    history.closed = CLEAN
                    return
                take_grpc(response, history)
            call.cancel()
            history.closed = LEFT
        except grpc.RpcError as error:
            history.why = f"{error.code().name}: {error.details()}"
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                history.closed = SILENT
                return
            # The library's own word for a connection that broke has none of the server's details.
            broken = error.code() == grpc.StatusCode.UNAVAILABLE and not any(
                key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
            history.closed = BROKEN if broken else CLEAN
            if not broken:
                history.add(ERROR, at=time.time(), reason=history.why)


def new_history(door):
    return History(door, wants_done=door not in (TGI, GRPC), wants_head=door == GRPC)


def read_stream(server, door, ask, history, leave=never):
    try:
        if door == GRPC:
            read_grpc(server, ask, history, leave)
        else:
            read_http(server, door, ask, history, leave)
    except Exception as error:  # noqa: BLE001 - a reader that fails is a finding of its test
        history.add(STRANGE, reason=f"the reader failed: {error!r}")
        history.closed = history.closed or BROKEN
