#include "shard/device/cuda/shape.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/latent_attention.h"

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

absl::Status FillLatent(const DecoderSpec& spec, CudaShape* shape) {
  const LatentSpec& latent = spec.latent;
  const uint32_t rotated = spec.head_dim - latent.rank;
  const struct {
    const char* name;
    uint32_t size;
  } sizes[] = {{"latents", latent.rank},
               {"latents of queries", latent.query_rank},
               {"heads' parts without rotation", latent.plain_dim},
               {"heads' rotated parts", rotated},
               {"heads' values", latent.value_dim}};
  for (const auto& size : sizes) {
    if (size.size % kVectorElements == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(size.name, " of ", size.size,
                                                   " elements: CUDA shards serve multiples of ",
                                                   kVectorElements, "; use --device cpu"));
  }
  if (spec.head_dim > kernels::cuda::kLatentDimMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("latents of ", latent.rank, " elements and ", rotated,
                     " rotated ones: CUDA shards serve up to ", kernels::cuda::kLatentDimMax,
                     " together; use --device cpu"));
  }
  shape->latent = true;
  shape->head_stride = spec.head_dim;
  shape->query_rank = latent.query_rank;
  shape->plain_dim = latent.plain_dim;
  shape->query_dim = spec.query_dim();
  shape->attention_dim = spec.attention_dim();
  shape->output_dim = spec.output_dim();
  return absl::OkStatus();
}

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
  if (spec.embedding_columns() % kVectorElements != 0) {
    return absl::InvalidArgumentError(absl::StrCat("embedding size ", spec.embedding_columns(),
                                                   ": CUDA shards serve multiples of ",
                                                   kVectorElements, "; use --device cpu"));
  }
  CudaShape shape;
  if (spec.latent.rank > 0) WEFT_RETURN_IF_ERROR(FillLatent(spec, &shape));
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
  shape.embedding = spec.embedding_columns();
  shape.projects = spec.embedding_dim > 0;
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
