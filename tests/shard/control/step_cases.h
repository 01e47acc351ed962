// The steps that the tests of the wire's parser begin with, for the shard of small_limits.h.

#pragma once

#include <catch2/catch.hpp>

#include "shard/control/step_inputs.h"
#include "tests/shard/control/small_limits.h"
#include "tests/shard/control/step_builder.h"

namespace weft::shard {

// Slot 2 runs (6 ids, blocks 0 1), slot 1 is being filled (3 of 9 ids, blocks 2 3 4).
inline void Arrange(StepInputs* inputs) {
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 2, {0, 1});
  AddBlocks(request.mutable_header(), 1, {2, 3, 4});
  AddFirstChunk(&request, 2, 20, {1, 2, 3, 4, 5, 6}, true, 6);
  AddFirstChunk(&request, 1, 10, {7, 8, 9}, false, 9);
  StepBatch batch;
  REQUIRE(inputs->Prepare(request, &batch).ok());
}

// The same with a second KV group, whose blocks are 10 above the first's.
inline void ArrangeGroups(StepInputs* inputs) {
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 2, {0, 1});
  AddBlocks(request.mutable_header(), 2, {10, 11}, 1);
  AddBlocks(request.mutable_header(), 1, {2, 3, 4});
  AddBlocks(request.mutable_header(), 1, {12, 13, 14}, 1);
  AddFirstChunk(&request, 2, 20, {1, 2, 3, 4, 5, 6}, true, 6);
  AddFirstChunk(&request, 1, 10, {7, 8, 9}, false, 9);
  StepBatch batch;
  REQUIRE(inputs->Prepare(request, &batch).ok());
}

// A Prefill that is right after Arrange: slot 1 goes on, slot 0 begins, slot 2 decodes.
inline v1::PrefillRequest GoodPrefill() {
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 2);
  AddBlocks(request.mutable_header(), 0, {9});
  AddChunk(&request, 1, 10, 3, {1, 1, 1, 1, 1, 1}, true);
  AddFirstChunk(&request, 0, 30, {50, 51, 52}, true, 3);
  request.set_with_decode(true);
  return request;
}

}  // namespace weft::shard
