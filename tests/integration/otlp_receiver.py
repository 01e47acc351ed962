"""A collector for tests: takes OTLP over HTTP, decodes it with OpenTelemetry's own messages."""

import collections
import http.server
import threading

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

Span = collections.namedtuple(
    "Span", "name trace_id span_id parent_id kind begin_ns end_ns attributes events error")


def value_of(any_value):
    kind = any_value.WhichOneof("value")
    value = getattr(any_value, kind)
    return [value_of(item) for item in value.values] if kind == "array_value" else value


def attributes_of(items):
    return {item.key: value_of(item.value) for item in items}


class OtlpReceiver:
    """Use as a context manager. `code` is what it answers; change it at any time."""

    def __init__(self, port=0):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802 - the library's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = receiver.take(self.path, self.headers, body)
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.code = 200
        self.lock = threading.Lock()
        self.received = []
        self.refused = 0
        self.resource = {}
        self.headers = {}
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={
            "poll_interval": 0.02})

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def take(self, path, headers, body):
        if path != "/v1/traces" or headers["Content-Type"] != "application/x-protobuf":
            return 404
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        with self.lock:
            if self.code != 200:
                self.refused += 1
                return self.code
            self.headers = dict(headers)
            for resource in message.resource_spans:
                self.resource = attributes_of(resource.resource.attributes)
                for scope in resource.scope_spans:
                    assert scope.scope.name == "weft"
                    self.received += map(self.read, scope.spans)
        return 200

    @staticmethod
    def read(span):
        assert len(span.trace_id) == 16 and len(span.span_id) == 8
        assert len(span.parent_span_id) in (0, 8)
        return Span(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                    span.kind, span.start_time_unix_nano, span.end_time_unix_nano,
                    attributes_of(span.attributes),
                    {event.name: event.time_unix_nano for event in span.events},
                    span.status.code == span.status.STATUS_CODE_ERROR)

    def requests(self):
        """{request id: (its span, {phase: span})}."""
        with self.lock:
            spans = list(self.received)
        whole = {span.span_id: span for span in spans if "gen_ai.response.id" in span.attributes}
        found = {span.attributes["gen_ai.response.id"]: (span, {}) for span in whole.values()}
        for span in spans:
            parent = whole.get(span.parent_id)
            if parent is not None:
                assert span.trace_id == parent.trace_id
                found[parent.attributes["gen_ai.response.id"]][1][span.name] = span
        assert len(spans) == len(whole) + sum(len(phases) for _, phases in found.values())
        assert len({span.span_id for span in spans}) == len(spans), "a span id came twice"
        return found
