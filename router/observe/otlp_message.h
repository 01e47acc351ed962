// Traces of requests as an OTLP message (proto/weft/otlp/trace.proto): a span for the request
// as a whole, with the names of OpenTelemetry's conventions for generative AI, and one below it for
// each of its phases. Pure.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "router/observe/request_trace.h"

namespace weft::router {

// Of the resource: service.name and what else operators say of this process.
using TraceAttributes = std::vector<std::pair<std::string, std::string>>;

std::string OtlpMessage(const TraceAttributes& resource,
                        absl::Span<const std::shared_ptr<RequestTrace>> traces);

}  // namespace weft::router
