// Times everything that can compute a matrix product, for `weft bench tune`: the algorithms that
// cuBLASLt suggests and the kernels of ours that serve the shape, each in a CUDA graph of many
// launches over weights that together exceed the L2, as the layers of a model are read; the input
// and the output are the same every time, as activations are. A candidate whose result differs from
// that of cuBLASLt's first suggestion is left out, and logged. Owned by the command, one thread,
// with the GPU to itself; takes gigabytes of device memory and waits for the device. Servers never
// use it.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "shard/device/cuda/gemm_plan.h"

namespace weft::shard {

struct TunedGemm {
  GemmKernel best;
  double best_us = 0;
  // Of cuBLASLt's first suggestion. It is the best unless another one is clearly faster.
  double first_us = 0;
  // That were timed, and that were left out for their results.
  uint32_t candidates = 0;
  uint32_t wrong = 0;
};

class GemmTuner {
 public:
  virtual ~GemmTuner() = default;

  // Takes memory on the current device for products up to these. bfloat16 weights only.
  static absl::StatusOr<std::unique_ptr<GemmTuner>> Create(const std::vector<GemmShape>& largest);

  // REQUIRES: no larger than one of those given to Create.
  virtual absl::StatusOr<TunedGemm> Tune(const GemmShape& shape) = 0;
};

}  // namespace weft::shard
