"""grpc.health.v1 as a probe asks it, in its bytes: stubs of that package would be in the way of
grpcio's own name.
"""

import grpc

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
SERVICE = "weft.shard.v1.ShardService"
STATUS = {b"": "UNKNOWN", b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}


def request(service):
    name = service.encode()
    return b"\x0a" + bytes([len(name)]) + name if name else b""


def check(channel, service="", timeout_s=10):
    """What the server says of a service; a grpc.RpcError where it does not."""
    return STATUS[channel.unary_unary(CHECK)(request(service), timeout=timeout_s)]


def code_of(call):
    """The name of the gRPC code that a call ends with."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def watch(channel, timeout_s=10):
    return next(channel.unary_stream(WATCH)(b"", timeout=timeout_s))


def mutual_tls(address, folder, name):
    """A channel with the certificate of `name`, as hosts.make_certificates has made it."""
    def read(file):
        with open(f"{folder}/{file}", "rb") as opened:
            return opened.read()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(
        read("ca.crt"), read(f"{name}.key"), read(f"{name}.crt")))
