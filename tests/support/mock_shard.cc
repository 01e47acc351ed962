#include "tests/support/mock_shard.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/thread.h"
#include "tests/support/mock_process.h"

namespace weft::testing {

class MockShard::Impl : public MockProcessOwner {
 public:
  explicit Impl(const MockShardOptions& options) : options_(options) {}

  MockFault Ask(MockMoment moment) override {
    std::function<MockFault(const MockMoment&)> faults;
    {
      absl::MutexLock lock(&mutex_);
      moment.before = counts_[moment.call]++;
      faults = faults_;
    }
    return faults ? faults(moment) : MockFault::kNone;
  }
  void DieSoon() override;
  void Kill();
  void Start();

  void AddBusy(int64_t starved_us, int64_t start_us, int64_t end_us) override {
    absl::MutexLock lock(&mutex_);
    ++totals_.steps;
    totals_.busy_us += end_us - start_us;
    if (first_start_us_ == 0) {
      first_start_us_ = start_us;
    } else {
      totals_.starved_us += starved_us;
    }
    totals_.span_us = end_us - first_start_us_;
  }
  void AddArrival(size_t in_flight, size_t bytes) override {
    absl::MutexLock lock(&mutex_);
    totals_.in_flight_max = std::max<uint64_t>(totals_.in_flight_max, in_flight);
    totals_.request_bytes += bytes;
  }
  void AddViolation(const std::string& what) override {
    absl::MutexLock lock(&mutex_);
    totals_.violations.push_back(what);
  }
  void AddEpoch() override {
    absl::MutexLock lock(&mutex_);
    ++totals_.epochs;
  }
  void AddModel(const MockModel& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    totals_.chunks += model.chunks();
    totals_.mixed_steps += model.mixed_steps();
    totals_.prefix_hits += model.prefix_hits();
    totals_.blocks_left += model.blocks_left();
    totals_.masked_rows += model.masked_rows();
    totals_.violations.insert(totals_.violations.end(), model.violations().begin(),
                              model.violations().end());
  }

  // Its shape's KV blocks change between processes, under life_mutex_.
  MockShardOptions options_;
  mutable absl::Mutex mutex_;
  std::function<MockFault(const MockMoment&)> faults_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_death_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
  MockShardStats totals_ ABSL_GUARDED_BY(mutex_);
  int64_t first_start_us_ ABSL_GUARDED_BY(mutex_) = 0;
  // Start and Kill, one at a time.
  absl::Mutex life_mutex_;
  std::shared_ptr<MockProcess> process_ ABSL_GUARDED_BY(mutex_);
  Thread reaper_ ABSL_GUARDED_BY(life_mutex_);
};

void MockShard::Impl::DieSoon() {
  absl::MutexLock lock(&life_mutex_);
  reaper_ = Thread("mock-reaper", [this] {
    std::shared_ptr<MockProcess> process;
    std::function<void()> on_death;
    {
      absl::MutexLock lock(&mutex_);
      process = process_;
      on_death = on_death_;
    }
    process->Stop();
    if (on_death) on_death();
  });
}

void MockShard::Impl::Kill() {
  absl::MutexLock lock(&life_mutex_);
  reaper_.Join();
  std::shared_ptr<MockProcess> process;
  {
    absl::MutexLock lock_state(&mutex_);
    process.swap(process_);
  }
  if (process == nullptr) return;
  process->Stop();
  process->WithModel([this](const MockModel& model) {
    absl::MutexLock lock_state(&mutex_);
    AddModel(model);
  });
}

void MockShard::Impl::Start() {
  absl::MutexLock lock(&life_mutex_);
  auto process = std::make_shared<MockProcess>(options_, this);
  absl::MutexLock lock_state(&mutex_);
  WEFT_CHECK(process_ == nullptr);
  process_ = std::move(process);
}

MockShard::MockShard(const MockShardOptions& options) : impl_(std::make_unique<Impl>(options)) {
  impl_->Start();
}

MockShard::~MockShard() { impl_->Kill(); }

void MockShard::SetFaults(std::function<MockFault(const MockMoment&)> faults) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->faults_ = std::move(faults);
}

void MockShard::SetOnDeath(std::function<void()> on_death) {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->on_death_ = std::move(on_death);
}

void MockShard::Kill() { impl_->Kill(); }
void MockShard::Start() { impl_->Start(); }
void MockShard::SetKvBlocks(uint32_t kv_blocks) {
  absl::MutexLock lock(&impl_->life_mutex_);
  absl::MutexLock lock_state(&impl_->mutex_);
  WEFT_CHECK(impl_->process_ == nullptr);
  impl_->options_.shape.kv_blocks = kv_blocks;
}

std::string MockShard::address() const { return absl::StrCat("unix:", impl_->options_.socket); }

uint64_t MockShard::pid() const {
  absl::MutexLock lock(&impl_->mutex_);
  return impl_->process_ == nullptr ? 0 : impl_->process_->pid();
}

Epoch MockShard::epoch() const {
  std::shared_ptr<MockProcess> process;
  {
    absl::MutexLock lock(&impl_->mutex_);
    process = impl_->process_;
  }
  return process == nullptr ? 0 : process->epoch();
}

MockShardStats MockShard::stats() const {
  std::shared_ptr<MockProcess> process;
  MockShardStats stats;
  {
    absl::MutexLock lock(&impl_->mutex_);
    process = impl_->process_;
    stats = impl_->totals_;
  }
  if (process == nullptr) return stats;
  process->WithModel([&stats](const MockModel& model) {
    stats.chunks += model.chunks();
    stats.mixed_steps += model.mixed_steps();
    stats.prefix_hits += model.prefix_hits();
    stats.blocks_left += model.blocks_left();
    stats.masked_rows += model.masked_rows();
    stats.held_slots = model.held_slots();
    stats.violations.insert(stats.violations.end(), model.violations().begin(),
                            model.violations().end());
  });
  return stats;
}

void MockShard::ResetBusy() {
  absl::MutexLock lock(&impl_->mutex_);
  impl_->totals_.busy_us = 0;
  impl_->totals_.starved_us = 0;
  impl_->totals_.span_us = 0;
  impl_->first_start_us_ = 0;
}

}  // namespace weft::testing
