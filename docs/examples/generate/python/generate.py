"""Streams an answer over gRPC: deadline, retries that the server asks for, Ctrl-C.

    python generate.py PROMPT [ADDRESS]
"""

import sys
import time

import grpc
from google.rpc import error_details_pb2

from weft.v1 import generation_pb2, generation_pb2_grpc

DEADLINE_S = 60
TRIES = 5


def retry_delay_s(error):
    """What the error's RetryInfo says; None where a retry makes no sense."""
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in error_details_pb2.Status.FromString(value).details:
            info = error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                return info.retry_delay.seconds + info.retry_delay.nanos * 1e-9
    return None


def generate(stub, request):
    for tries in range(1, TRIES + 1):
        call = stub.Generate(request, timeout=DEADLINE_S)
        begun = False
        try:
            for event in call:
                begun = True
                print(event.output.text, end="", flush=True)
            return
        except KeyboardInterrupt:
            call.cancel()
            raise
        except grpc.RpcError as error:
            name = dict(call.initial_metadata() or ()).get("x-request-id", "-")
            print(f"[{error.code().name}: {error.details()} (request {name})]", file=sys.stderr)
            delay_s = retry_delay_s(error)
            if begun or delay_s is None or tries == TRIES:
                raise SystemExit(1) from error
            time.sleep(delay_s)


def main():
    request = generation_pb2.GenerateRequest(text=sys.argv[1])
    request.sampling.temperature = 0
    request.stopping.max_tokens = 32
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:8081"
    with grpc.insecure_channel(address) as channel:
        generate(generation_pb2_grpc.TextGenerationStub(channel), request)
    print()


main()
