// What decides whether a request is traced, what is noted of it, and what is sent of that.

#include "router/observe/tracer.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "router/observe/otlp_message.h"
#include "router/observe/otlp_options.h"
#include "weft/otlp/trace.pb.h"

namespace weft::router {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

using Variables = std::map<std::string, std::string>;

absl::StatusOr<std::optional<OtlpOptions>> Read(const std::string& endpoint,
                                                const Variables& variables) {
  return ReadOtlpOptions(endpoint, 0.5, [&variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

OtlpOptions Options(double sample) {
  OtlpOptions options;
  // Nobody listens there.
  options.host = "127.0.0.1";
  options.port = "1";
  options.path = "/v1/traces";
  options.sample = sample;
  return options;
}

Probe& TestProbe() {
  static Probe* const probe = new Probe;
  return *probe;
}

std::function<uint64_t()> Random() {
  return [random = std::make_shared<std::mt19937_64>(20)] { return (*random)(); };
}

}  // namespace

TEST_CASE("A traceparent is read as W3C writes it, and nothing else is", "[tracer]") {
  const std::optional<TraceParent> parent = ParseTraceparent(kParent);
  REQUIRE(parent.has_value());
  CHECK(TraceIdText(parent->trace_id) == kTrace);
  CHECK(parent->span_id[0] == 0xb7);
  CHECK(parent->sampled);
  const std::string good = kParent;
  CHECK_FALSE(ParseTraceparent(good.substr(0, 53) + "00")->sampled);
  CHECK(ParseTraceparent(good.substr(0, 53) + "ff")->sampled);
  // A later version may say more.
  CHECK(ParseTraceparent("01" + good.substr(2) + "-more").has_value());
  for (const std::string& bad :
       {std::string(), good.substr(0, 54), good + "-x", "ff" + good.substr(2),
        "00-00000000000000000000000000000000" + good.substr(35),
        good.substr(0, 36) + "0000000000000000-01", "00-0AF7" + good.substr(7),
        good.substr(0, 35) + "_" + good.substr(36), good.substr(0, 53) + "zz"}) {
    INFO(bad);
    CHECK_FALSE(ParseTraceparent(bad).has_value());
  }
}

TEST_CASE("Where traces go comes from the flag, then from OpenTelemetry's variables", "[tracer]") {
  CHECK_FALSE((*Read("", {})).has_value());
  const OtlpOptions flag =
      **Read("http://collector:4318/", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:1"}});
  CHECK(flag.host == "collector");
  CHECK(flag.port == "4318");
  CHECK(flag.path == "/v1/traces");
  CHECK(flag.resource ==
        TraceAttributes{{"service.name", "weft"}, {"service.version", flag.resource[1].second}});
  CHECK((**Read("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:5/a"}})).path == "/a/v1/traces");
  const OtlpOptions own = **Read("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all"},
                                      {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own/x"}});
  CHECK(own.host == "own");
  CHECK(own.port == "80");
  CHECK(own.path == "/x");
  for (const char* off : {"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"}) {
    const std::string value = off == std::string("OTEL_SDK_DISABLED") ? "true" : "none";
    CHECK_FALSE(
        (*Read("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all"}, {off, value}})).has_value());
  }
  const OtlpOptions named =
      **Read("http://x", {{"OTEL_SERVICE_NAME", "mine"},
                          {"OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs, a=b%2Cc"}});
  CHECK(named.resource[0] == std::pair<std::string, std::string>{"service.name", "mine"});
  CHECK(named.resource[1] == std::pair<std::string, std::string>{"a", "b,c"});
  for (const char* bad : {"x:1", "https://x", "http://", "http://x:99999", "http://u:p@x"}) {
    INFO(bad);
    CHECK(Read(bad, {}).status().message().find("--otlp-endpoint") == 0);
  }
  CHECK_FALSE(Read("http://x", {{"OTEL_EXPORTER_OTLP_HEADERS", "key"}}).ok());
  CHECK_FALSE(Read("http://x", {{"OTEL_EXPORTER_OTLP_HEADERS", "k=a%0Db"}}).ok());
}

TEST_CASE("A caller decides before the share does, and nobody beyond the cap", "[tracer]") {
  const std::function<uint64_t()> random = Random();
  {
    Tracer tracer(Options(0), &TestProbe());
    CHECK(tracer.Begin("", 1, random) == nullptr);
    CHECK(tracer.Begin("no traceparent", 1, random) == nullptr);
    const std::shared_ptr<RequestTrace> trace = tracer.Begin(kParent, 1, random);
    REQUIRE(trace != nullptr);
    CHECK(TraceIdText(trace->trace_id) == kTrace);
    CHECK(trace->parent_id[0] == 0xb7);
    CHECK(trace->span_id != trace->parent_id);
  }
  Tracer all(Options(1), &TestProbe());
  CHECK(all.Begin(std::string(kParent, 53) + "00", 1, random) == nullptr);
  uint32_t taken = 0;
  for (uint32_t i = 0; i < 2 * kTracesPerSecondMax; ++i) {
    taken += all.Begin(i % 2 == 0 ? kParent : "", 1, random) != nullptr ? 1 : 0;
  }
  CHECK(taken == kTracesPerSecondMax);
  CHECK(all.Begin(kParent, 1'000'001, random) != nullptr);
  Tracer some(Options(0.25), &TestProbe());
  taken = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    taken += some.Begin("", i * 1'000'000, random) != nullptr ? 1 : 0;
  }
  CHECK(taken > 900);
  CHECK(taken < 1100);
}

TEST_CASE("What does not fit is dropped and not waited for", "[tracer]") {
  Tracer tracer(Options(1), &TestProbe());
  // The collector is away: one batch is on its way, the others wait.
  for (size_t i = 0; i < 3 * kTracesWaitingMax; ++i) {
    tracer.End(std::make_shared<RequestTrace>());
  }
  const std::string metrics = TestProbe().Render();
  const std::string series = "weft_traces_dropped_total{reason=\"queue_full\"} ";
  const size_t at = metrics.find(series);
  REQUIRE(at != std::string::npos);
  CHECK(std::atoi(metrics.c_str() + at + series.size()) > static_cast<int>(kTracesWaitingMax));
}

TEST_CASE("A sequence that is prefilled again was recovered or preempted", "[tracer]") {
  RequestTrace trace;
  trace.Lost(5);  // while it waited
  trace.Prefilled(10);
  trace.Lost(20);
  trace.Lost(25);  // before the group was back
  trace.Prefilled(30);
  trace.Prefilled(40);
  REQUIRE(trace.pauses.size() == 2);
  CHECK(trace.pauses[0].recovery);
  CHECK(trace.pauses[0].begin_us == 20);
  CHECK(trace.pauses[0].end_us == 30);
  CHECK_FALSE(trace.pauses[1].recovery);
  CHECK(trace.pauses[1].begin_us == 40);
  for (int i = 0; i < 100; ++i) trace.Prefilled(50);
  CHECK(trace.pauses.size() == RequestTrace::kPausesMax);
}

TEST_CASE("A request that never ran has the phases that it came to", "[tracer]") {
  auto trace = std::make_shared<RequestTrace>();
  trace->arrival_us = 1'000;
  trace->arrival_unix_us = 5'000'000;
  trace->prepared_us = 1'200;
  trace->end_us = 3'000;
  trace->code = absl::StatusCode::kUnavailable;
  weft::otlp::ExportTraceServiceRequest message;
  REQUIRE(message.ParseFromString(OtlpMessage({{"service.name", "x"}}, {trace})));
  const auto& spans = message.resource_spans(0).scope_spans(0).spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].status().code() == weft::otlp::Status::STATUS_CODE_ERROR);
  CHECK(spans[0].status().message().empty());
  CHECK(spans[0].start_time_unix_nano() == 5'000'000'000);
  CHECK(spans[0].end_time_unix_nano() == 5'002'000'000);
  CHECK(spans[1].name() == "text in");
  CHECK(spans[1].parent_span_id() == spans[0].span_id());
  CHECK(spans[2].name() == "queue");
  CHECK(spans[2].start_time_unix_nano() == 5'000'200'000);
  CHECK(spans[2].end_time_unix_nano() == 5'002'000'000);
}

}  // namespace weft::router
