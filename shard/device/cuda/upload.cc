#include "shard/device/cuda/upload.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

// A copy of one buffer is long enough to fill the bus; a few in a row hide the gaps between them.
constexpr size_t kStreams = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<Uploader>> Uploader::Create(size_t buffers, size_t buffer_bytes) {
  WEFT_CHECK(buffers > 0 && buffer_bytes > 0);
  std::unique_ptr<Uploader> uploader(new Uploader(buffer_bytes));
  WEFT_RETURN_IF_ERROR(uploader->Allocate(buffers));
  return uploader;
}

absl::Status Uploader::Allocate(size_t buffers) {
  void* memory = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(
      cudaHostAlloc(&memory, buffers * buffer_bytes_, cudaHostAllocDefault), "pinned buffers"));
  memory_ = static_cast<uint8_t*>(memory);
  for (size_t i = 0; i < std::min(kStreams, buffers); ++i) {
    cudaStream_t stream = nullptr;
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                    "stream of the load"));
    streams_.push_back(stream);
  }
  buffers_.reserve(buffers);
  for (size_t i = 0; i < buffers; ++i) {
    Buffer buffer{memory_ + i * buffer_bytes_, nullptr, streams_[i % streams_.size()]};
    // A waiting thread leaves its core to those that convert.
    WEFT_RETURN_IF_ERROR(CudaStatus(
        cudaEventCreateWithFlags(&buffer.done, cudaEventDisableTiming | cudaEventBlockingSync),
        "event of the load"));
    buffers_.push_back(buffer);
    free_.push_back(&buffers_.back());
  }
  return absl::OkStatus();
}

Uploader::~Uploader() {
  // A copy must not read memory that is gone; its result matters to nobody now.
  for (const cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
  for (const Buffer& buffer : buffers_) cudaEventDestroy(buffer.done);
  for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

absl::StatusOr<Uploader::Buffer*> Uploader::Take() {
  Buffer* buffer = nullptr;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    given_back_.wait(lock, [this] { return !free_.empty(); });
    buffer = free_.front();
    free_.pop_front();
  }
  // An event that was never recorded counts as done.
  absl::Status status = CudaStatus(cudaEventSynchronize(buffer->done), "copy of weights");
  if (status.ok()) return buffer;
  GiveBack(buffer);
  return status;
}

absl::Status Uploader::Copy(Buffer* buffer, void* to, size_t bytes) {
  WEFT_CHECK_LE(bytes, buffer_bytes_);
  absl::Status status =
      CudaStatus(cudaMemcpyAsync(to, buffer->data, bytes, cudaMemcpyHostToDevice, buffer->stream),
                 "copy of weights");
  if (status.ok()) {
    status = CudaStatus(cudaEventRecord(buffer->done, buffer->stream), "event of the load");
  }
  GiveBack(buffer);
  return status;
}

void Uploader::GiveBack(Buffer* buffer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(buffer);
  }
  given_back_.notify_one();
}

absl::Status Uploader::Finish() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    WEFT_CHECK_EQ(free_.size(), buffers_.size());
  }
  for (const cudaStream_t stream : streams_) {
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "copies of weights"));
  }
  return absl::OkStatus();
}

}  // namespace weft::shard
