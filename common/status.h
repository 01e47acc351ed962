// Macros that pass an absl::Status up the call chain, and Annotate, which adds context once where
// it is known. Used by every folder; allocates only on the error path.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

// Returns `status` with "context: " in front of its message; an OK status is returned as it is.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace weft

#define WEFT_CONCAT_INNER_(a, b) a##b
#define WEFT_CONCAT_(a, b) WEFT_CONCAT_INNER_(a, b)

// Returns the status of `expression` from the enclosing function unless it is OK.
#define WEFT_RETURN_IF_ERROR(expression)                                                   \
  do {                                                                                     \
    if (absl::Status weft_status_ = (expression); !weft_status_.ok()) return weft_status_; \
  } while (false)

// Assigns the value of a StatusOr expression to `target` or returns its status.
#define WEFT_ASSIGN_OR_RETURN(target, expression) \
  WEFT_ASSIGN_OR_RETURN_(WEFT_CONCAT_(weft_status_or_, __LINE__), target, expression)
#define WEFT_ASSIGN_OR_RETURN_(status_or, target, expression) \
  auto status_or = (expression);                              \
  if (!status_or.ok()) return std::move(status_or).status();  \
  target = std::move(status_or).value()
