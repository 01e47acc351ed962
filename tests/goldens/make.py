"""Tiny random models with what transformers computes for them in float32.

Writes tests/goldens/<name>/ for each model below: the model as Hugging Face directory or GGUF file,
and golden.json (see tests/goldens/README.md). Everything follows from the fixed seeds. Needs torch,
transformers, safetensors, tokenizers and gguf in a virtual environment:

    python tests/goldens/make.py [NAME...]
"""

import json
import pathlib
import sys
import zlib

import experts
import gguf
import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon

HERE = pathlib.Path(__file__).parent
GREEDY_TOKENS = 32
PROMPT_LENGTHS = (1, 7, 33, 150)
LONG = (1, 7, 64, 300)
# Float32 results of two right implementations differ by about 1e-5: no greedy step may be closer.
MARGIN_MIN = 0.01
SEEDS_MAX = 4000
# Of random matrices behind attention and in the MLP, of those of attention, of tables of rows, of
# weights of norms and of biases.
GAINS = dict(layer=1.5, query=2.0, embedding=0.4, norm=1.0, bias=0.5)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
}
# Head size != hidden / heads, three query heads a KV head, 5 MLP blocks of 32, a prime vocabulary.
ODD = dict(
    vocab_size=211,
    hidden_size=48,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=20,
    intermediate_size=160,
    tie_word_embeddings=True,
    rope_parameters=LLAMA3,
)
# The same with rows of whole blocks, for the quantised types; a head is one block.
BLOCKS = dict(ODD, hidden_size=96, head_dim=32)
# Rows of blocks of 256 also where two ranks share columns, and every format of that kind beside the
# blocks of 32 that BLOCKS leaves out.
SUPER_BLOCKS = dict(
    ODD,
    vocab_size=101,
    hidden_size=256,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=64,
    intermediate_size=1024,
    tie_word_embeddings=False,
)
# Biases on every projection; plain rotary positions.
BIASED = dict(
    ODD,
    vocab_size=101,
    intermediate_size=90,
    attention_bias=True,
    mlp_bias=True,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
QWEN2 = dict(
    family="qwen2",
    vocab_size=173,
    hidden_size=80,
    num_attention_heads=10,
    num_key_value_heads=2,
    intermediate_size=112,
    tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
)
QWEN3 = dict(
    family="qwen3",
    vocab_size=167,
    hidden_size=56,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=12,
    intermediate_size=72,
    tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
)
MODELS = {
    "llama_tied_llama3": dict(config=ODD, form="F32"),
    "llama_tied_llama3_gguf": dict(form="gguf F32", same_as="llama_tied_llama3"),
    "llama_untied_linear_parts": dict(
        config=dict(
            vocab_size=257,
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=150,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        ),
        form="BF16 parts",
    ),
    "llama_nine_heads_f16": dict(
        config=dict(
            vocab_size=199,
            hidden_size=72,
            num_attention_heads=9,
            num_key_value_heads=3,
            head_dim=16,
            intermediate_size=160,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        ),
        form="F16",
    ),
    "llama_biased": dict(config=BIASED, form="F32"),
    "llama_biased_gguf": dict(form="gguf F32", same_as="llama_biased"),
    "llama_q8_0": dict(config=BLOCKS, form="gguf Q8_0"),
    "llama_q4_0": dict(config=BLOCKS, form="gguf Q4_0"),
    "llama_q4_1": dict(config=BLOCKS, form="gguf Q4_1"),
    "llama_mixed": dict(config=dict(BLOCKS, tie_word_embeddings=False), form="gguf mixed"),
    # Ten query heads share two KV heads; biases on query, key and value alone.
    "qwen2": dict(config=QWEN2, form="BF16"),
    "qwen2_gguf": dict(config=QWEN2, form="gguf F32"),
    # Head size != hidden / heads, as in Mistral-Nemo; no window.
    "mistral": dict(
        config=dict(
            family="mistral",
            vocab_size=151,
            hidden_size=40,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=90,
            sliding_window=None,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        form="BF16 parts",
    ),
    # Four query heads share a KV head; query and key are normalised by head.
    "qwen3": dict(config=QWEN3, form="BF16", lengths=LONG),
    "qwen3_gguf": dict(config=QWEN3, form="gguf F32"),
    # A rotated part of each head, one norm for both halves of a layer.
    "phi": dict(
        config=dict(
            family="phi",
            vocab_size=139,
            hidden_size=80,
            num_attention_heads=5,
            intermediate_size=150,
            tie_word_embeddings=False,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
        ),
        form="F16",
        lengths=LONG,
    ),
    # Query, key and value in one tensor, gate and up in one.
    "phi3": dict(
        config=dict(
            family="phi3",
            vocab_size=149,
            hidden_size=72,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=100,
            sliding_window=None,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        form="BF16 parts",
        lengths=LONG,
    ),
    # Transposed matrices; seven heads.
    "gpt2": dict(
        config=dict(
            family="gpt2",
            vocab_size=163,
            hidden_size=56,
            num_attention_heads=7,
            n_inner=90,
        ),
        form="F32",
        lengths=LONG,
    ),
    "gpt_bigcode": dict(
        config=dict(
            family="gpt_bigcode",
            vocab_size=157,
            hidden_size=72,
            num_attention_heads=6,
            n_inner=130,
        ),
        form="BF16",
        lengths=LONG,
    ),
    "starcoder2": dict(
        config=dict(
            family="starcoder2",
            vocab_size=137,
            hidden_size=64,
            num_attention_heads=8,
            num_key_value_heads=2,
            intermediate_size=110,
            sliding_window=None,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        ),
        form="F32",
        lengths=LONG,
        gains=dict(layer=4.0),
    ),
    # A quarter of each head rotated, LayerNorm, biases on query, key and value alone, as 1.6B.
    "stablelm": dict(
        config=dict(
            family="stablelm",
            vocab_size=133,
            hidden_size=72,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=100,
            use_qkv_bias=True,
            tie_word_embeddings=False,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.35,
            },
        ),
        form="F16",
        lengths=LONG,
    ),
    # Both halves of a layer side by side behind one norm.
    "stablelm_parallel": dict(
        config=dict(
            family="stablelm",
            vocab_size=117,
            hidden_size=80,
            num_attention_heads=5,
            num_key_value_heads=5,
            intermediate_size=90,
            use_parallel_residual=True,
            tie_word_embeddings=False,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.25,
            },
        ),
        form="BF16",
        lengths=LONG,
    ),
    # Neighbours in a part of each head are rotated.
    "gptj": dict(
        config=dict(
            family="gptj",
            vocab_size=131,
            hidden_size=80,
            num_attention_heads=5,
            n_inner=120,
            rotary_dim=12,
        ),
        form="F16",
        lengths=LONG,
    ),
    # Query, key and value by head; a norm for each half of a layer, side by side.
    "gpt_neox": dict(
        config=dict(
            family="gpt_neox",
            vocab_size=127,
            hidden_size=96,
            num_attention_heads=6,
            intermediate_size=140,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.25,
            },
        ),
        form="F16",
        lengths=LONG,
    ),
    # The same one half after the other, as RedPajama-INCITE has them.
    "gpt_neox_sequential": dict(
        config=dict(
            family="gpt_neox",
            vocab_size=113,
            hidden_size=80,
            num_attention_heads=5,
            intermediate_size=100,
            use_parallel_residual=False,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 1.0,
            },
        ),
        form="F32",
        lengths=LONG,
    ),
    "opt": dict(
        config=dict(
            family="opt",
            vocab_size=181,
            hidden_size=72,
            word_embed_proj_dim=72,
            num_attention_heads=6,
            ffn_dim=100,
        ),
        form="F16",
        lengths=LONG,
        gains=dict(layer=4.0),
    ),
    # Norms behind the sums, none in front of the head, a narrower embedding, as 350M.
    "opt_350m": dict(
        config=dict(
            family="opt",
            vocab_size=137,
            hidden_size=56,
            word_embed_proj_dim=40,
            num_attention_heads=7,
            ffn_dim=90,
            do_layer_norm_before=False,
        ),
        form="F16",
        lengths=LONG,
        gains=dict(layer=1.0, bias=0.1),
    ),
    # A wider embedding and a head of its own, no biases, no norm in front of the head.
    "opt_bare": dict(
        config=dict(
            family="opt",
            vocab_size=123,
            hidden_size=80,
            word_embed_proj_dim=96,
            num_attention_heads=5,
            ffn_dim=100,
            activation_function="gelu",
            enable_bias=False,
            _remove_final_layer_norm=True,
            tie_word_embeddings=False,
        ),
        form="BF16",
        lengths=LONG,
        # The head reads sums that nothing has normalised.
        gains=dict(embedding=0.12, query=1.7),
    ),
    # Every layer sees its last 37 positions, fewer than a tile of keys.
    "mistral_window": dict(
        config=dict(
            family="mistral",
            vocab_size=127,
            hidden_size=40,
            num_attention_heads=5,
            num_key_value_heads=5,
            head_dim=12,
            intermediate_size=70,
            sliding_window=37,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        form="BF16",
    ),
    # One layer of full attention, then two that see 20 positions.
    "qwen2_window": dict(
        config=dict(
            QWEN2,
            vocab_size=131,
            hidden_size=48,
            num_attention_heads=6,
            intermediate_size=64,
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=20,
            max_window_layers=1,
        ),
        form="BF16",
    ),
    # ALiBi of a number of heads that is no power of two.
    "mpt": dict(
        config=dict(
            family="mpt",
            vocab_size=103,
            d_model=80,
            n_heads=5,
            max_seq_len=512,
            attn_config=dict(clip_qkv=2.5),
        ),
        form="F16",
        lengths=LONG,
        gains=dict(layer=4.0),
    ),
    # ALiBi, a norm behind the embedding, query, key and value by head.
    "bloom": dict(
        config=dict(
            family="bloom",
            vocab_size=109,
            hidden_size=56,
            n_head=7,
            seq_length=512,
            tie_word_embeddings=True,
        ),
        form="F16",
        lengths=LONG,
        # Biases that all tokens share would make its answers repeat themselves.
        gains=dict(layer=4.0, query=5.0, bias=0.1),
    ),
    # As 7B and 40B: one KV head and one norm; groups and two norms.
    "falcon_7b": dict(
        config=dict(
            family="falcon",
            vocab_size=107,
            hidden_size=72,
            num_attention_heads=6,
            ffn_hidden_size=100,
            new_decoder_architecture=False,
            multi_query=True,
            parallel_attn=True,
            bias=False,
            tie_word_embeddings=False,
        ),
        form="BF16",
        lengths=LONG,
    ),
    "falcon_40b": dict(
        config=dict(
            family="falcon",
            vocab_size=97,
            hidden_size=64,
            num_attention_heads=8,
            num_kv_heads=2,
            ffn_hidden_size=100,
            new_decoder_architecture=True,
            bias=False,
            tie_word_embeddings=False,
        ),
        form="F32",
        lengths=LONG,
    ),
    # ALiBi as RW has it: query, key and value by head, biases, one half after the other.
    "falcon_rw": dict(
        config=dict(
            family="falcon",
            vocab_size=101,
            hidden_size=72,
            num_attention_heads=6,
            ffn_hidden_size=110,
            new_decoder_architecture=False,
            multi_query=False,
            parallel_attn=False,
            bias=True,
            alibi=True,
            tie_word_embeddings=True,
        ),
        form="BF16",
        lengths=LONG,
        gains=dict(layer=4.0, bias=0.1),
    ),
    # ALiBi beside the heads and norms of 7B and of 40B.
    "falcon_alibi": dict(
        config=dict(
            family="falcon",
            vocab_size=89,
            hidden_size=80,
            num_attention_heads=5,
            ffn_hidden_size=90,
            new_decoder_architecture=False,
            multi_query=True,
            parallel_attn=True,
            bias=False,
            alibi=True,
            tie_word_embeddings=False,
        ),
        form="F16",
        lengths=LONG,
    ),
    "falcon_alibi_groups": dict(
        config=dict(
            family="falcon",
            vocab_size=83,
            hidden_size=72,
            num_attention_heads=6,
            num_kv_heads=3,
            ffn_hidden_size=100,
            new_decoder_architecture=True,
            bias=True,
            alibi=True,
            tie_word_embeddings=False,
        ),
        form="F32",
        lengths=LONG,
        gains=dict(bias=0.1),
    ),
    # A window on every second layer, shorter than the longest prompt; caps on scores and logits.
    "gemma2": dict(
        config=dict(
            family="gemma2",
            vocab_size=83,
            hidden_size=56,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=20,
            query_pre_attn_scalar=24,
            intermediate_size=90,
            sliding_window=50,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=20.0,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        form="BF16",
        lengths=LONG,
    ),
    # Two rotary bases, one of them scaled.
    "gemma3": dict(
        config=dict(
            family="gemma3",
            num_hidden_layers=3,
            vocab_size=79,
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=24,
            query_pre_attn_scalar=24,
            intermediate_size=80,
            sliding_window=40,
            tie_word_embeddings=False,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
        form="F16",
        lengths=LONG,
    ),
    # Rotary scaling beyond an original context of 64.
    "llama_dynamic": dict(
        config=dict(
            BIASED,
            vocab_size=107,
            attention_bias=False,
            mlp_bias=False,
            rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
        ),
        form="BF16",
        lengths=LONG,
    ),
    "mistral_yarn": dict(
        config=dict(
            family="mistral",
            vocab_size=109,
            hidden_size=40,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=20,
            intermediate_size=70,
            sliding_window=None,
            tie_word_embeddings=False,
            rope_parameters=dict(
                YARN, truncate=False, beta_fast=4.0, mscale=0.8, mscale_all_dim=0.5
            ),
        ),
        form="BF16",
        lengths=LONG,
    ),
    "qwen2_yarn": dict(
        config=dict(QWEN2, vocab_size=113, tie_word_embeddings=False, rope_parameters=YARN),
        form="F16",
        lengths=LONG,
    ),
    "qwen2_yarn_gguf": dict(form="gguf F16", same_as="qwen2_yarn"),
    # Windows on the last two of three layers.
    "qwen3_window_yarn": dict(
        config=dict(
            QWEN3,
            vocab_size=103,
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=45,
            max_window_layers=1,
            rope_parameters=dict(YARN, rope_theta=1000000.0, attention_factor=1.1),
        ),
        form="BF16",
        lengths=LONG,
    ),
    # Heads of the size that published models have, which kernels normalise as they rotate.
    "qwen3_wide_heads": dict(
        config=dict(
            QWEN3,
            vocab_size=101,
            hidden_size=48,
            num_attention_heads=6,
            head_dim=128,
        ),
        form="BF16",
        lengths=LONG,
    ),
    # A part of each head rotated, by the factors for long sequences: these prompts all are.
    "phi3_longrope": dict(
        config=dict(
            family="phi3",
            vocab_size=127,
            hidden_size=96,
            num_attention_heads=6,
            num_key_value_heads=3,
            intermediate_size=100,
            sliding_window=None,
            tie_word_embeddings=False,
            original_max_position_embeddings=64,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
            },
        ),
        form="BF16",
        lengths=(65, 150, 300),
        gains=dict(query=1.2),
    ),
    "phi3_longrope_gguf": dict(form="gguf BF16", same_as="phi3_longrope"),
    # The layouts of llama.cpp's converter, which writes an MLP of four times the hidden size for
    # some families whatever config.json says.
    "gpt2_gguf": dict(
        config=dict(family="gpt2", vocab_size=163, hidden_size=56, num_attention_heads=7),
        form="gguf F32",
        lengths=LONG,
    ),
    "gpt_bigcode_gguf": dict(
        config=dict(family="gpt_bigcode", vocab_size=157, hidden_size=72, num_attention_heads=6),
        form="gguf BF16",
        lengths=LONG,
    ),
    "starcoder2_gguf": dict(form="gguf F32", same_as="starcoder2"),
    "stablelm_gguf": dict(form="gguf F16", same_as="stablelm"),
    "stablelm_parallel_gguf": dict(form="gguf BF16", same_as="stablelm_parallel"),
    "gpt_neox_gguf": dict(form="gguf F16", same_as="gpt_neox"),
    "gpt_neox_sequential_gguf": dict(form="gguf F32", same_as="gpt_neox_sequential"),
    "bloom_gguf": dict(form="gguf F16", same_as="bloom"),
    "falcon_7b_gguf": dict(
        config=dict(
            family="falcon",
            vocab_size=107,
            hidden_size=72,
            num_attention_heads=6,
            new_decoder_architecture=False,
            multi_query=True,
            parallel_attn=True,
            bias=False,
            tie_word_embeddings=False,
        ),
        form="gguf F32",
        lengths=LONG,
    ),
    "falcon_40b_gguf": dict(
        config=dict(
            family="falcon",
            vocab_size=97,
            hidden_size=64,
            num_attention_heads=8,
            num_kv_heads=2,
            new_decoder_architecture=True,
            bias=False,
            tie_word_embeddings=False,
        ),
        form="gguf BF16",
        lengths=LONG,
    ),
    # Scores are divided by the root of the head size, of which no key tells.
    "gemma2_gguf": dict(
        config=dict(
            family="gemma2",
            vocab_size=83,
            hidden_size=56,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=20,
            query_pre_attn_scalar=20,
            intermediate_size=90,
            sliding_window=50,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=20.0,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        form="gguf F32",
        lengths=LONG,
        gains=dict(embedding=0.07, norm=3.0),
    ),
    # The sixth layer of seven sees everything.
    "gemma3_gguf": dict(
        config=dict(
            family="gemma3",
            num_hidden_layers=7,
            vocab_size=79,
            hidden_size=40,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=12,
            query_pre_attn_scalar=12,
            intermediate_size=50,
            sliding_window=40,
            tie_word_embeddings=False,
            layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        ),
        form="gguf BF16",
        lengths=LONG,
        # Seven layers of the usual size multiply bfloat16's roundings too much.
        gains=dict(query=1.0, norm=0.4),
    ),
    # Packed rows of fused tensors; a window.
    "phi3_gguf": dict(
        config=dict(
            family="phi3",
            vocab_size=149,
            hidden_size=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=160,
            sliding_window=50,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        form="gguf Q8_0",
        lengths=LONG,
        gains=dict(query=1.2),
    ),
    # Of four ranks each has two heads, half a block of the output projection.
    "llama_super_blocks": dict(config=SUPER_BLOCKS, form="gguf super", ranks_max=2),
}

MODELS.update(experts.MODELS)

# What GGUF calls a model_type where it is another word.
GGUF_ARCHITECTURES = {
    "gpt_bigcode": "starcoder",
    "gpt_neox": "gptneox",
    "gemma3_text": "gemma3",
    **experts.GGUF_ARCHITECTURES,
}
MIXED_TYPES = {
    "attn_q": "F16",
    "attn_k": "BF16",
    "attn_v": "Q8_0",
    "attn_output": "Q4_0",
    "ffn_gate": "Q4_1",
    "ffn_up": "Q8_0",
    "ffn_down": "Q4_1",
    "token_embd": "BF16",
    "output": "Q8_0",
}
# By tensor of the first layer, then of the second.
SUPER_TYPES = {
    "attn_q": ("Q2_K", "Q5_K"),
    "attn_k": ("Q3_K", "Q5_1"),
    "attn_v": ("Q6_K", "MXFP4"),
    "attn_output": ("Q4_K", "IQ4_XS"),
    "ffn_gate": ("Q5_K", "Q3_K"),
    "ffn_up": ("IQ4_XS", "Q2_K"),
    "ffn_down": ("Q6_K", "Q4_K"),
    "token_embd": ("Q5_0",),
    "output": ("IQ4_NL",),
}
# Formats that PyPI gguf reads and does not write: where in a block the f16 that multiplies codes
# lies, then the one that multiplies minima.
HALVES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
}


CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "phi": transformers.PhiConfig,
    "phi3": transformers.Phi3Config,
    "gpt2": transformers.GPT2Config,
    "gpt_bigcode": transformers.GPTBigCodeConfig,
    "stablelm": transformers.StableLmConfig,
    "starcoder2": transformers.Starcoder2Config,
    "gptj": transformers.GPTJConfig,
    "gpt_neox": transformers.GPTNeoXConfig,
    "opt": transformers.OPTConfig,
    "mpt": transformers.MptConfig,
    "bloom": transformers.BloomConfig,
    "falcon": transformers.FalconConfig,
    "gemma2": transformers.Gemma2Config,
    "gemma3": transformers.Gemma3TextConfig,
    **experts.CONFIGS,
}
# Tensors that are looked up by rows, and those of attention's first products.
EMBEDDINGS = (
    "embed_tokens",
    "embed_positions",
    "embed_in",
    "embed_out",
    "lm_head",
    "wte",
    "wpe",
    "word_embeddings",
)
QUERIES = ("q_proj", "k_proj", "c_attn", "query_key_value", "qkv_proj", "Wqkv")


# transformers rounds Falcon's ALiBi to bfloat16, by the position in the text and whatever the
# model's type is; weft does not. BLOOM's function is the same one in float32.
modeling_falcon.build_alibi_tensor = modeling_bloom.build_alibi_tensor


def attention_of(values):
    """The way of attention that is right: the eager one adds Falcon's ALiBi twice, to the mask and
    to the scores."""
    return "sdpa" if values.get("family") == "falcon" and values.get("alibi") else "eager"


def head_size(config):
    # Not every family's config has the key.
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def make_config(values):
    values = {"num_hidden_layers": 2, **values}
    attention = attention_of(values)
    family = values.pop("family", "llama")
    if hasattr(CONFIGS[family](), "rms_norm_eps"):
        values["rms_norm_eps"] = 1e-5
    return CONFIGS[family](
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        attn_implementation=attention,
        **values,
    )


def random_weights(config, seed, gains):
    """Weights whose logits spread: random_normal / sqrt(inputs) with gains, norms about 1."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    out = {}
    conv1d = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, transformers.pytorch_utils.Conv1D)
    }
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator)
        if name.endswith(".bias"):
            out[name] = gains["bias"] * noise
        elif tensor.dim() == 1:
            out[name] = gains["norm"] + 0.2 * noise
        elif any(part in name for part in EMBEDDINGS):
            out[name] = gains["embedding"] * noise
        else:
            # Queries and keys large enough for attention that looks at few positions.
            kind = "query" if any(part in name for part in QUERIES) else "layer"
            inputs = tensor.shape[0 if name in conv1d else -1]
            out[name] = gains[kind] / inputs**0.5 * noise
    if config.tie_word_embeddings:
        embedding, head = tied_names(model)
        out[head] = out[embedding]
    return out


def tied_names(model):
    """The names of the embedding and of the head."""
    names = {id(module): name for name, module in model.named_modules()}
    embedding = names[id(model.get_input_embeddings())]
    head = names[id(model.get_output_embeddings())]
    return f"{embedding}.weight", f"{head}.weight"


def gguf_architecture(config):
    return GGUF_ARCHITECTURES.get(config.model_type, config.model_type)


def gguf_name(config, name):
    """transformers' tensor name -> GGUF's, by the table of llama.cpp's converter."""
    kinds = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    if config.model_type == "bloom":
        name = name.removeprefix("transformer.")
    table = gguf.get_tensor_name_map(kinds[gguf_architecture(config)], config.num_hidden_layers)
    return table.get_name(name, try_suffixes=(".weight", ".bias"))


def gguf_tensors(config, weights):
    """The model's tensors by GGUF's names, as llama.cpp's converter changes them."""
    heads = config.num_attention_heads
    groups = 1
    if config.model_type in ("bloom", "gpt_neox"):
        groups = heads
    elif config.model_type == "falcon" and config.new_decoder_architecture:
        groups = config.num_kv_heads
    conv1d = config.model_type == "gpt2"
    out = {}
    for name, tensor in experts.split_gate_up(weights).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = experts.gguf_shape(name, tensor.numpy())
        if "query_key_value" in name:
            # By group of heads: queries, a key, a value; the file has all queries first.
            rows = values.reshape(groups, -1, head_size(config), *values.shape[1:])
            parts = (rows[:, :-2], rows[:, -2:-1], rows[:, -1:])
            values = np.concatenate([p.reshape(-1, *values.shape[1:]) for p in parts])
        elif conv1d and values.ndim == 2 and ".h." in name:
            values = values.T
        elif config.model_type.startswith("gemma") and name.endswith("norm.weight"):
            values = values + 1
        out[gguf_name(config, name)] = np.ascontiguousarray(values)
    return out


def gguf_type(name, form):
    """Type of a GGUF tensor; like published files, vectors stay F32 and 4-bit ones get a Q8_0
    embedding."""
    part = name.removesuffix(".weight").split(".")[-1]
    if "norm" in part or name.endswith(".bias") or experts.stays_wide(name):
        return gguf.GGMLQuantizationType.F32
    if form == "mixed":
        return gguf.GGMLQuantizationType[MIXED_TYPES[part]]
    if form == "super":
        types = SUPER_TYPES[part]
        return gguf.GGMLQuantizationType[types[1 if ".1." in name else 0]]
    if form == "mxfp4":
        return gguf.GGMLQuantizationType["MXFP4" if part.endswith("_exps") else "BF16"]
    if part == "token_embd" and form.startswith("Q4"):
        return gguf.GGMLQuantizationType.Q8_0
    return gguf.GGMLQuantizationType[form]


def random_blocks(values, kind):
    """Blocks of random bits whose numbers have the mean 0 and the deviation of `values`: any bits
    are a block. The same values give the same blocks."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(zlib.crc32(values.tobytes()))
    blocks = generator.integers(0, 256, (values.size // elements, size), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.MXFP4:
        # An exponent for all, of which 128 stands for 1: the codes' deviation is about 5.
        blocks[:, 0] = 128 + round(float(np.log2(values.std() / 5)))
    halves = HALVES[kind.name]

    def numbers(scale, minimum):
        for at, half in zip(halves, (scale, minimum)):
            blocks[:, at : at + 2] = np.array([half], dtype=np.float16).view(np.uint8)
        return gguf.dequantize(blocks, kind)

    if halves:
        minimum = 0.0
        if len(halves) == 2:
            minimum = -numbers(1, 0).mean() / numbers(0, 1).mean()
        # f16 keeps few digits of small numbers.
        scale = values.std() / numbers(1, minimum).std()
        numbers(scale, scale * minimum)
    return blocks.reshape(*values.shape[:-1], -1)


def pack(values, kind, form):
    """A GGUF tensor's bytes, a row each."""
    if form == "super" and kind.name in HALVES:
        return random_blocks(values, kind)
    return gguf.quantize(values, kind)


def permute(rows, heads):
    """Row i + j * half of a head becomes row 2i + j, as llama.cpp's converter stores Q and K."""
    shape = rows.shape
    return (
        rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    )


def head_count(config, name):
    if "attn_q." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if "attn_k." in name else 0


def rounded(weights, form, config):
    """The weights as the file will hold them, in float32."""
    out = {}
    embedding, head = tied_names(AutoModelForCausalLM.from_config(config))
    for name, tensor in weights.items():
        if name == head and config.tie_word_embeddings:
            continue
        if form.startswith("gguf"):
            kind = gguf_type(gguf_name(config, experts.split_name(name)), form.split()[1])
            packed = pack(tensor.numpy(), kind, form.split()[1])
            values = gguf.dequantize(packed, kind).reshape(tensor.shape)
            out[name] = torch.from_numpy(values.astype(np.float32))
        elif "mxfp4" in form and experts.in_mxfp4(name):
            out[name] = experts.mxfp4_values(tensor)
        else:
            dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
            stays = experts.stays(name, tensor)
            out[name] = tensor if stays else tensor.to(dtype[form.split()[0]]).float()
    if config.tie_word_embeddings:
        out[head] = out[embedding]
    return out


@torch.no_grad()
def run_case(model, prompt_ids):
    """Log-probabilities over the prompt and the greedy continuation (no id ends it)."""
    logits = model(input_ids=torch.tensor([prompt_ids])).logits[0]
    logprobs = torch.log_softmax(logits, dim=-1)
    following = [round(float(logprobs[i, t]), 6) for i, t in enumerate(prompt_ids[1:])]
    positions = sorted({0, len(prompt_ids) // 2, len(prompt_ids) - 1})
    full = {str(p): [round(v, 5) for v in logprobs[p].tolist()] for p in positions}
    ids, margins, step, past = [], [], torch.tensor([prompt_ids]), None
    while len(ids) < GREEDY_TOKENS:
        result = model(input_ids=step, past_key_values=past, use_cache=True)
        past = result.past_key_values
        top = torch.topk(result.logits[0, -1], 2)
        ids.append(int(top.indices[0]))
        margins.append(round(float(top.values[0] - top.values[1]), 5))
        if margins[-1] < MARGIN_MIN:
            return None
        step = torch.tensor([[ids[-1]]])
    if len(set(ids)) < GREEDY_TOKENS // 3:
        return None  # a model that repeats itself proves little
    return {
        "prompt_ids": prompt_ids,
        "next_logprobs": following,
        "logprobs": full,
        "greedy_ids": ids,
        "margins": margins,
    }


def find_model(config, form, lengths, gains):
    """The first seed whose greedy continuations have margins and do not repeat themselves."""
    for seed in range(SEEDS_MAX):
        weights = random_weights(config, seed, gains)
        model = AutoModelForCausalLM.from_config(config).float().eval()
        model.load_state_dict(rounded(weights, form, config))
        generator = np.random.default_rng(7)
        cases = []
        for length in lengths:
            ids = generator.integers(3, config.vocab_size, length).tolist()
            case = run_case(model, ids)
            if case is None:
                break
            cases.append(case)
        if len(cases) == len(lengths):
            return seed, weights, cases
    raise RuntimeError("no seed gives healthy margins")


def make_rope():
    """Inverse frequencies of rotary embedding for several settings: goldens/rope.json."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    llama31 = dict(LLAMA3, rope_theta=500000.0, original_max_position_embeddings=8192)
    settings = [
        (20, {"rope_type": "default", "rope_theta": 10000.0}),
        (128, {"rope_type": "default", "rope_theta": 500000.0}),
        (64, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
        (20, LLAMA3),
        (128, llama31),
        (20, YARN),
        (20, dict(YARN, truncate=False, beta_fast=4.0)),
        (128, dict(YARN, rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768)),
    ]
    out = []
    for head_dim, parameters in settings:
        config = make_config(dict(ODD, head_dim=head_dim, rope_parameters=parameters))
        values = LlamaRotaryEmbedding(config).inv_freq.tolist()
        out.append({"head_dim": head_dim, "rope_parameters": parameters, "inverse": values})
    (HERE / "rope.json").write_text(json.dumps(out) + "\n")


def words(config):
    """A vocabulary for tests that need text: three special tokens, then the bytes from blank on in
    GPT-2's spelling, then words that nothing merges into."""
    alphabet = gguf_alphabet()
    tokens = ["<unk>", "<s>", "</s>"] + alphabet
    tokens += [f"word{i}" for i in range(len(tokens), config.vocab_size)]
    return tokens[: config.vocab_size]


def gguf_alphabet():
    return ["\u0120", "\u010a"] + [chr(c) for c in range(33, 127)]


def write_hf(folder, config, weights, form):
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[form.split()[0]]
    model = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(model).__name__]
    if "mxfp4" in form:
        config.quantization_config = experts.MXFP4_CONFIG
    config.save_pretrained(folder)
    generation = transformers.GenerationConfig(bos_token_id=1, eos_token_id=2)
    generation.save_pretrained(folder)
    weights = experts.published(config, weights) | experts.unread(config)
    if "mxfp4" in form:
        weights = experts.mxfp4_tensors(weights)
    tensors = {
        k: (v if experts.stays(k, v) else v.to(dtype)).contiguous() for k, v in weights.items()
    }
    if config.tie_word_embeddings:
        del tensors[tied_names(model)[1]]
    if config.model_type == "gpt_neox":
        # As published; the class calls it otherwise since transformers 5.
        tensors["embed_out.weight"] = tensors.pop("lm_head.weight")
        # Old files hold masks that nothing reads.
        for layer in range(config.num_hidden_layers):
            attention = f"gpt_neox.layers.{layer}.attention"
            tensors[f"{attention}.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
            tensors[f"{attention}.masked_bias"] = torch.tensor(-1e9)
    if "parts" in form:
        names = sorted(tensors)
        halves = {
            "model-00001-of-00002.safetensors": names[: len(names) // 2],
            "model-00002-of-00002.safetensors": names[len(names) // 2 :],
        }
        for file, part in halves.items():
            save_file({k: tensors[k] for k in part}, folder / file, metadata={"format": "pt"})
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        index = {
            "metadata": {"total_size": size},
            "weight_map": {k: file for file, part in halves.items() for k in part},
        }
        text = json.dumps(index, indent=1)
        (folder / "model.safetensors.index.json").write_text(text + "\n")
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    vocab = {token: i for i, token in enumerate(words(config))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def rope_factors(config):
    """llama3 scaling as divisors of the frequencies, as llama.cpp's converter writes them."""
    rope = config.rope_parameters
    size = head_size(config)
    out = []
    for i in range(0, size, 2):
        wave = 2 * np.pi * rope["rope_theta"] ** (i / size)
        context = rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if wave < context / high:
            out.append(1.0)
        elif wave > context / low:
            out.append(rope["factor"])
        else:
            smooth = (context / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(out, dtype=np.float32)


def add_gguf_sizes(writer, config):
    """The keys that llama.cpp's converter writes for config.json's."""

    def get(*names):
        return next((v for n in names if (v := getattr(config, n, None)) is not None), None)

    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(get("seq_length", "max_position_embeddings"))
    writer.add_embedding_length(config.hidden_size)
    # Where config.json may say otherwise the converter writes four times the hidden size.
    inner = config.hidden_size * 4
    if config.model_type not in ("gpt2", "gpt_bigcode", "bloom", "falcon"):
        inner = config.intermediate_size
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt_bigcode":
        writer.add_head_count_kv(1)
    elif config.model_type == "falcon":
        writer.add_head_count_kv(config.num_kv_heads if config.new_decoder_architecture else 1)
    elif config.model_type not in ("gpt2", "gpt_neox"):
        writer.add_head_count_kv(get("num_key_value_heads", "num_attention_heads"))
    if get("rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(get("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"))
    if config.model_type == "falcon":
        writer.add_tensor_data_layout("jploski")
    if config.model_type in ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", *experts.CONFIGS):
        writer.add_key_length(head_size(config))
        writer.add_value_length(head_size(config))
    if config.model_type == "gpt_neox":
        writer.add_parallel_residual(config.use_parallel_residual)
    elif config.model_type == "stablelm":
        # What the converter writes where config.json does not say, whatever the tensors are.
        writer.add_parallel_residual(True)
    if get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.model_type in ("gemma2", "gemma3_text", "phi3"):
        writer.add_sliding_window(config.sliding_window or 0)


def add_gguf_rope(writer, config):
    rope = getattr(config, "rope_parameters", None)
    # Converters write no rotary keys of these, or of GPT-2 and BLOOM none at all.
    if not rope or config.model_type in ("falcon", "gemma2"):
        return
    rope = rope.get("full_attention", rope)
    share = rope.get("partial_rotary_factor", 1.0)
    if config.model_type not in ("gpt_neox", "stablelm"):
        writer.add_rope_freq_base(rope["rope_theta"])
    if config.model_type != "gemma3_text":
        writer.add_rope_dimension_count(int(head_size(config) * share))
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    elif rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif rope["rope_type"] == "longrope":
        original = config.original_max_position_embeddings
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(scale) / np.log(original)))
        for name in ("long", "short"):
            factors = np.array(rope[f"{name}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", factors)


def add_gguf_tokenizer(writer, config):
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = words(config)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    # GGUFWriter cannot write an empty list; this pair is of no use but harmless.
    writer.add_token_merges(["w o"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def write_gguf(folder, config, weights, form):
    writer = gguf.GGUFWriter(folder / "model.gguf", gguf_architecture(config))
    writer.add_name(folder.name)
    add_gguf_sizes(writer, config)
    experts.add_gguf_keys(writer, config)
    add_gguf_rope(writer, config)
    writer.add_quantization_version(2)
    add_gguf_tokenizer(writer, config)
    for name, values in gguf_tensors(config, weights).items():
        kind = gguf_type(name, form)
        packed = pack(values, kind, form)
        # llama.cpp rotates neighbours in this architecture alone, of those made here.
        if gguf_architecture(config) == "llama" and (heads := head_count(config, name)):
            packed = permute(packed, heads)
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def is_like_llama(config):
    """Tensors have Llama's names, so that a test can tell which parameter each one is."""
    return config.model_type in ("llama", "mistral", "qwen2", "qwen3")


def sample_rows(weights, form, config):
    """Some rows in transformers' order and in float32, to check reading and un-permutation."""
    out = []
    for name, tensor in rounded(weights, form, config).items():
        if tensor.dim() == 1:
            out.append({"tensor": name, "row": 0, "values": tensor.tolist()})
        elif ".1." in name or "layers" not in name:
            row = tensor.shape[0] * 2 // 3 + 1
            out.append({"tensor": name, "row": row, "values": tensor[row].tolist()})
    return out


def make(name, model):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    # A GGUF twin of another model has that model's weights, as its files hold them.
    base = MODELS[model["same_as"]] if "same_as" in model else model
    config = make_config(base["config"])
    form = model["form"]
    lengths = base.get("lengths", PROMPT_LENGTHS)
    # A head that is the embedding likes the token that it has just read: where nothing else helps,
    # larger layers drown it.
    gains = {**GAINS, **base.get("gains", {})}
    seed, weights, cases = find_model(config, base["form"], lengths, gains)
    if form.startswith("gguf"):
        if base is not model:
            weights = rounded(weights, base["form"], config)
        write_gguf(folder, config, weights, form.split()[1])
    else:
        write_hf(folder, config, weights, form)
    golden = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}, float32",
        "model": "model.gguf" if form.startswith("gguf") else ".",
        "seed": seed,
        **({"ranks_max": model["ranks_max"]} if "ranks_max" in model else {}),
        **({"rows": sample_rows(weights, form, config)} if is_like_llama(config) else {}),
        "cases": cases,
    }
    margins = [m for case in cases for m in case["margins"]]
    head = tied_names(AutoModelForCausalLM.from_config(config))[1]
    golden["parameters"] = sum(
        t.numel() for n, t in weights.items() if not (config.tie_word_embeddings and n == head)
    )
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(f"{name}: seed {seed}, smallest margin {min(margins)}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        make_rope()
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name])
