// Which kernels a model's matrix products are fastest with on the GPU at hand: the work behind
// `weft bench tune`, which writes the tables that CUDA shards look kernels up in. Called by the
// command, one thread, with the GPU to itself; servers never call it. Knows nothing of files, and
// this header nothing of CUDA: a build without it has the same function, which refuses.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "shard/device/cuda/runner.h"
#include "shard/weights/loader.h"

namespace weft::shard {

struct CudaTuneOptions {
  CudaDevice device;
  // A plan made for one of these serves the numbers down to the one before it. Ascending.
  std::vector<uint32_t> rows;
  // Shard counts whose slices are measured.
  std::vector<uint32_t> worlds;
};

// What was measured of one product and number of rows.
struct CudaTuneLine {
  // As "gate_up".
  std::string product;
  uint32_t n = 0;
  uint32_t k = 0;
  uint32_t rows = 0;
  uint32_t candidates = 0;
  // That gave another result than cuBLASLt's first suggestion.
  uint32_t wrong = 0;
  // Of cuBLASLt's first suggestion, and of the kernel that the table names.
  double first_us = 0;
  double best_us = 0;
  std::string kernel;
};

// Calls `measured` for each measurement, and `save` with the table's text after each product, so
// that a run that is cut short leaves something. Plans of `table`, the text of an older one or
// nothing, stay where nothing was measured. INVALID_ARGUMENT when `table` is none, or the model
// does not split into a shard count; the first error of `save`.
absl::Status TuneCudaProducts(const ModelFiles& files, const CudaTuneOptions& options,
                              absl::string_view table,
                              absl::FunctionRef<void(const CudaTuneLine&)> measured,
                              absl::FunctionRef<absl::Status(const std::string&)> save);

}  // namespace weft::shard
