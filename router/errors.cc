#include "router/errors.h"

#include <cstdlib>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "router/context_length.h"

namespace weft::router {
namespace {

// Payload keys inside absl::Status; they never leave the process.
constexpr char kFieldKey[] = "weft/field";
// Of several fields those behind the first, one a line.
constexpr char kMoreFieldsKey[] = "weft/more_fields";
constexpr char kRetryAfterKey[] = "weft/retry_after_ms";
constexpr char kReasonKey[] = "weft/reason";

std::string Prefix(absl::Span<const std::string> fields) {
  return absl::StrCat("`", absl::StrJoin(fields, "`, `"), "`: ");
}

absl::Status RetryableError(absl::StatusCode code, absl::string_view reason,
                            absl::string_view message, absl::Duration retry_after) {
  absl::Status status(code, message);
  status.SetPayload(kReasonKey, absl::Cord(reason));
  status.SetPayload(kRetryAfterKey,
                    absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(retry_after))));
  return status;
}

}  // namespace

absl::Status FieldError(absl::string_view field, absl::string_view message) {
  return FieldsError({std::string(field)}, message);
}

absl::Status FieldsError(absl::Span<const std::string> fields, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(Prefix(fields), message));
  status.SetPayload(kFieldKey, absl::Cord(fields.front()));
  if (fields.size() > 1) {
    status.SetPayload(kMoreFieldsKey, absl::Cord(absl::StrJoin(fields.subspan(1), "\n")));
  }
  return status;
}

std::optional<std::string> ErrorField(const absl::Status& status) {
  const absl::optional<absl::Cord> field = status.GetPayload(kFieldKey);
  if (!field.has_value()) return std::nullopt;
  return std::string(*field);
}

std::vector<std::string> ErrorFields(const absl::Status& status) {
  const std::optional<std::string> first = ErrorField(status);
  if (!first.has_value()) return {};
  std::vector<std::string> fields = {*first};
  if (const absl::optional<absl::Cord> more = status.GetPayload(kMoreFieldsKey)) {
    for (const absl::string_view field : absl::StrSplit(std::string(*more), '\n')) {
      fields.emplace_back(field);
    }
  }
  return fields;
}

absl::Status RenameField(const absl::Status& status, absl::string_view field) {
  return RenameFields(status, [field](const std::string&) { return std::string(field); });
}

absl::Status RenameFields(const absl::Status& status,
                          absl::FunctionRef<std::string(const std::string&)> name) {
  std::vector<std::string> fields = ErrorFields(status);
  if (fields.empty()) return status;
  absl::string_view message = status.message();
  const std::string prefix = Prefix(fields);
  if (message.substr(0, prefix.size()) == prefix) message.remove_prefix(prefix.size());
  for (std::string& field : fields) field = name(field);
  absl::Status renamed = FieldsError(fields, message);
  if (const absl::optional<absl::Cord> reason = status.GetPayload(kReasonKey)) {
    renamed.SetPayload(kReasonKey, *reason);
  }
  return renamed;
}

absl::Status ContextLengthError(absl::string_view field, absl::string_view message,
                                uint32_t tokens_max) {
  absl::Status status =
      FieldError(field, absl::StrCat(message, "; this model's maximum context length is ",
                                     tokens_max, " tokens, prompt and output together"));
  status.SetPayload(kReasonKey, absl::Cord("CONTEXT_LENGTH_EXCEEDED"));
  return status;
}

absl::Status NotSupportedByModelError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kReasonKey, absl::Cord("NOT_SUPPORTED_BY_MODEL"));
  return status;
}

absl::Status OverloadedError(absl::string_view reason, absl::string_view message,
                             absl::Duration retry_after) {
  return RetryableError(absl::StatusCode::kResourceExhausted, reason, message, retry_after);
}

absl::Status UnavailableError(absl::string_view reason, absl::string_view message,
                              absl::Duration retry_after) {
  return RetryableError(absl::StatusCode::kUnavailable, reason, message, retry_after);
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  const absl::optional<absl::Cord> text = status.GetPayload(kRetryAfterKey);
  int64_t retry_after_ms = 0;
  if (!text.has_value() || !absl::SimpleAtoi(std::string(*text), &retry_after_ms)) {
    return std::nullopt;
  }
  return absl::Milliseconds(retry_after_ms);
}

std::string ErrorReason(const absl::Status& status) {
  const absl::optional<absl::Cord> reason = status.GetPayload(kReasonKey);
  return reason.has_value() ? std::string(*reason) : std::string();
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;  // nginx's "client closed request": nobody reads it, the log does
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kAlreadyExists:
    default:
      return 500;
  }
}

}  // namespace weft::router
