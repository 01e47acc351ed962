"""Clients for test_observe.py: what they send, again and again, until they are told to stop."""

import hashlib
import http.client
import itertools
import json
import threading

from weft_server import grpc_modules

TENANTS = ("search", "chat", "batch")
# More than one KV block of the beginning of every prompt, so that prefixes are found.
SYSTEM = ("You are a careful assistant. You answer in whole sentences, you say what you do not know, "
          "and you keep to the question that was asked. The question is this one: ")
# Between two tries of a client that was refused.
RETRY_S = 0.05


def key_of(tenant):
    return f"weft-{hashlib.sha256(tenant.encode()).hexdigest()}"


def key_file():
    return {"tenants": [
        {"name": name, "keys": [f"sha256:{hashlib.sha256(key_of(name).encode()).hexdigest()}"]}
        for name in TENANTS]}


def headers(number):
    """The request's tenant: one of them sends as much as the two others."""
    return {"x-api-key": key_of((*TENANTS, TENANTS[0])[number % 4])}


class Load:
    """`clients` threads, each of which runs `send` (server, number) as long as it takes."""

    def __init__(self, server, send, clients):
        self.server, self.send = server, send
        self.stopped = threading.Event()
        self.counts = itertools.count()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def run(self):
        while not self.stopped.is_set():
            try:
                good = self.send(self.server, next(self.counts))
            except (OSError, http.client.HTTPException):
                good = False
            if not good:
                self.stopped.wait(RETRY_S)


def completions(server, number, tokens=40):
    status, _, _ = server.request("POST", "/v1/completions", {
        "prompt": f"{SYSTEM}what is {number} and {number % 7}?", "max_tokens": tokens,
        "ignore_eos": True}, headers=headers(number))
    return status == 200


def overload(server, number):
    return completions(server, number, tokens=200)


def grpc_generate(server, number, tokens=24, timeout=60):
    grpc, pb, pb_grpc = grpc_modules()
    request = pb.GenerateRequest(text=f"{SYSTEM}count from {number}")
    request.stopping.max_tokens = tokens
    with grpc.insecure_channel(server.grpc) as channel:
        try:
            return bool(list(pb_grpc.TextGenerationStub(channel).Generate(
                request, timeout=timeout, metadata=list(headers(number).items()))))
        except grpc.RpcError:
            return False


def too_late(server, number):
    """A client whose deadline passes in the middle of its answer."""
    return grpc_generate(server, number, tokens=400, timeout=0.15)


def leaves(server, number):
    """A client that goes away after two tokens."""
    connection = server.connection()
    try:
        connection.request("POST", "/generate_stream", json.dumps({
            "inputs": f"{SYSTEM}tell me of the number {number}", "unheard_of": 1,
            "parameters": {"max_new_tokens": 200}}),
            {"Content-Type": "application/json", **headers(number)})
        answer = connection.getresponse()
        for _ in range(4):
            answer.readline()
        return answer.status == 200
    finally:
        connection.close()


def bad(server, number):
    server.request("POST", "/generate", {"inputs": "x", "parameters": {"max_new_tokens": -1}},
                   headers=headers(number))
    return False


def mixture(server, number):
    """Light load through all doors."""
    return (completions, grpc_generate, leaves, bad, completions)[number % 5](server, number)
