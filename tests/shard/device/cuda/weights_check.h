// What CudaWeights must hold, written from the comments in shard/device/cuda/weights.h alone.

#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "shard/device/cuda/weights.h"
#include "tests/shard/weights/collecting_sink.h"

namespace weft::shard {

// A rank's parameters in float32, looked up by kind and layer.
class Params {
 public:
  explicit Params(const test::CollectingSink& sink);
  // Row-major, without padding.
  const std::vector<float>& At(ParamKind kind, uint32_t layer = 0) const {
    return values_.at({kind, layer});
  }

 private:
  std::map<test::ParamId, std::vector<float>> values_;
};

// Numbers of `type` on the device, in float32.
std::vector<float> Download(const void* device, size_t count, kernels::cuda::DType type);

// Catch's checks that every matrix and vector on the device is that of the parameters, with zeros
// in the padding.
void CheckWeights(const CudaWeights& weights, const DecoderSpec& spec, const CudaShape& shape,
                  const Params& params);

}  // namespace weft::shard
