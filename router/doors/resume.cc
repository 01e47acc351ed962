#include "router/doors/resume.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "router/errors.h"

namespace weft::router {

absl::Status SettleResume(std::string fingerprint, std::optional<uint64_t> seed,
                          absl::string_view path, absl::string_view seed_name,
                          GenerateInput* input) {
  if (fingerprint.size() > kFingerprintBytesMax) {
    return FieldError(absl::StrCat(path, "fingerprint"),
                      absl::StrCat("must have at most ", kFingerprintBytesMax, " bytes, not ",
                                   fingerprint.size()));
  }
  input->resume->fingerprint = std::move(fingerprint);
  if (seed.has_value() && input->seed.has_value() && *seed != *input->seed) {
    return FieldError(absl::StrCat(path, "seed"),
                      absl::StrCat("is ", *seed, " and ", seed_name, " ", *input->seed,
                                   "; give one of them, or the same twice"));
  }
  if (seed.has_value()) input->seed = seed;
  // Another seed would go on with another answer.
  const bool drawn = input->sampling.temperature >= kTemperatureMin;
  if (drawn && !input->seed.has_value() && !input->resume->output_ids.empty()) {
    return FieldError(
        absl::StrCat(path, "seed"),
        absl::StrCat("is required where tokens are drawn (temperature of ", kTemperatureMin,
                     " or more): the one that the stream began "
                     "with, any 64-bit number"));
  }
  return absl::OkStatus();
}

}  // namespace weft::router
