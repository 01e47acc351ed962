#include "shard/device/cuda/graph_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

absl::StatusOr<CudaGraphExec> CaptureGraph(cudaStream_t stream,
                                           absl::FunctionRef<absl::Status()> launch) {
  // Other threads may call CUDA meanwhile: they do not touch this stream.
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                                  "beginning a capture"));
  const absl::Status launched = launch();
  cudaGraph_t captured = nullptr;
  // Must end in any case, or the stream stays in capture.
  const absl::Status ended = CudaStatus(cudaStreamEndCapture(stream, &captured), "a capture");
  const CudaGraph graph(captured);
  WEFT_RETURN_IF_ERROR(launched);
  WEFT_RETURN_IF_ERROR(ended);
  cudaGraphExec_t executable = nullptr;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaGraphInstantiate(&executable, graph.get(), 0), "instantiating a graph"));
  return CudaGraphExec(executable);
}

absl::Status GraphCache::Launch(const StepShape& shape, cudaStream_t stream,
                                absl::FunctionRef<absl::Status()> launch) {
  const auto key = std::make_pair(shape.rows, shape.features);
  auto graph = graphs_.find(key);
  if (graph == graphs_.end()) {
    if (graphs_.size() >= kGraphsMax) {
      if (!std::exchange(told_full_, true)) {
        WEFT_LOG_WARN("{} CUDA graphs are kept; decode steps of further shapes take more host time",
                      kGraphsMax);
      }
      return launch();
    }
    absl::StatusOr<CudaGraphExec> captured = CaptureGraph(stream, launch);
    if (!captured.ok()) {
      return Annotate(captured.status(), absl::StrCat("graph of ", shape.rows, " rows"));
    }
    graph = graphs_.emplace(key, *std::move(captured)).first;
  }
  return CudaStatus(cudaGraphLaunch(graph->second.get(), stream), "launching a graph");
}

}  // namespace weft::shard
