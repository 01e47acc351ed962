#include "router/flags.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/flags.h"
#include "common/status.h"

namespace weft::router {
namespace {

// What flags are called and counted in, before they become options.
struct Values {
  uint16_t http_port = 8080;
  uint16_t grpc_port = 8081;
  int32_t admin_port = -1;
  uint32_t inter_token_target_ms = 0;
  double header_timeout_s = 10;
  double body_timeout_s = 30;
  double idle_timeout_s = 75;
  double slow_reader_timeout_s = 30;
  double drain_timeout_s = 30;
  std::string log_format = "text";
};

int64_t Microseconds(double seconds) { return static_cast<int64_t>(seconds * 1e6); }

// For text and for HTTP connections: one thread needs about 10 us a token, each one more costs a
// wake-up per step.
uint32_t DefaultThreads() { return std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u); }

void DeclareEngine(Flags& parser, EngineOptions* engine, Values* values) {
  parser
      .Add("model", &engine->model_path, "Model directory or .gguf file (tokenizer and template)")
      ->required();
  parser.Add("served-model-name", &engine->served_model_name,
             "Name that requests use; empty = the model's own");
  parser
      .Add("shard", &engine->shards,
           "Address of a shard, once per rank in order: unix:/path or host:port")
      ->required()
      ->delimiter(',');
  parser.Add("supervisor-socket", &engine->supervisor_socket,
             "Socket of the process that restarts shards; empty = none");
  ShardTls& tls = engine->shard_tls;
  parser.Add("shard-tls-cert", &tls.cert,
             "PEM file: this router's certificate, for shards on other hosts; empty = none");
  parser.Add("shard-tls-key", &tls.key, "PEM file: its key");
  parser.Add("shard-tls-ca", &tls.ca, "PEM file: authority of the shards' certificates");
  engine->text_threads = DefaultThreads();
  parser.Add("text-threads", &engine->text_threads, "Threads that tokenise and detokenise, > 0")
      ->check(CLI::Range(1, 256));
  engine->running_max = 0;
  engine->step_tokens_max = 0;
  parser.Add("running-max", &engine->running_max,
             "Sequences in the running batch, 1 .. 1024; 0 = as the shards were started");
  parser.Add("step-tokens-max", &engine->step_tokens_max,
             "Tokens of one step; 0 = as the shards were started");
  parser.Add("context-tokens-max", &engine->context_tokens_max,
             "Longest sequence in tokens; 0 = the model's context");
  parser.Add("queue-requests-max", &engine->queue_requests_max, "Requests that may wait");
  parser.Add("queue-tokens-max", &engine->queue_tokens_max, "Prompt tokens that may wait");
  parser.Add("inter-token-target-ms", &values->inter_token_target_ms,
             "Target between two tokens of a running stream, ms; 0 = each prompt may add a step's "
             "decode time");
  parser.Add("prefix-cache", &engine->prefix_cache, "Share KV blocks of equal prompt beginnings");
  parser.Add("hang-timeout-ms", &engine->hang_timeout_ms,
             "A shard without heartbeat and CPU time for this long is hung, ms; 0 = by device");
  parser.Add("recovery-timeout-s", &engine->recovery_timeout_s,
             "How long open streams wait for a lost group, s");
  parser
      .Add("step-delay-for-test-us", &engine->step_delay_for_test_us,
           "Delay added to every step of the engine loop, us; for tests")
      ->check(CLI::NonNegativeNumber);
}

void DeclareDoors(Flags& parser, RouterFlags* flags, Values* values) {
  HttpServerOptions& http = flags->http;
  parser.Add("host", &http.host, "Address of the public ports");
  parser.Add("http-port", &values->http_port, "HTTP port; 0 = a free one");
  parser.Add("grpc-port", &values->grpc_port, "gRPC port; 0 = a free one");
  parser.Add("admin-host", &http.admin_host, "Address of the admin port");
  parser
      .Add("admin-port", &values->admin_port, "HTTP port of operations; 0 = a free one, -1 = off")
      ->check(CLI::Range(-1, 65535));
  parser.Add("public-ops", &flags->public_ops,
             "Operations routes (/readyz, /config ...) on the public port too");
  http.io_threads = DefaultThreads();
  parser.Add("io-threads", &http.io_threads, "Threads that serve HTTP connections")
      ->check(CLI::Range(1, 256));
  parser.Add("connections-max", &http.connections_max, "HTTP connections at the same time");
  parser.Add("body-bytes-max", &http.limits.body_bytes_max, "Largest request body, bytes");
  parser.Add("header-timeout-s", &values->header_timeout_s, "For a request's header, s")
      ->check(CLI::PositiveNumber);
  parser.Add("body-timeout-s", &values->body_timeout_s, "Between two pieces of a body, s")
      ->check(CLI::PositiveNumber);
  parser.Add("idle-timeout-s", &values->idle_timeout_s, "Between two requests of a connection, s")
      ->check(CLI::PositiveNumber);
  parser
      .Add("slow-reader-timeout-s", &values->slow_reader_timeout_s,
           "A client that takes no byte for this long is dropped, s")
      ->check(CLI::PositiveNumber);
  parser
      .Add("grpc-connection-age-s", &flags->grpc.connection_age_s,
           "gRPC connections are asked to close after this, s; 0 = never")
      ->check(CLI::NonNegativeNumber);
  parser.Add("model-alias", &flags->front.model_aliases, "Another name that requests may use")
      ->delimiter(',');
  parser.AddSwitch("strict-fields", &flags->front.strict_fields,
                   "Unknown request fields are errors");
}

// "models/SmolLM2.Q4_1.gguf" -> "SmolLM2.Q4_1".
std::string PathName(absl::string_view path) {
  path = absl::StripSuffix(path, "/");
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  return std::string(absl::StripSuffix(path, ".gguf"));
}

void Resolve(const Values& values, RouterFlags* flags) {
  flags->http.port = values.http_port;
  if (values.admin_port >= 0) flags->http.admin_port = static_cast<uint16_t>(values.admin_port);
  flags->http.limits.header_timeout_us = Microseconds(values.header_timeout_s);
  flags->http.limits.body_timeout_us = Microseconds(values.body_timeout_s);
  flags->http.limits.idle_timeout_us = Microseconds(values.idle_timeout_s);
  flags->http.limits.slow_reader_timeout_us = Microseconds(values.slow_reader_timeout_s);
  flags->front.slow_reader_timeout_us = Microseconds(values.slow_reader_timeout_s);
  flags->front.queue_requests_max = flags->engine.queue_requests_max;
  flags->grpc.message_bytes_max = flags->http.limits.body_bytes_max;
  flags->grpc.address = absl::StrCat(flags->http.host, ":", values.grpc_port);
  // The shards' own limits hold besides.
  EngineOptions& engine = flags->engine;
  if (engine.step_tokens_max == 0) engine.step_tokens_max = kStepTokensMax;
  if (engine.running_max == 0) engine.running_max = std::min(kRunningMax, engine.step_tokens_max);
  engine.inter_token_target_us = values.inter_token_target_ms * 1000;
  flags->drain_timeout = absl::Seconds(values.drain_timeout_s);
  const std::string name = PathName(flags->engine.model_path);
  flags->front.model_aliases.push_back(name);
  flags->model_label =
      flags->engine.served_model_name.empty() ? name : flags->engine.served_model_name;
}

}  // namespace

absl::Status ParseRouterFlags(int argc, char** argv, RouterFlags* flags, std::string* help_text) {
  Flags parser("weft-router",
               "Takes requests, forms batches, streams answers; talks to the shards.");
  Values values;
  DeclareEngine(parser, &flags->engine, &values);
  DeclareDoors(parser, flags, &values);
  parser
      .Add("drain-timeout-s", &values.drain_timeout_s,
           "How long running requests may go on after SIGTERM, s")
      ->check(CLI::NonNegativeNumber);
  parser.AddSwitch("die-with-parent", &flags->die_with_parent, "Be killed when the parent dies");
  parser.Add("log-format", &values.log_format, "text or json");
  parser.Add("log-level", &flags->log_level, "trace, debug, info, warn or error");
  WEFT_RETURN_IF_ERROR(parser.Parse(argc, argv, help_text));
  if (!help_text->empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(flags->log_format, ParseLogFormat(values.log_format));
  flags->front.config = parser.Effective();
  Resolve(values, flags);
  return absl::OkStatus();
}

}  // namespace weft::router
