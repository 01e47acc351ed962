// What a shard group makes of the answers to its steps: late ones of ended epochs, wrong ones, and
// those that never come.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/common/log_lines.h"
#include "tests/router/shards/group_rig.h"

namespace weft::router {
namespace {

TEST_CASE("Step answers of an epoch that has ended are dropped unread", "[router][shards]") {
  GroupRig rig(2);
  rig.Form();
  const Epoch ended = rig.group->epoch();
  rig.SendStep(1);
  const ShardCallTag late0 = rig.Last(0, ShardCall::kDecode).tag;
  const ShardCallTag late1 = rig.Last(1, ShardCall::kDecode).tag;
  rig.group->FailEpoch(absl::InternalError("asked to fail"), rig.now_us);
  REQUIRE(rig.lost == 1);
  rig.Leave();
  rig.Form();
  REQUIRE(rig.group->epoch() == ended + 1);
  rig.SendStep(1);
  rig.AnswerTagged(1, ShardCall::kDecode, late1, absl::AbortedError("left the group"));
  rig.AnswerTagged(0, ShardCall::kDecode, late0, absl::OkStatus(),
                   GroupRig::StepAnswerBytes(ended, 1));
  CHECK(rig.lost == 1);
  CHECK(rig.steps_answered.empty());
  for (const Rank rank : {0u, 1u}) {
    rig.Answer(rank, ShardCall::kDecode, absl::OkStatus(), GroupRig::StepAnswerBytes(ended + 1, 1));
  }
  CHECK(rig.steps_answered == std::vector<StepNumber>{1});
  CHECK(rig.lost == 1);
}

TEST_CASE("What an ended attempt to form an epoch answers late does not end the next one",
          "[router][shards]") {
  GroupRig rig(2);
  const auto begin_joining = [&rig] {
    rig.Grant();
    for (int i = 0; i < 5 && rig.group->state() != GroupState::kJoining; ++i) rig.Poll();
    REQUIRE(rig.group->state() == GroupState::kJoining);
    weft::shard::v1::RendezvousResponse token;
    token.set_token("t");
    rig.Answer(0, ShardCall::kRendezvous, absl::OkStatus(), token.SerializeAsString());
  };
  begin_joining();
  const Epoch ended = rig.group->epoch();
  const ShardCallTag late = rig.Last(0, ShardCall::kJoinGroup).tag;
  rig.Answer(1, ShardCall::kJoinGroup, absl::InternalError("no room"));
  REQUIRE(rig.group->state() != GroupState::kJoining);
  rig.Leave();
  begin_joining();
  REQUIRE(rig.group->epoch() == ended + 1);
  rig.AnswerTagged(0, ShardCall::kJoinGroup, late, absl::DeadlineExceededError("too late"));
  CHECK(rig.group->state() == GroupState::kJoining);
  // Nor is rank 0 taken for one that has joined.
  rig.AnswerTagged(0, ShardCall::kJoinGroup, late, absl::OkStatus());
  rig.Answer(1, ShardCall::kJoinGroup, absl::OkStatus());
  CHECK(rig.group->state() == GroupState::kJoining);
  rig.Answer(0, ShardCall::kJoinGroup, absl::OkStatus());
  CHECK(rig.group->state() == GroupState::kWarming);
}

TEST_CASE("An attempt that fails as the one before it is not said again", "[router][shards]") {
  GroupRig rig(2);
  const test::LogLines log;
  const auto begin = [&rig] {
    rig.Leave();
    rig.Grant();
    for (int i = 0; i < 50 && rig.group->state() != GroupState::kJoining; ++i) rig.Poll();
    REQUIRE(rig.group->state() == GroupState::kJoining);
  };
  const auto attempt = [&](const char* why) {
    begin();
    rig.Answer(0, ShardCall::kRendezvous, absl::InternalError(why));
    REQUIRE(rig.group->state() != GroupState::kJoining);
  };
  for (int i = 0; i < 5; ++i) attempt("no room");
  CHECK(log.Count("group lost") == 1);
  attempt("no way");
  attempt("no room");
  CHECK(log.Count("group lost") == 3);
  // Once a group has served it is another story.
  begin();
  rig.Form();
  rig.group->OnShardDied({1, 101}, rig.now_us);
  CHECK(log.Count("group lost") == 4);
  rig.Replace(1, 201, 0);
  attempt("no room");
  CHECK(log.Count("group lost") == 5);
}

TEST_CASE("A rank that answers for another epoch or step ends the epoch", "[router][shards]") {
  struct Case {
    std::string body;
    std::string why;
  };
  const std::vector<Case> cases = {
      {GroupRig::StepAnswerBytes(2, 1), "rank 1 answered step 1 of epoch 2, which is not in"},
      {GroupRig::StepAnswerBytes(0, 1), "rank 1 answered step 1 of epoch 0, which is not in"},
      {GroupRig::StepAnswerBytes(1, 2), "rank 1 answered step 2 of epoch 1, which is not in"},
      {"\xff", "rank 1: malformed step answer"},
  };
  for (const Case& test : cases) {
    INFO(test.why);
    GroupRig rig(2);
    rig.Form();
    REQUIRE(rig.group->epoch() == 1);
    rig.SendStep(1);
    rig.Answer(1, ShardCall::kDecode, absl::OkStatus(), test.body);
    CHECK(rig.lost == 1);
    INFO(rig.lost_why.message());
    CHECK(absl::StrContains(rig.lost_why.message(), test.why));
    // Its process is well: it is asked to leave and not killed.
    CHECK(rig.restarted.empty());
    CHECK(rig.Count(1, ShardCall::kLeaveGroup) == 1);
  }
}

TEST_CASE("A step has ten minutes, or four hang time-outs where these are longer",
          "[router][shards]") {
  constexpr int64_t kTenMinutesUs = 600'000'000;
  GroupRig rig(2);
  rig.Form();
  rig.SendStep(1);
  for (const Rank rank : {0u, 1u}) {
    CHECK(rig.Last(rank, ShardCall::kDecode).timeout_us == kTenMinutesUs);
  }
  GroupRig patient(1, /*hang_timeout_ms=*/200'000);
  patient.Form();
  patient.SendStep(1);
  CHECK(patient.Last(0, ShardCall::kDecode).timeout_us == 4 * 200'000'000);

  rig.Answer(1, ShardCall::kDecode, absl::DeadlineExceededError("no answer"));
  CHECK(rig.lost == 1);
  CHECK(absl::IsDeadlineExceeded(rig.lost_why));
  CHECK(rig.restarted.empty());
  for (const Rank rank : {0u, 1u}) CHECK(rig.Count(rank, ShardCall::kLeaveGroup) == 1);
}

}  // namespace
}  // namespace weft::router
