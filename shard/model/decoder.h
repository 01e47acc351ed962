// The one forward of weft: embedding, layers and head, read top to bottom in decoder.cc and driven
// by DecoderSpec. It computes nothing: it records what a step has to compute, once at load, and
// devices rewrite and walk the record. Any thread.

#pragma once

#include <cstdint>

#include "shard/model/decoder_spec.h"
#include "shard/model/layer_plan.h"

namespace weft::shard {

// The plain operations of the forward in a group of `world` ranks: nothing fused, one thing each.
LayerPlan RecordForward(const DecoderSpec& spec, uint32_t world);

}  // namespace weft::shard
