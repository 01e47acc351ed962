// What a batch that the wire's parser has accepted must keep, or the device reads where it must
// not. For the tests of the parser and its fuzz target. Pure.

#pragma once

#include <string>

#include "shard/control/step_inputs.h"
#include "shard/step_batch.h"

namespace weft::shard {

// The first rule that `batch` breaks; empty when it keeps all.
std::string BatchFault(const StepLimits& limits, const StepBatch& batch);

}  // namespace weft::shard
