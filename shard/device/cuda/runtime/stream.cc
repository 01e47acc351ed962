#include "shard/device/cuda/runtime/stream.h"

#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

absl::StatusOr<CudaStream> MakeStream() {
  cudaStream_t stream = nullptr;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"));
  return CudaStream(stream);
}

absl::StatusOr<CudaEvent> MakeEvent() {
  cudaEvent_t event = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "an event"));
  return CudaEvent(event);
}

}  // namespace weft::shard
