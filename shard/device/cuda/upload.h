// Pinned host buffers through which loader threads copy to the device. A thread takes a buffer,
// fills it and hands it back with the copy to make; it waits only for the copy that its buffer
// still has in flight, or, where more threads fill than there are buffers, for another thread.
// Owned by CudaWeights for the time of the load; any number of threads.

#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::shard {

class Uploader {
 public:
  struct Buffer {
    uint8_t* data = nullptr;
    // Recorded behind the copy that last used the buffer.
    cudaEvent_t done = nullptr;
    cudaStream_t stream = nullptr;
  };

  // Buffers and streams on the current device. RESOURCE_EXHAUSTED when memory cannot be pinned.
  static absl::StatusOr<std::unique_ptr<Uploader>> Create(size_t buffers, size_t buffer_bytes);
  // Waits for the copies in flight.
  ~Uploader();

  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  size_t buffer_bytes() const { return buffer_bytes_; }

  // A buffer that no copy reads any more, the caller's until Copy. The device of Create must be the
  // thread's current one, here and in Copy.
  absl::StatusOr<Buffer*> Take();
  // Copies the first `bytes` of `buffer` to the device; does not wait. Takes the buffer back,
  // whatever comes out.
  absl::Status Copy(Buffer* buffer, void* to, size_t bytes);
  // Waits for all copies. REQUIRES: no thread holds a buffer.
  absl::Status Finish();

 private:
  explicit Uploader(size_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}
  absl::Status Allocate(size_t buffers);
  void GiveBack(Buffer* buffer);

  const size_t buffer_bytes_;
  // The one allocation that all buffers are parts of.
  uint8_t* memory_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<Buffer> buffers_;

  std::mutex mutex_;
  std::condition_variable given_back_;
  // In the order of their copies: the first is done first.
  std::deque<Buffer*> free_;
};

}  // namespace weft::shard
