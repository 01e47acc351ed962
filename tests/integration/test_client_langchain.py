"""langchain-openai: ChatOpenAI and OpenAI, invoked, in batches, streamed, asynchronous, with
structured output."""

import asyncio

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

from clients import ABOUT_A_CAT, MESSAGES, PROMPT, SEEDS, TIMEOUT_S, Animal, ClientTest
from weft_server import run_tests

TOKENS = 24


class LangchainTest(ClientTest):
    def model_of(self, kind=ChatOpenAI, **arguments):
        return kind(**{"base_url": f"{self.url}/v1", "api_key": "none", "model": self.model,
                       "max_tokens": TOKENS, "max_retries": 0, "timeout": TIMEOUT_S, **arguments})

    def test_invoked_and_streamed_answers_are_equal(self):
        for seed in SEEDS:
            llm = self.model_of(seed=seed, stream_usage=True)
            whole = llm.invoke(MESSAGES)
            self.assertEqual(whole.content,
                             self.chat(max_tokens=TOKENS, seed=seed)["choices"][0]["message"][
                                 "content"])
            chunks = list(llm.stream(MESSAGES))
            total = sum(chunks[1:], chunks[0])
            self.assertEqual(total.content, whole.content)
            self.assertEqual(total.response_metadata["finish_reason"],
                             whole.response_metadata["finish_reason"])
            for name in ("input_tokens", "output_tokens", "total_tokens"):
                self.assertEqual(total.usage_metadata[name], whole.usage_metadata[name])
            self.assertGreater(whole.usage_metadata["input_tokens"], 20)

    def test_asynchronous_answers_are_equal(self):
        models = [self.model_of(seed=seed) for seed in range(6)]
        expected = [llm.invoke(MESSAGES).content for llm in models]

        async def streamed(llm):
            return "".join([chunk.content async for chunk in llm.astream(MESSAGES)])

        async def ask_all():
            wholes = await asyncio.gather(*[llm.ainvoke(MESSAGES) for llm in models])
            return ([whole.content for whole in wholes],
                    await asyncio.gather(*map(streamed, models)))

        self.assertEqual(asyncio.run(ask_all()), (expected, expected))

    def test_messages_chains_and_batches(self):
        llm = self.model_of(temperature=0)
        said = llm.invoke([SystemMessage(MESSAGES[0]["content"]),
                           HumanMessage(MESSAGES[1]["content"])]).content
        self.assertIn("Paris", said)
        template = ChatPromptTemplate.from_messages(
            [("system", MESSAGES[0]["content"]), ("human", "What is the capital of {country}?")])
        chain = template | llm
        self.assertEqual(chain.invoke({"country": "France"}).content, said)
        answers = chain.batch([{"country": country} for country in ("France", "Italy", "Japan")])
        for city, answer in zip(("Paris", "Rome", "Tokyo"), answers):
            self.assertIn(city, answer.content)
        again = llm.invoke([*template.format_messages(country="France"), AIMessage(said),
                            HumanMessage("And of Italy?")])
        self.assertGreater(again.usage_metadata["input_tokens"],
                           answers[0].usage_metadata["input_tokens"])

    def test_stops_and_log_probabilities(self):
        llm = self.model_of(temperature=0, logprobs=True, top_logprobs=2)
        whole = llm.invoke(MESSAGES)
        tokens = whole.response_metadata["logprobs"]["content"]
        self.assertEqual(len(tokens), whole.usage_metadata["output_tokens"])
        self.assertEqual("".join(token["token"] for token in tokens[:-1]), whole.content)
        self.assertEqual({len(token["top_logprobs"]) for token in tokens}, {2})
        stopped = llm.bind(stop=["Paris"]).invoke(MESSAGES)
        self.assertEqual(stopped.content, whole.content.split("Paris")[0])
        self.assertEqual(stopped.response_metadata["finish_reason"], "stop")

    def test_structured_output(self):
        for seed in SEEDS:
            llm = self.model_of(seed=seed, max_tokens=200)
            for method in ("json_schema", None):
                kind = {"method": method} if method else {}
                animal = llm.with_structured_output(Animal, **kind).invoke(ABOUT_A_CAT)
                self.assertIsInstance(animal, Animal)
        raw = self.model_of(temperature=0, max_tokens=300).with_structured_output(
            Animal.model_json_schema(), method="json_mode", include_raw=True).invoke(ABOUT_A_CAT)
        self.assertIsNone(raw["parsing_error"])
        self.assertIsInstance(raw["parsed"], dict)

    def test_completions(self):
        llm = self.model_of(OpenAI, temperature=0)
        said = llm.invoke(PROMPT)
        self.assertEqual(said, self.server.post("/v1/completions", {
            "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0})["choices"][0]["text"])
        self.assertEqual("".join(llm.stream(PROMPT)), said)
        several = self.model_of(OpenAI, seed=3, n=2, best_of=3, extra_body={
            "ignore_eos": True}).generate([PROMPT, "One, two,"])
        self.assertEqual([len(generations) for generations in several.generations], [2, 2])
        self.assertEqual(several.llm_output["token_usage"]["completion_tokens"], 2 * 3 * TOKENS)

    def test_errors_are_openais_and_langchains(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.model_of(temperature=-1).invoke(MESSAGES)
        self.assertIn("temperature", str(caught.exception))
        with self.assertRaises(openai.NotFoundError):
            self.model_of(model="gpt-5").invoke(MESSAGES)
        # By which chains choose a model with a longer context.
        for text in ("x " * 10000, "word " * 5000):
            with self.assertRaises(ContextOverflowError):
                self.model_of().invoke(text)


if __name__ == "__main__":
    run_tests()
