"""Tiny models with experts, and what their files call the experts' tensors. Part of make.py."""

import gguf
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

CONFIGS = {
    "mixtral": transformers.MixtralConfig,
    "qwen2_moe": transformers.Qwen2MoeConfig,
    "qwen3_moe": transformers.Qwen3MoeConfig,
    "gpt_oss": transformers.GptOssConfig,
    "deepseek_v2": transformers.DeepseekV2Config,
    "deepseek_v3": transformers.DeepseekV3Config,
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1000000.0}
LONG = (1, 7, 64, 300)
# Head size != hidden / heads, five experts, a window shorter than the prompts.
MIXTRAL = dict(
    family="mixtral",
    vocab_size=157,
    hidden_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=12,
    intermediate_size=44,
    num_local_experts=5,
    num_experts_per_tok=2,
    sliding_window=24,
    tie_word_embeddings=False,
    rope_parameters=PLAIN_ROPE,
)
# The first of three layers is plain; weights are shares as they are; six heads share three.
QWEN2_MOE = dict(
    family="qwen2_moe",
    num_hidden_layers=3,
    vocab_size=149,
    hidden_size=48,
    num_attention_heads=6,
    num_key_value_heads=3,
    intermediate_size=72,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=52,
    num_experts=6,
    num_experts_per_tok=3,
    norm_topk_prob=False,
    mlp_only_layers=[0],
    tie_word_embeddings=False,
    rope_parameters=PLAIN_ROPE,
)
QWEN3_MOE = dict(
    family="qwen3_moe",
    vocab_size=139,
    hidden_size=56,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=12,
    intermediate_size=64,
    moe_intermediate_size=28,
    num_experts=11,
    num_experts_per_tok=4,
    norm_topk_prob=True,
    tie_word_embeddings=False,
    rope_parameters=PLAIN_ROPE,
)
# Sinks, a window in the first of two layers, biases, gates and ups by turns and transposed; yarn from an original context of 64 on.
GPT_OSS = dict(
    family="gpt_oss",
    vocab_size=131,
    hidden_size=64,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=96,
    num_local_experts=6,
    num_experts_per_tok=3,
    sliding_window=40,
    tie_word_embeddings=False,
    rope_parameters={
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
)
# Latent attention, queries from the hidden state; yarn from an original context of 64 on with two
# factors; the first of three layers is plain, then three of eight experts from two of four groups.
DEEPSEEK_V2 = dict(
    family="deepseek_v2",
    num_hidden_layers=3,
    vocab_size=151,
    hidden_size=48,
    num_attention_heads=6,
    q_lora_rank=None,
    kv_lora_rank=40,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=24,
    intermediate_size=72,
    first_k_dense_replace=1,
    n_routed_experts=8,
    num_experts_per_tok=3,
    n_group=4,
    topk_group=2,
    topk_method="group_limited_greedy",
    moe_intermediate_size=20,
    n_shared_experts=2,
    routed_scaling_factor=1.5,
    tie_word_embeddings=False,
    rope_parameters={
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 64,
    },
)
# Queries from a latent of their own; experts by sigmoids, with biases that count for the choice
# alone, from two of three groups by the sum of a group's two best.
DEEPSEEK_V3 = dict(
    family="deepseek_v3",
    num_hidden_layers=3,
    vocab_size=163,
    hidden_size=56,
    num_attention_heads=5,
    num_key_value_heads=5,
    q_lora_rank=32,
    kv_lora_rank=24,
    qk_nope_head_dim=24,
    qk_rope_head_dim=16,
    v_head_dim=16,
    intermediate_size=100,
    first_k_dense_replace=1,
    n_routed_experts=12,
    num_experts_per_tok=4,
    n_group=3,
    topk_group=2,
    moe_intermediate_size=28,
    n_shared_experts=1,
    norm_topk_prob=True,
    routed_scaling_factor=1.8,
    tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
# Rows of whole blocks; no window, which GGUF files of this architecture do not have.
MIXTRAL_BLOCKS = dict(
    MIXTRAL, hidden_size=64, head_dim=16, intermediate_size=96, sliding_window=None
)
MODELS = {
    "mixtral": dict(config=MIXTRAL, form="BF16 parts", lengths=LONG),
    "mixtral_gguf": dict(config=MIXTRAL_BLOCKS, form="gguf Q8_0", ranks_max=2),
    "qwen2_moe": dict(config=QWEN2_MOE, form="F32", lengths=LONG),
    "qwen2_moe_gguf": dict(
        config=dict(QWEN2_MOE, num_hidden_layers=2, mlp_only_layers=[]), form="gguf F32"
    ),
    "qwen3_moe": dict(config=QWEN3_MOE, form="F16", lengths=LONG),
    "qwen3_moe_gguf": dict(config=QWEN3_MOE, form="gguf F32"),
    # A limit that cuts a quarter of the numbers; GGUF files always mean 7.
    "gpt_oss": dict(config=dict(GPT_OSS, swiglu_limit=1.0), form="BF16", lengths=LONG),
    "gpt_oss_gguf": dict(config=GPT_OSS, form="gguf F32"),
    # Experts of five blocks, so that ranks have unequal numbers of them.
    "gpt_oss_mxfp4": dict(
        config=dict(GPT_OSS, intermediate_size=160), form="BF16 parts mxfp4", lengths=LONG
    ),
    "gpt_oss_mxfp4_gguf": dict(same_as="gpt_oss_mxfp4", form="gguf mxfp4"),
    "deepseek_v2": dict(config=DEEPSEEK_V2, form="F32", lengths=LONG),
    "deepseek_v3": dict(config=DEEPSEEK_V3, form="BF16", lengths=LONG),
}
# general.architecture.
GGUF_ARCHITECTURES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss"}


def split_name(name):
    """What a stack, or one of the tensors that it is made of, is called in split_gate_up."""
    if name.endswith(".sinks"):
        return name + ".weight"
    if name.endswith("_bias"):
        return name.replace("gate_up_proj", "gate_proj").removesuffix("_bias") + ".bias"
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return name
    return name.replace("gate_up_proj", "gate_proj") + ".weight"


def split_gate_up(weights):
    """transformers stacks gates upon ups, or has them by turns and transposed; GGUF files have
    them apart."""
    by_turns = any(name.endswith("experts.gate_up_proj_bias") for name in weights)
    out = {}
    for name, tensor in weights.items():
        base, _, part = name.rpartition("experts.")
        if by_turns and base:
            kind = "bias" if part.endswith("_bias") else "weight"
            part = part.removesuffix("_bias")
            if kind == "weight":
                tensor = tensor.transpose(1, 2)
            if part == "gate_up_proj":
                out[f"{base}experts.gate_proj.{kind}"] = tensor[:, ::2].contiguous()
                out[f"{base}experts.up_proj.{kind}"] = tensor[:, 1::2].contiguous()
            else:
                out[f"{base}experts.{part}.{kind}"] = tensor.contiguous()
        elif part == "gate_up_proj":
            gate, up = tensor.chunk(2, dim=1)
            out[base + "experts.gate_proj.weight"] = gate
            out[base + "experts.up_proj.weight"] = up
        elif part == "down_proj":
            out[name + ".weight"] = tensor
        elif name.endswith(".sinks"):
            out[name + ".weight"] = tensor
        else:
            out[name] = tensor
    return out


def published(config, weights):
    """The weights by the names of published safetensors files, a tensor for each expert."""
    if config.model_type not in CONFIGS or config.model_type == "gpt_oss":
        return weights
    out = {}
    for name, tensor in split_gate_up(weights).items():
        if ".experts." not in name:
            out[name] = tensor
            continue
        base, part = name.split(".experts.")
        for expert in range(tensor.shape[0]):
            out[f"{base}.experts.{expert}.{part}"] = tensor[expert]
    if config.model_type != "mixtral":
        return out
    parts = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    renamed = {}
    for name, tensor in out.items():
        name = name.replace(".mlp.", ".block_sparse_moe.")
        for old, new in parts.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


MXFP4_CONFIG = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}


def in_mxfp4(name):
    """What is packed in gpt-oss's published files; names are transformers'."""
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def mxfp4_parts(tensor):
    """A stack of transposed matrices as published: bytes of two codes, of which the lower half is
    the first, and exponents apart. GGUF's blocks have the first half of the codes below the second,
    behind the exponent."""
    rows = tensor.transpose(1, 2).contiguous().numpy()
    packed = gguf.quantize(rows, gguf.GGMLQuantizationType.MXFP4)
    packed = torch.from_numpy(packed).reshape(*rows.shape[:2], -1, 17)
    codes = torch.cat((packed[..., 1:] & 15, packed[..., 1:] >> 4), dim=-1)
    return codes[..., ::2] | codes[..., 1::2] << 4, packed[..., 0].contiguous()


def mxfp4_values(tensor):
    """The numbers of such a stack, by transformers."""
    blocks, scales = mxfp4_parts(tensor)
    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()


def mxfp4_tensors(weights):
    """The tensors of a file that has the experts' matrices in MXFP4."""
    out = {}
    for name, tensor in weights.items():
        if in_mxfp4(name):
            out[f"{name}_blocks"], out[f"{name}_scales"] = mxfp4_parts(tensor)
        else:
            out[name] = tensor
    return out


def stays(name, tensor):
    """What published BF16 files hold as it is: some biases in float32, and packed numbers."""
    return name.endswith("e_score_correction_bias") or tensor.dtype == torch.uint8


def unread(config):
    """Published DeepSeek-V3 files hold a layer behind the last, for guessing several tokens at
    once, which nothing reads."""
    if config.model_type != "deepseek_v3":
        return {}
    layer = f"model.layers.{config.num_hidden_layers}"
    return {f"{layer}.enorm.weight": torch.ones(config.hidden_size)}


def add_gguf_keys(writer, config):
    if config.model_type not in CONFIGS:
        return
    count = config.num_experts if hasattr(config, "num_experts") else config.num_local_experts
    writer.add_expert_count(count)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if config.model_type == "gpt_oss":
        # No key says where gates are cut: at 7.
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_sliding_window(config.sliding_window)
    elif config.model_type != "mixtral":
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def gguf_shape(name, values):
    """The row that scales the shared MLP is a vector in these files."""
    return values.reshape(-1) if "shared_expert_gate" in name else values


def stays_wide(name):
    """Routers stay F32 in published files."""
    return "ffn_gate_inp" in name
