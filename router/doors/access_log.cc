#include "router/doors/access_log.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "common/log.h"
#include "router/observe/outcomes.h"
#include "router/observe/request_trace.h"

namespace weft::router {
namespace {

constexpr double kMs = 1e-3;

}  // namespace

void DescribeAnswer(const Answer& answer, AccessRecord* record) {
  record->id = answer.id();
  record->correlation_id = answer.correlation_id();
  if (answer.trace() != nullptr) record->trace_id = TraceIdText(answer.trace()->trace_id);
  if (answer.tenant() != nullptr) record->tenant = answer.tenant()->name;
  if (answer.head() != nullptr) {
    record->prompt_tokens = answer.head()->prompt_tokens;
    record->cached_tokens = answer.head()->cached_tokens;
  }
  const AnswerEnd* const end = answer.end();
  if (end == nullptr) {
    record->cause = CancelReasonName(answer.cancelled());
    return;
  }
  // A request that ended before its head was read has them in its end alone.
  if (answer.head() == nullptr) record->prompt_tokens = end->prompt_tokens;
  record->output_tokens = end->output_tokens;
  record->validation_us = end->validation_us;
  record->queue_us = end->queue_us;
  if (end->status.ok()) {
    record->cause = FinishReasonName(end->reason);
  } else {
    const CancelReason reason = answer.cancelled();
    record->cause = reason == CancelReason::kNone ? "error" : CancelReasonName(reason);
  }
}

bool IsTraceparent(absl::string_view text) {
  if (text.size() != 55) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 2 || i == 35 || i == 52;
    const auto c = static_cast<unsigned char>(text[i]);
    if (dash ? c != '-' : !absl::ascii_isxdigit(c) || absl::ascii_isupper(c)) return false;
  }
  return true;
}

void LogAccess(const AccessRecord& record, bool quiet) {
  std::vector<LogField> fields;
  fields.reserve(16);
  const auto add = [&fields](absl::string_view name, absl::string_view text) {
    if (!text.empty()) fields.emplace_back(name, text);
  };
  add("id", record.id);
  add("correlation_id", record.correlation_id);
  add("traceparent", record.traceparent);
  add("trace_id", record.trace_id);
  add("tenant", record.tenant);
  add("client", record.client);
  add("door", record.door);
  add("route", record.route);
  add("status", record.status);
  if (record.prompt_tokens > 0) {
    fields.emplace_back("prompt_tokens", record.prompt_tokens);
    fields.emplace_back("cached_tokens", record.cached_tokens);
    fields.emplace_back("output_tokens", record.output_tokens);
    fields.emplace_back("validation_ms", static_cast<double>(record.validation_us) * kMs);
    fields.emplace_back("queue_ms", static_cast<double>(record.queue_us) * kMs);
  }
  if (record.first_token_us > 0) {
    fields.emplace_back("first_token_ms", static_cast<double>(record.first_token_us) * kMs);
  }
  fields.emplace_back("total_ms", static_cast<double>(record.total_us) * kMs);
  add("cause", record.cause);
  LogFields("request", fields, quiet ? spdlog::level::debug : spdlog::level::info);
}

}  // namespace weft::router
