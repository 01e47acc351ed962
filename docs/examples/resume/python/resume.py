"""Streams an answer over gRPC and goes on elsewhere when its server dies.

    python resume.py PROMPT ADDRESS [ADDRESS...]
"""

import itertools
import sys
import time

import grpc

from weft.v1 import generation_pb2, generation_pb2_grpc

PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED,
           # What connections and balancers that break off are reported as.
           grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
PATIENCE_S = 60


def stream(request, addresses):
    """Yields texts until the answer is complete. Changes `request` to resume what came."""
    given_up = time.monotonic() + PATIENCE_S
    for address in itertools.cycle(addresses):
        with grpc.insecure_channel(address) as channel:
            try:
                for event in generation_pb2_grpc.TextGenerationStub(channel).Generate(request):
                    if event.HasField("prompt_info"):
                        request.resume.seed = event.prompt_info.seed
                        request.resume.fingerprint = event.prompt_info.fingerprint
                    request.resume.output_ids.extend(event.output.token_ids)
                    given_up = time.monotonic() + PATIENCE_S
                    yield event.output.text
                    if event.HasField("finish_info"):
                        return
            except grpc.RpcError as error:
                if error.code() not in PASSING or time.monotonic() > given_up:
                    raise
                print(f"[{address}: {error.code().name}]", file=sys.stderr)
        time.sleep(0.2)


def main():
    request = generation_pb2.GenerateRequest(text=sys.argv[1])
    request.sampling.temperature = 0.8
    request.sampling.seed = 7
    request.stopping.max_tokens = 64
    request.stopping.ignore_eos = True
    for text in stream(request, sys.argv[2:]):
        print(text, end="", flush=True)
    print()


main()
