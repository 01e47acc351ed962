// User errors that name a field, carried inside absl::Status, and the one table between Status,
// HTTP and gRPC codes. Used by all doors and by what is behind them; thread-safe, stateless.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace weft::router {

// INVALID_ARGUMENT "`field`: message". `field` is the canonical name (that of generation.proto
// without its path: prompt, max_tokens, temperature ...); a door that calls it otherwise renames
// it.
absl::Status FieldError(absl::string_view field, absl::string_view message);

// INVALID_ARGUMENT "`a`, `b`: message" that any of `fields`, at least one, may have caused.
absl::Status FieldsError(absl::Span<const std::string> fields, absl::string_view message);

// The field of an error made by FieldError, or the first of several.
std::optional<std::string> ErrorField(const absl::Status& status);
// All of them; none for another error.
std::vector<std::string> ErrorFields(const absl::Status& status);
// The same error of one field under another name, or of each field under the one that `name` gives.
absl::Status RenameField(const absl::Status& status, absl::string_view field);
absl::Status RenameFields(const absl::Status& status,
                          absl::FunctionRef<std::string(const std::string&)> name);

// INVALID_ARGUMENT with the reason NOT_SUPPORTED_BY_MODEL: another kind of model would serve it.
absl::Status NotSupportedByModelError(absl::string_view message);

// RESOURCE_EXHAUSTED or UNAVAILABLE with the time after which a retry makes sense. `reason` is a
// stable word in capitals, for example QUEUE_FULL.
absl::Status OverloadedError(absl::string_view reason, absl::string_view message,
                             absl::Duration retry_after);
absl::Status UnavailableError(absl::string_view reason, absl::string_view message,
                              absl::Duration retry_after);
std::optional<absl::Duration> RetryAfter(const absl::Status& status);
// The stable word of the errors above that have one; empty otherwise.
std::string ErrorReason(const absl::Status& status);

// HTTP status code of an error.
int HttpCode(const absl::Status& status);

}  // namespace weft::router
