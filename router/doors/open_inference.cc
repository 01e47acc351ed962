#include "router/doors/open_inference.h"

#include "absl/strings/str_cat.h"
#include "router/errors.h"

namespace weft::router {

bool IsLive(const DoorContext& doors) { return doors.Status().stalled_us <= kStalledUsMax; }

bool IsReady(const DoorContext& doors) { return doors.Status().state == ServerState::kReady; }

absl::Status CheckOpenInferenceModel(const DoorContext& doors, absl::string_view name,
                                     absl::string_view version) {
  if (name.empty()) return FieldError("name", "must not be empty");
  absl::Status known = doors.CheckModel(name);
  if (!known.ok() || version.empty() || version == kOpenInferenceVersion) return known;
  return absl::NotFoundError(absl::StrCat("the version `", version.substr(0, 64),
                                          "` does not exist; served is `", kOpenInferenceVersion,
                                          "`"));
}

}  // namespace weft::router
