// What a recording from outside may not say, record by record: refused with its place, before a
// scheduler is told.

#include "router/recording/player.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "router/recording/digest.h"
#include "router/recording/records.h"

namespace weft::router::recording {
namespace {

class Records {
 public:
  explicit Records(const Head& head = SmallHead()) { Add(RecordKind::kHead, head); }

  static Head SmallHead() {
    Head head;
    head.recording = 5;
    head.config.running_max = 2;
    head.config.step_tokens_max = 8;
    head.config.block_tokens = 4;
    head.config.context_tokens_max = 64;
    return head;
  }
  template <typename Fields>
  Records& Add(RecordKind kind, const Fields& fields, int64_t delta_us = 1) {
    Encoder encoder(&bytes_);
    encoder.Number(kind);
    encoder.Signed(delta_us);
    Fields::Code(encoder, fields);
    return *this;
  }
  Records& Form(uint32_t kv_blocks = 20) {
    GroupFormed formed;
    formed.kv_blocks = kv_blocks;
    return Add(RecordKind::kGroupFormed, formed);
  }
  Records& Arrive(SequenceId id, uint32_t prompt_tokens = 8) {
    ArrivalRecord arrival;
    arrival.id = id;
    arrival.prompt_tokens = prompt_tokens;
    arrival.max_new_tokens = 4;
    arrival.tenant_weight = 1;
    for (uint32_t i = 0; i < prompt_tokens / 4; ++i) arrival.hashes.push_back(100 * id + i);
    return Add(RecordKind::kArrival, arrival);
  }
  Records& Cancel(SequenceId id) {
    const std::vector<Ended> ended = {{id, EndReason::kCancelled}};
    return Add(RecordKind::kCancel, CancelRecord{id, DigestOf(absl::MakeConstSpan(ended))});
  }

  std::string Said(const PlayerLimits& limits = {}) const {
    ReplayReport report;
    const absl::Status status = Player(&report, limits).Play(1, bytes_);
    CHECK(report.difference == "");
    return std::string(status.message());
  }

 private:
  std::string bytes_;
};

TEST_CASE("What was never told to a scheduler is refused where it stands", "[recording]") {
  CHECK(Records().Form().Arrive(1).Cancel(1).Arrive(2).Said() == "");
  const auto refused = [](const Records& records, absl::string_view why,
                          const PlayerLimits& limits = {}) {
    const std::string said = records.Said(limits);
    CAPTURE(said, why);
    CHECK(absl::StartsWith(said, "part 1, event "));
    CHECK(absl::StrContains(said, why));
  };
  SECTION("an id that was used") {
    refused(Records().Form().Arrive(1).Cancel(1).Arrive(1), "sequence 1 for a second time");
  }
  SECTION("a group beside another") {
    refused(Records().Form().Form(), "a group that forms beside another");
  }
  SECTION("a pool that no device holds") {
    refused(Records().Form(std::numeric_limits<uint32_t>::max()), "a pool that no device holds");
  }
  SECTION("more prompts than a router holds") {
    PlayerLimits limits;
    limits.prompt_tokens = 20;
    refused(Records().Form().Arrive(1).Arrive(2).Arrive(3), "more prompts than a router holds",
            limits);
    // Those of sequences that have ended are none.
    CHECK(Records().Form().Arrive(1).Cancel(1).Arrive(2).Arrive(3).Said(limits) == "");
  }
  SECTION("times that add up to nothing") {
    constexpr int64_t kFar = int64_t{1} << 55;
    GroupLost lost;
    refused(Records().Add(RecordKind::kGroupLost, lost, std::numeric_limits<int64_t>::min()),
            "a time that no clock shows");
    refused(Records()
                .Add(RecordKind::kGroupLost, lost, kFar - 1)
                .Add(RecordKind::kGroupLost, lost, kFar - 1),
            "a time that no clock shows");
  }
  SECTION("settings out of their ranges") {
    Head head = Records::SmallHead();
    head.config.ageing_us = std::numeric_limits<int64_t>::max();
    refused(Records(head), "settings out of their ranges");
    head = Records::SmallHead();
    head.config.block_tokens = 0;
    refused(Records(head), "settings out of their ranges");
  }
  SECTION("a part with other settings than the one before") {
    Head next = Records::SmallHead();
    next.has_state = true;
    next.events = 1;
    CHECK(Records().Form().Add(RecordKind::kHead, next).Said() == "");
    next.config.block_tokens = 8;
    refused(Records().Form().Add(RecordKind::kHead, next), "a part with other settings");
  }
  SECTION("an answer to a step that is not in flight") {
    refused(Records().Form().Add(RecordKind::kStepDone, StepDone()), "which is not the oldest");
  }
}

}  // namespace
}  // namespace weft::router::recording
