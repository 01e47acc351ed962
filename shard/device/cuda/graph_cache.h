// Decode steps captured as CUDA graphs: one for each batch bucket and set of sampler features, made
// when it is first used and then launched in one call instead of some hundred. All lengths lie in
// device memory, so a graph serves any step of its bucket. Keeps as many as the memory plan has
// room for; further shapes are launched kernel by kernel. Owned by the model runner, device thread
// only.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/device/cuda/runtime/stream.h"
#include "shard/device/cuda/step_upload.h"

namespace weft::shard {

// What `launch` launches on `stream`, as a graph.
absl::StatusOr<CudaGraphExec> CaptureGraph(cudaStream_t stream,
                                           absl::FunctionRef<absl::Status()> launch);

class GraphCache {
 public:
  static constexpr uint32_t kRowsMax = 512;
  // Twice the buckets: with and without the sampler features that are used most.
  static constexpr uint32_t kGraphsMax = 140;

  // Rows of the bucket that holds `rows` decode rows: 1, 2, 4, 8, then multiples of eight.
  // REQUIRES: rows <= kRowsMax.
  static constexpr uint32_t Bucket(uint32_t rows) {
    uint32_t bucket = 1;
    while (bucket < rows && bucket < 8) bucket *= 2;
    return rows <= bucket ? bucket : (rows + 7) / 8 * 8;
  }

  // Launches the graph of this shape on `stream`; captures it first from what `launch` launches
  // there when there is none. REQUIRES: shape.decode_only() and rows of a bucket.
  absl::Status Launch(const StepShape& shape, cudaStream_t stream,
                      absl::FunctionRef<absl::Status()> launch);

  void Clear() { graphs_.clear(); }
  size_t size() const { return graphs_.size(); }

 private:
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, CudaGraphExec> graphs_;
  bool told_full_ = false;
};

}  // namespace weft::shard
