#include "router/observe/otlp_message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "weft/otlp/trace.pb.h"

namespace weft::router {
namespace {

namespace otlp = weft::otlp;

// A parent that came over the network, as span flags say it.
constexpr uint32_t kSampledFlag = 0x01;
constexpr uint32_t kRemoteKnown = 0x100;
constexpr uint32_t kRemote = 0x200;

template <typename Id>
std::string Bytes(const Id& id) {
  return std::string(id.begin(), id.end());
}

class SpanWriter {
 public:
  SpanWriter(const RequestTrace& trace, otlp::ScopeSpans* out) : trace_(trace), out_(out) {}

  void Write() {
    WriteRequest();
    const int64_t end_us = trace_.end_us;
    const auto until = [end_us](int64_t us) { return us > 0 ? us : end_us; };
    WritePhase("text in", trace_.arrival_us, until(trace_.prepared_us));
    if (trace_.prepared_us == 0) return;
    WritePhase("queue", trace_.prepared_us, until(trace_.planned_us));
    if (trace_.planned_us == 0) return;
    WritePhase("prefill", trace_.planned_us, until(trace_.first_token_us));
    if (trace_.first_token_us > 0) WritePhase("decode", trace_.first_token_us, end_us);
    for (const RequestTrace::Pause& pause : trace_.pauses) {
      if (pause.recovery) WritePhase("recovery", pause.begin_us, pause.end_us);
    }
  }

 private:
  uint64_t UnixNs(int64_t us) const {
    return static_cast<uint64_t>(trace_.arrival_unix_us + us - trace_.arrival_us) * 1000;
  }

  otlp::Span* Add(absl::string_view name, int64_t begin_us, int64_t end_us) {
    otlp::Span* const span = out_->add_spans();
    span->set_trace_id(Bytes(trace_.trace_id));
    span->set_name(std::string(name));
    span->set_start_time_unix_nano(UnixNs(begin_us));
    span->set_end_time_unix_nano(UnixNs(std::max(begin_us, end_us)));
    span->set_flags(kSampledFlag | kRemoteKnown);
    return span;
  }

  // Its id is made of the request's: no two phases of a request are alike.
  void WritePhase(absl::string_view name, int64_t begin_us, int64_t end_us) {
    otlp::Span* const span = Add(name, begin_us, end_us);
    SpanId id = trace_.span_id;
    ++phases_;
    for (size_t i = 0; i < sizeof(phases_); ++i) {
      id[i] ^= static_cast<uint8_t>(phases_ >> (8 * i));
    }
    span->set_span_id(Bytes(id));
    span->set_parent_span_id(Bytes(trace_.span_id));
    span->set_kind(otlp::Span::SPAN_KIND_INTERNAL);
  }

  void WriteRequest() {
    const char* const operation = trace_.chat ? "chat" : "text_completion";
    span_ = Add(absl::StrCat(operation, " ", trace_.model), trace_.arrival_us, trace_.end_us);
    span_->set_span_id(Bytes(trace_.span_id));
    if (trace_.parent_id != SpanId{}) {
      span_->set_parent_span_id(Bytes(trace_.parent_id));
      span_->set_flags(kSampledFlag | kRemoteKnown | kRemote);
    }
    span_->set_kind(otlp::Span::SPAN_KIND_SERVER);
    Text("gen_ai.operation.name", operation);
    Text("gen_ai.provider.name", "weft");
    Text("gen_ai.request.model", trace_.model);
    Text("gen_ai.response.model", trace_.model);
    Text("gen_ai.response.id", trace_.request_id);
    Real("gen_ai.request.temperature", trace_.temperature);
    Real("gen_ai.request.top_p", trace_.top_p);
    if (trace_.top_k > 0) Integer("gen_ai.request.top_k", trace_.top_k);
    // A seed may have 64 bits, of which an attribute has 63.
    Text("weft.request.seed", absl::StrCat(trace_.seed));
    if (trace_.max_tokens.has_value()) Integer("gen_ai.request.max_tokens", *trace_.max_tokens);
    Text("weft.tenant", trace_.tenant);
    WriteEnd();
    for (const RequestTrace::Pause& pause : trace_.pauses) {
      otlp::Span::Event* const event = span_->add_events();
      event->set_name(pause.recovery ? "recovered" : "preempted");
      event->set_time_unix_nano(UnixNs(pause.end_us));
    }
  }

  void WriteEnd() {
    if (trace_.prompt_tokens > 0) {
      Integer("gen_ai.usage.input_tokens", trace_.prompt_tokens);
      Integer("gen_ai.usage.output_tokens", trace_.output_tokens);
      Integer("weft.usage.cached_tokens", trace_.cached_tokens);
    }
    if (trace_.first_token_us > 0) {
      Real("gen_ai.latency.time_to_first_token",
           static_cast<double>(trace_.first_token_us - trace_.arrival_us) * 1e-6);
    }
    if (trace_.code == absl::StatusCode::kOk) {
      const bool cut = trace_.reason == FinishReason::kLength;
      Add("gen_ai.response.finish_reasons")
          ->mutable_array_value()
          ->add_values()
          ->set_string_value(cut ? "length" : "stop");
    } else {
      Text("error.type", absl::StatusCodeToString(trace_.code));
      // Without its message, which may name what the client sent.
      span_->mutable_status()->set_code(otlp::Status::STATUS_CODE_ERROR);
    }
  }

  otlp::AnyValue* Add(absl::string_view key) {
    otlp::KeyValue* const attribute = span_->add_attributes();
    attribute->set_key(std::string(key));
    return attribute->mutable_value();
  }
  void Text(absl::string_view key, absl::string_view value) {
    Add(key)->set_string_value(std::string(value));
  }
  void Integer(absl::string_view key, int64_t value) { Add(key)->set_int_value(value); }
  void Real(absl::string_view key, double value) { Add(key)->set_double_value(value); }

  const RequestTrace& trace_;
  otlp::ScopeSpans* const out_;
  otlp::Span* span_ = nullptr;
  uint32_t phases_ = 0;
};

}  // namespace

std::string OtlpMessage(const TraceAttributes& resource,
                        absl::Span<const std::shared_ptr<RequestTrace>> traces) {
  otlp::ExportTraceServiceRequest request;
  otlp::ResourceSpans* const spans = request.add_resource_spans();
  for (const auto& [key, value] : resource) {
    otlp::KeyValue* const attribute = spans->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(value);
  }
  otlp::ScopeSpans* const scope = spans->add_scope_spans();
  scope->mutable_scope()->set_name("weft");
  scope->mutable_scope()->set_version(Version());
  for (const std::shared_ptr<RequestTrace>& trace : traces) SpanWriter(*trace, scope).Write();
  return request.SerializeAsString();
}

}  // namespace weft::router
