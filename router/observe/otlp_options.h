// Where traces of requests go and which of them: from flags, and from the variables that every
// OpenTelemetry process reads. Pure but for the variables, which are passed in.
// Variables: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/observe/otlp_message.h"

namespace weft::router {

struct OtlpOptions {
  // Of the collector.
  std::string host;
  std::string port;
  std::string path;
  // Sent with every message, as a collector's key.
  TraceAttributes headers;
  TraceAttributes resource;
  // Share of requests without a caller's decision, 0 .. 1.
  double sample = 0;
};

// None: traces are off. `endpoint` and `sample` are the flags'; `variable` gives a variable of the
// environment, or null. INVALID_ARGUMENT names flag or variable and what was expected.
absl::StatusOr<std::optional<OtlpOptions>> ReadOtlpOptions(
    const std::string& endpoint, double sample,
    const std::function<const char*(const char* name)>& variable);

}  // namespace weft::router
