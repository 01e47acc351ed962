// What all doors check alike of a request that goes on with an answer (docs/API.md, "Resuming a
// stream"). Pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/request.h"

namespace weft::router {

// Gives input->resume its fingerprint and the request the seed of its broken stream, which may have
// been given as the request's own too. `path` stands before names in errors; `seed_name` is the
// request's own seed. REQUIRES: the sampling parameters and input->resume->output_ids were read.
absl::Status SettleResume(std::string fingerprint, std::optional<uint64_t> seed,
                          absl::string_view path, absl::string_view seed_name,
                          GenerateInput* input);

}  // namespace weft::router
