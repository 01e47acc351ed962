"""A gRPC server for tests of `weft chat`: it answers what the test says, in the pieces that it says, and
breaks where it says. A token of its answers is one piece; the model's context is `context_tokens`, and a
prompt has a token for each word.
"""

import concurrent.futures
import threading

from weft_server import grpc_modules

TIMEOUT_S = 60


class FakeChatServer:
    """Use as a context manager. `answer` is the list of pieces; `hold` stops before that piece until
    `go` is set; `break_at` ends the stream before that piece, once, with `code`."""

    def __init__(self, answer=("Yes.",), context_tokens=1000, port=0, fingerprint="f"):
        self.grpc_library, self.pb, pb_grpc = grpc_modules()
        self.answer, self.context_tokens, self.fingerprint = list(answer), context_tokens, fingerprint
        self.hold, self.break_at, self.code = None, None, None
        self.go, self.holding = threading.Event(), threading.Event()
        self.requests, self.cancelled = [], 0

        outer = self

        class Servicer(pb_grpc.TextGenerationServicer):
            def Generate(self, request, context):
                return outer.generate(request, context)

            def Tokenize(self, request, context):
                return outer.pb.TokenizeResponse(ids=range(outer.words(request.chat)))

            def GetModel(self, request, context):
                return outer.pb.GetModelResponse(model="fake\x1b[31m", context_tokens=outer.context_tokens,
                                                 request_tokens_max=outer.context_tokens)

        self.server = self.grpc_library.server(
            concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_TextGenerationServicer_to_server(Servicer(), self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.grpc = f"127.0.0.1:{self.port}"

    def words(self, chat):
        return sum(len(message.content.split()) for message in chat.messages)

    def generate(self, request, context):
        self.requests.append(request)
        prompt_tokens = self.words(request.chat)
        if prompt_tokens + request.stopping.max_tokens > self.context_tokens:
            context.abort(self.grpc_library.StatusCode.INVALID_ARGUMENT, "stopping.max_tokens: too many")
        had = len(request.resume.output_ids)
        for i in range(had, len(self.answer)):
            if i == self.hold:
                self.holding.set()
                while not self.go.wait(0.02):
                    if not context.is_active():
                        self.cancelled += 1
                        return
            if i == self.break_at:
                self.break_at = None
                context.abort(self.code or self.grpc_library.StatusCode.UNAVAILABLE, "broken\x1b[2J")
            response = self.pb.GenerateResponse()
            if i == had:
                response.prompt_info.prompt_tokens = prompt_tokens
                response.prompt_info.cached_tokens = 3
                response.prompt_info.seed = 5
                response.prompt_info.fingerprint = self.fingerprint
            response.output.text = self.answer[i]
            response.output.token_ids.append(i)
            if i + 1 == len(self.answer):
                response.finish_info.reason = 2
                response.finish_info.output_tokens = len(self.answer)
            yield response

    def questions(self):
        """The last message of each request."""
        return [request.chat.messages[-1].content for request in self.requests]

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.go.set()
        self.server.stop(0).wait(TIMEOUT_S)
