// All shard groups of a router: an engine loop for each, and what they share: the gate of
// admission, the hash key, the model. With one group it hands every request through; with several a
// dispatcher stands in front of them. Owned by router/serving; the methods of Inbox and all views
// are thread-safe.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/admission.h"
#include "router/engine/group_owner.h"
#include "router/engine/loop.h"
#include "router/groups/dispatcher.h"

namespace weft::router {

class Groups : public Inbox, private GroupOwner {
 public:
  // Makes the clients of a group's shards, as EngineLoop::ClientFactory.
  using ClientFactory = std::function<absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>>(
      uint32_t group, const ShardReplySink& sink, Poller* poller)>;

  // `worlds`: the shards of each group. Of `options` group, groups and first_rank are set here.
  // `admission`, `probe` and what `runtime` points to must outlive this.
  Groups(const EngineLoopOptions& options, std::vector<uint32_t> worlds, Admission* admission,
         Probe* probe, const Runtime& runtime);
  ~Groups() override;

  // As EngineLoop::Start. `restarter` counts ranks through all groups; `recorders` has one for each
  // group, or is empty.
  absl::Status Start(const ClientFactory& make_clients, StreamSink* text, MaskMaker* mask_maker,
                     ShardRestarter* restarter,
                     const std::vector<std::unique_ptr<Recorder>>& recorders);
  // Ends live requests with UNAVAILABLE, leaves the groups and joins their loops. Idempotent.
  void Stop();

  // -- From any thread; never block
  bool Arrive(std::unique_ptr<PreparedRequest>&& request) override;
  void CancelSequence(SequenceId sequence) override;
  // Of all groups; requests that arrive after this call find nothing that was there before. False
  // when a queue is full: some groups may have been flushed then.
  bool FlushPrefixCache();
  // Its rank is counted through all groups.
  void ShardDied(const ShardDeath& death);
  void EndAllAt(int64_t deadline_us);
  // Ready while one group serves; its detail speaks of those that do not.
  ServerStatus Status() const;
  // Zeros until the first group formed.
  ServedShape Shape() const;
  std::optional<PrefixHasher> prefix_hasher() const;
  uint32_t vocab_size() const;

  uint32_t count() const { return static_cast<uint32_t>(loops_.size()); }
  const EngineLoop& LoopForTest(uint32_t group) const { return *loops_[group]; }
  // Null with one group.
  const Dispatcher* DispatcherForTest() const { return dispatcher_.get(); }

 private:
  // What a group lets in.
  struct Gate {
    bool open = false;
    uint32_t running_max = 0;
    // 0 until it has formed.
    uint32_t request_tokens_max = 0;
    ServerState state = ServerState::kStarting;
  };
  // Asks for restarts of one group's ranks.
  class Restarter;

  // -- GroupOwner
  void Open(uint32_t group) override;
  void Close(uint32_t group, const absl::Status& why) override;
  void SetRunningMax(uint32_t group, uint32_t running_max) override;
  void SetRequestTokensMax(uint32_t group, uint32_t request_tokens_max) override;
  void SetState(uint32_t group, ServerState state) override;
  std::array<uint64_t, 2> HashKey() override;
  absl::Status CheckModel(uint32_t group, const weft::shard::v1::InfoResponse& info) override;
  void Report(uint32_t group, const GroupReport& report,
              absl::Span<const TenantNews> news) override;
  bool GiveBack(uint32_t group, std::unique_ptr<PreparedRequest>&& request) override;

  // The first loop whose group has formed, or the first.
  const EngineLoop& Formed() const;

  const std::vector<uint32_t> worlds_;
  Admission* const admission_;
  Probe* const probe_;
  const Runtime runtime_;

  mutable absl::Mutex mutex_;
  std::vector<Gate> gates_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::array<uint64_t, 2>> hash_key_ ABSL_GUARDED_BY(mutex_);
  // Of the group that was ready first, and which that is.
  std::optional<weft::shard::v1::InfoResponse> model_ ABSL_GUARDED_BY(mutex_);
  uint32_t model_of_ ABSL_GUARDED_BY(mutex_) = 0;

  std::vector<std::unique_ptr<EngineLoop>> loops_;
  std::vector<std::unique_ptr<Restarter>> restarters_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace weft::router
