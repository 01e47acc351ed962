// Which operations and number types a device's kernels serve, and the check that holds a model
// against them before anything of it is loaded: both kinds of device ask it, and `weft inspect`. A
// device says what it serves in a table (cpu/served.cc, cuda/served.cc); nothing here knows which
// family a model is of. Pure, any thread.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tensor_type.h"
#include "shard/kv/memory_plan.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/layer_plan.h"
#include "shard/model/param_key.h"
#include "shard/weights/loader.h"

namespace weft::shard {

// A set of enumerators, as bits.
template <typename... Enum>
constexpr uint32_t SetOf(Enum... members) {
  return (uint32_t{0} | ... | (uint32_t{1} << static_cast<uint32_t>(members)));
}
inline constexpr uint32_t kAllTensorTypes = (uint32_t{1} << kTensorTypes) - 1;

// Kernels of one operation. Each field is a set of what they take; an operation is served when one
// row of its kind has all that it is made of.
struct ServedOp {
  OpKind kind;
  // Of Way and Epilogue.
  uint32_t ways;
  uint32_t epilogues;
  // Of NumberType; the second counts where the operation writes or reads the KV cache.
  uint32_t activations;
  uint32_t kv;
  // Of TensorType: the matrices that it reads, as the device holds them.
  uint32_t weights;
};

struct ServedOps {
  // "CPU shards", and the flag of the other kind.
  const char* device;
  const char* other_device;
  absl::Span<const ServedOp> ops;
  // All gates of a layer's experts are of one type, all ups and all downs.
  bool experts_of_one_type;
};

// INVALID_ARGUMENT for the first operation that no row serves: names it, its layer, what of it is
// not served, what would be, and the way out. `held` are all matrices of the
// model, in the types that the device would hold them in.
absl::Status CheckServed(const ServedOps& served, const LayerPlan& plan, const DecoderSpec& spec,
                         const NumberTypes& types, absl::Span<const MatrixFormat> held);

// What lies behind a matrix of a plan; of a model that lacks one (a gate, a shared MLP) too.
std::vector<ParamKind> ParamsOf(Matrix matrix, bool tied_head);

}  // namespace weft::shard
