// The check of weft.shard.v1.SamplingParams and its translation. Part of the shard's wire parser;
// used by step_inputs. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "shard/step_batch.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// Fills `params`. INVALID_ARGUMENT names the field, its value and its range; `field` is the path
// of the message, for example "chunks[0].sampling".
absl::Status ParseSampling(const v1::SamplingParams& message, const std::string& field,
                           uint32_t vocab_size, SamplingParams* params);

}  // namespace weft::shard
