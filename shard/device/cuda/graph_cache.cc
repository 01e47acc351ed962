#include "shard/device/cuda/graph_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
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

absl::StatusOr<cudaGraphExec_t> GraphCache::Find(uint32_t rows, cudaStream_t stream,
                                                 absl::FunctionRef<absl::Status()> launch) {
  WEFT_CHECK_EQ(rows, Bucket(rows));
  auto graph = graphs_.find(rows);
  if (graph == graphs_.end()) {
    absl::StatusOr<CudaGraphExec> captured = CaptureGraph(stream, launch);
    if (!captured.ok()) {
      return Annotate(captured.status(), absl::StrCat("graph of ", rows, " rows"));
    }
    graph = graphs_.emplace(rows, *std::move(captured)).first;
  }
  return graph->second.get();
}

absl::Status GraphCache::Capture(uint32_t rows, cudaStream_t stream,
                                 absl::FunctionRef<absl::Status()> launch) {
  WEFT_ASSIGN_OR_RETURN(const cudaGraphExec_t graph, Find(rows, stream, launch));
  return CudaStatus(cudaGraphUpload(graph, stream), "uploading a graph");
}

absl::Status GraphCache::Launch(uint32_t rows, cudaStream_t stream,
                                absl::FunctionRef<absl::Status()> launch) {
  WEFT_ASSIGN_OR_RETURN(const cudaGraphExec_t graph, Find(rows, stream, launch));
  return CudaStatus(cudaGraphLaunch(graph, stream), "launching a graph");
}

}  // namespace weft::shard
