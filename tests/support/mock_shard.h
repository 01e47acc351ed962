// A shard process in miniature, inside the test: a gRPC server on a Unix socket that speaks
// shard.proto strictly, with MockModel behind it, a set time per step, and faults on request. It
// can be killed and started again like a process. Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "tests/support/mock_model.h"

namespace weft::testing {

enum class MockFault : uint8_t {
  kNone,
  // The server goes away with everything in it.
  kDie,
  // Nothing is answered any more, Info included.
  kHang,
  // The call fails with INTERNAL.
  kError,
  // The step's hash is not that of its ids.
  kWrongHash,
  // The step is answered as one of the next epoch.
  kWrongEpoch,
  // The step takes late_us more.
  kLate,
};

// A moment at which a fault may happen.
struct MockMoment {
  // "Rendezvous", "JoinGroup", "LeaveGroup", "Warmup", "Prefill", "Decode", "FilterBatch",
  // "MaskRows".
  std::string call;
  Epoch epoch = 0;
  StepNumber step = 0;
  // Chunks in a Prefill that are not the last of their sequence.
  int partial_chunks = 0;
  // How often the call came before, in this process and the ones before it.
  uint64_t before = 0;
  // Whose chunks, whose last chunks and whose decode rows a step has.
  std::vector<SequenceId> prefilling;
  std::vector<SequenceId> completing;
  std::vector<SequenceId> decoding;
  // Sequences whose first chunk is in the step, with its first id.
  std::vector<std::pair<SequenceId, TokenId>> begun;
};

struct MockShardOptions {
  // Path of the socket.
  std::string socket;
  Rank rank = 0;
  uint32_t world = 1;
  MockShape shape;
  // Time of a step on the device.
  int64_t step_us = 0;
  int64_t late_us = 0;
  uint64_t spec_hash = 7;
  // Info answers in state LOADING before the first READY.
  int loading_answers = 2;
};

// Totals since the first start.
struct MockShardStats {
  uint64_t steps = 0;
  uint64_t epochs = 0;
  uint64_t chunks = 0;
  uint64_t mixed_steps = 0;
  uint64_t prefix_hits = 0;
  uint64_t blocks_left = 0;
  uint64_t masked_rows = 0;
  // Most steps that were unanswered at one time.
  uint64_t in_flight_max = 0;
  uint64_t request_bytes = 0;
  size_t held_slots = 0;
  // Since ResetBusy: time in steps, time in which the device was free and no step was there, and
  // from the first step's start to the last one's end.
  int64_t busy_us = 0;
  int64_t starved_us = 0;
  int64_t span_us = 0;
  // Rules broken.
  std::vector<std::string> violations;
};

class MockShard {
 public:
  // Starts serving.
  explicit MockShard(const MockShardOptions& options);
  ~MockShard();

  // Asked at every moment; called by the shard's threads.
  void SetFaults(std::function<MockFault(const MockMoment&)> faults);
  // Called on a thread of its own after a fault killed the shard.
  void SetOnDeath(std::function<void()> on_death);
  // Kills it as SIGKILL would. Idempotent.
  void Kill();
  // Starts it anew after a Kill, as another process.
  void Start();
  // The KV blocks of the processes that are started from now on.
  void SetKvBlocks(uint32_t kv_blocks);

  std::string address() const;
  uint64_t pid() const;
  Epoch epoch() const;
  MockShardStats stats() const;
  void ResetBusy();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::testing
