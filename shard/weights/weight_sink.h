// What the loader hands to a device: each rank's slice of each parameter, row by row, in the type
// of the file. The device owns what it makes of it: shard/device/cpu packs, shard/device/cuda
// converts and copies up. Called by loader threads, several at once for different parameters.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tensor_type.h"
#include "shard/model/param_key.h"

namespace weft::shard {

// A matrix slice: `outputs` rows of `inputs` elements of `type`. row(i) points to the first byte of
// row i of the slice; rows are contiguous in themselves but not with each other. Valid only during
// the call that receives it.
struct MatrixSource {
  TensorType type;
  int64_t outputs = 0;
  int64_t inputs = 0;
  absl::FunctionRef<const uint8_t*(int64_t)> row;
};

class WeightSink {
 public:
  virtual ~WeightSink() = default;

  // Takes a matrix slice. RESOURCE_EXHAUSTED when there is no memory.
  virtual absl::Status AddMatrix(ParamKey key, const MatrixSource& source) = 0;
  // Takes a vector (norm weights, biases), already float32.
  virtual absl::Status AddVector(ParamKey key, absl::Span<const float> values) = 0;
};

}  // namespace weft::shard
