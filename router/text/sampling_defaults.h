// Which sampling parameters a model's own files recommend: what a request that does not speak of
// them gets with --generation-config auto. Read once at start-up by the router's main thread.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "router/request.h"

namespace weft::router {

// temperature, top_k, top_p, min_p, typical_p and repetition_penalty of generation_config.json in a
// model directory; what it does not have is neutral, as is all where there is no such file (a .gguf
// file has none). temperature is 0, greedy, where do_sample is false. INVALID_ARGUMENT names the
// file, the key and what it may be.
absl::StatusOr<SamplingParams> ReadSamplingDefaults(const std::string& model_path);

// "temperature=0.6 top_p=0.9", without what is neutral; "none" when all is.
std::string SamplingDefaultsText(const SamplingParams& defaults);

}  // namespace weft::router
