// A ModelRunner without a model, for tests of everything around it. Its KV cache holds token ids,
// written and read through the block tables as a real one would hold keys and values, and the next
// token is a hash of the sequence's whole log: a wrong block, position or slot gives other tokens.
// A masked row takes the first allowed id at or cyclically after that one. Steps can take time,
// block and fail on demand. Thread-safe where ModelRunner says "any thread".

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "shard/device/model_runner.h"
#include "shard/step_batch.h"

namespace weft::shard {

struct FakeRunnerOptions {
  uint32_t vocab_size = 1000;
  uint32_t block_tokens = 16;
  uint32_t kv_blocks = 256;
  // Length of a step on the real clock; Abort cuts it short.
  absl::Duration step_duration = absl::ZeroDuration();
  // Steps that may be launched before one is taken; with 2 or more a launched step runs at once and
  // is ready when `ready` says so.
  uint32_t launches = 1;
  std::function<bool()> ready;
  // Communicators are kept between epochs.
  bool keeps = false;
  // Of every step that samples.
  std::vector<uint32_t> invalid_rows;
  // What device_status says from the first failed step or warm-up on.
  absl::Status lost_with;
  // Called on the device thread at the start of each call; an error is the call's result. May
  // block, for example until the test says so.
  std::function<absl::Status()> on_begin_epoch;
  std::function<absl::Status()> on_warmup;
  std::function<absl::Status(const StepBatch&)> on_run;
  // Called at each launch with launches of 2 or more; what samples masked rows runs later.
  std::function<void(const StepBatch&)> on_launch;
  std::function<void()> on_end_epoch;
  // Any thread; work_left_us().
  std::function<int64_t()> work_left;
};

class FakeModelRunner : public ModelRunner {
 public:
  explicit FakeModelRunner(FakeRunnerOptions options)
      : options_(std::move(options)),
        kv_(size_t{options_.kv_blocks} * options_.block_tokens, kNoToken) {}

  // The token after `log`.
  static TokenId NextToken(const std::vector<TokenId>& log, uint32_t vocab_size) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const TokenId id : log) hash = (hash ^ (id + 1)) * 0x100000001b3u;
    hash ^= hash >> 29;
    return static_cast<TokenId>(hash % vocab_size);
  }

  // The first id that `mask` allows, from `id` on and then from 0.
  static TokenId Allowed(const RowMask& mask, TokenId id, uint32_t vocab_size) {
    const auto allows = [&](TokenId at) {
      return mask.words.empty() || ((mask.words.at(at / 32) >> (at % 32)) & 1u) != 0;
    };
    for (uint32_t i = 0; i < vocab_size && !allows(id); ++i) id = (id + 1) % vocab_size;
    return id;
  }

  absl::Status BeginEpoch(std::unique_ptr<Communicator> communicator, const std::string&) override {
    if (options_.on_begin_epoch) {
      if (absl::Status status = options_.on_begin_epoch(); !status.ok()) return status;
    }
    absl::MutexLock lock(&mutex_);
    WEFT_CHECK(communicator_ == nullptr);
    communicator_.reset(static_cast<HostCommunicator*>(communicator.release()));
    aborted_ = false;
    ++epochs_begun_;
    return absl::OkStatus();
  }

  absl::StatusOr<WarmupResult> Warmup() override {
    if (options_.on_warmup) {
      if (absl::Status status = options_.on_warmup(); !status.ok()) {
        failed_ = true;
        return status;
      }
    }
    absl::MutexLock lock(&mutex_);
    ++warmups_;
    WarmupResult result;
    result.kv_blocks = options_.kv_blocks;
    result.costs = {{1, 0, 16, 1000}, {8, 0, 128, 1500}};
    return result;
  }

  absl::StatusOr<StepResult> Run(const StepBatch& batch) override {
    if (options_.on_run) {
      if (absl::Status status = options_.on_run(batch); !status.ok()) return status;
    }
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&aborted_), options_.step_duration);
      if (aborted_) return absl::AbortedError("the epoch was aborted");
      ++steps_;
    }
    for (const Slot slot : batch.drops) last_.erase(slot);
    for (const SequenceStart& start : batch.starts) WEFT_CHECK(!last_.contains(start.slot));
    if (absl::Status status = Meet(); !status.ok()) return status;
    if (batch.masks != nullptr) {
      if (absl::Status status = batch.masks->Wait(); !status.ok()) return status;
    }
    StepResult result;
    result.weight_passes = batch.sequences.empty() ? 0 : 1;
    for (const StepSequence& rows : batch.sequences) RunSequence(batch, rows, &result);
    if (!result.ids.empty()) result.invalid_rows = options_.invalid_rows;
    ScoreRows(batch, &result.scores);
    return result;
  }

  uint32_t launches_max() const override { return options_.launches; }
  absl::Status Launch(const StepBatch& batch) override {
    if (options_.launches == 1) return ModelRunner::Launch(batch);
    if (options_.on_launch) options_.on_launch(batch);
    WEFT_CHECK(due_ == nullptr);
    if (batch.masks != nullptr) {
      due_ = &batch;
      return absl::OkStatus();
    }
    return RunAhead(batch);
  }
  bool sampling_due() const override { return due_ != nullptr; }
  absl::Status LaunchSampling() override {
    WEFT_CHECK(due_ != nullptr && due_->masks->Settled());
    return RunAhead(*std::exchange(due_, nullptr));
  }
  bool Ready() override {
    // The end of a step whose sampling is due is not even launched.
    if (due_ != nullptr && ahead_.empty()) return false;
    return options_.launches == 1 || !options_.ready || options_.ready();
  }
  absl::StatusOr<StepResult> Take() override {
    absl::StatusOr<StepResult> result = absl::UnknownError("nothing is launched");
    if (options_.launches == 1) {
      result = ModelRunner::Take();
    } else if (!ahead_.empty()) {
      result = std::move(ahead_.front());
      ahead_.pop_front();
    }
    failed_ = failed_ || !result.ok();
    return result;
  }
  absl::Status device_status() const override {
    return failed_ ? options_.lost_with : absl::OkStatus();
  }

  int64_t work_left_us() const override { return options_.work_left ? options_.work_left() : 0; }

  void EndEpoch() override {
    if (options_.on_end_epoch) options_.on_end_epoch();
    ahead_.clear();
    due_ = nullptr;
    absl::MutexLock lock(&mutex_);
    communicator_.reset();
    last_.clear();
  }

  bool keeps_communicators() const override { return options_.keeps; }
  bool PauseEpoch(absl::Duration patience) override {
    const absl::Time deadline = absl::Now() + patience;
    while (!ahead_.empty() && !Ready() && absl::Now() < deadline) std::this_thread::yield();
    const bool ended = ahead_.empty() || Ready();
    if (failed_ || !ended) {
      EndEpoch();
      return false;
    }
    ahead_.clear();
    last_.clear();
    return true;
  }
  absl::Status ResumeEpoch() override {
    absl::MutexLock lock(&mutex_);
    WEFT_CHECK(communicator_ != nullptr);
    ++epochs_resumed_;
    return absl::OkStatus();
  }

  void Abort() override {
    absl::MutexLock lock(&mutex_);
    aborted_ = true;
    if (communicator_ != nullptr) communicator_->Abort();
  }

  int epochs_begun() const {
    absl::MutexLock lock(&mutex_);
    return epochs_begun_;
  }
  int epochs_resumed() const {
    absl::MutexLock lock(&mutex_);
    return epochs_resumed_;
  }
  int warmups() const {
    absl::MutexLock lock(&mutex_);
    return warmups_;
  }
  int steps() const {
    absl::MutexLock lock(&mutex_);
    return steps_;
  }

 private:
  absl::Status RunAhead(const StepBatch& batch) {
    absl::StatusOr<StepResult> result = Run(batch);
    failed_ = failed_ || !result.ok();
    if (result.ok()) ahead_.push_back(result);
    return result.status();
  }

  // One collective a step, so that ranks depend on each other as real ones do.
  absl::Status Meet() {
    HostCommunicator* communicator = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      communicator = communicator_.get();
    }
    float target = 0.0f;
    *communicator->Stage(1) = 1.0f;
    absl::Status status = communicator->AllReduceAdd(&target, 1);
    if (status.ok()) WEFT_CHECK_EQ(target, static_cast<float>(communicator->world()));
    return status;
  }

  // Numbers that tell rows and tokens apart: row and target are in the log-probability, the row's
  // id is the rank.
  static void ScoreRows(const StepBatch& batch, StepScores* scores) {
    for (const StepScoring& scoring : batch.scorings) {
      const StepSequence& rows = batch.sequences[scoring.sequence];
      for (uint32_t i = 0; i < scoring.count; ++i) {
        const uint32_t row = scoring.first + i;
        scores->logprobs.push_back(-static_cast<float>(rows.start + row) -
                                   static_cast<float>(batch.targets[scoring.begin + i]) / 1024);
        scores->ranks.push_back(batch.ids[rows.token_begin + row]);
        for (TokenId id = 0; id < scoring.top; ++id) {
          scores->top.emplace_back(id, -static_cast<float>(id));
        }
      }
    }
  }

  void RunSequence(const StepBatch& batch, const StepSequence& rows, StepResult* result) {
    const auto place = [&](Position position) -> TokenId& {
      const uint32_t index = position / options_.block_tokens;
      const StepTable& table = batch.table(static_cast<size_t>(&rows - batch.sequences.data()), 0);
      WEFT_CHECK_LT(index, table.count);
      return kv_[size_t{batch.block_ids[table.begin + index]} * options_.block_tokens +
                 position % options_.block_tokens];
    };
    for (uint32_t i = 0; i < rows.token_count; ++i) {
      const TokenId id =
          rows.from_last_sample ? last_.at(rows.slot) : batch.ids[rows.token_begin + i];
      place(rows.start + i) = id;
    }
    if (!rows.sample) return;
    std::vector<TokenId> log;
    for (Position p = 0; p < rows.start + rows.token_count; ++p) log.push_back(place(p));
    TokenId next = NextToken(log, options_.vocab_size);
    if (rows.masked) next = Allowed(batch.masks->Of(rows.slot), next, options_.vocab_size);
    last_[rows.slot] = next;
    result->slots.push_back(rows.slot);
    result->ids.push_back(next);
  }

  const FakeRunnerOptions options_;
  // Device thread only.
  std::vector<TokenId> kv_;
  std::map<Slot, TokenId> last_;
  std::deque<absl::StatusOr<StepResult>> ahead_;
  // Launched, and waits for its masks.
  const StepBatch* due_ = nullptr;
  bool failed_ = false;

  mutable absl::Mutex mutex_;
  std::unique_ptr<HostCommunicator> communicator_ ABSL_GUARDED_BY(mutex_);
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  int epochs_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int epochs_resumed_ ABSL_GUARDED_BY(mutex_) = 0;
  int warmups_ ABSL_GUARDED_BY(mutex_) = 0;
  int steps_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::shard
