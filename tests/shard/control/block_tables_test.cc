// Block tables of several KV groups: what deltas make of them, what rows must find in them, and the
// words for what is wrong.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/shard/control/step_cases.h"

namespace weft::shard {
namespace {

// Group 0 keeps everything, group 1 has a window of 9 tokens; a block holds 4.
StepLimits WindowLimits() {
  StepLimits limits = SmallLimits();
  limits.kv_windows = {0, 9};
  return limits;
}

v1::DecodeRequest Decode(uint64_t step) {
  v1::DecodeRequest request;
  SetHeader(request.mutable_header(), 1, step);
  return request;
}

void CheckRefused(StepInputs& inputs, const v1::DecodeRequest& request, const char* want) {
  StepBatch batch;
  const absl::Status status = inputs.Prepare(request, &batch);
  INFO(status);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(), want));
}

// Slot 0 runs with 12 ids in 3 blocks of each group.
void RunTwelve(StepInputs* inputs) {
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 0, {0, 1, 2});
  AddBlocks(request.mutable_header(), 0, {10, 11, 12}, 1);
  AddFirstChunk(&request, 0, 7, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, true, 12);
  StepBatch batch;
  REQUIRE(inputs->Prepare(request, &batch).ok());
  REQUIRE(batch.kv_groups == 2);
  CHECK(batch.block_ids == std::vector<BlockId>{0, 1, 2, 10, 11, 12});
}

TEST_CASE("Blocks leave the front of a window's table and come back in the same step",
          "[shard][step_inputs]") {
  StepInputs inputs(WindowLimits());
  RunTwelve(&inputs);
  // The row at 12 reads positions 4 .. 12.
  v1::DecodeRequest request = Decode(2);
  AddBlocks(request.mutable_header(), 0, {3});
  AddBlocks(request.mutable_header(), 0, {10}, 1)->set_leave_front(1);
  StepBatch batch;
  REQUIRE(inputs.Prepare(request, &batch).ok());
  CHECK(batch.table(0, 0).first == 0);
  CHECK(batch.table(0, 0).count == 4);
  CHECK(batch.table(0, 1).first == 1);
  CHECK(batch.table(0, 1).count == 3);
  CHECK(batch.block_ids == std::vector<BlockId>{0, 1, 2, 3, 11, 12, 10});
  // Nothing changes until the next block begins.
  REQUIRE(inputs.Prepare(Decode(3), &batch).ok());
  CHECK(batch.table(0, 1).first == 1);
}

TEST_CASE("A prefix hit brings a window's last blocks alone", "[shard][step_inputs]") {
  StepInputs inputs(WindowLimits());
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 0, {0, 1, 2, 3, 4});
  AddBlocks(request.mutable_header(), 0, {12, 13, 14}, 1)->set_leave_front(2);
  AddFirstChunk(&request, 0, 7, {5, 6}, true, 18)->set_start(16);
  StepBatch batch;
  REQUIRE(inputs.Prepare(request, &batch).ok());
  CHECK(batch.table(0, 1).first == 2);
  CHECK(batch.block_ids == std::vector<BlockId>{0, 1, 2, 3, 4, 12, 13, 14});
  // The slot's next sequence begins with tables of its own.
  v1::PrefillRequest next;
  SetHeader(next.mutable_header(), 1, 2, {0});
  AddBlocks(next.mutable_header(), 0, {8});
  AddBlocks(next.mutable_header(), 0, {9}, 1);
  AddFirstChunk(&next, 0, 8, {5, 6}, true, 2);
  REQUIRE(inputs.Prepare(next, &batch).ok());
  CHECK(batch.table(0, 1).first == 0);
  CHECK(batch.block_ids == std::vector<BlockId>{8, 9});
}

TEST_CASE("Rows without a block that they read or write are refused", "[shard][step_inputs]") {
  StepInputs inputs(WindowLimits());
  RunTwelve(&inputs);
  SECTION("no new block in one group") {
    v1::DecodeRequest request = Decode(2);
    AddBlocks(request.mutable_header(), 0, {3});
    CheckRefused(inputs, request,
                 "decode: slot 0 has 3 blocks in group 1, a context of 13 tokens needs 4");
  }
  SECTION("too much has left") {
    v1::DecodeRequest request = Decode(2);
    AddBlocks(request.mutable_header(), 0, {3});
    AddBlocks(request.mutable_header(), 0, {13}, 1)->set_leave_front(2);
    CheckRefused(inputs, request,
                 "decode: slot 0 lacks its first 2 blocks in group 1, but position 12 reads from "
                 "4 on");
  }
}

TEST_CASE("Deltas that no table can follow are refused by field", "[shard][step_inputs]") {
  StepInputs inputs(WindowLimits());
  RunTwelve(&inputs);
  v1::DecodeRequest request = Decode(2);
  SECTION("another group") {
    AddBlocks(request.mutable_header(), 0, {3}, 2);
    CheckRefused(inputs, request, "header.block_deltas[0].group: 2 is not below 2");
  }
  SECTION("a group that keeps its blocks") {
    AddBlocks(request.mutable_header(), 0, {3})->set_leave_front(1);
    CheckRefused(inputs, request,
                 "header.block_deltas[0].leave_front: 1, but group 0 has no window");
  }
  SECTION("more than the table has") {
    AddBlocks(request.mutable_header(), 0, {3}, 1)->set_leave_front(4);
    CheckRefused(inputs, request, "header.block_deltas[0].leave_front: 4 blocks, the table has 3");
  }
  SECTION("twice") {
    AddBlocks(request.mutable_header(), 0, {3}, 1);
    AddBlocks(request.mutable_header(), 0, {4}, 1);
    CheckRefused(inputs, request,
                 "header.block_deltas[1].slot: 0 has another delta of group 1 in this step");
  }
  SECTION("beyond the context") {
    v1::PrefillRequest prefill;
    SetHeader(prefill.mutable_header(), 1, 2);
    AddBlocks(prefill.mutable_header(), 1, {4}, 1)->set_leave_front(UINT32_MAX);
    AddFirstChunk(&prefill, 1, 9, {1}, true, 1);
    StepBatch batch;
    const absl::Status status = inputs.Prepare(prefill, &batch);
    INFO(status);
    CHECK(absl::StrContains(status.message(),
                            "header.block_deltas[0].blocks: 4294967296 blocks, a whole context "
                            "has 16"));
  }
}

}  // namespace
}  // namespace weft::shard
