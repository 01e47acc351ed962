#include "router/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/flags.h"
#include "common/host_port.h"
#include "common/model_path.h"
#include "common/status.h"
#include "router/doors/http/origin.h"
#include "router/flag_table.h"
#include "router/groups/placement.h"

namespace weft::router {
namespace {

int64_t Microseconds(double seconds) { return static_cast<int64_t>(seconds * 1e6); }

static_assert(kShardGroupsMax == kGroupsMax);

absl::StatusOr<std::vector<std::vector<std::string>>> ParseGroups(const RouterFlagValues& values) {
  const std::vector<std::string>& shards = values.shards;
  if (shards.empty()) {
    return absl::InvalidArgumentError(
        "--shard: give the address of each shard (unix:/path or host:port), or use weft serve, "
        "which starts them");
  }
  if (shards.size() % values.groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--groups: ", shards.size(), " shards do not make ", values.groups,
                     " groups of equal size; give --shard for every rank of every group"));
  }
  for (auto shard = shards.begin(); shard != shards.end(); ++shard) {
    if (std::find(shards.begin(), shard, *shard) != shard) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shard: ", *shard, " is given twice; each shard has an address of its own"));
    }
  }
  const size_t world = shards.size() / values.groups;
  std::vector<std::vector<std::string>> groups;
  for (size_t first = 0; first < shards.size(); first += world) {
    groups.emplace_back(shards.begin() + static_cast<ptrdiff_t>(first),
                        shards.begin() + static_cast<ptrdiff_t>(first + world));
  }
  return groups;
}

EngineOptions MakeEngineOptions(const RouterFlagValues& values) {
  EngineOptions engine;
  engine.model_path = values.model;
  engine.allow_control_tokens = values.allow_control_tokens;
  engine.tool_parser = values.tool_parser;
  engine.reasoning_parser = values.reasoning_parser;
  engine.generation_config = values.generation_config;
  engine.served_model_name = values.served_model_name;
  engine.shard_tls = {values.shard_tls_cert, values.shard_tls_key, values.shard_tls_ca};
  engine.supervisor_socket = values.supervisor_socket;
  engine.launcher = {values.launcher_id, values.launcher_generation};
  engine.text_threads = values.text_threads;
  engine.mask_threads = values.mask_threads;
  // The shards' own limits hold besides.
  engine.step_tokens_max = values.step_tokens_max == 0 ? kStepTokensMax : values.step_tokens_max;
  engine.running_max =
      values.running_max == 0 ? std::min(kRunningMax, engine.step_tokens_max) : values.running_max;
  engine.context_tokens_max = values.context_tokens_max;
  engine.queue_requests_max = values.queue_requests_max;
  engine.queue_tokens_max = values.queue_tokens_max;
  engine.text_bytes_max = values.text_bytes_max;
  engine.queue_timeout_s = values.queue_timeout_s;
  engine.inter_token_target_us = values.inter_token_target_ms * 1000;
  engine.prefix_cache = values.prefix_cache;
  engine.record.path = values.record;
  engine.record.bytes_max = values.record_bytes_max;
  engine.hang_timeout_ms = values.hang_timeout_ms;
  engine.recovery_timeout_s = values.recovery_timeout_s;
  return engine;
}

absl::StatusOr<HttpServerOptions> MakeHttpOptions(const RouterFlagValues& values) {
  HttpServerOptions http;
  http.host = std::string(WithoutBrackets(values.host));
  http.admin_host = std::string(WithoutBrackets(values.admin_host));
  http.port = values.http_port;
  if (values.admin_port >= 0) http.admin_port = static_cast<uint16_t>(values.admin_port);
  http.io_threads = values.io_threads;
  http.connections_max = values.connections_max;
  http.limits.body_bytes_max = values.body_bytes_max;
  http.limits.bodies_bytes_max = values.bodies_bytes_max;
  for (const std::string& text : values.cors_origins) {
    absl::StatusOr<std::string> origin = ParseOrigin(text);
    if (!origin.ok()) return Annotate(origin.status(), "--cors-origins");
    http.cors_origins.push_back(*std::move(origin));
  }
  http.limits.header_timeout_us = Microseconds(values.header_timeout_s);
  http.limits.body_timeout_us = Microseconds(values.body_timeout_s);
  http.limits.idle_timeout_us = Microseconds(values.idle_timeout_s);
  http.limits.slow_reader_timeout_us = Microseconds(values.slow_reader_timeout_s);
  return http;
}

absl::StatusOr<MetricsCompat> ParseMetricsCompat(const std::vector<std::string>& servers) {
  MetricsCompat compat;
  for (const std::string& server : servers) {
    if (server == "tgi") {
      compat.tgi = true;
    } else if (server == "vllm") {
      compat.vllm = true;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--metrics-compat: `", server, "` is not one of tgi, vllm"));
    }
  }
  return compat;
}

DoorOptions MakeDoorOptions(const RouterFlagValues& values,
                            const std::vector<std::string>& path_names) {
  DoorOptions doors;
  doors.model_aliases = values.model_aliases;
  doors.model_aliases.insert(doors.model_aliases.end(), path_names.begin(), path_names.end());
  doors.strict_fields = values.strict_fields;
  doors.slow_reader_timeout_us = Microseconds(values.slow_reader_timeout_s);
  doors.text_threads = values.text_threads;
  return doors;
}

GrpcServerOptions MakeGrpcOptions(const RouterFlagValues& values) {
  GrpcServerOptions grpc;
  grpc.address = HostPort(values.host, values.grpc_port);
  grpc.message_bytes_max = values.body_bytes_max;
  grpc.message_timeout_us = Microseconds(values.body_timeout_s);
  grpc.connections_max = values.grpc_connections_max;
  grpc.connection_idle_s = values.grpc_connection_idle_s;
  grpc.connection_age_s = values.grpc_connection_age_s;
  return grpc;
}

absl::Status Parse(int argc, char** argv, bool again, RouterFlags* flags, std::string* help_text) {
  Flags parser("weft-router",
               "Takes requests, forms batches, streams answers; talks to the shards.");
  if (again) parser.ReadAgain();
  RouterFlagValues values;
  DeclareRouterFlags(parser, &values);
  WEFT_RETURN_IF_ERROR(parser.Parse(argc, argv, help_text));
  if (!help_text->empty()) return absl::OkStatus();
  if (values.model.empty()) {
    return absl::InvalidArgumentError("--model: name a model directory or a .gguf file");
  }
  WEFT_ASSIGN_OR_RETURN(flags->log_format, ParseLogFormat(values.log_format));
  flags->log_level = values.log_level;
  const std::vector<std::string> names = ModelNames(values.model);
  flags->engine = MakeEngineOptions(values);
  WEFT_ASSIGN_OR_RETURN(flags->engine.groups, ParseGroups(values));
  WEFT_ASSIGN_OR_RETURN(flags->http, MakeHttpOptions(values));
  flags->doors = MakeDoorOptions(values, names);
  flags->doors.config = parser.Effective();
  flags->grpc = MakeGrpcOptions(values);
  flags->grpc_port = values.grpc_port;
  flags->public_ops = values.public_ops;
  flags->ui = values.ui;
  flags->http.own_page = values.ui;
  WEFT_ASSIGN_OR_RETURN(flags->metrics_compat, ParseMetricsCompat(values.metrics_compat));
  WEFT_ASSIGN_OR_RETURN(flags->traces,
                        ReadOtlpOptions(values.otlp_endpoint, values.trace_sample,
                                        [](const char* name) { return std::getenv(name); }));
  flags->key_file = values.api_keys;
  WEFT_ASSIGN_OR_RETURN(flags->tls, TlsFilesOf(values.tls_cert, values.tls_key,
                                               values.tls_client_ca, values.tls_client_certs));
  flags->shutdown_delay = absl::Seconds(values.shutdown_delay_s);
  flags->drain_timeout = absl::Seconds(values.drain_timeout_s);
  flags->watchdog_limit = absl::Seconds(values.watchdog_s);
  flags->die_with_parent = values.die_with_parent;
  if (!parser.handed()) {
    // Those that look like none of these may be meant for shards.
    for (Flags::UnknownVariable& unknown : parser.UnknownVariables(environ)) {
      if (!unknown.near.empty()) flags->unknown_variables.push_back(std::move(unknown));
    }
  }
  flags->model_label = values.served_model_name;
  if (flags->model_label.empty() && !names.empty()) flags->model_label = names.front();
  flags->arguments.assign(argv, argv + argc);
  flags->reload_path = parser.reload_path();
  flags->handed = parser.handed();
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseRouterFlags(int argc, char** argv, RouterFlags* flags, std::string* help_text) {
  return Parse(argc, argv, /*again=*/false, flags, help_text);
}

absl::StatusOr<RouterFlags> ReadRouterFlagsAgain(const std::vector<std::string>& arguments) {
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv;
  for (std::string& argument : copies) argv.push_back(argument.data());
  RouterFlags flags;
  std::string help_text;
  WEFT_RETURN_IF_ERROR(
      Parse(static_cast<int>(argv.size()), argv.data(), /*again=*/true, &flags, &help_text));
  return flags;
}

}  // namespace weft::router
