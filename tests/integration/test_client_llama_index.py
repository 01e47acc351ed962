"""llama-index: OpenAILike as a chat and as a completion model, whole, streamed, asynchronous, with
structured output."""

import asyncio

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike

from clients import MESSAGES, PROMPT, TIMEOUT_S, Animal, ClientTest
from weft_server import run_tests

TOKENS = 24


class LlamaIndexTest(ClientTest):
    def model_of(self, **arguments):
        return OpenAILike(**{"model": self.model, "api_base": f"{self.url}/v1", "api_key": "none",
                             "is_chat_model": True, "max_tokens": TOKENS, "temperature": 0.0,
                             "max_retries": 0, "timeout": TIMEOUT_S, **arguments})

    def messages(self):
        return [ChatMessage(**message) for message in MESSAGES]

    def test_chats_whole_streamed_and_asynchronous(self):
        llm = self.model_of(temperature=0.9, additional_kwargs={"seed": 5})
        whole = llm.chat(self.messages())
        expected = self.chat(max_tokens=TOKENS, temperature=0.9, seed=5)
        self.assertEqual(whole.message.content, expected["choices"][0]["message"]["content"])
        self.assertEqual(whole.additional_kwargs["completion_tokens"],
                         expected["usage"]["completion_tokens"])
        deltas = [part.delta for part in llm.stream_chat(self.messages())]
        self.assertEqual("".join(deltas), whole.message.content)

        async def streamed():
            return [part.delta async for part in await llm.astream_chat(self.messages())]

        self.assertEqual(asyncio.run(streamed()), deltas)

    def test_completions(self):
        llm = self.model_of(is_chat_model=False)
        whole = llm.complete(PROMPT)
        self.assertEqual(whole.text, self.server.post("/v1/completions", {
            "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0})["choices"][0]["text"])
        self.assertEqual("".join(part.delta for part in llm.stream_complete(PROMPT)), whole.text)

    def test_log_probabilities(self):
        answer = self.model_of(logprobs=True, top_logprobs=2).chat(self.messages())
        self.assertEqual({len(top) for top in answer.logprobs}, {2})
        self.assertEqual("".join(top[0].token for top in answer.logprobs[:-1]),
                         answer.message.content)

    def test_structured_output(self):
        llm = self.model_of(should_use_structured_outputs=True, max_tokens=200)
        animal = llm.structured_predict(Animal, PromptTemplate("A cat called {name} as JSON."),
                                        name="Tom")
        self.assertIsInstance(animal, Animal)

    def test_errors_are_openais(self):
        with self.assertRaises(openai.NotFoundError):
            self.model_of(model="gpt-5").chat(self.messages())
        with self.assertRaises(openai.BadRequestError) as caught:
            self.model_of(additional_kwargs={"top_p": 7}).chat(self.messages())
        self.assertEqual(caught.exception.param, "top_p")


if __name__ == "__main__":
    run_tests()
