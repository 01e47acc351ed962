// Launches as a CUDA graph, for tests.

#pragma once

#include <functional>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

// What `record` launches, captured once.
class Graph {
 public:
  explicit Graph(const std::function<void(cudaStream_t)>& record) {
    WEFT_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    WEFT_CUDA_CHECK(cudaEventCreate(&begin_));
    WEFT_CUDA_CHECK(cudaEventCreate(&end_));
    WEFT_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    record(stream_);
    WEFT_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph_));
    WEFT_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void Launch(cudaStream_t stream) const { WEFT_CUDA_CHECK(cudaGraphLaunch(executable_, stream)); }
  // Waits. Microseconds.
  double Replay() {
    float ms = 0;
    WEFT_CUDA_CHECK(cudaEventRecord(begin_, stream_));
    WEFT_CUDA_CHECK(cudaGraphLaunch(executable_, stream_));
    WEFT_CUDA_CHECK(cudaEventRecord(end_, stream_));
    WEFT_CUDA_CHECK(cudaEventSynchronize(end_));
    WEFT_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return 1e3 * ms;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace weft::kernels::cuda::testing
