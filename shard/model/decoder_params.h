// Every parameter that the forward of a DecoderSpec reads: which there are, their shapes and how
// tensor parallelism splits them. The one list behind a family's table of tensors, the devices'
// checks that nothing is missing, and the count of a model's parameters. Pure, any thread.

#pragma once

#include <vector>

#include "shard/model/decoder_spec.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// In the order of the forward.
std::vector<DecoderParam> DecoderParams(const DecoderSpec& spec);

}  // namespace weft::shard
