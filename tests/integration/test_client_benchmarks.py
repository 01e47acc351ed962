"""Traffic in the shapes that benchmark clients send, where these cannot be installed here: vLLM's
`bench serve` (its package is of CUDA), SGLang's bench_serving, genai-perf and aiperf. What they
take from the answers, they find."""

import asyncio
import json
import time

import aiohttp

from clients import MESSAGES, PROMPT, TIMEOUT_S, ClientTest
from weft_server import run_tests, wait_until

OUTPUT_TOKENS = 24


class BenchmarksTest(ClientTest):
    def run_all(self, one, count=12, at_once=6):
        """What `one(session, number)` gives, of so many at once."""
        async def run():
            gate = asyncio.Semaphore(at_once)
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                async def within(number):
                    async with gate:
                        return await one(session, number)
                return await asyncio.gather(*map(within, range(count)))

        return asyncio.run(run())

    async def events(self, session, path, body):
        """(events with the time of each, whether the stream was ended by its mark)."""
        found, ended = [], False
        async with session.post(self.url + path, json=body,
                                headers={"Authorization": "Bearer none"}) as response:
            self.assertEqual(response.status, 200, await response.text()
                             if response.status != 200 else "")
            self.assertTrue(response.content_type.startswith("text/event-stream"))
            async for line in response.content:
                line = line.strip()
                if not line:
                    continue
                # No comments among them while the server has something to say.
                self.assertTrue(line.startswith(b"data:"), line)
                ended = line == b"data: [DONE]"
                if not ended:
                    found.append((time.perf_counter(), json.loads(line[5:])))
        return found, ended

    def test_vllm_completions(self):
        async def one(session, number):
            return await self.events(session, "/v1/completions", {
                "model": self.model, "prompt": f"{number}. {PROMPT}", "repetition_penalty": 1.0,
                "max_tokens": OUTPUT_TOKENS, "temperature": 0.0, "logprobs": None, "stream": True,
                "ignore_eos": True, "stream_options": {"include_usage": True}})

        for events, ended in self.run_all(one):
            self.assertTrue(ended)
            with_choices = [event for _, event in events if event["choices"]]
            # Time to the first token is that of the first of these, the gaps are between them.
            self.assertEqual(len(with_choices), OUTPUT_TOKENS)
            self.assertEqual(events[-1][1]["choices"], [])
            self.assertEqual(events[-1][1]["usage"]["completion_tokens"], OUTPUT_TOKENS)

    def test_vllm_prompts_of_ids(self):
        """The data set `random` sends ids where it is told to, and counts them itself."""
        async def one(session, number):
            return await self.events(session, "/v1/completions", {
                "model": self.model, "prompt": list(range(100, 164)), "max_tokens": 4,
                "temperature": 0.0, "stream": True, "ignore_eos": True, "add_special_tokens": False,
                "stream_options": {"include_usage": True}})

        for events, _ in self.run_all(one, count=3):
            self.assertEqual(events[-1][1]["usage"]["prompt_tokens"], 64)

    def test_vllm_chats(self):
        async def one(session, number):
            return await self.events(session, "/v1/chat/completions", {
                "model": self.model, "max_completion_tokens": OUTPUT_TOKENS, "temperature": 0.0,
                "stream": True, "ignore_eos": True, "stream_options": {"include_usage": True},
                "messages": [{"role": "user", "content": [
                    {"type": "text", "text": f"{number}. {PROMPT}"}]}]})

        for events, ended in self.run_all(one):
            self.assertTrue(ended)
            with_choices = [event for _, event in events if event["choices"]]
            self.assertEqual(len(with_choices), OUTPUT_TOKENS)
            # An event with a role and nothing else would be the first token to some.
            self.assertTrue(with_choices[0]["choices"][0]["delta"]["content"])
            self.assertEqual(events[-1][1]["usage"]["completion_tokens"], OUTPUT_TOKENS)

    def test_sglang_completions(self):
        """Without include_usage, and every event is parsed for its first choice."""
        async def one(session, number):
            return await self.events(session, "/v1/completions", {
                "model": self.model, "prompt": f"{number}. {PROMPT}", "temperature": 0.0,
                "best_of": 1, "max_tokens": OUTPUT_TOKENS, "stream": True, "ignore_eos": True})

        for events, ended in self.run_all(one):
            self.assertTrue(ended)
            texts = [event["choices"][0]["text"] for _, event in events]
            self.assertEqual(len(texts), OUTPUT_TOKENS)
            self.assertTrue("".join(texts).strip())

    def test_genai_perf_chats(self):
        """Names its model and a seed, counts tokens by the usage or by its own tokenizer."""
        async def one(session, number):
            return await self.events(session, "/v1/chat/completions", {
                "model": self.model, "messages": MESSAGES, "stream": True, "n": 1, "seed": number,
                "max_tokens": OUTPUT_TOKENS, "min_tokens": OUTPUT_TOKENS, "ignore_eos": True,
                "stream_options": {"include_usage": True}})

        texts = set()
        for events, ended in self.run_all(one):
            self.assertTrue(ended)
            usage = events[-1][1]["usage"]
            self.assertEqual(usage["completion_tokens"], OUTPUT_TOKENS)
            self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + OUTPUT_TOKENS)
            times = [when for when, _ in events]
            self.assertEqual(times, sorted(times))
            texts.add("".join(event["choices"][0]["delta"].get("content") or ""
                              for _, event in events if event["choices"]))
        self.assertGreater(len(texts), 4)

    def test_what_they_look_at_before_and_after(self):
        async def get(session, number):
            found = {}
            for path in ("/v1/models", "/health", "/metrics"):
                async with session.get(self.url + path) as response:
                    found[path] = response.status, await response.read()
            return found

        found, = self.run_all(get, count=1)
        self.assertEqual({status for status, _ in found.values()}, {200})
        self.assertEqual(json.loads(found["/v1/models"][1])["data"][0]["id"], self.model)

    def test_a_run_that_is_cut_off_leaves_nothing(self):
        """aiperf cancels requests at will."""
        async def one(session, number):
            response = await session.post(self.url + "/v1/completions", json={
                "prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True})
            await response.content.readline()
            response.close()

        self.run_all(one, count=8, at_once=8)
        self.server.wait_idle()
        wait_until(lambda: self.server.metric("weft_request_success_total",
                                              finished_reason="abort") == 8,
                   "8 requests to be counted as aborted")


if __name__ == "__main__":
    run_tests()
