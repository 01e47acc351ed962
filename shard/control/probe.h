// The shard's metrics, each declared and zeroed here at start; all are listed in docs/METRICS.md.
// Owned by main; any thread. Logic code calls these methods and never the registry.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "shard/expert_load.h"
#include "shard/step_batch.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

class ShardProbe {
 public:
  // All series carry `model` and `rank`.
  ShardProbe(const std::string& model, Rank rank);
  ~ShardProbe();

  ShardProbe(const ShardProbe&) = delete;
  ShardProbe& operator=(const ShardProbe&) = delete;

  // A step ran; `method` is Prefill, Decode or FilterBatch.
  void StepDone(absl::string_view method, const v1::StepTimings& timings, const StepResult& result);
  // A call was answered, in whatever way; `method` as in the proto.
  void RpcDone(absl::string_view method, absl::Duration duration);
  // A thread that has work did not come round (common/watchdog.h).
  void ThreadStuck();
  // Progress of the load, and its end.
  void Loading(uint64_t bytes_done, uint64_t bytes_total, absl::Duration elapsed);
  void Loaded(const v1::MemoryPlan& memory);
  // From here on /metrics shows the rows of each expert; `load` is read whenever somebody reads
  // those. Once.
  void ShowExperts(std::shared_ptr<ExpertLoad> load);

 private:
  struct Series;
  class Experts;
  std::unique_ptr<Series> series_;
  std::unique_ptr<Experts> experts_;
};

}  // namespace weft::shard
