#include "router/doors/grpc/errors.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "router/errors.h"

namespace weft::router {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));  // the two enums have the same numbers
  details.set_message(std::string(status.message()));
  google::rpc::BadRequest bad;
  for (const std::string& field : ErrorFields(status)) {
    google::rpc::BadRequest::FieldViolation* violation = bad.add_field_violations();
    violation->set_field(field);
    violation->set_description(std::string(status.message()));
  }
  if (bad.field_violations_size() > 0) details.add_details()->PackFrom(bad);
  if (const std::optional<absl::Duration> after = RetryAfter(status)) {
    google::rpc::RetryInfo retry;
    absl::Duration rest;
    retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(*after, absl::Seconds(1), &rest));
    retry.mutable_retry_delay()->set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(rest)));
    details.add_details()->PackFrom(retry);
  }
  if (const std::string reason = ErrorReason(status); !reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain("weft");
    details.add_details()->PackFrom(info);
  }
  const auto code = static_cast<grpc::StatusCode>(status.code());
  if (details.details().empty()) return {code, details.message()};
  return {code, details.message(), details.SerializeAsString()};
}

absl::string_view GrpcCodeName(grpc::StatusCode code) {
  static const auto* names = [] {
    auto* all = new std::vector<std::string>();
    for (int i = 0; i <= 16; ++i) {
      all->push_back(absl::StatusCodeToString(static_cast<absl::StatusCode>(i)));
    }
    return all;
  }();
  const auto index = static_cast<size_t>(code);
  return index < names->size() ? absl::string_view((*names)[index]) : "UNKNOWN";
}

}  // namespace weft::router
