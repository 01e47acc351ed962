// A CUDA stream, an event and an executable graph that end with the object. Device thread only.

#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/statusor.h"

namespace weft::shard {

template <typename Handle, cudaError_t (*kDestroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  ~CudaHandle() {
    if (handle_ != nullptr) kDestroy(handle_);
  }
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using CudaStream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using CudaGraph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

// A stream that does not wait for the default one.
absl::StatusOr<CudaStream> MakeStream();
// An event that takes the time.
absl::StatusOr<CudaEvent> MakeEvent();

}  // namespace weft::shard
