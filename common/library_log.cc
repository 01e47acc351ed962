#include "common/library_log.h"

#include "absl/strings/match.h"
#include "common/log.h"

namespace weft {

void LogLibraryLine(absl::string_view library, absl::string_view message) {
  const spdlog::string_view_t name(library.data(), library.size());
  const spdlog::string_view_t text(message.data(), message.size());
  if (absl::StartsWith(message, "assertion failed") ||
      absl::StartsWith(message, "pthread_create failed")) {
    WEFT_LOG_ERROR("{}: {}", name, text);
    FlushLogs();
  } else {
    WEFT_LOG_DEBUG("{}: {}", name, text);
  }
}

}  // namespace weft
