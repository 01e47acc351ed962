// What both file formats call the tensors of decoders that are built like Llama. Names:
// transformers' LlamaForCausalLM (and Qwen3ForCausalLM for the norms of heads); llama.cpp's
// gguf-py/gguf/constants.py. Constants, any thread.

#pragma once

#include "shard/model/families/tensor_names.h"

namespace weft::shard {

inline constexpr TensorName kLlamaHfNames[] = {
    {ParamKind::kTokenEmbedding, "model.embed_tokens.weight"},
    {ParamKind::kAttentionNorm, "model.layers.*.input_layernorm.weight"},
    {ParamKind::kQuery, "model.layers.*.self_attn.q_proj.weight"},
    {ParamKind::kKey, "model.layers.*.self_attn.k_proj.weight"},
    {ParamKind::kValue, "model.layers.*.self_attn.v_proj.weight"},
    {ParamKind::kOutput, "model.layers.*.self_attn.o_proj.weight"},
    {ParamKind::kQueryBias, "model.layers.*.self_attn.q_proj.bias"},
    {ParamKind::kKeyBias, "model.layers.*.self_attn.k_proj.bias"},
    {ParamKind::kValueBias, "model.layers.*.self_attn.v_proj.bias"},
    {ParamKind::kOutputBias, "model.layers.*.self_attn.o_proj.bias"},
    {ParamKind::kQueryNorm, "model.layers.*.self_attn.q_norm.weight"},
    {ParamKind::kKeyNorm, "model.layers.*.self_attn.k_norm.weight"},
    {ParamKind::kMlpNorm, "model.layers.*.post_attention_layernorm.weight"},
    {ParamKind::kGate, "model.layers.*.mlp.gate_proj.weight"},
    {ParamKind::kUp, "model.layers.*.mlp.up_proj.weight"},
    {ParamKind::kDown, "model.layers.*.mlp.down_proj.weight"},
    {ParamKind::kGateBias, "model.layers.*.mlp.gate_proj.bias"},
    {ParamKind::kUpBias, "model.layers.*.mlp.up_proj.bias"},
    {ParamKind::kDownBias, "model.layers.*.mlp.down_proj.bias"},
    {ParamKind::kFinalNorm, "model.norm.weight"},
    {ParamKind::kHead, "lm_head.weight"},
};

inline constexpr TensorName kLlamaGgufNames[] = {
    {ParamKind::kTokenEmbedding, "token_embd.weight"},
    {ParamKind::kAttentionNorm, "blk.*.attn_norm.weight"},
    {ParamKind::kQuery, "blk.*.attn_q.weight"},
    {ParamKind::kKey, "blk.*.attn_k.weight"},
    {ParamKind::kValue, "blk.*.attn_v.weight"},
    {ParamKind::kOutput, "blk.*.attn_output.weight"},
    {ParamKind::kQueryBias, "blk.*.attn_q.bias"},
    {ParamKind::kKeyBias, "blk.*.attn_k.bias"},
    {ParamKind::kValueBias, "blk.*.attn_v.bias"},
    {ParamKind::kOutputBias, "blk.*.attn_output.bias"},
    {ParamKind::kQueryNorm, "blk.*.attn_q_norm.weight"},
    {ParamKind::kKeyNorm, "blk.*.attn_k_norm.weight"},
    {ParamKind::kMlpNorm, "blk.*.ffn_norm.weight"},
    {ParamKind::kGate, "blk.*.ffn_gate.weight"},
    {ParamKind::kUp, "blk.*.ffn_up.weight"},
    {ParamKind::kDown, "blk.*.ffn_down.weight"},
    {ParamKind::kGateBias, "blk.*.ffn_gate.bias"},
    {ParamKind::kUpBias, "blk.*.ffn_up.bias"},
    {ParamKind::kDownBias, "blk.*.ffn_down.bias"},
    {ParamKind::kFinalNorm, "output_norm.weight"},
    {ParamKind::kHead, "output.weight"},
};

}  // namespace weft::shard
