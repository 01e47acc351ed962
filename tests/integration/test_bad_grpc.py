"""Bad input through gRPC: INVALID_ARGUMENT with the field's path in a BadRequest detail, before the
first message of a stream."""

import unittest

from bad_cases import GRPC_TOOLS, TOOL
from weft_server import WeftServer, grpc_modules

SERVICE = "/weft.v1.TextGeneration/"
VOCABULARY = 49152
NAN, INF = float("nan"), float("inf")
MEGABYTE = 1 << 20
MESSAGE_MAX = 4 * MEGABYTE

# (path, good values, bad values, words of the refusal). 0 is the default of plain proto3 fields.
FIELDS = (
    ("sampling.temperature", (0, 100), (-0.01, 100.1, NAN, INF, -INF), ("0", "100")),
    ("sampling.top_k", (0, 1, 1048576), (1048577, 2**32 - 1), ("0", "1048576")),
    ("sampling.top_p", (1e-30, 1), (0, -0.01, 1.001, NAN, INF), ("0", "1")),
    ("sampling.min_p", (0, 1), (-0.01, 1.001, NAN, INF), ("0", "1")),
    ("sampling.typical_p", (1e-30, 1), (0, -0.01, 1.001, NAN), ("0", "1")),
    ("sampling.seed", (0, 2**64 - 1), (), ()),
    ("sampling.n", (1, 2), (0, 129, 2**32 - 1), ("1", "128")),
    ("decoding.repetition_penalty", (0.01, 10), (0, 0.001, -1, 10.1, NAN, INF), ("0.01", "10")),
    ("decoding.presence_penalty", (-2, 2), (-2.01, 2.01, NAN, -INF), ("-2", "2")),
    ("decoding.frequency_penalty", (-2, 2), (-2.01, 2.01, NAN, INF), ("-2", "2")),
    ("stopping.max_tokens", (1,), (0, 1048577, 2**32 - 1), ("1",)),
    ("stopping.include_stop_sequence", (True,), (), ()),
    ("stopping.ignore_eos", (True,), (), ()),
    ("response.echo_prompt", (True,), (), ()),
    ("response.prompt_logprobs", (0, 20), (21, 2**32 - 1), ("0", "20")),
    ("response.omit_token_ids", (True,), (), ()),
    ("truncate_prompt_tokens", (1, 1048576), (0, 1048577, 2**32 - 1), ("1", "1048576")),
    ("priority", (-100, 100), (-101, 101, -2**31, 2**31 - 1), ("-100", "100")),
    ("add_special_tokens", (True, False), (), ()),
    ("request_id", ("a", "A.b_c-9", "x" * 128), (" ", "a b", "ä", "x" * 129, "a/b"), ("128",)),
    ("model", ("", "tgi"), (), ()),
)


class BadGrpcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer().start()
        cls.grpc, cls.pb, cls.pb_grpc = grpc_modules()
        from weft.v1 import types_pb2
        from google.rpc import error_details_pb2
        cls.types, cls.rpc = types_pb2, error_details_pb2
        cls.channel = cls.grpc.insecure_channel(
            cls.server.grpc, options=[("grpc.max_send_message_length", -1)])
        cls.stub = cls.pb_grpc.TextGenerationStub(cls.channel)
        cls.context = cls.stub.GetModel(cls.pb.GetModelRequest()).request_tokens_max

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def setUp(self):
        self.prompt_tokens = self.server.metric("weft_prompt_tokens_total")
        self.steps = self.server.metric("weft_steps_total")

    def tearDown(self):
        self.server.wait_idle()
        self.assertEqual(len(self.generate(self.request(), raw=False)), 1)
        self.server.wait_idle()

    def assert_no_prompts(self):
        """No request since the test's beginning reached a shard."""
        self.assertEqual(self.server.metric("weft_prompt_tokens_total"), self.prompt_tokens)
        self.assertEqual(self.server.metric("weft_steps_total"), self.steps)

    def request(self, **fields):
        """"Hi" with one new token, and `fields` by path (dots as __)."""
        request = self.pb.GenerateRequest(text="Hi")
        request.stopping.max_tokens = 1
        return self.set(request, fields)

    def set(self, request, fields):
        for path, value in fields.items():
            target = request
            *folders, name = path.split("__")
            for folder in folders:
                target = getattr(target, folder)
            if isinstance(value, list):
                getattr(target, name).extend(value)
            else:
                setattr(target, name, value)
        return request

    def generate(self, request, raw=True):
        if raw and isinstance(request, bytes):
            call = self.channel.unary_stream(SERVICE + "Generate")
            return list(call(request, timeout=30))
        return list(self.stub.Generate(request, timeout=30))

    def unary(self, method, data):
        return self.channel.unary_unary(SERVICE + method)(data, timeout=30)

    def refusal(self, call):
        """(code, message, field of the BadRequest) of a call that must fail."""
        with self.assertRaises(self.grpc.RpcError) as caught:
            answer = call()
            self.fail(f"was served: {answer}"[:500])
        error = caught.exception
        field = None
        for key, value in error.trailing_metadata() or ():
            if key != "grpc-status-details-bin":
                continue
            status = self.rpc.Status.FromString(value)
            self.assertEqual(status.code, error.code().value[0])
            self.assertEqual(status.message, error.details())
            for detail in status.details:
                bad = self.rpc.BadRequest()
                if detail.Unpack(bad):
                    self.assertEqual(len(bad.field_violations), 1)
                    field = bad.field_violations[0].field
                    self.assertTrue(bad.field_violations[0].description)
        return error.code(), error.details(), field

    def assert_refused(self, call, field, says=()):
        code, message, found = self.refusal(call)
        what = (field, code, message)
        self.assertEqual(code, self.grpc.StatusCode.INVALID_ARGUMENT, what)
        self.assertEqual(found, field, what)
        self.assertIn(f"`{field}`", message, what)
        for word in says:
            self.assertIn(word, message, what)
        return message

    def refuse(self, request, field, says=()):
        return self.assert_refused(lambda: self.generate(request), field, says)

    def test_fields_out_of_range(self):
        for path, _, bad, says in FIELDS:
            for value in bad:
                with self.subTest(path=path, value=str(value)[:40]):
                    self.refuse(self.request(**{path.replace(".", "__"): value}), path, says)
        self.assert_no_prompts()
        for path, good, _, _ in FIELDS:
            for value in good:
                with self.subTest(path=path, value=str(value)[:40]):
                    request = self.request(**{path.replace(".", "__"): value})
                    self.assertTrue(self.generate(request)[-1].HasField("finish_info"))

    def test_lists(self):
        def stops(*strings):
            request = self.request()
            request.stopping.stop_sequences.extend(strings)
            return request

        def biases(*pairs):
            request = self.request()
            for id, bias in pairs:
                request.decoding.logit_bias.add(id=id, bias=bias)
            return request

        for strings in ([""], ["a", ""], ["q" * 1025], ["a"] * 17):
            self.refuse(stops(*strings), "stopping.stop_sequences",
                        ("16",) if len(strings) > 16 else ("1", "1024"))
        for pairs in ([(VOCABULARY, 0)], [(1048576, 0)], [(2**32 - 1, 0)], [(1, 100.1)],
                      [(1, -100.1)], [(1, NAN)], [(1, INF)], [(1, 0), (2, 0), (1, 1)],
                      [(i, 0) for i in range(1025)]):
            self.refuse(biases(*pairs), "decoding.logit_bias")
        self.assert_no_prompts()
        for request in (stops(), stops(*["q" * 1024] * 16),
                        biases((0, 100), (VOCABULARY - 1, -100)),
                        biases(*((i, 0) for i in range(1024)))):
            self.generate(request)

    def test_contradictions(self):
        self.refuse(self.request(response__top_logprobs=1), "response.top_logprobs", ("logprobs",))
        self.refuse(self.request(response__top_logprobs=21, response__logprobs=True),
                    "response.top_logprobs", ("0", "20"))
        self.assert_no_prompts()
        self.generate(self.request(response__top_logprobs=20, response__logprobs=True))

    def test_prompts(self):
        request = self.pb.GenerateRequest()
        self.refuse(request, "prompt", ("text", "token_ids", "chat"))
        self.refuse(self.request(text=""), "text")
        for ids in ([], [VOCABULARY], [1, 1048576], [2**32 - 1], [5] * self.context):
            request = self.pb.GenerateRequest()
            request.token_ids.SetInParent()
            request.token_ids.ids.extend(ids)
            self.refuse(request, "token_ids")
        for messages, field in (([], "chat.messages"), ([("user", "a")] * 1025, "chat.messages"),
                                ([("user", "a"), ("", "a")], "chat.messages[1].role"),
                                ([("x" * 65, "a")], "chat.messages[0].role")):
            request = self.pb.GenerateRequest()
            request.chat.SetInParent()
            for role, content in messages:
                request.chat.messages.add(role=role, content=content)
            self.refuse(request, field)
        says = (str(self.context),)
        # Refused by their bytes, and while they are encoded.
        for extra in ({}, {"truncate_prompt_tokens": 5}):
            self.assertIn("at least", self.refuse(
                self.request(text="7" * (3 * MEGABYTE), **extra), "text", says))
        self.refuse(self.request(text="a b " * self.context), "text", says)
        chat = self.pb.GenerateRequest()
        chat.chat.messages.add(role="user", content="7" * (3 * MEGABYTE))
        self.assertIn("at least", self.refuse(chat, "chat", says))
        self.refuse(self.request(stopping__max_tokens=self.context), "stopping.max_tokens", says)
        self.assert_no_prompts()
        answers = self.generate(self.request(text="a b " * self.context, truncate_prompt_tokens=7))
        self.assertEqual(answers[0].prompt_info.prompt_tokens, 7)

    def test_tools_and_parts(self):
        for path, fields in GRPC_TOOLS:
            with self.subTest(path=path, fields=str(fields)[:60]):
                request = self.pb.GenerateRequest()
                request.stopping.max_tokens = 1
                request.chat.messages.add(role="user", content="Hi")
                request.chat.tools.append(TOOL)
                self.set(request, fields)
                self.refuse(request, path)
        without = self.pb.GenerateRequest()
        without.chat.messages.add(role="user", content="Hi")
        without.chat.tool_choice.mode = self.pb.TOOL_CHOICE_MODE_REQUIRED
        self.refuse(without, "chat.tool_choice", ("no tools",))
        self.refuse(self.request(response__parts=True), "response.parts", ("chat",))
        self.assert_no_prompts()

    def test_unary_calls(self):
        pb = self.pb
        for call, field in (
                (lambda: self.stub.Tokenize(pb.TokenizeRequest()), "prompt"),
                (lambda: self.stub.Tokenize(pb.TokenizeRequest(text="")), "text"),
                (lambda: self.stub.Tokenize(pb.TokenizeRequest(chat=pb.ChatPrompt())),
                 "chat.messages"),
                (lambda: self.stub.Detokenize(pb.DetokenizeRequest()), "ids"),
                (lambda: self.stub.Detokenize(pb.DetokenizeRequest(ids=[VOCABULARY])), "ids"),
                (lambda: self.stub.Detokenize(pb.DetokenizeRequest(ids=[1, 2**32 - 1])), "ids"),
                (lambda: self.stub.Cancel(pb.CancelRequest()), "request_id"),
                (lambda: self.stub.Cancel(pb.CancelRequest(request_id="a b")), "request_id"),
                (lambda: self.stub.Cancel(pb.CancelRequest(request_id="x" * 129)), "request_id")):
            self.assert_refused(call, field)
        self.assertFalse(self.stub.Cancel(pb.CancelRequest(request_id="x" * 128)).found)
        self.assertTrue(self.stub.Detokenize(pb.DetokenizeRequest(ids=[VOCABULARY - 1])).text)

    def test_the_text_of_ids_is_bounded_although_the_ids_are_short(self):
        blanks = list(self.stub.Tokenize(self.pb.TokenizeRequest(text=" " * 64)).ids)
        bytes_each = 64 // len(blanks)
        self.assertGreater(bytes_each, 8)
        for count, field in ((4 * MEGABYTE // 64 - 1, None), (4 * MEGABYTE // 64 + 1, "ids")):
            request = self.pb.DetokenizeRequest(ids=blanks * count)
            if field is None:
                self.assertEqual(len(self.stub.Detokenize(request).text), 64 * count)
            else:
                self.assert_refused(lambda: self.stub.Detokenize(request), field)

    def test_bytes_that_are_no_message(self):
        good = self.request().SerializeToString()
        # Truncated; a group that never ends; no wire type 7; field 0; text that is no UTF-8.
        for data in (good[:-1], b"\x1a\x05ab", b"\x0b", b"\x0f\x01", b"\x00\x01", b"\xff" * 20,
                     b"\x1a\x02\xff\xfe", b"\x1a\x03\xed\xa0\x80", good + b"\x0a\x01\xff"):
            self.assert_refused(lambda: self.generate(data), "request")
            for method in ("Tokenize", "Detokenize", "Cancel", "GetModel"):
                if method == "Tokenize" or data[0] != 0x1a:
                    self.refusal(lambda: self.unary(method, data))
        self.assert_refused(lambda: self.unary("Tokenize", b"\x0a\x02\xff\xfe"), "request")
        self.assert_refused(lambda: self.unary("Cancel", b"\x0a\x01\xff"), "request")
        # A field of another wire type is an unknown field: ignored, and named.
        call = self.channel.unary_stream(SERVICE + "Generate")(good + b"\x50\x05\xf8\x3f\x01",
                                                               timeout=30)
        self.assertTrue(list(call))
        self.assertIn("1023", dict(call.initial_metadata())["x-weft-ignored-fields"])

    def test_messages_over_the_limit(self):
        for size in (MESSAGE_MAX, MESSAGE_MAX + MEGABYTE):  # with the text's framing both are above
            data, says = self.request(text="a" * size).SerializeToString(), (str(MESSAGE_MAX),)
            self.refuse(data, "request", says)
            self.assert_refused(lambda: self.unary("Tokenize", data), "request", says)
        # The library's own limit, twice ours: no details.
        data = self.request(text="a" * (2 * MESSAGE_MAX)).SerializeToString()
        code, _, _ = self.refusal(lambda: self.generate(data))
        self.assertEqual(code, self.grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assert_no_prompts()

    def test_unknown_models_and_methods(self):
        code, message, _ = self.refusal(lambda: self.generate(self.request(model="quux")))
        self.assertEqual(code, self.grpc.StatusCode.NOT_FOUND)
        self.assertIn("quux", message)
        code, _, _ = self.refusal(lambda: self.unary("Quux", b""))
        self.assertEqual(code, self.grpc.StatusCode.UNIMPLEMENTED)

    def test_a_request_id_may_be_used_again_and_a_cancel_ends_all_that_have_it(self):
        request = self.request(request_id="taken", stopping__max_tokens=2000,
                               stopping__ignore_eos=True)
        stream = self.stub.Generate(request, timeout=60)
        next(stream)
        self.generate(self.request(request_id="taken"))
        self.assertTrue(self.stub.Cancel(self.pb.CancelRequest(request_id="taken")).found)
        code, _, _ = self.refusal(lambda: list(stream))
        self.assertEqual(code, self.grpc.StatusCode.CANCELLED)


if __name__ == "__main__":
    unittest.main()
