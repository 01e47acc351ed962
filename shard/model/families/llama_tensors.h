// The tensors of decoders that are built like Llama, and what both file formats call them. Names:
// transformers' LlamaForCausalLM; llama.cpp's gguf-py/gguf/constants.py. Constants and one pure
// function, any thread.

#pragma once

#include <vector>

#include "shard/model/param_table.h"

namespace weft::shard {

// The names of one file format; layer tensors are "<layer_prefix><layer>.<name>.weight" (".bias").
struct LlamaTensorNames {
  const char* embedding;
  const char* final_norm;
  const char* head;
  const char* layer_prefix;
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* output;
  const char* mlp_norm;
  const char* gate;
  const char* up;
  const char* down;
};

inline constexpr LlamaTensorNames kLlamaHfNames = {"model.embed_tokens.weight",
                                                   "model.norm.weight",
                                                   "lm_head.weight",
                                                   "model.layers.",
                                                   "input_layernorm",
                                                   "self_attn.q_proj",
                                                   "self_attn.k_proj",
                                                   "self_attn.v_proj",
                                                   "self_attn.o_proj",
                                                   "post_attention_layernorm",
                                                   "mlp.gate_proj",
                                                   "mlp.up_proj",
                                                   "mlp.down_proj"};

inline constexpr LlamaTensorNames kLlamaGgufNames = {"token_embd.weight",
                                                     "output_norm.weight",
                                                     "output.weight",
                                                     "blk.",
                                                     "attn_norm",
                                                     "attn_q",
                                                     "attn_k",
                                                     "attn_v",
                                                     "attn_output",
                                                     "ffn_norm",
                                                     "ffn_gate",
                                                     "ffn_up",
                                                     "ffn_down"};

// In the order of the forward. Query and key rows lie in `query_key_order`.
std::vector<ParamTensor> LlamaTensors(const DecoderSpec& spec, const LlamaTensorNames& names,
                                      RowOrder query_key_order);

}  // namespace weft::shard
