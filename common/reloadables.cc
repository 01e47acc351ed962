#include "common/reloadables.h"

#include "common/log.h"

namespace weft {

int Reloadables::ReloadAll() {
  if (parts_.empty()) WEFT_LOG_INFO("SIGHUP: there is nothing to reload");
  int failures = 0;
  for (Part& part : parts_) {
    const absl::Status status = part.reload();
    if (status.ok()) {
      WEFT_LOG_INFO("reloaded {}", part.name);
    } else {
      WEFT_LOG_WARN("SIGHUP: {} stay as they were, since what is there now cannot be used",
                    part.name);
      ++failures;
    }
  }
  return failures;
}

}  // namespace weft
