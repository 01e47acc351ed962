"""Makes golden.json: what transformers' logits processors keep of some rows of logits.

Run with an interpreter that has torch and transformers:  python tests/goldens/sampling/make.py
Each case: logits, parameters, the ids that survive top-k, typical-p, top-p, min-p in this order after
temperature, each by transformers' own warper on the output of the one before, and their
probabilities. Cases whose outcome hangs on rounding (a cumulative mass within 1e-5 of the threshold)
are left out.
"""

import json
import pathlib

import torch
from transformers.generation import logits_process as lp

SEED = 20240607
VOCAB = 400


def rows(generator):
    flat = torch.randn(VOCAB, generator=generator)
    peaked = torch.randn(VOCAB, generator=generator) * 4
    tail = -torch.log(torch.arange(1, VOCAB + 1).float())[torch.randperm(VOCAB, generator=generator)] * 1.5
    ties = (torch.randn(VOCAB, generator=generator) * 3).round()
    return {"flat": flat, "peaked": peaked, "tail": tail, "ties": ties}


PARAMETERS = [
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 0.7, "top_k": 1},
    {"temperature": 1.3, "top_k": 399},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.5, "top_p": 0.5},
    {"temperature": 2.0, "top_p": 0.99},
    {"temperature": 1.0, "top_p": 0.01},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 0.8, "min_p": 0.5},
    {"temperature": 1.5, "min_p": 0.001},
    {"temperature": 1.0, "typical_p": 0.9},
    {"temperature": 0.7, "typical_p": 0.2},
    {"temperature": 1.4, "typical_p": 0.5},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.9},
    {"temperature": 0.9, "top_k": 50, "typical_p": 0.8, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.2, "typical_p": 0.95, "top_p": 0.8, "min_p": 0.02},
    {"temperature": 1.1, "top_p": 0.95, "min_p": 0.1},
]


def near_threshold(scores, mass, order):
    """Whether rounding could move the cut, or a tie straddles it (we cut ties by id)."""
    probs = scores.double().softmax(-1)[order]
    before = probs.cumsum(0) - probs
    last = int((before < mass).sum()) - 1
    close = (before - mass).abs().min() < 1e-5
    kept, dropped = order[last], order[last + 1] if last + 1 < len(order) else None
    tie = dropped is not None and torch.isfinite(scores[dropped]) and scores[kept] == scores[dropped]
    return bool(close or tie)


def survivors(logits, p):
    scores = logits[None].float() / p["temperature"]
    if "top_k" in p:
        values = scores[0].sort(descending=True).values
        if p["top_k"] < VOCAB and values[p["top_k"] - 1] == values[p["top_k"]]:
            return None
        scores = lp.TopKLogitsWarper(p["top_k"])(None, scores)
    if "typical_p" in p:
        normal = scores[0].double().log_softmax(-1)
        entropy = -(normal.exp() * normal).nansum()
        keys = (-normal - entropy).abs()
        if near_threshold(scores[0], p["typical_p"], keys.argsort(stable=True)):
            return None
        scores = lp.TypicalLogitsWarper(p["typical_p"])(None, scores)
    if "top_p" in p:
        if near_threshold(scores[0], p["top_p"], scores[0].argsort(descending=True, stable=True)):
            return None
        scores = lp.TopPLogitsWarper(p["top_p"])(None, scores)
    if "min_p" in p:
        probs = scores[0].double().softmax(-1)
        if (probs / probs.max() - p["min_p"]).abs().min() < 1e-5:
            return None
        scores = lp.MinPLogitsWarper(p["min_p"])(None, scores)
    return scores[0]


def main():
    generator = torch.Generator().manual_seed(SEED)
    named = {}
    for name, row in rows(generator).items():
        # Short decimals that C++ reads back to the same float.
        named[name] = torch.tensor([round(float(x), 4) for x in row], dtype=torch.float32)
    cases, left_out = [], 0
    for name, logits in named.items():
        for p in PARAMETERS:
            scores = survivors(logits, p)
            if scores is None:
                left_out += 1
                continue
            kept = torch.isfinite(scores).nonzero()[:, 0]
            probs = scores.double().softmax(-1)[kept]
            cases.append({"row": name, **p, "kept": kept.tolist(),
                          "probabilities": [float(f"{x:.8g}") for x in probs]})
    penalties = []
    for name, logits in named.items():
        for penalty in (0.7, 1.3, 2.5):
            ids = torch.randint(0, VOCAB, (60,), generator=generator)
            scores = lp.RepetitionPenaltyLogitsProcessor(penalty)(ids[None], logits[None].clone())[0]
            penalties.append({"row": name, "repetition_penalty": penalty, "ids": ids.tolist(),
                              "scores": [float(f"{x:.9g}") for x in scores[ids]]})
    out = {"made_by": "make.py", "seed": SEED,
           "rows": {name: [round(float(x), 4) for x in row] for name, row in named.items()},
           "cases": cases, "repetition": penalties}
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")
    print(f"{len(cases)} cases, {left_out} left out, {path.stat().st_size} bytes")


main()
