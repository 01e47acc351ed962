#include "shard/device/cuda/shape.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/cuda/attention/decode_attention.h"

namespace weft::shard {
namespace {

uint32_t RoundUp(uint32_t value, uint32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Head sizes that decode attention has kernels for (kernels/cuda/attention/decode_attention.h).
constexpr std::initializer_list<uint32_t> kHeadSizes = {64, 80, 96, 128, 256};
// A vector access of bf16; also what cuBLASLt wants of a stride.
constexpr uint32_t kVectorElements = 8;
constexpr uint32_t kMlpMultiple = 64;

}  // namespace

absl::StatusOr<CudaShape> MakeCudaShape(const DecoderSpec& spec, const SlicePlan& slice,
                                        kernels::cuda::DType type) {
  const uint32_t group = spec.heads / spec.kv_heads;
  if (spec.attention_sinks && group > kernels::cuda::kDecodeSinkGroupMax) {
    return absl::UnimplementedError(
        absl::StrCat(group,
                     " query heads share a KV head: with attention sinks CUDA shards serve "
                     "up to ",
                     kernels::cuda::kDecodeSinkGroupMax, "; use --device cpu"));
  }
  if (spec.hidden % kVectorElements != 0) {
    return absl::InvalidArgumentError(absl::StrCat("hidden size ", spec.hidden,
                                                   ": CUDA shards serve multiples of ",
                                                   kVectorElements, "; use --device cpu"));
  }
  CudaShape shape;
  for (const uint32_t size : kHeadSizes) {
    if (shape.head_stride == 0 && spec.head_dim <= size) shape.head_stride = size;
  }
  if (shape.head_stride == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "head size ", spec.head_dim, ": CUDA shards serve up to 256; use --device cpu"));
  }
  shape.type = type;
  shape.layers = spec.layers;
  shape.hidden = spec.hidden;
  shape.query_heads = slice.heads.size();
  shape.kv_heads = slice.kv_heads.size();
  shape.head_dim = spec.head_dim;
  shape.mlp_used = slice.mlp.size();
  shape.gated_mlp = spec.gated_mlp;
  shape.post_norms = spec.post_norms;
  shape.mlp = RoundUp(shape.mlp_used, kMlpMultiple);
  shape.expert_mlp_used = slice.expert.size();
  shape.expert_mlp = RoundUp(shape.expert_mlp_used, kMlpMultiple);
  shape.shared_mlp_used = slice.shared.size();
  shape.shared_mlp = RoundUp(shape.shared_mlp_used, kMlpMultiple);
  shape.experts = spec.experts.count;
  shape.experts_per_token = spec.experts.per_token;
  shape.router_rows = RoundUp(spec.experts.count, kVectorElements);
  shape.vocab_used = slice.vocab.size();
  const uint32_t vocab_max = (spec.vocab + slice.world - 1) / slice.world;
  WEFT_CHECK_LE(shape.vocab_used, vocab_max);
  shape.vocab = RoundUp(vocab_max, kVectorElements);
  return shape;
}

}  // namespace weft::shard
