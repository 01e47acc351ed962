#include "shard/comm/local_communicator.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "common/check.h"

namespace weft::shard {
namespace {

class LocalCommunicator : public HostCommunicator {
 public:
  explicit LocalCommunicator(int64_t capacity_floats)
      : capacity_floats_(capacity_floats),
        window_((capacity_floats + Line::kFloats - 1) / Line::kFloats) {}

  Rank rank() const override { return 0; }
  uint32_t world() const override { return 1; }

  float* Stage(int64_t count) override {
    WEFT_CHECK_GE(count, 0);
    WEFT_CHECK_LE(count, capacity_floats_);
    return window_.data()->values;
  }

  absl::Status AllReduceAdd(float* target, int64_t count) override {
    WEFT_CHECK_LE(count, capacity_floats_);
    if (aborted_.load(std::memory_order_acquire)) return absl::AbortedError("epoch aborted");
    const float* staged = window_.data()->values;
    for (int64_t i = 0; i < count; ++i) target[i] += staged[i];
    return absl::OkStatus();
  }

  absl::Status AllGather(const void* mine, size_t bytes, void* all) override {
    if (aborted_.load(std::memory_order_acquire)) return absl::AbortedError("epoch aborted");
    if (bytes > 0) std::memcpy(all, mine, bytes);
    return absl::OkStatus();
  }

  void Abort() override { aborted_.store(true, std::memory_order_release); }
  uint64_t waited_us() const override { return 0; }

 private:
  // A cache line, so that the vector's memory is 64-byte aligned.
  struct alignas(64) Line {
    static constexpr int64_t kFloats = 16;
    float values[kFloats];
  };

  const int64_t capacity_floats_;
  std::vector<Line> window_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<HostCommunicator> MakeLocalCommunicator(int64_t capacity_floats) {
  WEFT_CHECK_GE(capacity_floats, 0);
  return std::make_unique<LocalCommunicator>(capacity_floats);
}

}  // namespace weft::shard
