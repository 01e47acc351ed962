#include "shard/device/cuda/shape.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

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

// Kinds of attention that the kernels do not have.
absl::Status RefuseAttention(const DecoderSpec& spec) {
  const auto refuse = [](absl::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(what, ": CUDA shards do not serve it; use --device cpu"));
  };
  if (spec.attention_kinds.size() > 1) return refuse("several kinds of attention layers");
  if (spec.attention_kinds[0].window_tokens > 0) return refuse("attention with a sliding window");
  if (spec.attention_soft_cap > 0) return refuse("attention with a soft cap");
  if (spec.position == PositionKind::kAlibi) return refuse("ALiBi");
  if (spec.attention_sinks) return refuse("attention with sinks");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudaShape> MakeCudaShape(const DecoderSpec& spec, const SlicePlan& slice,
                                        kernels::cuda::DType type) {
  WEFT_RETURN_IF_ERROR(RefuseAttention(spec));
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
  shape.vocab_used = slice.vocab.size();
  const uint32_t vocab_max = (spec.vocab + slice.world - 1) / slice.world;
  WEFT_CHECK_LE(shape.vocab_used, vocab_max);
  shape.vocab = RoundUp(vocab_max, kVectorElements);
  return shape;
}

}  // namespace weft::shard
