// The flags of weft-router: names, groups, ranges, defaults and units, and nothing that they lead
// to. Light, so that `weft serve` declares the same table without the router behind it: of router/
// the launcher may include this header alone. What the values mean to engine and doors:
// router/flags.h.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/flags.h"
#include "common/limits.h"
#include "router/recording/bounds.h"

namespace weft::router {

// Groups of shards that one router serves.
inline constexpr uint32_t kShardGroupsMax = 16;

// As they are typed, in the units of their names.
struct RouterFlagValues {
  // -- Model and shards
  std::string model;
  std::string served_model_name;
  std::vector<std::string> model_aliases;
  bool allow_control_tokens = false;
  std::string tool_parser = "auto";
  std::string generation_config = "none";
  std::string reasoning_parser = "auto";
  std::vector<std::string> shards;
  uint32_t groups = 1;
  std::string supervisor_socket;
  uint64_t launcher_id = 0;
  uint64_t launcher_generation = 0;
  std::string shard_tls_cert;
  std::string shard_tls_key;
  std::string shard_tls_ca;

  // -- Ports and connections
  std::string host = "127.0.0.1";
  uint16_t http_port = 8080;
  uint16_t grpc_port = 8081;
  std::string admin_host = "127.0.0.1";
  // -1 = off.
  int32_t admin_port = -1;
  bool public_ops = true;
  bool ui = true;
  uint32_t io_threads;
  uint64_t connections_max = kConnectionsDefault;
  uint64_t body_bytes_max = kBodyBytesDefault;
  // 0 = a few of the largest.
  uint64_t bodies_bytes_max = 0;
  std::vector<std::string> cors_origins;
  std::vector<std::string> metrics_compat;
  double header_timeout_s = 10;
  double body_timeout_s = 30;
  double idle_timeout_s = 75;
  double slow_reader_timeout_s = 30;
  uint64_t grpc_connections_max = kGrpcConnectionsDefault;
  int64_t grpc_connection_idle_s = 300;
  int64_t grpc_connection_age_s = 0;
  bool strict_fields = false;

  // -- Keys and encryption
  std::string api_keys;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  std::string tls_client_certs = "none";

  // -- Queue and batch
  uint32_t text_threads;
  uint32_t mask_threads;
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
  uint32_t context_tokens_max = 0;
  uint32_t queue_requests_max = kQueueRequestsDefault;
  uint64_t queue_tokens_max = kQueueTokensDefault;
  uint64_t text_bytes_max = kTextBytesDefault;
  int64_t queue_timeout_s = 0;
  uint32_t inter_token_target_ms = 0;
  bool prefix_cache = true;

  // -- Life and death
  int64_t hang_timeout_ms = 0;
  int64_t recovery_timeout_s = 120;
  double shutdown_delay_s = 0;
  double drain_timeout_s = 30;
  double watchdog_s = 10;
  bool die_with_parent = false;

  // -- Traces
  std::string otlp_endpoint;
  double trace_sample = 0.01;

  // -- Logs
  std::string log_format = "text";
  std::string log_level = "info";
  std::string record;
  uint64_t record_bytes_max = recording::kRecordBytesDefault;

  // Threads by the machine.
  RouterFlagValues();
};

// Declares them on `flags`, filled into *values (which must outlive the parse). --model and --shard
// are not marked as required: weft-router's own parse asks for them.
void DeclareRouterFlags(Flags& flags, RouterFlagValues* values);

}  // namespace weft::router
