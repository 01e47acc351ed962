#include "router/flag_table.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"

namespace weft::router {
namespace {

constexpr double kTimeoutSecondsMin = 0.001;
constexpr double kTimeoutSecondsMax = 86400;

void DeclareModel(Flags& flags, RouterFlagValues* values) {
  flags.Group("Model and shards");
  flags.Add("model", &values->model, "Model directory or .gguf file (tokenizer and template)");
  flags.Add("served-model-name", &values->served_model_name,
            "Name that requests use; empty = the model's own");
  flags.AddList("model-alias", &values->model_aliases, "Another name that requests may use");
  flags.AddSwitch("allow-control-tokens", &values->allow_control_tokens,
                  "Control tokens in chat messages (<|im_start|> ...) are read as such: whoever "
                  "writes a message can then speak in any role, system too");
  flags.Add("tool-parser", &values->tool_parser,
            "Format in which answers call tools (docs/MODELS.md); auto = what the chat template "
            "shows, none = calls stay text");
  flags.Add("reasoning-parser", &values->reasoning_parser,
            "Format in which answers mark reasoning; auto = what the chat template shows, none = "
            "reasoning stays text");
  flags.Add("generation-config", &values->generation_config,
            "auto: what requests do not say of sampling is as the model's generation_config.json "
            "recommends; none: neutral");
  flags.AddList(
      "shard", &values->shards,
      "Address of a shard, once per rank in order: unix:/path or host:port; a name is asked of DNS "
      "for each connection");
  flags.AddNumber("groups", &values->groups, 1, kShardGroupsMax,
                  "Groups that the shards form, replicas of the model: of n shards and g groups "
                  "the first n / g are one group, and so on");
  flags.Add("supervisor-socket", &values->supervisor_socket,
            "Socket of the process that restarts shards; empty = none");
  flags.AddNumber(
      "launcher-id", &values->launcher_id, 0, UINT64_MAX,
      "Random number of the launcher whose routers take over from each other, 0 = none");
  flags.AddNumber("launcher-generation", &values->launcher_generation, 0, UINT64_MAX,
                  "How often that launcher has started a router; a higher one takes over");
  flags.Add("shard-tls-cert", &values->shard_tls_cert,
            "PEM file: this router's certificate, for shards on other hosts; empty = none");
  flags.Add("shard-tls-key", &values->shard_tls_key, "PEM file: its key");
  flags.Add("shard-tls-ca", &values->shard_tls_ca,
            "PEM file: authority of the shards' certificates");
}

// A name would be looked up once and mean another address later.
std::string IsListenHost(const std::string& text) {
  const std::string host(WithoutBrackets(text));
  // What follows a % names an interface.
  const std::string address = host.substr(0, host.find('%'));
  in6_addr ignored{};
  const bool fits = host == "localhost" || inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
                    inet_pton(AF_INET6, address.c_str(), &ignored) == 1;
  return fits ? std::string()
              : absl::StrCat("`", text,
                             "` is no IP address to listen on; name one of this host's, as "
                             "127.0.0.1, or localhost, or 0.0.0.0 for all");
}

void DeclareDoors(Flags& flags, RouterFlagValues* values) {
  flags.Group("Ports and connections");
  flags.Add("host", &values->host, "Address of the public ports", IsListenHost);
  flags.AddNumber("http-port", &values->http_port, 0, 65535, "HTTP port, 0 = a free one");
  flags.AddNumber("grpc-port", &values->grpc_port, 0, 65535, "gRPC port, 0 = a free one");
  flags.Add("admin-host", &values->admin_host, "Address of the admin port", IsListenHost);
  flags.AddNumber("admin-port", &values->admin_port, -1, 65535,
                  "HTTP port of operations, 0 = a free one, -1 = off");
  flags.Add("public-ops", &values->public_ops,
            "Operations routes (/readyz, /metrics ...) on the public port too; /config never is");
  flags.Add("ui", &values->ui, "The page at /ui of the public port, to chat and to watch");
  flags.AddList("metrics-compat", &values->metrics_compat,
                "/metrics also under the names of these servers: tgi, vllm; empty = none");
  flags.AddNumber("io-threads", &values->io_threads, 1, 256, "Threads that serve HTTP connections");
  flags.AddNumber("connections-max", &values->connections_max, 1, 1'000'000,
                  "HTTP connections at the same time");
  flags.AddNumber("body-bytes-max", &values->body_bytes_max, 1, 1 << 30,
                  "Largest request body, bytes");
  flags.AddNumber("bodies-bytes-max", &values->bodies_bytes_max, 0, uint64_t{1} << 40,
                  "Request bodies of all connections together, bytes, 0 = 8 of the largest");
  flags.AddList("cors-origins", &values->cors_origins,
                "Web origins whose pages may call, as https://chat.example; * = all; empty = none");
  const auto add_timeout = [&flags](const char* name, double* value, const char* help) {
    flags.AddNumber(name, value, kTimeoutSecondsMin, kTimeoutSecondsMax, help);
  };
  add_timeout("header-timeout-s", &values->header_timeout_s, "For a request's header, s");
  add_timeout("body-timeout-s", &values->body_timeout_s, "For a whole request body, s");
  add_timeout("idle-timeout-s", &values->idle_timeout_s, "Between two requests of a connection, s");
  add_timeout("slow-reader-timeout-s", &values->slow_reader_timeout_s,
              "A client that takes no byte for this long is dropped, s");
  flags.AddNumber("grpc-connections-max", &values->grpc_connections_max, 1, 1 << 20,
                  "gRPC connections at the same time; each takes two file descriptors");
  flags.AddNumber("grpc-connection-idle-s", &values->grpc_connection_idle_s, 0, 86400 * 365,
                  "gRPC connections without calls are asked to close after this, s, 0 = never");
  flags.AddNumber("grpc-connection-age-s", &values->grpc_connection_age_s, 0, 86400 * 365,
                  "gRPC connections are asked to close after this, s, 0 = never");
  flags.AddSwitch("strict-fields", &values->strict_fields, "Unknown request fields are errors");
}

void DeclareKeys(Flags& flags, RouterFlagValues* values) {
  flags.Group("Keys and encryption");
  flags.Add("api-keys", &values->api_keys,
            "JSON file of tenants and their keys (weft key makes it); empty = no keys");
  flags.Add("tls-cert", &values->tls_cert,
            "PEM file: the public ports' certificate and its chain; empty = no TLS");
  flags.Add("tls-key", &values->tls_key, "PEM file: its key");
  flags.Add("tls-client-ca", &values->tls_client_ca,
            "PEM file: authorities of clients' certificates");
  flags.Add("tls-client-certs", &values->tls_client_certs,
            "Whether clients show certificates: none, optional or required");
}

void DeclareQueue(Flags& flags, RouterFlagValues* values) {
  flags.Group("Queue and batch");
  flags.AddNumber("text-threads", &values->text_threads, 1, 256,
                  "Threads that tokenise and detokenise");
  flags.AddNumber("mask-threads", &values->mask_threads, 1, 256,
                  "Threads that work out what rows held to a grammar may sample, while the shards "
                  "run the step");
  flags.AddNumber("running-max", &values->running_max, 0, kRunningMax,
                  "Sequences in the running batch, 0 = as the shards were started");
  flags.AddNumber("step-tokens-max", &values->step_tokens_max, 0, kStepTokensMax,
                  "Tokens of one step, 0 = as the shards were started");
  flags.AddNumber("context-tokens-max", &values->context_tokens_max, 0, kContextTokensMax,
                  "Longest sequence in tokens, 0 = the model's context");
  // Each request may put a few events into the engine loop's queue.
  flags.AddNumber("queue-requests-max", &values->queue_requests_max, 1, kEngineEventsMax / 8,
                  "Requests that may wait");
  flags.AddNumber("queue-tokens-max", &values->queue_tokens_max, 1, uint64_t{1} << 40,
                  "Prompt tokens that may wait");
  flags.AddNumber("text-bytes-max", &values->text_bytes_max, 1, uint64_t{1} << 40,
                  "Memory for texts on their way in and unread answers, bytes; a request alone "
                  "always fits");
  flags.AddNumber("queue-timeout-s", &values->queue_timeout_s, 0, 86400,
                  "A request that waits so long for its first step ends with 503, s, 0 = never");
  flags.AddNumber("inter-token-target-ms", &values->inter_token_target_ms, 0, 60'000,
                  "Target between two tokens of a running stream, ms, 0 = each prompt may add a "
                  "step's decode time");
  flags.Add("prefix-cache", &values->prefix_cache, "Share KV blocks of equal prompt beginnings");
}

void DeclareTraces(Flags& flags, RouterFlagValues* values) {
  flags.Group("Traces");
  flags.Add("otlp-endpoint", &values->otlp_endpoint,
            "OpenTelemetry collector that gets traces of requests, OTLP over HTTP, as "
            "http://127.0.0.1:4318; empty = OTEL_EXPORTER_OTLP_ENDPOINT, and without that none");
  flags.AddNumber("trace-sample", &values->trace_sample, 0, 1,
                  "Share of requests whose trace is exported; a caller's own decision "
                  "(traceparent) comes first");
}

void DeclareLife(Flags& flags, RouterFlagValues* values) {
  flags.Group("Start, loss and end");
  flags.AddNumber(
      "hang-timeout-ms", &values->hang_timeout_ms, 0, 3'600'000,
      "A shard without heartbeat and CPU time for this long is hung, ms, 0 = by device");
  flags.AddNumber("recovery-timeout-s", &values->recovery_timeout_s, 1, 86400,
                  "How long open streams wait for a lost group, s");
  flags.AddNumber("shutdown-delay-s", &values->shutdown_delay_s, 0, 86400,
                  "After SIGTERM new requests are taken for so long while /readyz is 503 already, "
                  "until balancers have seen it, s");
  flags.AddNumber("drain-timeout-s", &values->drain_timeout_s, 0, 86400,
                  "How long running requests may go on after SIGTERM, s");
  flags.AddNumber("watchdog-s", &values->watchdog_s, 0, 86400,
                  "A thread that has work and does not come round for so long is named in the log, "
                  "with its stack, s, 0 = off");
  flags.AddSwitch("die-with-parent", &values->die_with_parent, "Be killed when the parent dies");
  flags.Group("Logs");
  flags.Add("log-format", &values->log_format, "text or json");
  flags.Add("log-level", &values->log_level, "trace, debug, info, warn or error");
  flags.Add("record", &values->record,
            "Records the scheduler's events and decisions, no text and no token, to the files "
            "named so with .1, .2 ... behind it, for weft replay; empty = nothing");
  flags.AddNumber("record-bytes-max", &values->record_bytes_max, 1 << 20, uint64_t{1} << 40,
                  "Those files together, bytes; the oldest go");
}

}  // namespace

// For text and for HTTP connections: one thread needs about 10 us a token, each one more costs a
// wake-up per step. A mask takes 10 us to 2 ms, and those of a step should be there before its end.
RouterFlagValues::RouterFlagValues()
    : io_threads(std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u)),
      text_threads(io_threads),
      mask_threads(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)) {}

void DeclareRouterFlags(Flags& flags, RouterFlagValues* values) {
  DeclareModel(flags, values);
  DeclareDoors(flags, values);
  DeclareKeys(flags, values);
  DeclareQueue(flags, values);
  DeclareTraces(flags, values);
  DeclareLife(flags, values);
}

}  // namespace weft::router
