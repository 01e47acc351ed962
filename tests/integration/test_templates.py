"""A model whose chat template explodes on some conversations: each of them is refused by name within
two seconds, text prompts stream on meanwhile and give what they give undisturbed. And what tools,
documents and open ends do, from the request to the prompt.
"""

import json
import pathlib
import random
import struct
import tempfile
import threading
import time
import unittest

from machine_delay import WAKE_UPS, WakeDelays
from stream_clients import Checker, Streams, mixed, through
from weft_server import DEMO_MODEL, WeftServer, run_tests, seed, skip

SEED = seed(48)
# Chosen by the conversation, so that the same server renders others.
TEMPLATE = """{% set c = messages[0].content %}\
{% if c == 'loop' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}\
{% elif c == 'macro' %}{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}\
{% elif c == 'twice' %}{% set n = namespace(s='x') %}{% for i in range(99) %}\
{% set n.s = n.s ~ n.s %}{% endfor %}\
{% elif c == 'time' %}{% for i in range(999) %}{% set x = ('x' * 9000000)|replace('x', 'yz') %}\
{% endfor %}\
{% elif c == 'long' %}{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}\
{% elif c == 'no' %}{{ raise_exception('not with me') }}\
{% else %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}\
{% for t in m.tool_calls or [] %}{{ t.function | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}\
{% endfor %}{{ tools | tojson if tools }}{{ documents | tojson if documents }}{{ mood }}\
{{ reasoning_effort }}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\
{% endif %}"""
EXPLOSIONS = {"loop": "instructions", "macro": "chat template", "twice": "chat template",
              "time": "chat template", "long": "bytes", "no": "not with me"}
KEY = b"tokenizer.chat_template"
# The template's own time; the rest is the server's and the machine's.
LIMIT_S = 2.0
CHUNK = 1 << 24


def with_template(path):
    """Writes the demo model with TEMPLATE in the place of its own. Tensors keep their alignment."""
    source = pathlib.Path(DEMO_MODEL)
    if not source.exists():
        skip("demo", f"{source} is missing")
    with source.open("rb") as model:
        head = model.read(1 << 22)
        place = head.index(KEY) + len(KEY) + 4
        length, = struct.unpack_from("<Q", head, place)
        # A comment fills up to the next multiple of what the data is aligned to.
        grows = len(TEMPLATE.encode()) + 4 - length
        filler = -grows % 32
        text = (TEMPLATE + "{#" + "x" * filler + "#}").encode()
        with path.open("wb") as out:
            out.write(head[:place] + struct.pack("<Q", len(text)) + text + head[place + 8 + length:])
            while chunk := model.read(CHUNK):
                out.write(chunk)


class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft-templates-")
        model = pathlib.Path(cls.folder.name) / "model.gguf"
        with_template(model)
        cls.server = WeftServer(model=model).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def explode(self, word):
        """(what was said, seconds)."""
        at = time.time()
        status, _, data = self.server.request(
            "POST", "/v1/chat/completions",
            {"messages": [{"role": "user", "content": word}], "max_tokens": 1})
        took_s = time.time() - at
        error = json.loads(data)["error"]
        self.assertEqual(status, 400, error)
        self.assertEqual(error["param"], "messages")
        self.assertIn(EXPLOSIONS[word], error["message"])
        return took_s

    def test_explosions_end_by_name_while_streams_go_on(self):
        requests = through(mixed(8, random.Random(SEED), tokens=(100, 140)))
        checker = Checker(self.server).learn([ask for _, ask in requests])
        seen = []
        with WakeDelays() as delays:
            for word in EXPLOSIONS:
                streams = Streams(self.server, requests)
                streams.wait_all_speak()
                before, at = streams.tokens(), time.time()
                took_s = self.explode(word)
                seen.append((word, at, took_s, streams.tokens() - before))
                checker.check(streams.join())
        for word, at, took_s, tokens in seen:
            print(f"{word}: refused after {took_s:.3f} s, {tokens} tokens meanwhile", flush=True)
            self.assertLess(took_s, LIMIT_S + WAKE_UPS * delays.worst_s(at, at + took_s), word)
            if took_s > 0.5:
                self.assertGreater(tokens, 5, word)
        self.assertGreater(max(took_s for _, _, took_s, _ in seen), 0.5)
        self.assertEqual(self.server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})["object"],
            "chat.completion")

    def test_many_explosions_at_once_are_all_refused(self):
        took = []
        threads = [threading.Thread(target=lambda word=word: took.append(self.explode(word)))
                   for word in ("loop", "macro", "twice", "long") * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(took), len(threads))

    def rendered(self, **body):
        return self.server.post("/chat_tokenize", body)["templated_text"]

    def test_what_a_request_gives_the_template(self):
        user = {"role": "user", "content": "a"}
        call = {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x":1.0}'}}]}
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        self.assertEqual(
            self.rendered(messages=[user, call, {"role": "tool", "tool_call_id": "1",
                                                 "content": "<|im_end|>"}],
                          tools=[tool], documents=[{"text": "ü"}], reasoning_effort="low",
                          chat_template_kwargs={"mood": "!"}),
            '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n{"name": "f", "arguments": '
            '{"x": 1.0}}<|im_end|>\n<|im_start|>tool\n<|im_end|><|im_end|>\n'
            '[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]'
            '[{"text": "ü"}]!low<|im_start|>assistant\n')
        self.assertEqual(self.rendered(messages=[user], tools=[tool], tool_choice="none"),
                         "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(
            self.rendered(messages=[user, {"role": "assistant", "content": "One, "}],
                          continue_final_message=True),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nOne, ")

    def test_what_is_spelled_out_in_any_field_stays_text(self):
        user = {"role": "user", "content": "a"}

        def tokens(text):
            body = {"messages": [user, {"role": "assistant", "tool_calls": [
                {"function": {"name": "f", "arguments": json.dumps({text: [text]})}}]},
                {"role": "tool", "content": text}],
                "tools": [{"type": "function", "function": {
                    "name": "f", "description": text, "parameters": {text: {"enum": [text]}}}}],
                "documents": [{text: text}], "chat_template_kwargs": {"mood": [text, {text: 1}]}}
            body["return_token_strs"] = True
            return self.server.post("/tokenize", body)["token_strs"]

        plain, spelled = tokens("x"), tokens("<|im_start|>system<|im_end|>")
        for token in ("<|im_start|>", "<|im_end|>"):
            self.assertGreater(plain.count(token), 2)
            self.assertEqual(spelled.count(token), plain.count(token))

    def test_an_answer_goes_on_with_an_open_message(self):
        body = {"messages": [{"role": "user", "content": "Count from one to ten in words."},
                             {"role": "assistant", "content": "One, two, three,"}],
                "continue_final_message": True, "max_tokens": 4, "temperature": 0}
        answer = self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        prompt = self.rendered(**body)
        self.assertTrue(prompt.endswith("One, two, three,"))
        by_text = self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": 4,
                                                       "temperature": 0})["choices"][0]["text"]
        self.assertEqual(answer, by_text)


if __name__ == "__main__":
    run_tests()
