// Turns what a scheduler is told and decides into the records of a recording, `--record FILE` of
// the router. Owned by router/serving; after Create() it belongs to the engine loop's thread, as
// the tap of its scheduler. It never waits and never fails that thread: a recording that cannot go
// on ends, with a line in the log. It sees token ids nowhere: of prompts and outputs it takes
// lengths and block hashes, and the hashes' key stays in the process.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/recording/part_writer.h"
#include "router/recording/records.h"
#include "router/scheduler/event_tap.h"
#include "router/scheduler/scheduler.h"

namespace weft::router {

class Recorder : public EventTap {
 public:
  // `recording` is a random number. Errors name the file.
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(recording::RecordOptions options,
                                                          uint64_t recording);

  // From now on records `scheduler`, which is new and made with `config`. Once; it outlives the
  // last event.
  void Begin(const SchedulerConfig& config, Scheduler* scheduler);
  // Writes what waits and the recording's end. After the last event.
  void Finish();

  bool ended() const { return writer_ == nullptr || writer_->ended(); }

  // -- EventTap
  void OnGroupFormed(const GroupInfo& group, int64_t now_us,
                     absl::Span<const Ended> ended) override;
  void OnGroupLost(int64_t now_us, absl::Span<const Ended> ended) override;
  void OnArrival(const Arrival& arrival, uint32_t prompt_tokens, int64_t now_us,
                 const absl::Status& status) override;
  void OnCutLimit(SequenceId id, uint32_t tokens_max, int64_t now_us,
                  const absl::Status& status) override;
  void OnCancel(SequenceId id, int64_t now_us, absl::Span<const Ended> ended) override;
  void OnFlush(int64_t now_us) override;
  void OnStepDone(StepNumber step, const StepTime& time, int64_t now_us,
                  absl::Span<const Emitted> emitted, absl::Span<const Ended> ended) override;
  void OnPlan(const StepPlan* plan, int64_t now_us) override;

 private:
  Recorder(std::unique_ptr<recording::PartWriter> writer, uint64_t recording);

  // The bytes of a record, in record_.
  template <typename Fields>
  void Encode(recording::RecordKind kind, int64_t now_us, const Fields& fields);
  // The same for an event, which goes to the writer.
  template <typename Fields>
  void Write(recording::RecordKind kind, int64_t now_us, const Fields& fields);
  void BeginPart(bool with_state);

  std::unique_ptr<recording::PartWriter> writer_;
  const Scheduler* scheduler_ = nullptr;
  recording::Head head_;
  int64_t last_us_ = 0;
  // Scratch of one event; they keep their capacity.
  std::string record_;
  recording::GroupFormed formed_;
  recording::ArrivalRecord arrival_;
  recording::StepDone done_;
};

}  // namespace weft::router
