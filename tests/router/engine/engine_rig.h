// What the engine tests share: a tiny byte-level model directory, mock shards with a supervisor,
// a real engine on top, and sinks that wait and check. Everything lives in a directory of its own.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/thread.h"
#include "router/core.h"
#include "router/observe/probe.h"
#include "router/request.h"
#include "tests/common/temp_dir.h"
#include "tests/support/mock_shard.h"

namespace weft::router {

// Writes tokenizer, EOS id (256) and a chat template: one token per byte, id = byte.
void WriteByteModel(const test::TempDir& dir);

// Reads a request's answer as it comes, and lets go of it at its end.
class FakeSink : public AnswerSink, public Waker {
 public:
  Waker* OnNews() override {
    deliveries_.fetch_add(1);
    return this;
  }
  void Wake() override;
  // What Submit gave.
  void Attach(absl::StatusOr<std::shared_ptr<Answer>> answer);
  void Cancel(CancelReason reason);

  // Waits for the terminal event; fails the test after `timeout`.
  void WaitEnd(absl::Duration timeout = absl::Seconds(60));
  // Waits for so many tokens, or the end.
  void WaitTokens(size_t count, absl::Duration timeout = absl::Seconds(60));

  bool ended() const;
  // Valid after WaitEnd.
  std::vector<TokenId> ids() const;
  std::string text() const;
  std::vector<AnswerToken> tokens() const;
  AnswerHead started() const;
  std::string name() const;
  // OK when it finished.
  absl::Status status() const;
  AnswerEnd finished() const;
  // What had cancelled it by its end, as the access log names it.
  CancelReason cancelled() const;
  int wakes() const { return wakes_.load(); }
  int deliveries() const { return deliveries_.load(); }

 private:
  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
  std::string name_ ABSL_GUARDED_BY(mutex_);
  std::vector<AnswerToken> tokens_ ABSL_GUARDED_BY(mutex_);
  std::optional<AnswerHead> head_ ABSL_GUARDED_BY(mutex_);
  std::optional<AnswerEnd> end_ ABSL_GUARDED_BY(mutex_);
  CancelReason cancelled_ ABSL_GUARDED_BY(mutex_) = CancelReason::kNone;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> wakes_{0};
  std::atomic<int> deliveries_{0};
};

// The server side of router/shards/supervisor_client: calls `restart` for each order.
class FakeSupervisor {
 public:
  using Restart = std::function<void(uint32_t rank, uint64_t pid, const std::string& reason)>;
  FakeSupervisor(const std::string& socket_path, Restart restart);
  ~FakeSupervisor();

  // Tells the router that a shard exited.
  void SendDied(uint32_t rank, uint64_t pid);
  bool connected() const;

 private:
  void Run();

  const Restart restart_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;
  mutable absl::Mutex mutex_;
  int client_fd_ ABSL_GUARDED_BY(mutex_) = -1;
  Thread thread_;
};

struct RigOptions {
  // Of each group; ranks are counted through all groups everywhere in a rig.
  uint32_t world = 1;
  uint32_t groups = 1;
  testing::MockShape shape;
  int64_t step_us = 1000;
  int64_t late_us = 0;
  bool supervisor = true;
  EngineOptions engine;
  // The shards' faults from their first moment on; SetFaults of one replaces it there.
  std::function<testing::MockFault(Rank rank, const testing::MockMoment& moment)> faults;
};

// Two shards with room for sixteen streams whose prompts go in chunks, and a hang time-out that a
// test can wait for.
RigOptions TwoShards();

class EngineRig {
 public:
  explicit EngineRig(RigOptions options);
  ~EngineRig();

  // Waits until the engine serves; fails the test otherwise.
  void WaitReady();
  // Waits until `condition` holds; fails the test with `what` otherwise.
  static void WaitUntil(const std::string& what, const std::function<bool()>& condition,
                        absl::Duration timeout = absl::Seconds(60));
  // A second engine on the same shards, with a probe of its own.
  std::unique_ptr<Core> MakeEngine(EngineOptions options, Probe* probe);
  // Kills a shard and starts it again.
  void RestartShard(uint32_t rank);

  Core& engine() { return *engine_; }
  testing::MockShard& shard(uint32_t rank) { return *shards_[rank]; }
  const testing::MockShape& shape() const { return options_.shape; }
  FakeSupervisor* supervisor() { return supervisor_.get(); }
  int restarts() const { return restarts_.load(); }
  bool has_fatal() const { return has_fatal_.load(); }
  Probe& probe() { return probe_; }

  // Submits a request for token ids and returns its sink.
  std::shared_ptr<FakeSink> Submit(GenerateInput input);
  // What an undisturbed group answers.
  std::vector<TokenId> Expected(const GenerateInput& input) const;
  // Nobody runs or waits, the shards hold no slot, and no rule of the protocol was broken.
  void CheckClean();

 private:
  RigOptions options_;
  test::TempDir dir_;
  std::vector<std::unique_ptr<testing::MockShard>> shards_;
  // Restarts in progress; the supervisor's thread and tests both restart.
  absl::Mutex restart_mutex_;
  std::atomic<int> restarts_{0};
  std::atomic<bool> has_fatal_{false};
  Probe probe_;
  std::unique_ptr<FakeSupervisor> supervisor_;
  std::unique_ptr<Core> engine_;
};

// Hands a request in as a door does and returns its sink.
std::shared_ptr<FakeSink> SubmitTo(Core& core, GenerateInput input);
// A prompt of `length` lower-case letters made from `seed`, as ids.
std::vector<TokenId> MakePrompt(uint64_t seed, size_t length);
// A request for it.
GenerateInput MakeInput(uint64_t seed, size_t prompt_tokens, uint32_t max_tokens);

// The value of a series by its written form, as weft_kv_blocks{state="used"}, from /metrics; -1
// when there is none.
double MetricValue(Probe& probe, const std::string& series);

// Where threads of a rig wait until a test goes on. It opens at its end at the latest, so that a
// test that has failed can end: make it behind the rig.
class Gate {
 public:
  ~Gate() { Open(); }
  void Open() {
    if (!open_->HasBeenNotified()) open_->Notify();
  }
  // Waits; may be called when the gate is gone.
  std::function<void()> waiter() const {
    return [open = open_] { open->WaitForNotification(); };
  }

 private:
  const std::shared_ptr<absl::Notification> open_ = std::make_shared<absl::Notification>();
};

// By how much series grew since it was made: the registry outlives an engine.
class Grown {
 public:
  Grown(Probe& probe, const std::vector<std::string>& series) : probe_(probe) {
    for (const std::string& name : series) before_[name] = MetricValue(probe, name);
  }
  double operator()(const std::string& name) const {
    return MetricValue(probe_, name) - before_.at(name);
  }

 private:
  Probe& probe_;
  std::map<std::string, double> before_;
};

}  // namespace weft::router
