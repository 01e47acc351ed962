#include "shard/weights/load_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace weft::shard {
namespace {

const std::atomic<bool> kNeverCancel{false};

TEST_CASE("Every parameter is loaded once, with any number of threads", "[shard][weights]") {
  const int threads = GENERATE(1, 2, 7);
  std::vector<std::atomic<int>> loaded(100);
  CHECK(ForEachParam(loaded.size(), threads, kNeverCancel, [&](size_t index) {
          ++loaded[index];
          return absl::OkStatus();
        }).ok());
  for (const std::atomic<int>& times : loaded) CHECK(times == 1);
}

TEST_CASE("Nothing new is begun after an error, on any thread", "[shard][weights]") {
  constexpr int kThreads = 4;
  std::atomic<int> begun{0};
  std::atomic<int> failed{0};
  const absl::Status status = ForEachParam(1000, kThreads, kNeverCancel, [&](size_t) {
    // The first one of each thread waits for the others, and then all fail.
    ++begun;
    while (begun < kThreads) std::this_thread::yield();
    ++failed;
    return absl::DataLossError("unreadable");
  });
  CHECK(absl::IsDataLoss(status));
  CHECK(begun == kThreads);
  CHECK(failed == kThreads);
}

TEST_CASE("A cancel ends a load before the next parameter", "[shard][weights]") {
  std::atomic<bool> cancel{false};
  std::atomic<int> loaded{0};
  const absl::Status status = ForEachParam(1000, 1, cancel, [&](size_t) {
    if (++loaded == 3) cancel = true;
    return absl::OkStatus();
  });
  CHECK(absl::IsCancelled(status));
  CHECK(loaded == 3);
}

}  // namespace
}  // namespace weft::shard
