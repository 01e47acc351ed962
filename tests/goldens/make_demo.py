"""Greedy continuations of the demo model by transformers in float32: the golden demo/greedy.json.

The GGUF is dequantised by PyPI gguf, Q and K rows are put back into transformers' order, and
LlamaForCausalLM runs in float32. A prompt whose answer holds a step with a margin below MARGIN_MIN
is refused: which id wins there is a matter of rounding, in transformers too. Prompts are demo/prompts.txt under the file's own chat template.
Needs torch, transformers, gguf, jinja2; takes a few minutes on two cores:

    python tests/goldens/make_demo.py [FILE.gguf]
"""

import json
import os
import pathlib
import sys

import gguf
import jinja2
import numpy as np
import torch
from demo_tokenizer import field, make_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
NEW_TOKENS = 32
EOS_IDS = (2, 0)
MARGIN_MIN = 5e-4


def state_dict(reader):
    """The file's tensors under transformers' names, float32, Q and K rows un-permuted."""
    heads = field(reader, "llama.attention.head_count")
    kv_heads = field(reader, "llama.attention.head_count_kv")
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    out = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape(list(reversed(tensor.shape.tolist())))
        if tensor.name == "token_embd.weight":
            name = "model.embed_tokens.weight"
        elif tensor.name == "output_norm.weight":
            name = "model.norm.weight"
        else:
            _, layer, kind, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{names[kind]}.weight"
            if kind in ("attn_q", "attn_k"):
                count = heads if kind == "attn_q" else kv_heads
                size = values.shape[0] // count
                # Row 2i + j of a head goes to row i + j * size / 2.
                values = values.reshape(count, size // 2, 2, -1).swapaxes(1, 2)
                values = values.reshape(count * size, -1)
        out[name] = torch.from_numpy(np.ascontiguousarray(values))
    out["lm_head.weight"] = out["model.embed_tokens.weight"]
    return out


def make_model(reader):
    config = LlamaConfig(
        vocab_size=field(reader, "llama.vocab_size"),
        hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=field(reader, "llama.attention.head_count"),
        num_key_value_heads=field(reader, "llama.attention.head_count_kv"),
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": field(reader, "llama.rope.freq_base"),
        },
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).float().eval()
    model.load_state_dict(state_dict(reader))
    return model


def continue_greedy(model, prompt_ids):
    """Ids after the prompt, the end-of-sequence id included, and each step's top-2 margin."""
    ids, margins, past = [], [], None
    step = torch.tensor([prompt_ids])
    while len(ids) < NEW_TOKENS:
        result = model(input_ids=step, past_key_values=past, use_cache=True)
        past = result.past_key_values
        top = torch.topk(result.logits[0, -1], 2)
        ids.append(int(top.indices[0]))
        margins.append(round(float(top.values[0] - top.values[1]), 5))
        if ids[-1] in EOS_IDS:
            break
        step = torch.tensor([[ids[-1]]])
    return ids, margins


def main():
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    path = os.environ.get(
        "WEFT_DEMO_MODEL", cache + "/weft/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    )
    path = sys.argv[1] if len(sys.argv) > 1 else path
    reader = gguf.GGUFReader(path)
    tokenizer = make_tokenizer(reader)
    template = jinja2.Environment().from_string(field(reader, "tokenizer.chat_template"))
    model = make_model(reader)
    cases = []
    with torch.no_grad():
        for prompt in (HERE / "demo/prompts.txt").read_text().splitlines():
            messages = [{"role": "user", "content": prompt}]
            text = template.render(messages=messages, add_generation_prompt=True)
            prompt_ids = tokenizer.encode(text, add_special_tokens=False).ids
            ids, margins = continue_greedy(model, prompt_ids)
            if min(margins) < MARGIN_MIN:
                sys.exit(f"near tie ({min(margins)}): {prompt}")
            cases.append(
                {
                    "prompt": prompt,
                    "prompt_ids": prompt_ids,
                    "ids": ids,
                    "margins": margins,
                    "text": tokenizer.decode(ids, skip_special_tokens=True),
                }
            )
            print(len(cases), prompt, "->", repr(cases[-1]["text"]), flush=True)
    golden = {
        "model": os.path.basename(path),
        "new_tokens_max": NEW_TOKENS,
        "eos_ids": list(EOS_IDS),
        "cases": cases,
    }
    lines = ",\n  ".join(json.dumps(case, ensure_ascii=False) for case in cases)
    golden["cases"] = []
    head = json.dumps(golden)[:-2]
    (HERE / "demo/greedy.json").write_text(f"{head}\n  {lines}\n]}}\n")


if __name__ == "__main__":
    main()
