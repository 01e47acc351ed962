"""Log-likelihoods of likelihood_items.py by transformers in float32: the golden
demo/likelihoods.json, [[of each choice] of each item], and the accuracies that follow. Needs what
make_demo.py needs; takes two minutes on two cores:

    python tests/goldens/make_likelihoods.py
"""

import json
import os
import pathlib

import gguf
import torch

from demo_tokenizer import make_tokenizer
from likelihood_items import items
from make_demo import make_model

HERE = pathlib.Path(__file__).parent


@torch.no_grad()
def log_likelihood(model, context, continuation):
    ids = torch.tensor([context + continuation])
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0].double(), -1)
    return sum(float(logprobs[len(context) - 1 + i, token])
               for i, token in enumerate(continuation))


def main():
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    reader = gguf.GGUFReader(os.environ.get(
        "WEFT_DEMO_MODEL", cache + "/weft/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    tokenizer, model = make_tokenizer(reader), make_model(reader)
    rows = []
    for item in items():
        context = tokenizer.encode(item["question"]).ids
        row = []
        for choice in item["choices"]:
            # As lm-eval does it: the whole is encoded, and its beginning is the question's.
            whole = tokenizer.encode(f"{item['question']} {choice}").ids
            assert whole[:len(context)] == context, item
            row.append(log_likelihood(model, context, whole[len(context):]))
        rows.append(row)
    right = [max(range(len(row)), key=row.__getitem__) == item["answer"]
             for row, item in zip(rows, items())]
    normed = [max(range(len(row)), key=lambda i: row[i] / len(item["choices"][i])) == item["answer"]
              for row, item in zip(rows, items())]
    lines = ",\n".join("  " + json.dumps([round(value, 5) for value in row]) for row in rows)
    (HERE / "demo/likelihoods.json").write_text(
        f'{{"acc": {sum(right) / len(right)}, "acc_norm": {sum(normed) / len(normed)},\n'
        f' "log_likelihoods": [\n{lines}]}}\n')


if __name__ == "__main__":
    main()
