// The Hugging Face half of LoadModelText: generation_config.json, config.json,
// tokenizer_config.json and chat_template.jinja of a model directory. Private to router/text;
// called once at start-up.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "router/text/model_text.h"

namespace weft::router {

// Fills all but model_name; eos_ids may be unsorted. Absent files and keys are fine; broken ones
// are INVALID_ARGUMENT that names the file and the key.
absl::StatusOr<ModelText> LoadHfText(const std::string& directory);

}  // namespace weft::router
