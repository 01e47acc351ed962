#include "shard/weights/load_pool.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "common/thread.h"

namespace weft::shard {

absl::Status ForEachParam(size_t count, int threads, const std::atomic<bool>& cancel,
                          absl::FunctionRef<absl::Status(size_t index)> load) {
  std::atomic<size_t> next{0};
  // std::mutex, which ThreadSanitizer sees; a packaged absl::Mutex is not instrumented.
  std::mutex mutex;
  absl::Status first_error;
  const auto work = [&] {
    for (size_t index = next++; index < count; index = next++) {
      absl::Status status = cancel.load(std::memory_order_relaxed)
                                ? absl::CancelledError("loading was cancelled")
                                : load(index);
      if (status.ok()) continue;
      next = count;
      const std::lock_guard<std::mutex> lock(mutex);
      if (first_error.ok()) first_error = std::move(status);
    }
  };
  std::vector<Thread> helpers;
  for (int i = 1; i < std::clamp(threads, 1, kLoaderThreadsMax); ++i) {
    helpers.emplace_back("weft-load", work);
  }
  work();
  helpers.clear();  // joins
  return first_error;
}

}  // namespace weft::shard
