// Widths of a rank's slice of the model as CUDA kernels see them: padded where kernels and cuBLASLt
// want whole tiles. Padding is zero in every matrix, so that it adds nothing to a sum. Pure
// arithmetic; the one place that knows the padding.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/types.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {

struct CudaShape {
  kernels::cuda::DType type = kernels::cuda::DType::kBfloat16;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  // Columns of embedding and head; with another number than `hidden` they stand behind matrices of
  // their own.
  uint32_t embedding = 0;
  bool projects = false;
  uint32_t query_heads = 0;
  uint32_t kv_heads = 0;
  // Of a key of the model, and of one in memory: the elements between are zero.
  uint32_t head_dim = 0;
  uint32_t head_stride = 0;
  // Latent attention: rows of the cache are keys and values alike, nothing is padded, and of
  // LatentSpec and DecoderSpec what their names say.
  bool latent = false;
  uint32_t query_rank = 0;
  uint32_t plain_dim = 0;
  uint32_t query_dim = 0;
  uint32_t attention_dim = 0;
  uint32_t output_dim = 0;
  // MLP columns of this rank in memory, a multiple of 64; mlp_used of them are the model's.
  uint32_t mlp = 0;
  uint32_t mlp_used = 0;
  // The same of an expert, and of the MLP beside experts.
  uint32_t expert_mlp = 0;
  uint32_t expert_mlp_used = 0;
  uint32_t shared_mlp = 0;
  uint32_t shared_mlp_used = 0;
  // Experts of a layer, those that a row takes, and rows of the router in memory: a multiple of 8.
  uint32_t experts = 0;
  uint32_t experts_per_token = 0;
  uint32_t router_rows = 0;
  // The MLP has gates beside its ups.
  bool gated_mlp = true;
  // What attention and the MLP make is normalised before it is added to the residual.
  bool post_norms = false;
  // Rows of embedding and head in memory, a multiple of 8 and equal on all ranks; vocab_used of
  // them are the model's.
  uint32_t vocab = 0;
  uint32_t vocab_used = 0;

  // Columns of query, of key (or value), and of one row of the query-key-value product. Of latent
  // attention the query is alone in its row.
  uint32_t query_columns() const { return query_heads * head_stride; }
  uint32_t kv_columns() const { return latent ? 0 : kv_heads * head_stride; }
  uint32_t qkv_columns() const { return query_columns() + 2 * kv_columns(); }
  // Of what attention makes, and of what goes on from there.
  uint32_t attention_columns() const {
    return latent ? query_heads * attention_dim : query_columns();
  }
  uint32_t output_columns() const { return latent ? query_heads * output_dim : query_columns(); }
  // Keys and values, or keys alone.
  uint32_t kv_parts() const { return latent ? 1 : 2; }
  // Of one row of the product of gates and ups.
  uint32_t gate_up_columns() const { return gated_mlp ? 2 * mlp : mlp; }
  // Of the widest plain MLP, or MLP beside experts.
  uint32_t widest_mlp() const { return mlp > shared_mlp ? mlp : shared_mlp; }
  // Of what is rounded for a product that stands next to the residual or the embedding.
  uint32_t widest_normed() const { return hidden > embedding ? hidden : embedding; }
};

// INVALID_ARGUMENT, naming what is out of range, for a model that the kernels do not serve: hidden
// or embedding size no multiple of 8, head size above 256, sizes of latent attention that are no
// multiples of 8.
absl::StatusOr<CudaShape> MakeCudaShape(const DecoderSpec& spec, const SlicePlan& slice,
                                        kernels::cuda::DType type);

}  // namespace weft::shard
