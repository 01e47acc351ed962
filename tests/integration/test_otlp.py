"""Traces of requests on their way to a collector: what is in them, whose they are, and what it
costs when the collector is not there."""

import os
import re
import signal
import socket
import time
import unittest

from otlp_receiver import OtlpReceiver
from weft_server import WeftServer, grpc_modules, run_tests, wait_until

PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER_SPAN, INTERNAL_SPAN = 2, 1
# A word that is in no span, although it was in the prompt.
SECRET = "xylophonist"


def traceparent(trace_id=PARENT[0], sampled=True):
    return {"traceparent": f"00-{trace_id}-{PARENT[1]}-{'01' if sampled else '00'}"}


def generate(server, tokens=6, headers=None, path="/generate"):
    if path == "/generate":
        body = {"inputs": f"Tell of a {SECRET}", "parameters": {
            "max_new_tokens": tokens, "temperature": 0.5, "seed": 7}}
    else:
        body = {"model": "tgi", "max_tokens": tokens,
                "messages": [{"role": "user", "content": f"Tell of a {SECRET}"}]}
    return server.post(path, body, headers=headers)


class Otlp(unittest.TestCase):
    def start(self, *flags, shards=1, environment=None):
        server = WeftServer(*flags, shards=shards, environment=environment).start()
        self.addCleanup(server.stop)
        return server

    def receiver(self, **arguments):
        receiver = OtlpReceiver(**arguments)
        receiver.__enter__()
        self.addCleanup(receiver.__exit__)
        return receiver

    def wait_for(self, receiver, count):
        wait_until(lambda: len(receiver.requests()) >= count, f"{count} traces", 30)
        found = receiver.requests()
        self.assertEqual(len(found), count)
        return found

    def test_a_request_is_a_span_with_its_phases_and_no_word_of_its_prompt(self):
        receiver = self.receiver()
        server = self.start(
            f"--otlp-endpoint={receiver.url}", "--trace-sample=1",
            environment={"OTEL_SERVICE_NAME": "my-weft",
                         "OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=pod%2D0",
                         "OTEL_EXPORTER_OTLP_HEADERS": "x-collector-key=abc"})
        before_ns = time.time_ns()
        generate(server)
        generate(server, path="/v1/chat/completions")
        found = self.wait_for(receiver, 2)
        self.assertEqual(receiver.resource["service.name"], "my-weft")
        self.assertEqual(receiver.resource["k8s.pod.name"], "pod-0")
        self.assertEqual({name.lower(): value for name, value in receiver.headers.items()}
                         ["x-collector-key"], "abc")
        for request_id, (span, phases) in found.items():
            self.assertEqual(span.kind, SERVER_SPAN)
            self.assertEqual(span.parent_id, "")
            self.assertFalse(span.error)
            names = span.attributes
            self.assertEqual(span.name, f"{names['gen_ai.operation.name']} "
                                        f"{names['gen_ai.request.model']}")
            self.assertGreater(names["gen_ai.usage.input_tokens"], 3)
            self.assertIn(names["gen_ai.response.finish_reasons"], (["length"], ["stop"]))
            self.assertEqual(list(phases), ["text in", "queue", "prefill", "decode"])
            # One after another, from the request's beginning on, within the request.
            at_ns = span.begin_ns
            for phase in phases.values():
                self.assertEqual(phase.kind, INTERNAL_SPAN)
                self.assertEqual(phase.begin_ns, at_ns)
                at_ns = phase.end_ns
            self.assertLessEqual(at_ns, span.end_ns)
            self.assertGreater(span.begin_ns, before_ns - 10**9)
            self.assertLess(span.end_ns, time.time_ns() + 10**9)
            # The log's line has both names.
            line = next(line for line in server.log_text().splitlines() if f"id={request_id} " in line)
            self.assertIn(f"trace_id={span.trace_id}", line)
        by_operation = {span.attributes["gen_ai.operation.name"]: span for span, _ in found.values()}
        self.assertEqual(set(by_operation), {"text_completion", "chat"})
        text = by_operation["text_completion"].attributes
        self.assertEqual(text["gen_ai.usage.output_tokens"], 6)
        self.assertEqual(text["gen_ai.request.max_tokens"], 6)
        self.assertAlmostEqual(text["gen_ai.request.temperature"], 0.5)
        self.assertEqual(text["weft.request.seed"], "7")
        self.assertNotIn(SECRET, str(receiver.received))
        self.assertEqual(server.metric("weft_traces_exported_total"), 2)

    def test_the_callers_decision_comes_first_by_http_and_grpc(self):
        receiver = self.receiver()
        server = self.start(f"--otlp-endpoint={receiver.url}", "--trace-sample=0")
        generate(server)  # nobody asked
        generate(server, headers=traceparent(sampled=False))
        generate(server, headers=traceparent())
        grpc, messages, services = grpc_modules()
        channel = grpc.insecure_channel(server.grpc)
        self.addCleanup(channel.close)
        stub = services.TextGenerationStub(channel)
        request = messages.GenerateRequest(text="Hi")
        request.stopping.max_tokens = 2
        other = "1" * 32
        for sampled in (False, True):
            list(stub.Generate(request, metadata=tuple(traceparent(other, sampled).items())))
        found = self.wait_for(receiver, 2)
        self.assertEqual({span.trace_id for span, _ in found.values()}, {PARENT[0], other})
        self.assertEqual({span.parent_id for span, _ in found.values()}, {PARENT[1]})

    def test_a_share_of_the_requests_is_traced(self):
        receiver = self.receiver()
        server = self.start("--trace-sample=0.25",
                            environment={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
        for _ in range(80):
            generate(server, tokens=1)
        wait_until(lambda: server.metric("weft_traces_exported_total") == len(receiver.requests())
                   and len(receiver.requests()) >= 5, "traces")
        self.assertLess(len(receiver.requests()), 45)  # 20 +- 4: six times that

    def test_a_recovery_is_a_span_and_an_event(self):
        receiver = self.receiver()
        server = self.start(f"--otlp-endpoint={receiver.url}", "--trace-sample=1", shards=2)
        events = server.events("/generate_stream", {"inputs": "Once", "parameters": {
            "max_new_tokens": 60, "ignore_eos_token": True}})
        for _ in range(5):
            next(events)
        os.kill(server.shard_pid(1), signal.SIGKILL)
        self.assertTrue(list(events))
        [(span, phases)] = self.wait_for(receiver, 1).values()
        self.assertFalse(span.error)
        recovery = phases["recovery"]
        self.assertEqual(span.events["recovered"], recovery.end_ns)
        decode = phases["decode"]
        self.assertLess(decode.begin_ns, recovery.begin_ns)
        self.assertLess(recovery.begin_ns, recovery.end_ns)
        self.assertLess(recovery.end_ns, decode.end_ns)

    def test_a_request_that_fails_says_how_and_nothing_more(self):
        receiver = self.receiver()
        server = self.start(f"--otlp-endpoint={receiver.url}", "--trace-sample=1")
        connection = server.connection()
        connection.request("POST", "/generate_stream",
                           '{"inputs": "x", "parameters": {"max_new_tokens": 2000, '
                           '"ignore_eos_token": true}}', {"Content-Type": "application/json"})
        connection.getresponse().readline()
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        [(span, _)] = self.wait_for(receiver, 1).values()
        self.assertTrue(span.error)
        self.assertEqual(span.attributes["error.type"], "CANCELLED")
        self.assertGreater(span.attributes["gen_ai.usage.output_tokens"], 0)

    def test_a_collector_that_is_away_costs_nothing_and_gets_what_waited(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = self.start(f"--otlp-endpoint=http://127.0.0.1:{port}", "--trace-sample=1")
        for _ in range(3):
            generate(server)
        wait_until(lambda: "traces wait for the collector" in server.log_text(), "the warning")
        receiver = self.receiver(port=port)
        receiver.code = 503
        wait_until(lambda: receiver.refused, "a try that is refused")
        receiver.code = 200
        self.wait_for(receiver, 3)
        receiver.code = 400  # for good
        generate(server)
        wait_until(lambda: server.metric("weft_traces_dropped_total", reason="refused") == 1,
                   "the drop")
        self.assertEqual(server.metric("weft_traces_exported_total"), 3)

    def test_it_ends_in_time_whatever_the_collector_does(self):
        with socket.socket() as silent:  # takes connections and never answers
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            server = self.start(f"--otlp-endpoint=http://127.0.0.1:{silent.getsockname()[1]}",
                                "--trace-sample=1")
            generate(server)
            silent.settimeout(10)
            connection, _ = silent.accept()
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 6)
            connection.close()

    def test_the_last_traces_are_sent_at_the_end(self):
        receiver = self.receiver()
        server = self.start(f"--otlp-endpoint={receiver.url}", "--trace-sample=1")
        generate(server)
        self.assertEqual(server.stop(), 0)
        self.assertEqual(len(receiver.requests()), 1)

    def test_what_cannot_be_an_endpoint_is_refused_by_name(self):
        for url, why in (("https://x:4318", "https is not spoken here"), ("x:4318", "http://"),
                         ("http://u:p@x", "OTEL_EXPORTER_OTLP_HEADERS"), ("http://x:0", "65535")):
            server = WeftServer(f"--otlp-endpoint={url}")
            with self.assertRaises(AssertionError) as caught:
                server.start()
            self.assertIsNotNone(re.search(why, str(caught.exception)), str(caught.exception))
            self.assertIn("--otlp-endpoint", str(caught.exception))


if __name__ == "__main__":
    run_tests()
