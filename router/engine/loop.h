// The router's heart: one loop that owns the scheduler and the shard group, on a thread of its own
// unless it is simulated (engine/runtime.h). Arrivals, cancels, step answers and timers come in
// through one bounded queue; step calls go out to the shards, and what became of each step goes to
// text out, one push per worker. It waits only where its poller does: for that queue and for the
// sockets of its shards. Two steps are in flight so that the device never waits for it (invariant
// ahead.two).

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/bounded_queue.h"
#include "common/clock.h"
#include "common/executor.h"
#include "router/engine/group_owner.h"
#include "router/engine/inbox.h"
#include "router/engine/mask_maker.h"
#include "router/engine/masked_steps.h"
#include "router/engine/runtime.h"
#include "router/engine/served.h"
#include "router/engine/stages.h"
#include "router/engine/step_message.h"
#include "router/observe/probe.h"
#include "router/prompt_scores.h"
#include "router/recording/recorder.h"
#include "router/scheduler/scheduler.h"
#include "router/shards/client.h"
#include "router/shards/group.h"
#include "router/shards/poller.h"
#include "router/shards/router_model.h"
#include "router/shards/supervisor_client.h"

namespace weft::router {

struct EngineLoopOptions {
  // Which group of how many, and the rank of its first shard counted through all groups.
  uint32_t group = 0;
  uint32_t groups = 1;
  Rank first_rank = 0;
  // Upper bounds; the shards may allow less. 0 context = the model's.
  uint32_t running_max = kRunningDefault;
  uint32_t step_tokens_max = kStepTokensDefault;
  uint32_t context_tokens_max = 0;
  uint32_t waiting_max = kQueueRequestsDefault;
  uint32_t inter_token_target_us = 0;
  bool prefix_cache = true;
  std::vector<TokenId> eos_ids;
  // What the shards' model is compared with, and the name that requests use for it.
  RouterModel model;
  std::string model_name;
  LauncherClaim launcher;
  int64_t hang_timeout_ms = 0;
  int64_t recovery_timeout_us = 0;
  // A request that waits so long for its first step ends; 0 = never.
  int64_t queue_timeout_us = 0;
  std::function<void(const absl::Status&)> on_fatal;
  std::function<void()> on_serving;
};

class EngineLoop : public Inbox, public ShardGroupListener {
 public:
  // Makes the clients of the group's shards, whose replies go to `sink`; `poller` is the thread's.
  using ClientFactory = std::function<absl::StatusOr<std::vector<std::unique_ptr<ShardClient>>>(
      const ShardReplySink& sink, Poller* poller)>;

  // `owner`, `probe` and what `runtime` points to must outlive this.
  EngineLoop(EngineLoopOptions options, GroupOwner* owner, Probe* probe, Runtime runtime);
  ~EngineLoop() override;

  // Starts the loop, or says why the clients cannot be made. `text` and `mask_maker` must
  // outlive it; `restarter` and `recorder` too, and may be null.
  absl::Status Start(const ClientFactory& make_clients, StreamSink* text, MaskMaker* mask_maker,
                     ShardRestarter* restarter, Recorder* recorder);
  // Has live requests end with UNAVAILABLE and the group left; returns at once.
  void BeginStop();
  // The same, and joins the loop. Idempotent.
  void Stop();

  // -- From any thread; never block
  bool Arrive(std::unique_ptr<PreparedRequest>&& request) override;
  void CancelSequence(SequenceId sequence) override;
  // Forgets the cached prefixes that nobody uses, before any request that arrives after this call.
  // False when the queue is full: nothing is done then. True also when the loop has ended.
  bool FlushPrefixCache();
  void ShardDied(const ShardDeath& death);
  // Live requests still there at `deadline_us` fail with UNAVAILABLE.
  void EndAllAt(int64_t deadline_us);
  ServerStatus Status() const;
  // The group runs steps.
  bool serving() const { return serving_.load(std::memory_order_acquire); }
  // Zeros until the first group formed.
  ServedShape Shape() const;
  // Hashes prompts as the scheduler would; none until the first group formed.
  std::optional<PrefixHasher> prefix_hasher() const;
  uint32_t vocab_size() const { return vocab_size_.load(std::memory_order_acquire); }

  // Null until the first group formed. Of use while no other thread runs the loop.
  const Scheduler* SchedulerForTest() const { return scheduler_.get(); }
  // Of one group among several: prompt tokens here that no step has held.
  uint64_t UnplannedForTest() const { return unplanned_tokens_; }

  // -- The shard group's news, on the thread
  void OnGroupFormed(const FormedGroup& group, int64_t now_us) override;
  void OnGroupLost(const absl::Status& why, int64_t now_us) override;
  void OnStepAnswer(const StepAnswer& answer, int64_t now_us) override;
  void OnGroupFatal(const absl::Status& why) override;

 private:
  struct CancelEvent {
    SequenceId sequence;
  };
  struct FlushEvent {};
  struct DrainEvent {
    int64_t deadline_us;
  };
  struct StopEvent {};
  using Event = std::variant<std::unique_ptr<PreparedRequest>, CancelEvent, ShardReply, MadeMasks,
                             ShardDeath, FlushEvent, DrainEvent, StopEvent>;

  // A request the scheduler knows.
  struct Live {
    // Its writer and text have gone on to text out once the stream has begun.
    std::unique_ptr<PreparedRequest> request;
    std::shared_ptr<Answer> answer;
    std::shared_ptr<ConstrainedLog> constraint;
    // Of a prompt that is scored; goes on with its head.
    std::shared_ptr<PromptScores> scores;
    uint32_t prompt_tokens = 0;
    // Of prompt and resumed part.
    uint32_t cached_tokens = 0;
    // Of its prefill_tokens(), those that were planned or found.
    uint32_t prompt_reached = 0;
    bool begun = false;
    // OK, or how it is to fail when the scheduler gives it back.
    absl::Status failure;
    int64_t last_token_us = 0;
    // The epoch its last first chunk was in, and whether that was for the second time: it had been
    // preempted.
    Epoch prefill_epoch = 0;
    bool resumed = false;
  };

  // Rows of a prompt that a step scores.
  struct SentScoring {
    SequenceId sequence = 0;
    Slot slot = 0;
    PromptScores::Rows rows;
    uint32_t top = 0;
  };

  // What was sent and is not answered; checked against the answer.
  struct SentStep {
    StepNumber step = 0;
    // Slots of the rows that sample, in the answer's order.
    std::vector<Slot> rows;
    // Who they belonged to: a slot may have another sequence when the answer comes.
    std::vector<SequenceId> sequences;
    // In the answer's order.
    std::vector<SentScoring> scorings;
    StepSample sample;
    int64_t sent_us = 0;
    // Chunks that are a piece of a longer prompt, and those of preempted sequences.
    uint32_t partial_chunks = 0;
    uint32_t resumed_chunks = 0;
  };

  // From any thread. False when the queue has room for replies alone, or is closed; the event is
  // then left untouched.
  bool Push(Event&& event);

  // -- Thread
  // Does what has come since the last turn, then waits.
  LoopState Turn();
  void Handle(Event& event, int64_t now_us);
  void OnArrival(std::unique_ptr<PreparedRequest> request, int64_t now_us);
  // Those whose first choice has its prompt computed, or has ended, arrive.
  void ReleaseFollowers(int64_t now_us);
  // Hands the request's sequence to the scheduler, or says why it cannot be run.
  absl::Status Schedule(PreparedRequest* request, int64_t now_us);
  void OnCancel(SequenceId sequence, int64_t now_us);
  void OnFlush(int64_t now_us);
  // Ends what is over its deadline, or over the time that it may wait.
  void EndLate(int64_t now_us);
  // Ends requests whose cancel found the queue full.
  void FindLostCancels(int64_t now_us);
  // Deadlines, drain, recovery time-out. Returns when it wants to be called again.
  int64_t OnTimers(int64_t now_us);
  void PumpSteps();
  void SendStep(const StepPlan& plan, int64_t plan_us, int64_t now_us);
  void MarkPlanned(const StepPlan& plan, int64_t now_us);
  // -- Masked rows (masks.cc)
  void NoteMaskedRows(const SentStep& sent);
  // These sequences' tokens of the step, which was answered, are known.
  void MakeNextMasks(StepNumber answered, const std::vector<SequenceId>& sequences);
  void OnMasks(MadeMasks made, int64_t now_us);
  // Has masks worked out that can be, and sends those that are.
  void SendMasks();
  // Says what the lost group had been asked for and did not answer.
  void CountLostSteps(int64_t now_us);
  void FlushText();
  // A point of a request's way on the timeline, if one is taken (observe/timeline.h).
  void TracePoint(TimelineKind point, const Live& live, int64_t before_us, int64_t at_us);
  void Publish(int64_t now_us);

  void MakeScheduler(const FormedGroup& group);

  // -- Ends
  // In ascending order: what is done to all is done in the same order each time.
  std::vector<SequenceId> LiveIds() const;
  // Takes a live request from the scheduler; it fails with `why`.
  void Fail(SequenceId sequence, const absl::Status& why, int64_t now_us);
  void FailAll(const absl::Status& why, int64_t now_us);
  // The same because this server stops, which counts as ended by its administrator.
  void StopAll(const absl::Status& why, int64_t now_us);
  // The scheduler gave `ended_` back.
  void EndLives();
  // Ends a request whose client has had the whole answer: no shard is asked.
  void EndResumed(std::unique_ptr<PreparedRequest> request, int64_t now_us);
  // The request ends while others wait for its prompt: the first of them goes on in its place.
  void Promote(PreparedRequest& request);
  void ForgetDeadlines(SequenceId sequence, const PreparedRequest& request);
  // Ends a request whose stream has not begun.
  void Refuse(PreparedRequest& request, const absl::Status& failure);
  void BeginStream(SequenceId sequence, Live& live, StreamBatch* batch);
  void SendEmitted(const weft::shard::v1::StepResponse& response, int64_t now_us);
  // -- Prompts that are scored (scores.cc)
  void NoteScoring(const PlannedChunk& chunk, const Live& live, SentStep* sent);
  // Rank 0 said of the step what it was asked for.
  bool ScoresFit(const SentStep& sent, const weft::shard::v1::StepResponse& response) const;
  // Keeps what is said of prompts that are still wanted; ends those of which it is no number.
  void TakeScores(const std::vector<SentScoring>& scorings,
                  const weft::shard::v1::StepResponse& response, int64_t now_us);
  // Ends the requests whose rows the shards could not sample.
  void FailInvalidRows(const weft::shard::v1::StepResponse& response, int64_t now_us);
  ServerState StateForDoors() const;

  // -- One group among several (reports.cc)
  bool shares_work() const { return options_.groups > 1; }
  TenantNews& NewsOf(const Answer& answer);
  void NoteArrival(const PreparedRequest& request, const Answer& answer);
  // It is in a step for the first time.
  void NotePlanned(Live* live);
  // `reached` of its prefill_tokens() were planned or found.
  void NoteEnd(const PreparedRequest& request, const Answer& answer, uint32_t reached);
  // False when all is being stopped; the request is then untouched.
  bool GiveBack(std::unique_ptr<PreparedRequest>* request);
  // Hands back what no step has held yet.
  void GiveBackUnplanned(int64_t now_us);
  void Report();

  const EngineLoopOptions options_;
  GroupOwner* const owner_;
  Probe* const probe_;
  const Runtime runtime_;
  const Clock* const clock_;
  BoundedQueue<Event> queue_;
  const std::unique_ptr<Poller> poller_;

  // -- The thread's own
  StreamSink* text_ = nullptr;
  MaskMaker* mask_maker_ = nullptr;
  Recorder* recorder_ = nullptr;
  std::unique_ptr<ShardGroup> group_;
  std::unique_ptr<Scheduler> scheduler_;
  StepMessage message_;
  absl::flat_hash_map<SequenceId, Live> live_;
  absl::btree_set<std::pair<int64_t, SequenceId>> deadlines_;
  // When those that wait for their first step have waited too long.
  absl::btree_set<std::pair<int64_t, SequenceId>> queue_deadlines_;
  // Who holds a slot, by slot.
  std::vector<SequenceId> slot_sequence_;
  std::deque<SentStep> sent_;
  MaskedSteps masked_steps_;
  // Masks to be worked out, by step, until the end of the turn.
  absl::btree_map<StepNumber, std::vector<MaskJob>> mask_jobs_;
  // Choices that need not wait for another one any more, until the end of the turn.
  std::vector<std::unique_ptr<PreparedRequest>> released_;
  std::vector<StreamBatch> outbox_;
  // Scratch of one step.
  std::vector<SampledRow> rows_;
  std::vector<Emitted> emitted_;
  std::vector<Ended> ended_;
  std::vector<uint32_t> gaps_us_;
  std::vector<int32_t> row_logprob_;
  int64_t end_all_us_ = 0;
  int64_t lost_us_ = 0;
  int64_t leave_by_us_ = 0;
  bool stopping_ = false;
  GroupState published_state_ = GroupState::kConnecting;
  // Of the group that formed last, and whether its rows depend on nothing else.
  std::string fingerprint_;
  bool deterministic_ = false;
  // What was reported last, and what is to be reported.
  GroupReport report_;
  absl::btree_map<TenantIndex, TenantNews> news_;
  std::vector<TenantNews> news_list_;
  uint64_t arrived_ = 0;
  uint64_t arrived_tokens_ = 0;
  uint64_t unplanned_tokens_ = 0;
  uint32_t request_tokens_max_ = 0;

  // -- Seen from outside
  std::atomic<uint32_t> vocab_size_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> serving_{false};
  // A cancel did not fit into the queue: the loop looks for it itself.
  std::atomic<bool> lost_cancel_{false};
  // Since when there is work and no step has ended; 0 = no work.
  std::atomic<int64_t> idle_since_us_{0};
  mutable absl::Mutex mutex_;
  ServerStatus status_ ABSL_GUARDED_BY(mutex_);
  ServedShape shape_ ABSL_GUARDED_BY(mutex_);
  std::optional<PrefixHasher> prefix_hasher_ ABSL_GUARDED_BY(mutex_);

  // -- Its owner's
  std::unique_ptr<RunningLoop> loop_;
  bool stop_asked_ = false;
};

}  // namespace weft::router
