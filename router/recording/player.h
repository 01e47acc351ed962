// One recording being played: a scheduler of its own that is told each record's event, and what it
// answers beside what was recorded. Part of Replay(); one thread. A record that no scheduler could
// have been told is an error, never a failed check.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "router/recording/records.h"
#include "router/recording/replay.h"
#include "router/scheduler/scheduler.h"

namespace weft::router::recording {

// What a recording from outside may cost. The defaults are more than any device and router hold.
struct PlayerLimits {
  uint64_t pool_tokens = uint64_t{1} << 28;
  uint32_t pool_blocks = 1u << 24;
  uint32_t context_tokens = kContextTokensMax;
  // Of the prompts of all live sequences.
  uint64_t prompt_tokens = uint64_t{1} << 28;
  uint32_t waiting = 1u << 20;
};

class Player {
 public:
  // `report` outlives this.
  explicit Player(ReplayReport* report, const PlayerLimits& limits = {})
      : limits_(limits), report_(*report) {}

  // Plays the records of a frame until one differs, which report->difference then says.
  // `part_number` is that of the frame's part.
  absl::Status Play(uint64_t part_number, absl::string_view payload);

  // Plays on behind differences, into what no recorded scheduler comes to, and checks after each
  // record that its own is sound.
  void PlayOnForTest() { play_on_ = true; }

 private:
  absl::Status PlayRecord(RecordKind kind, Decoder& decoder);
  absl::Status BeginPart(Decoder& decoder);
  absl::Status TakeState(Decoder& decoder);
  absl::Status PlayGroupFormed(const GroupFormed& formed);
  absl::Status PlayGroupLost(const GroupLost& lost);
  absl::Status PlayArrival(const ArrivalRecord& arrival);
  absl::Status PlayCutLimit(const CutLimitRecord& cut);
  absl::Status PlayCancel(const CancelRecord& cancel);
  absl::Status PlayFlush(const Flush& flush);
  absl::Status PlayStepDone(const StepDone& done);
  absl::Status PlayPlan(const PlanRecord& plan);
  absl::Status PlayEnd(const End& end);

  absl::Status CheckConfig(const SchedulerConfig& config) const;
  absl::Status CheckPool(uint32_t kv_blocks) const;
  // A sequence may come in: ids are never used again, for rows of who had it may be in flight.
  absl::Status CheckNew(SequenceId id, uint32_t prompt_tokens) const;
  void CameIn(SequenceId id, uint32_t prompt_tokens);
  void LeaveEnded();
  // The number that stands for a hash in this replay.
  uint32_t Label(uint64_t hash);
  void LabelState(SchedulerState* state);
  void CompareEnded(absl::string_view what, uint64_t recorded_digest);
  void CompareStatus(absl::string_view what, uint32_t recorded, const absl::Status& played);
  // The event at hand differs.
  void Differs(absl::string_view how);
  // "event 12 at 3.000004 s".
  std::string Place() const;

  const PlayerLimits limits_;
  bool play_on_ = false;
  ReplayReport& report_;
  uint64_t part_ = 0;
  Head head_;
  // A head promised a state that has not come yet.
  bool awaits_state_ = false;
  bool has_begun_ = false;
  // Of the recording: events before the one at hand, and plans.
  uint64_t event_ = 0;
  uint64_t plans_ = 0;
  int64_t now_us_ = 0;

  std::unique_ptr<Scheduler> scheduler_;
  bool formed_ = false;
  // Of the steps in flight, oldest first: the slots of the rows that sample.
  struct Flight {
    StepNumber step = 0;
    std::vector<Slot> slots;
  };
  std::deque<Flight> in_flight_;
  absl::flat_hash_map<uint64_t, uint32_t> labels_;
  // By id, of every sequence so far: its prompt's tokens, 0 when it has ended.
  absl::flat_hash_map<SequenceId, uint32_t> prompts_;
  uint64_t prompt_tokens_ = 0;

  std::vector<Ended> ended_;
  std::vector<Emitted> emitted_;
};

}  // namespace weft::router::recording
