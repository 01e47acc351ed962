// What the readers of config.json have in common besides sizes: checks that the file is of a model
// that this code knows, and keys that families share. Called once while a model is opened; pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/hf_config.h"

namespace weft::shard {

// UNIMPLEMENTED for another class than `architecture`, and for quantised safetensors, unless the
// family has read quantization_config.
absl::Status RefuseOtherModels(const HfObject& root, absl::string_view architecture,
                               bool reads_quantised = false);

// The ids that end an answer, of generation_config.json or config.json.
absl::StatusOr<std::vector<uint32_t>> EosFromHf(const HfConfig& config, uint32_t vocab);

// The function that `key` names, of all spellings that transformers has for those that weft knows.
absl::StatusOr<Activation> ActivationFromHf(const HfObject& root, const char* key,
                                            absl::string_view otherwise);

// OK when `key` is absent or false (true); else UNIMPLEMENTED naming it.
absl::Status ExpectFalse(const HfObject& root, const char* key, bool otherwise = false);
absl::Status ExpectTrue(const HfObject& root, const char* key, bool otherwise = true);

// OK when `key` is absent or says what is expected; else UNIMPLEMENTED naming it.
absl::Status ExpectText(const HfObject& root, const char* key, const char* expected);

// Which part of each head is rotated, above 0 and at most 1: "partial_rotary_factor", inside
// rope_parameters too, or what a family called it before (`old_key`).
absl::StatusOr<float> RotaryShareFromHf(const HfObject& root, const char* old_key, float otherwise);
// The same as a number of elements.
absl::StatusOr<uint32_t> RotaryDimsFromHf(const HfObject& root, const char* old_key,
                                          float otherwise, uint32_t head_dim);

}  // namespace weft::shard
