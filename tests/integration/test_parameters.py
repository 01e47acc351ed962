"""What parameters of a request do, at each door: stop_token_ids, min_tokens, skip_special_tokens,
cache_salt, deadline_ms, allowed_token_ids, bad_words, watermark. And that constrained answers are those of
their lone runs: beside others, and when a shard dies.
"""

import dataclasses
import json
import os
import random
import signal
import unittest

from stream_clients import Checker, Streams, through
from stream_doors import TIMEOUT_S, Ask
from weft_server import WeftServer, grpc_modules, run_tests, wait_until

SEED = int(os.environ.get("WEFT_SEED", "20261123"))
MESSAGE = "Name five animals."
TOKENS = 16
# Of the demo model: the end of a turn, which it also takes for the end of an answer.
END_ID, END_TEXT = 2, "<|im_end|>"
HTTP_DOORS = ("TGI", "chat", "completion")
DOORS = (*HTTP_DOORS, "gRPC")


@dataclasses.dataclass
class Answer:
    ids: list
    text: str
    # As the door says it, with the stop token or stop string that it names.
    reason: object
    stop: object = None
    cached: int | None = None


class ParametersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}")
        cls.server = WeftServer(shards=2).start()
        cls.grpc, cls.pb, cls.pb_grpc = grpc_modules()
        cls.channel = cls.grpc.insecure_channel(cls.server.grpc)
        cls.stub = cls.pb_grpc.TextGenerationStub(cls.channel)
        # Doors without a chat template get the rendered prompt.
        cls.prompt = cls.rendered(MESSAGE)
        cls.plain = cls.answer("gRPC")

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    @classmethod
    def rendered(cls, message):
        body = {"messages": [{"role": "user", "content": message}]}
        return cls.server.post("/chat_tokenize", body)["templated_text"]

    # -- A request, by every door in its words ----------------------------------------------------
    @classmethod
    def answer(cls, door, message=MESSAGE, max_tokens=TOKENS, ignore_eos=True, **fields):
        """`fields` are named as OpenAI's clients do."""
        if door == "gRPC":
            return cls.by_grpc(message, max_tokens, ignore_eos, fields)
        path, body = cls.body(door, message, max_tokens, ignore_eos, fields)
        answer = cls.server.post(path, body)
        if door == "TGI":
            details = answer["details"]
            return Answer([token["id"] for token in details["tokens"]], answer["generated_text"],
                          details["finish_reason"])
        choice = answer["choices"][0]
        text = choice["message"]["content"] if door == "chat" else choice["text"]
        return Answer(choice["token_ids"], text, choice["finish_reason"],
                      choice.get("stop_reason"),
                      answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    @classmethod
    def body(cls, door, message, max_tokens, ignore_eos, fields):
        if door == "TGI":
            fields = {("min_new_tokens" if name == "min_tokens" else name): value
                      for name, value in fields.items()}
            return "/generate", {"inputs": cls.rendered(message), "parameters": {
                "max_new_tokens": max_tokens, "details": True, "ignore_eos": ignore_eos, **fields}}
        body = {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": ignore_eos,
                "return_token_ids": True, **fields}
        if door == "chat":
            body["messages"] = [{"role": "user", "content": message}]
            return "/v1/chat/completions", body
        return "/v1/completions", {**body, "prompt": cls.rendered(message)}

    @classmethod
    def by_grpc(cls, message, max_tokens, ignore_eos, fields):
        request = cls.pb.GenerateRequest(text=cls.rendered(message))
        request.sampling.temperature = 0
        request.stopping.max_tokens = max_tokens
        request.stopping.ignore_eos = ignore_eos
        for name, value in fields.items():
            if name in ("stop_token_ids", "min_tokens"):
                group = request.stopping
            elif name in ("allowed_token_ids", "bad_words", "watermark"):
                group = request.decoding
            elif name == "logit_bias":
                for token_id, bias in value.items():
                    request.decoding.logit_bias.add(id=int(token_id), bias=bias)
                continue
            elif name == "skip_special_tokens":
                request.response.keep_special_tokens = not value
                continue
            else:
                group = request
            if isinstance(value, list):
                getattr(group, name).extend(value)
            else:
                setattr(group, name, value)
        whole = Answer([], "", None)
        for response in cls.stub.Generate(request, timeout=TIMEOUT_S):
            if response.HasField("prompt_info"):
                whole.cached = response.prompt_info.cached_tokens
            whole.ids += response.output.token_ids
            whole.text += response.output.text
            if response.HasField("finish_info"):
                info = response.finish_info
                whole.reason = cls.pb_types_reason(info.reason)
                whole.stop = info.stop_token_id or info.stop_sequence or None
        return whole

    @classmethod
    def pb_types_reason(cls, reason):
        return {1: "length", 2: "eos", 3: "stop_sequence", 5: "stop_token"}.get(reason, reason)

    def text_of(self, ids):
        return self.stub.Detokenize(self.pb.DetokenizeRequest(ids=ids), timeout=TIMEOUT_S).text

    def spellings(self, word):
        """Token ids of a word at the beginning of a text and behind a blank."""
        return [[token["id"] for token in self.server.post(
            "/tokenize", {"inputs": text, "add_special_tokens": False})]
            for text in (word, " " + word)]

    # -- Ends -------------------------------------------------------------------------------------
    def stop_token(self):
        """(an id of the undisturbed answer, where it comes first), behind some others."""
        at = next(index for index, token_id in enumerate(self.plain.ids)
                  if index >= 4 and token_id not in self.plain.ids[:index])
        return self.plain.ids[at], at

    def test_a_stop_token_ends_the_answer_and_is_named(self):
        stop_id, at = self.stop_token()
        for door in DOORS:
            with self.subTest(door=door):
                answer = self.answer(door, stop_token_ids=[stop_id, 49151])
                self.assertEqual(answer.ids, self.plain.ids[:at + 1])
                self.assertEqual(answer.text, self.text_of(self.plain.ids[:at]))
                if door == "TGI":
                    self.assertEqual(answer.reason, "stop_sequence")
                else:
                    self.assertEqual(answer.reason, "stop_token" if door == "gRPC" else "stop")
                    self.assertEqual(answer.stop, stop_id)

    def test_a_stop_tokens_text_is_there_where_it_is_asked_for(self):
        stop_id, at = self.stop_token()
        answer = self.answer("completion", stop_token_ids=[stop_id],
                             include_stop_str_in_output=True)
        self.assertEqual(answer.text, self.text_of(self.plain.ids[:at + 1]))

    def test_no_answer_ends_before_its_least_length(self):
        stop_id, at = self.stop_token()
        least = at + 3
        for door in DOORS:
            with self.subTest(door=door):
                answer = self.answer(door, stop_token_ids=[stop_id], min_tokens=least)
                self.assertEqual(answer.ids[:at], self.plain.ids[:at])
                self.assertNotIn(stop_id, answer.ids[:least])
                self.assertGreaterEqual(len(answer.ids), least)
        # Nor by the model's own end, which would come at once.
        for door in DOORS:
            with self.subTest(door=door):
                ends = {"logit_bias": {str(END_ID): 100.0}, "ignore_eos": False}
                self.assertEqual(self.answer(door, **ends).ids, [END_ID])
                answer = self.answer(door, **ends, min_tokens=5)
                self.assertEqual(len(answer.ids), 6)
                self.assertEqual(answer.ids[5], END_ID)
                self.assertNotIn(END_ID, answer.ids[:5])

    def test_a_deadline_ends_a_request(self):
        for door in HTTP_DOORS:
            with self.subTest(door=door):
                path, body = self.body(door, MESSAGE, 1500, True, {"deadline_ms": 400})
                status, _, data = self.server.request("POST", path, body)
                self.assertEqual(status, 504, data)
        for door in HTTP_DOORS:
            with self.subTest(door=door):
                answer = self.answer(door, max_tokens=4, deadline_ms=86_400_000)
                self.assertEqual(answer.ids, self.plain.ids[:4])
        request = self.pb.GenerateRequest(text=self.prompt)
        request.stopping.max_tokens, request.stopping.ignore_eos = 1500, True
        with self.assertRaises(self.grpc.RpcError) as error:
            list(self.stub.Generate(request, timeout=0.4))
        self.assertEqual(error.exception.code(), self.grpc.StatusCode.DEADLINE_EXCEEDED)
        wait_until(lambda: self.server.metric("weft_num_requests_running") == 0,
                   "the end of all requests")

    # -- Text and cache ---------------------------------------------------------------------------
    def test_control_tokens_are_in_the_text_where_they_are_asked_for(self):
        for door in DOORS:
            with self.subTest(door=door):
                ends = {"logit_bias": {str(END_ID): 100.0}, "max_tokens": 3}
                self.assertEqual(self.answer(door, **ends).text, "")
                self.assertEqual(self.answer(door, **ends, skip_special_tokens=True).text, "")
                answer = self.answer(door, **ends, skip_special_tokens=False)
                self.assertEqual(answer.text, 3 * END_TEXT)
                self.assertEqual(answer.ids, 3 * [END_ID])

    def cached(self, door, message, **fields):
        name = "weft_prefix_cache_hits_total"
        before = self.server.metric(name)
        answer = self.answer(door, message=message, max_tokens=2, **fields)
        grown = self.server.metric(name) - before
        if answer.cached is not None:
            self.assertEqual(answer.cached, grown)
        return grown

    def test_prefixes_are_shared_by_those_with_the_same_salt(self):
        for door in DOORS:
            with self.subTest(door=door):
                message = f"{door}: " + "what comes of a long prompt, read by whom? " * 6
                self.assertEqual(self.cached(door, message, cache_salt=f"{door} a"), 0)
                self.assertGreater(self.cached(door, message, cache_salt=f"{door} a"), 16)
                self.assertEqual(self.cached(door, message, cache_salt=f"{door} b"), 0)
                # How the template begins is what all others have said without a salt.
                self.assertLessEqual(self.cached(door, message), 16)
                self.assertGreater(self.cached(door, message, cache_salt=""), 16)
                self.assertGreater(self.cached(door, message, cache_salt=f"{door} b"), 16)

    # -- Constraints ------------------------------------------------------------------------------
    def test_an_answer_is_of_allowed_ids_alone(self):
        allowed = sorted(random.Random(SEED).sample(range(100, 49152), 200))
        for door in DOORS:
            with self.subTest(door=door):
                answer = self.answer(door, allowed_token_ids=allowed)
                self.assertEqual(len(answer.ids), TOKENS)
                self.assertLessEqual(set(answer.ids), set(allowed))
                self.assertEqual(answer.ids, self.answer("gRPC", allowed_token_ids=allowed).ids)
                self.assertEqual(self.answer(door, allowed_token_ids=[7042]).ids, TOKENS * [7042])

    def test_an_answer_has_no_bad_word(self):
        # Words of the undisturbed answer.
        words = [word for word in ("".join(c if c.isalpha() else " " for c in self.plain.text)
                                   .split()) if len(word) > 2][:3]
        self.assertGreater(len(words), 1)
        for door in DOORS:
            with self.subTest(door=door):
                answer = self.answer(door, bad_words=words)
                self.assertNotEqual(answer.ids, self.plain.ids)
                self.assertEqual(len(answer.ids), TOKENS)
                for word in words:
                    for ids in self.spellings(word):
                        begins = range(len(answer.ids) - len(ids) + 1)
                        self.assertNotIn(ids, [answer.ids[at:at + len(ids)] for at in begins])

    def test_a_watermark_shows_in_the_tokens(self):
        last = self.server.post("/tokenize", {"inputs": self.prompt})[-1]["id"]
        plain = self.answer("gRPC", max_tokens=120)
        for door in DOORS:
            with self.subTest(door=door):
                marked = self.answer(door, max_tokens=120, watermark=True)
                self.assertNotEqual(marked.ids, plain.ids)
                # Of 120 tokens half are green by chance, give or take 5.5.
                self.assertGreater(green(last, marked.ids), 60 + 4 * 5.5)
                self.assertEqual(marked.ids, self.answer("TGI", max_tokens=120, watermark=True).ids)
        self.assertLess(green(last, plain.ids), 60 + 4 * 5.5)

    def test_a_watermark_stands_alone(self):
        for field, value in (("allowed_token_ids", [7042]), ("bad_words", ["the"]),
                             ("guided_regex", "[a-z]+")):
            status, _, data = self.server.request("POST", "/v1/completions", {
                "prompt": self.prompt, "max_tokens": 4, "watermark": True, field: value})
            self.assertEqual((status, json.loads(data)["error"]["param"]), (400, "watermark"))

    def test_constraints_that_contradict_each_other_fail_alone(self):
        status, _, data = self.server.request("POST", "/generate", {
            "inputs": self.prompt, "parameters": {"max_new_tokens": 4, "min_new_tokens": 2,
                                                  "allowed_token_ids": [END_ID]}})
        self.assertEqual(status, 422)
        self.assertIn("parameters.allowed_token_ids", json.loads(data)["error"])
        word = self.text_of([7042])
        status, _, data = self.server.request("POST", "/generate", {
            "inputs": self.prompt, "parameters": {"max_new_tokens": 4, "bad_words": [word],
                                                  "allowed_token_ids": [7042]}})
        self.assertEqual(status, 422, data)
        self.assertIn("no token may come next", json.loads(data)["error"])
        status, _, data = self.server.request("POST", "/v1/completions", {
            "prompt": self.prompt, "max_tokens": 4, "bad_words": [word],
            "allowed_token_ids": [7042]})
        self.assertEqual(status, 400, data)
        self.assertEqual(self.answer("TGI").ids, self.plain.ids)


def green(before, ids):
    """How many of the ids are on the green list of the one before them, as docs/API.md has it."""
    found, mask = 0, (1 << 64) - 1
    for token in ids:
        x = ((before << 32 | token // 64) + 15485863 + 0x9E3779B97F4A7C15) & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        found += (x ^ x >> 31) >> token % 64 & 1
        before = token
    return found


def constrained(count, source, max_tokens):
    """`count` requests with constraints, by turns greedy and seeded."""
    asks = []
    for index in range(count):
        sampled = {} if index % 2 == 0 else dict(temperature=0.9, seed=source.randrange(2**31))
        limits = {"allowed_token_ids": tuple(sorted(source.sample(range(100, 49152), 500)))}
        if index % 4 > 1:
            limits = {"bad_words": ("the", "and", "was", "of", "to", "a", "in", "is")}
        asks.append(Ask(f"Story {source.randrange(10**6)}. It was a dark night.",
                        max_tokens=max_tokens, **sampled, **limits))
    return asks


def plain(count, source, max_tokens):
    return [Ask(f"Story {source.randrange(10**6)}. It was a bright day.", max_tokens=max_tokens,
                **({} if index % 2 else dict(temperature=0.9, seed=source.randrange(2**31))))
            for index in range(count)]


class ConstrainedStreamsTest(unittest.TestCase):
    def test_constrained_streams_are_as_alone_beside_others_and_through_a_dead_shard(self):
        source = random.Random(SEED)
        with WeftServer(shards=2) as server:
            checker = Checker(server)
            asks = [ask for pair in zip(constrained(32, source, 6), plain(32, source, 6))
                    for ask in pair]
            for ask in asks:
                checker.learn([ask])  # alone
            checker.check(Streams(server, through(asks)).join())

            long = constrained(4, source, 60)
            checker.learn(long)
            for rank in (1, 0):
                streams = Streams(server, through(long))
                streams.wait_tokens(5)
                self.assertEqual(len(streams.open()), len(long))
                os.kill(server.shard_pid(rank), signal.SIGKILL)
                checker.check(streams.join())
            losses = server.metric("weft_group_losses_total", state="serving")
            self.assertEqual(losses, 2)


if __name__ == "__main__":
    run_tests()
