"""lm-eval through local-completions: the log-likelihoods of two hundred questions, and the
accuracy, are those of transformers (tests/goldens/make_likelihoods.py); and texts that it has
generated."""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets  # noqa: E402
import lm_eval  # noqa: E402
from lm_eval.api.task import ConfigurableTask  # noqa: E402

import demo_model_files  # noqa: E402
from clients import PROMPT, ClientTest  # noqa: E402
from weft_server import ROOT, run_tests  # noqa: E402

sys.path.append(str(ROOT / "tests/goldens"))
from likelihood_items import items  # noqa: E402

GOLDEN = ROOT / "tests/goldens/demo/likelihoods.json"
# Of a log-likelihood of a few tokens in float32: what is left of another order of sums. No two
# choices of an item are so near each other.
TOLERANCE = 0.002


def task(name, rows, **config):
    return ConfigurableTask(config={
        "task": name, "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(rows)},
        "test_split": "test", "num_fewshot": 0, **config})


class LmEvalTest(ClientTest):
    flags = ("--dtype=float32",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = demo_model_files.tokenizer_folder(cls)

    def evaluate(self, one, **arguments):
        """What lm-eval makes of a task: (its results, its samples)."""
        found = lm_eval.simple_evaluate(
            model="local-completions", tasks=[one], bootstrap_iters=0, random_seed=1, model_args={
                "model": self.model, "base_url": f"{self.url}/v1/completions",
                "tokenizer": self.tokenizer, "tokenizer_backend": "huggingface", "max_retries": 1,
                "timeout": 60, "max_length": 2048, **arguments})
        name = one.config.task
        return found["results"][name], found["samples"][name]

    def test_log_likelihoods_are_those_of_transformers(self):
        golden = json.loads(GOLDEN.read_text())
        one = task("made_choices", items(), output_type="multiple_choice",
                   doc_to_text="{{question}}", doc_to_choice="{{choices}}", doc_to_target="answer",
                   metric_list=[{"metric": "acc"}])
        results, samples = self.evaluate(one, num_concurrent=4, batch_size=4)
        self.assertEqual(len(samples), len(golden["log_likelihoods"]))
        for sample in samples:
            expected = golden["log_likelihoods"][sample["doc_id"]]
            for found, value in zip(sample["filtered_resps"], expected, strict=True):
                self.assertAlmostEqual(found[0], value, delta=TOLERANCE, msg=sample["doc"])
        self.assertEqual(results["acc,none"], golden["acc"])

    def test_texts_are_generated_up_to_a_stop(self):
        one = task("made_texts", [{"question": PROMPT, "answer": " Paris"}],
                   output_type="generate_until", doc_to_text="{{question}}",
                   doc_to_target="{{answer}}",
                   generation_kwargs={"until": ["."], "max_gen_toks": 8, "temperature": 0},
                   metric_list=[{"metric": "exact_match"}])
        results, samples = self.evaluate(one)
        self.assertEqual(samples[0]["resps"][0][0], " Paris")
        self.assertEqual(results["exact_match,none"], 1.0)


if __name__ == "__main__":
    run_tests()
