// The forward of decode steps as CUDA graphs: one for each batch bucket, captured in the warm-up or
// when it is first used, and then launched in one call instead of some hundred. All lengths lie in
// device memory, and sampling is launched behind the graph, so a graph serves any step of its
// bucket, whatever its rows ask of the sampler. Owned by the model runner, device thread only.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/device/cuda/runtime/stream.h"

namespace weft::shard {

// What `launch` launches on `stream`, as a graph.
absl::StatusOr<CudaGraphExec> CaptureGraph(cudaStream_t stream,
                                           absl::FunctionRef<absl::Status()> launch);

class GraphCache {
 public:
  static constexpr uint32_t kRowsMax = 512;
  // Buckets: 1, 2, 4, and the multiples of eight.
  static constexpr uint32_t kGraphsMax = 3 + kRowsMax / 8;

  // Rows of the bucket that holds `rows` decode rows: 1, 2, 4, 8, then multiples of eight.
  // REQUIRES: rows <= kRowsMax.
  static constexpr uint32_t Bucket(uint32_t rows) {
    uint32_t bucket = 1;
    while (bucket < rows && bucket < 8) bucket *= 2;
    return rows <= bucket ? bucket : (rows + 7) / 8 * 8;
  }

  // Makes the graph of `rows` from what `launch` launches on `stream`, and has it ready on the
  // device; nothing of it runs. Nothing when there is one. REQUIRES: rows == Bucket(rows).
  absl::Status Capture(uint32_t rows, cudaStream_t stream,
                       absl::FunctionRef<absl::Status()> launch);
  // Launches the graph of `rows` on `stream`; captures it first from what `launch` launches there
  // when there is none. REQUIRES: rows == Bucket(rows).
  absl::Status Launch(uint32_t rows, cudaStream_t stream, absl::FunctionRef<absl::Status()> launch);

  void Clear() { graphs_.clear(); }
  size_t size() const { return graphs_.size(); }

 private:
  // The graph of `rows`, captured if there was none.
  absl::StatusOr<cudaGraphExec_t> Find(uint32_t rows, cudaStream_t stream,
                                       absl::FunctionRef<absl::Status()> launch);

  absl::flat_hash_map<uint32_t, CudaGraphExec> graphs_;
};

}  // namespace weft::shard
