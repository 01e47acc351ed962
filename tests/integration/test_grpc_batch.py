"""GenerateBatch: each of several requests has its own answer or error, one call bounds and cancels
all of them."""

import random
import unittest

from grpc_case import GrpcCase
from weft_server import WeftServer, seed

SEED = seed(62)
PROMPTS = ("The capital of France is", "Once upon a time", "2 + 2 =")


class GrpcBatchTest(GrpcCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from google.rpc import error_details_pb2
        cls.rpc = error_details_pb2

    def request(self, text, tokens=8, **fields):
        request = self.pb.GenerateRequest(text=text, **fields)
        request.sampling.temperature = 0
        request.stopping.max_tokens = tokens
        request.stopping.ignore_eos = True
        return request

    def batch(self, requests, timeout=60, **fields):
        return self.stub.GenerateBatch(
            self.pb.GenerateBatchRequest(requests=requests, **fields), timeout=timeout)

    def collect(self, call, count):
        """Events of each request, with errors and events behind the end found."""
        found = [[] for _ in range(count)]
        for event in call:
            mine = found[event.request_index]
            if mine:
                self.assertFalse(mine[-1].HasField("error"))
            mine.append(event)
        return found

    def text(self, events):
        return "".join(event.response.output.text for event in events)

    def violation(self, error):
        status = self.rpc.Status.FromString(error.status_details)
        bad = self.rpc.BadRequest()
        self.assertTrue(status.details[0].Unpack(bad))
        return bad.field_violations[0].field

    def refused(self, call, code):
        with self.assertRaises(self.grpc.RpcError) as caught:
            list(call)
        self.assertEqual(caught.exception.code(), code, caught.exception)
        return caught.exception.details()

    def test_each_answer_is_that_of_a_call_of_its_own(self):
        alone = ["".join(e.output.text for e in self.stub.Generate(self.request(p), timeout=60))
                 for p in PROMPTS]
        call = self.batch([self.request(p) for p in PROMPTS], request_id="mine")
        found = self.collect(call, len(PROMPTS))
        self.assertEqual([self.text(events) for events in found], alone)
        self.assertEqual(dict(call.initial_metadata())["x-request-id"], "mine")
        for events in found:
            self.assertEqual(events[0].response.prompt_info.request_id, "mine")
            self.assertEqual(events[-1].response.finish_info.output_tokens, 8)
            self.assertEqual(sum(e.response.HasField("finish_info") for e in events), 1)
        # They ran together: events come mixed.
        order = [event.request_index
                 for event in self.batch([self.request(p, 32) for p in PROMPTS])]
        self.assertNotEqual(order, sorted(order))

    def test_choices_and_own_parameters(self):
        first = self.request(PROMPTS[0], 3, request_id="first")
        first.sampling.n = 2
        first.response.omit_token_ids = True
        found = self.collect(self.batch([first, self.request(PROMPTS[1], 5)]), 2)
        self.assertEqual({e.response.output.index for e in found[0]}, {0, 1})
        self.assertEqual(sum(e.response.HasField("finish_info") for e in found[0]), 2)
        self.assertFalse(any(e.response.output.token_ids for e in found[0]))
        self.assertTrue(all(e.response.output.token_ids for e in found[1][:5]))
        self.assertEqual(found[0][0].response.prompt_info.request_id, "first")
        self.assertNotEqual(found[1][0].response.prompt_info.request_id, "first")

    def test_an_error_is_its_own_requests(self):
        bad = self.request("Hi")
        bad.sampling.top_k = 2**32 - 1
        requests = [self.request(PROMPTS[0]), bad, self.request("Hi", model="quux"),
                    self.pb.GenerateRequest(token_ids=self.pb.TokenIds(ids=[2**20 - 1])),
                    self.pb.GenerateRequest(), self.request(PROMPTS[1])]
        found = self.collect(self.batch(requests), len(requests))
        for index in (0, 5):
            self.assertTrue(found[index][-1].response.HasField("finish_info"))
        codes = {1: ("INVALID_ARGUMENT", "sampling.top_k"), 2: ("NOT_FOUND", None),
                 3: ("INVALID_ARGUMENT", "token_ids"), 4: ("INVALID_ARGUMENT", "prompt")}
        for index, (code, field) in codes.items():
            self.assertEqual(len(found[index]), 1)
            error = found[index][0].error
            self.assertEqual(error.code, getattr(self.grpc.StatusCode, code).value[0], error)
            self.assertTrue(error.message)
            if field:
                self.assertEqual(self.violation(error), field)
                self.assertIn(f"`{field}`", error.message)
        # None that runs, and still the call is fine.
        found = self.collect(self.batch([bad, bad]), 2)
        self.assertEqual([len(events) for events in found], [1, 1])

    def test_bounds(self):
        argument = self.grpc.StatusCode.INVALID_ARGUMENT
        one = self.pb.GenerateRequest(text="Hi")
        one.stopping.max_tokens = 1
        self.assertIn("`requests`", self.refused(self.batch([]), argument))
        self.assertIn("256", self.refused(self.batch([one] * 257), argument))
        many = self.pb.GenerateRequest(text="Hi")
        many.sampling.n = 128
        self.assertIn("512", self.refused(self.batch([many] * 5), argument))
        many.sampling.n = 2**32 - 1
        self.assertIn("512", self.refused(self.batch([many] * 200), argument))
        self.assertIn("`request_id`", self.refused(self.batch([one], request_id="a b"), argument))
        call = self.channel.unary_stream("/weft.v1.TextGeneration/GenerateBatch")
        for data in (b"\xff" * 20, b"\x0a\x04\x1a\x02\xff\xfe", b"\x0a\x05a"):
            self.assertIn("`request`", self.refused(call(data, timeout=30), argument))
        found = self.collect(self.batch([one] * 256), 256)
        self.assertTrue(all(e[-1].response.HasField("finish_info") for e in found))

    def test_ignored_fields_are_named(self):
        data = self.request("Hi").SerializeToString() + b"\xf8\x3f\x01"  # field 1023
        batch = b"\x0a" + bytes([len(data)]) + data
        call = self.channel.unary_stream("/weft.v1.TextGeneration/GenerateBatch")(batch, timeout=30)
        self.assertTrue(list(call))
        self.assertEqual(dict(call.initial_metadata())["x-weft-ignored-fields"],
                         "requests[0].1023")

    def test_leaving_deadline_and_cancel_end_all(self):
        long = [self.request(prompt, 2000) for prompt in PROMPTS]
        call = self.batch(long)
        next(call)
        call.cancel()
        self.server.wait_idle()
        self.refused(self.batch(long, timeout=0.5), self.grpc.StatusCode.DEADLINE_EXCEEDED)
        self.server.wait_idle()
        call = self.batch(long, request_id="all-of-us")
        next(call)
        self.assertTrue(self.stub.Cancel(self.pb.CancelRequest(request_id="all-of-us")).found)
        ends = [event.error.code for event in call if event.HasField("error")]
        self.assertEqual(ends, [self.grpc.StatusCode.CANCELLED.value[0]] * 3)

    # -- Hostile and unlucky clients --------------------------------------------------------------
    def alone(self, request):
        return "".join(e.output.text for e in self.stub.Generate(request, timeout=60))

    def codes(self, found):
        """The code of each request's error; None for one that finished."""
        return [events[-1].error.code if events[-1].HasField("error") else None
                for events in found]

    def test_the_most_answers(self):
        requests = []
        for index in range(256):
            request = self.pb.GenerateRequest(text=PROMPTS[index % 3])
            request.sampling.n, request.sampling.seed = 2, index % 7
            request.stopping.max_tokens = 1 + index % 3
            requests.append(request)
        found = self.collect(self.batch(requests, timeout=300), 256)
        for request, events in zip(requests, found):
            ends = [e.response.finish_info for e in events if e.response.HasField("finish_info")]
            self.assertEqual(sorted(end.index for end in ends), [0, 1])
            self.assertEqual(sum(e.response.HasField("prompt_info") for e in events), 1)
            self.assertTrue(events[0].response.HasField("prompt_info"))
            for end in ends:
                self.assertLessEqual(end.output_tokens, request.stopping.max_tokens)
        # The same request has the same answers wherever in the batch it stands.
        told = {}
        for request, events in zip(requests, found):
            texts = ["".join(e.response.output.text for e in events
                             if e.response.output.index == choice) for choice in (0, 1)]
            self.assertEqual(told.setdefault(request.SerializeToString(), texts), texts)

    def test_half_of_them_bad(self):
        def spoil(request, index):
            """A request that is refused, and the code."""
            kinds = ((request.sampling, "top_p", 2), (request.stopping, "max_tokens", 0),
                     (request.response, "top_logprobs", 21), (request.decoding.grammar, "regex", "["),
                     (request, "model", "quux"), (request, "request_id", "a b"))
            target, name, value = kinds[index % len(kinds)]
            setattr(target, name, value)
            code = "NOT_FOUND" if name == "model" else "INVALID_ARGUMENT"
            return getattr(self.grpc.StatusCode, code).value[0]

        requests, codes = [], []
        for index in range(120):
            requests.append(self.request(PROMPTS[index % 3], 4))
            codes.append(spoil(requests[-1], index // 2) if index % 2 else None)
        found = self.collect(self.batch(requests), len(requests))
        self.assertEqual(self.codes(found), codes)
        told = [self.alone(self.request(prompt, 4)) for prompt in PROMPTS]
        for index in range(0, 120, 2):
            self.assertEqual(self.text(found[index]), told[index % 3])

    def test_a_cancel_ends_those_of_its_name_and_no_other(self):
        requests = [self.request(PROMPTS[index % 3], 24, request_id="twice" if index % 2 else "")
                    for index in range(6)]
        for request in requests[1::2]:
            request.stopping.max_tokens = 2000
        call = self.batch(requests, request_id="the-rest")
        first = next(call)
        self.assertTrue(self.stub.Cancel(self.pb.CancelRequest(request_id="twice")).found)
        found = self.collect([first, *call], len(requests))
        cancelled = self.grpc.StatusCode.CANCELLED.value[0]
        self.assertEqual(self.codes(found), [None, cancelled] * 3)
        for index in range(0, 6, 2):
            self.assertEqual(self.text(found[index]), self.alone(requests[index]))
        self.assertFalse(self.stub.Cancel(self.pb.CancelRequest(request_id="twice")).found)

    def test_clients_that_leave_at_any_moment(self):
        source = random.Random(SEED)
        requests = [self.request(PROMPTS[index % 3], 400) for index in range(24)]
        for leaves_after in [0] * 6 + [source.randrange(1, 60) for _ in range(6)]:
            call = self.batch(requests)
            for _ in range(leaves_after):
                next(call)
            call.cancel()
        # The connection goes, and all that was on it.
        with self.grpc.insecure_channel(
                self.server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            calls = [self.pb_grpc.TextGenerationStub(channel).GenerateBatch(
                self.pb.GenerateBatchRequest(requests=requests), timeout=60) for _ in range(3)]
            for call in calls:
                next(call)
        self.server.wait_idle()
        found = self.collect(self.batch([self.request(p) for p in PROMPTS]), len(PROMPTS))
        self.assertEqual([self.text(events) for events in found],
                         [self.alone(self.request(p)) for p in PROMPTS])

    def test_deadlines_that_pass_at_any_moment(self):
        requests = [self.request(PROMPTS[index % 3], 2000) for index in range(24)]
        for timeout_s in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            self.refused(self.batch(requests, timeout=timeout_s),
                         self.grpc.StatusCode.DEADLINE_EXCEEDED)
        self.server.wait_idle()
        # Their own deadlines are the call's alone: what was streamed before it stays good.
        call, seen = self.batch(requests, timeout=5.0), []
        with self.assertRaises(self.grpc.RpcError):
            for event in call:
                seen.append(event)
        self.assertEqual(self.codes([[event] for event in seen]), [None] * len(seen))
        self.assertEqual({event.request_index for event in seen}, set(range(24)))

    def test_a_full_queue_refuses_requests_one_by_one(self):
        with WeftServer("--queue-requests-max=4") as server:
            with self.grpc.insecure_channel(server.grpc) as channel:
                call = self.pb_grpc.TextGenerationStub(channel).GenerateBatch(
                    self.pb.GenerateBatchRequest(
                        requests=[self.request("Hi", 64) for _ in range(200)]), timeout=120)
                found = self.collect(call, 200)
        served = sum(e[-1].response.HasField("finish_info") for e in found)
        errors = [e[-1].error for e in found if e[-1].HasField("error")]
        self.assertEqual(served + len(errors), 200)
        self.assertGreater(served, 0)
        self.assertGreater(len(errors), 0)
        for error in errors:
            self.assertEqual(error.code, self.grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
            status = self.rpc.Status.FromString(error.status_details)
            retry = self.rpc.RetryInfo()
            self.assertTrue(any(detail.Unpack(retry) for detail in status.details))


if __name__ == "__main__":
    unittest.main()
