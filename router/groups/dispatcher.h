// Hands requests to one of several shard groups: every request waits here, in one fair queue, until
// a group has room for it (placement.h), and is in exactly one place at any time, here or in one
// group's engine loop. A request that a lost group had not begun comes back here and keeps its
// turn. What runs stays with its group, which recovers.
//
// One loop on a thread of its own. Requests and cancels come through a bounded queue; a group's
// reports through a mailbox of its own, where a newer one takes the place of the one before. It
// ends what waits too long, as the engine loop does with what waits there. Owned by Groups.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/bounded_queue.h"
#include "router/engine/group_owner.h"
#include "router/engine/inbox.h"
#include "router/engine/runtime.h"
#include "router/groups/fair_queue.h"
#include "router/groups/placement.h"
#include "router/groups/prefix_places.h"
#include "router/observe/probe.h"

namespace weft::router {

struct DispatcherOptions {
  bool prefix_cache = true;
  // A request that waits so long for its first step ends; 0 = never.
  int64_t queue_timeout_us = 0;
  // Requests end when no group has served for so long.
  int64_t recovery_timeout_us = 0;
};

class Dispatcher : public Inbox {
 public:
  // `groups`, 2 .. kGroupsMax of them, `probe` and what `runtime` points to must outlive this.
  Dispatcher(DispatcherOptions options, std::vector<Inbox*> groups, Probe* probe, Runtime runtime);
  ~Dispatcher() override { Stop(); }

  void Start();
  // Ends what waits with UNAVAILABLE, and joins the loop. Idempotent.
  void Stop();

  // -- From any thread; never block
  bool Arrive(std::unique_ptr<PreparedRequest>&& request) override;
  // Of a request that waits here.
  void CancelSequence(SequenceId sequence) override;
  // The caches of all groups are flushed: a request that comes after this call finds nothing there.
  // False when the queue is full: nothing is done then. True also when the loop has ended.
  bool ForgetPrefixes();
  // What waits at `deadline_us` fails with UNAVAILABLE.
  void EndAllAt(int64_t deadline_us);
  // As in GroupOwner.
  void Report(uint32_t group, const GroupReport& report, absl::Span<const TenantNews> news);
  bool GiveBack(uint32_t group, std::unique_ptr<PreparedRequest>&& request);

  // -- For tests, while no other thread runs the loop
  const FairQueue& QueueForTest() const { return queue_; }
  uint64_t HandedOutForTest() const;
  uint64_t GivenBackForTest() const { return given_back_; }
  bool HasForTest(SequenceId sequence) const { return requests_.contains(sequence); }

 private:
  struct CancelEvent {
    SequenceId sequence;
  };
  struct ForgetEvent {};
  struct DrainEvent {
    int64_t deadline_us;
  };
  struct StopEvent {};
  using Event = std::variant<std::unique_ptr<PreparedRequest>, CancelEvent, ForgetEvent, DrainEvent,
                             StopEvent>;

  // What a group's thread puts down for this one's.
  struct Mailbox {
    absl::Mutex mutex;
    GroupReport report ABSL_GUARDED_BY(mutex);
    absl::btree_map<TenantIndex, TenantNews> news ABSL_GUARDED_BY(mutex);
    // As many as permits allow at most.
    std::vector<std::unique_ptr<PreparedRequest>> returned ABSL_GUARDED_BY(mutex);
    bool closed ABSL_GUARDED_BY(mutex) = false;
  };
  // What was sent to a group since the start.
  struct Sent {
    uint64_t requests = 0;
    uint64_t tokens = 0;
  };

  bool Push(Event&& event);

  // -- Thread
  LoopState Turn();
  void Handle(Event& event, int64_t now_us);
  void ReadMail(uint32_t group, int64_t now_us);
  void SetLoad(uint32_t group, const GroupReport& report);
  // A group begins or ceases to serve.
  void OnServing(uint32_t group, bool serving, int64_t now_us);
  void OnArrival(std::unique_ptr<PreparedRequest> request, bool is_new, int64_t now_us);
  void FindLostCancels(int64_t now_us);
  void EndLate(int64_t now_us);
  // Returns when it wants to be called again.
  int64_t OnTimers(int64_t now_us);
  void HandOut(int64_t now_us);
  // Where the request, whose turn it is and who asks for `asks`, goes.
  Placement Choose(const PreparedRequest& request, const PlacedRequest& asks);
  PlacedRequest Asks(const PreparedRequest& request, SequenceId sequence) const;
  // A group serves whose pool is too small for what is asked for: others may have room there.
  bool AnySmaller(const PlacedRequest& asks) const;
  // A group does not serve, and has not been away for so long that it is given up.
  bool AnyMayComeBack() const;
  bool Send(SequenceId sequence, const Placement& placement, int64_t now_us);
  // A request that waits here ends with `why`.
  void End(SequenceId sequence, const absl::Status& why, int64_t now_us);
  void Refuse(PreparedRequest& request, const absl::Status& why);
  void EndAll(const absl::Status& why, int64_t now_us);
  // The same because this server stops, which counts as ended by its administrator.
  void StopAll(const absl::Status& why, int64_t now_us);
  std::unique_ptr<PreparedRequest> Take(SequenceId sequence);
  std::vector<SequenceId> Waiting() const;

  const DispatcherOptions options_;
  const std::vector<Inbox*> groups_;
  Probe* const probe_;
  const Runtime runtime_;
  const Clock* const clock_;
  BoundedQueue<Event> events_;
  const std::unique_ptr<Poller> poller_;
  std::array<Mailbox, kGroupsMax> mail_;
  // A cancel did not fit into the queue: the loop looks for it itself.
  std::atomic<bool> lost_cancel_{false};

  // -- The thread's own
  FairQueue queue_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<PreparedRequest>> requests_;
  PrefixPlaces prefixes_;
  std::vector<GroupLoad> loads_;
  std::vector<Sent> sent_;
  uint32_t block_tokens_ = 0;
  absl::btree_set<std::pair<int64_t, SequenceId>> deadlines_;
  absl::btree_set<std::pair<int64_t, SequenceId>> queue_deadlines_;
  int64_t end_all_us_ = 0;
  // Since when no group serves, after one did; 0 = one does, or none has yet.
  int64_t lost_us_ = 0;
  // By group, while it does not serve.
  struct Absence {
    int64_t since_us = 0;
    // Nobody waits for it any more.
    bool given_up = false;
  };
  std::vector<Absence> absences_;
  // Some are parked that only a full group could take.
  bool passed_over_ = false;
  bool stopping_ = false;
  uint64_t given_back_ = 0;

  std::unique_ptr<RunningLoop> loop_;
};

}  // namespace weft::router
