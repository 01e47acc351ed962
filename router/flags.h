// The command line of weft-router: the values of its flag table (router/flag_table.h), turned into
// the options of engine and doors. Used by main only.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/flags.h"
#include "common/log.h"
#include "router/core.h"
#include "router/doors/door_context.h"
#include "router/doors/grpc/service.h"
#include "router/doors/http/server.h"
#include "router/doors/tls/material.h"
#include "router/observe/compat_metrics.h"
#include "router/observe/otlp_options.h"

namespace weft::router {

struct RouterFlags {
  EngineOptions engine;
  DoorOptions doors;
  HttpServerOptions http;
  GrpcServerOptions grpc;
  // The port in `grpc.address`.
  uint16_t grpc_port = 0;
  // Operations routes on the public port too.
  bool public_ops = true;
  // The page at /ui.
  bool ui = true;
  // Where traces of requests go; none = they are off.
  std::optional<OtlpOptions> traces;
  // Whose names metrics have besides.
  MetricsCompat metrics_compat;
  // Of --api-keys; empty = none.
  std::string key_file;
  // None = the public ports speak in clear.
  std::optional<TlsFiles> tls;
  // Between "not ready" and refusing.
  absl::Duration shutdown_delay;
  absl::Duration drain_timeout;
  // 0 = no watchdog.
  absl::Duration watchdog_limit;
  bool die_with_parent = false;
  LogFormat log_format = LogFormat::kText;
  std::string log_level = "info";
  // Variables that look like flags of this program and are none. Of a router that `weft serve` has
  // started that one says it.
  std::vector<Flags::UnknownVariable> unknown_variables;
  // For the label of all metrics.
  std::string model_label;
  // The command line as it was given, the program's name first.
  std::vector<std::string> arguments;
  // The configuration file that concerns this process; empty = none.
  std::string reload_path;
  // `weft serve` gave the command line.
  bool handed = false;
};

// Fills `flags`. OK with `help_text` set when that is all that was asked for; INVALID_ARGUMENT
// names the flag.
absl::Status ParseRouterFlags(int argc, char** argv, RouterFlags* flags, std::string* help_text);

// What `arguments` mean now that the configuration file may say something else.
absl::StatusOr<RouterFlags> ReadRouterFlagsAgain(const std::vector<std::string>& arguments);

}  // namespace weft::router
