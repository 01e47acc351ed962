"""One question through every door: gRPC, TGI and OpenAI routes, streamed and not, give one answer."""

import json
import unittest

import openai

from stream_clients import Checker, Streams
from stream_doors import CHAT_DOORS, TEXT_DOORS, Ask
from weft_server import WeftServer, grpc_modules, wait_until

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TOKENS = 32
# Of the demo model.
CONTROL_TOKEN, CONTROL_ID = "<|im_start|>", 1


def control_tokens(server, content):
    """How often the control token's id is in a conversation of one message."""
    body = {"messages": [{"role": "user", "content": content}]}
    tokens = server.post("/chat_tokenize", body)["tokenize_response"]
    return [token["id"] for token in tokens].count(CONTROL_ID)


class DoorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer(shards=2).start()
        cls.grpc, cls.pb, cls.pb_grpc = grpc_modules()
        cls.channel = cls.grpc.insecure_channel(cls.server.grpc)
        cls.stub = cls.pb_grpc.TextGenerationStub(cls.channel)
        cls.checker = Checker(cls.server)
        cls.openai = openai.OpenAI(base_url=f"http://{cls.server.http}/v1", api_key="none",
                                   max_retries=0)
        cls.model = cls.openai.models.list().data[0].id
        # The rendered prompt: doors without a chat template get it as text.
        cls.prompt = cls.server.post("/chat_tokenize", {"messages": MESSAGES})["templated_text"]

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def by_tgi(self, **parameters):
        return self.server.post("/generate", {"inputs": self.prompt, "parameters": {
            "max_new_tokens": TOKENS, "details": True, **parameters}})["generated_text"]

    def by_openai_chat(self, stream, **arguments):
        answer = self.openai.chat.completions.create(
            model=self.model, messages=MESSAGES, max_tokens=TOKENS, stream=stream, **arguments)
        if not stream:
            return answer.choices[0].message.content
        return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)

    def by_openai_completion(self, stream, **arguments):
        answer = self.openai.completions.create(
            model=self.model, prompt=self.prompt, max_tokens=TOKENS, stream=stream, **arguments)
        if not stream:
            return answer.choices[0].text
        return "".join(chunk.choices[0].text for chunk in answer if chunk.choices)

    def streamed(self, **sampling):
        """{door: text}, of every streaming door as its bytes are."""
        common = dict(max_tokens=TOKENS, ignore_eos=False, **sampling)
        requests = [(door, Ask(self.prompt, **common)) for door in TEXT_DOORS] + \
            [(door, Ask(message=MESSAGES[0]["content"], **common)) for door in CHAT_DOORS]
        streams = Streams(self.server, requests).join()
        self.checker.learn([ask for _, ask in requests]).check(streams)
        return {f"{door} {'chat' if ask.message else 'text'}": history.text()
                for (door, ask), history in zip(requests, streams.histories)}

    def all_doors(self, tgi, **sampling):
        return {
            **self.streamed(**sampling),
            "/generate": self.by_tgi(**tgi),
            "chat": self.by_openai_chat(False, **sampling),
            "chat by the client library": self.by_openai_chat(True, **sampling),
            "completion": self.by_openai_completion(False, **sampling),
            "completion by the client library": self.by_openai_completion(True, **sampling),
        }

    def test_greedy_answers_are_sensible_and_equal(self):
        answers = self.all_doors({"do_sample": False}, temperature=0)
        self.assertIn("Paris", answers["chat"])
        self.assertEqual(len(set(answers.values())), 1, answers)

    def test_seeded_answers_are_equal(self):
        for seed in (1, 2, 12345678901234567890 % 2**63):
            answers = self.all_doors({"temperature": 0.8, "top_p": 0.9, "seed": seed},
                                     temperature=0.8, top_p=0.9, seed=seed)
            self.assertEqual(len(set(answers.values())), 1, (seed, answers))

    def test_text_that_is_held_back_comes_once(self):
        """Stop strings that begin and do not end, or match inside tokens or at once, and characters of
        several tokens, also where the answer ends inside one."""
        emoji = "Emoji: \U0001f600\U0001f600\U0001f600 \U0001f389\U0001f389"
        asks = [Ask(emoji, max_tokens=tokens) for tokens in (11, 12, 13)] + [
            Ask(emoji, max_tokens=14, temperature=1.0, seed=8),
            Ask("The capital of France is", max_tokens=24, stop=(" is", "the")),
            Ask("The capital of France is", max_tokens=3, stop=("\n\nThe answer",)),
            Ask("The capital of France is", max_tokens=8, stop=(" P",)),
            Ask("The capital of France is", max_tokens=8, stop=("aris.\n",))]
        self.checker.learn(asks)
        self.assertTrue(any("\ufffd" in self.checker.known(ask)[1].text() for ask in asks))
        for door in TEXT_DOORS:
            self.checker.check(Streams(self.server, [(door, ask) for ask in asks]).join())

    def test_a_first_call_on_a_new_connection_never_stalls(self):
        request = self.pb.GenerateRequest(text="Hello there")
        request.sampling.temperature = 0
        request.stopping.max_tokens = 3
        request.stopping.ignore_eos = True
        for number in range(300):
            with self.grpc.insecure_channel(
                    self.server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                stub = self.pb_grpc.TextGenerationStub(channel)
                ids = [id for response in stub.Generate(request, timeout=10)
                       for id in response.output.token_ids]
                self.assertEqual(len(ids), 3, number)

    def test_other_seeds_give_other_answers(self):
        answers = {self.by_openai_chat(False, temperature=1.2, seed=seed) for seed in range(8)}
        self.assertGreater(len(answers), 4)

    def test_fields_of_other_servers_are_refused_by_name_in_completions_as_in_chats(self):
        chat = lambda **more: self.openai.chat.completions.create(
            model=self.model, messages=MESSAGES, max_tokens=1, **more)
        completion = lambda **more: self.openai.completions.create(
            model=self.model, prompt="Hi", max_tokens=1, **more)
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        for field, value in (
                ("n", 0), ("suffix", "x"), ("functions", [tool["function"]]),
                ("function_call", {"name": "f"}), ("tool_choice", "required"),
                ("response_format", 5), ("modalities", ["audio"]),
                ("prediction", {"type": "content"}), ("parallel_tool_calls", False),
                ("chat_template", "x"), ("tools", [tool]), ("reasoning_effort", "high"),
                ("documents", [{}])):
            of_chats = field in ("tools", "reasoning_effort", "documents", "parallel_tool_calls")
            for create in (completion,) if of_chats else (chat, completion):
                with self.assertRaises(openai.BadRequestError, msg=field) as refusal:
                    create(extra_body={field: value})
                self.assertEqual(refusal.exception.param, field)
        # What clients send that name every argument.
        completion(n=1, best_of=1, echo=False, suffix=None, logprobs=None, logit_bias=None,
                   frequency_penalty=0, presence_penalty=0, stop=None, user="x",
                   extra_body={"functions": None, "tools": None, "response_format": None})
        completion(best_of=None, n=None, stream_options=None, seed=None, temperature=None,
                   extra_body={"response_format": {"type": "text"}, "tools": [], "suffix": "",
                               "tool_choice": "none", "reasoning_effort": "none"})

    def test_sagemaker_is_answered_on_its_own_routes(self):
        self.assertEqual(self.server.request("GET", "/ping")[0], 200)
        body = {"inputs": self.prompt, "parameters": {"max_new_tokens": 4}}
        whole = self.server.post("/generate", body)
        self.assertEqual(self.server.post("/invocations", body), [whole])
        chat = self.server.post("/invocations",
                                {"messages": MESSAGES, "max_tokens": 4, "temperature": 0})
        self.assertEqual(chat["choices"][0]["message"]["content"], whole["generated_text"])

    def test_a_control_token_in_a_message_is_text(self):
        self.assertGreater(control_tokens(self.server, "x"), 0)
        self.assertEqual(control_tokens(self.server, "x" + CONTROL_TOKEN),
                         control_tokens(self.server, "x"))


class FlagsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer("--allow-control-tokens", "--running-max=2",
                                "--queue-requests-max=3").start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_a_control_token_in_a_message_is_one_where_that_is_allowed(self):
        self.assertEqual(control_tokens(self.server, "x" + CONTROL_TOKEN),
                         control_tokens(self.server, "x") + 1)

    def test_as_many_requests_come_in_as_info_says(self):
        limit = json.loads(self.server.request("GET", "/info")[2])["max_concurrent_requests"]
        self.assertEqual(limit, 5)
        body = {"inputs": "Hi", "parameters": {"max_new_tokens": 1500, "ignore_eos": True}}
        connections = []
        try:
            for number in range(limit):
                connections.append(self.server.connection())
                connections[-1].request("POST", "/generate_stream", json.dumps(body),
                                        {"Content-Type": "application/json"})
                wait_until(lambda: sum(self.server.metric(f"weft_num_requests_{state}")
                                       for state in ("running", "waiting")) == number + 1,
                           f"{number + 1} requests are there")
            status, headers, _ = self.server.request("POST", "/generate", body)
            self.assertEqual(status, 429)
            self.assertIn("retry-after", headers)
        finally:
            for connection in connections:
                connection.close()
        self.server.wait_idle()
        # A request that has left the engine is counted by the thread that writes its last word, a
        # moment later.
        wait_until(lambda: self.server.metric("weft_request_success_total",
                                              finished_reason="abort") == limit,
                   f"{limit} requests to be counted as aborted")
        self.assertEqual(self.server.metric("weft_request_failure_total"), 1)
        self.assertEqual(self.server.metric("weft_request_failure_total", reason="overloaded"), 1)


if __name__ == "__main__":
    unittest.main()
