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
#include "router/recording/records.h"
#include "router/recording/replay.h"
#include "router/scheduler/scheduler.h"

namespace weft::router::recording {

class Player {
 public:
  // `report` outlives this.
  explicit Player(ReplayReport* report) : report_(*report) {}

  // Plays the records of a frame until one differs, which report->difference then says.
  // `part_number` is that of the frame's part.
  absl::Status Play(uint64_t part_number, absl::string_view payload);

 private:
  absl::Status PlayRecord(RecordKind kind, Decoder& decoder);
  absl::Status BeginPart(Decoder& decoder);
  absl::Status TakeState(Decoder& decoder);
  absl::Status PlayGroupFormed(const GroupFormed& formed);
  absl::Status PlayGroupLost(const GroupLost& lost);
  absl::Status PlayArrival(const ArrivalRecord& arrival);
  absl::Status PlayCutLimit(const CutLimitRecord& cut);
  absl::Status PlayCancel(const CancelRecord& cancel);
  absl::Status PlayStepDone(const StepDone& done);
  absl::Status PlayPlan(const PlanRecord& plan);
  absl::Status PlayEnd(const End& end);

  absl::Status CheckConfig(const SchedulerConfig& config) const;
  // The number that stands for a hash in this replay.
  uint32_t Label(uint64_t hash);
  void LabelState(SchedulerState* state);
  void CompareEnded(absl::string_view what, uint64_t recorded_digest);
  void CompareStatus(absl::string_view what, uint32_t recorded, const absl::Status& played);
  // The event at hand differs.
  void Differs(absl::string_view how);
  // "event 12 at 3.000004 s".
  std::string Place() const;

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

  std::vector<Ended> ended_;
  std::vector<Emitted> emitted_;
};

}  // namespace weft::router::recording
