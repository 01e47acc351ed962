// The command line of weft-router: names, defaults and units, turned into the options of engine and
// doors. Used by main only.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "router/doors/front.h"
#include "router/doors/grpc/service.h"
#include "router/doors/http/server.h"
#include "router/engine_intake.h"

namespace weft::router {

struct RouterFlags {
  EngineOptions engine;
  FrontOptions front;
  HttpServerOptions http;
  GrpcServerOptions grpc;
  // Operations routes on the public port too.
  bool public_ops = true;
  absl::Duration drain_timeout;
  bool die_with_parent = false;
  LogFormat log_format = LogFormat::kText;
  std::string log_level = "info";
  // For the label of all metrics.
  std::string model_label;
};

// Fills `flags`. OK with `help_text` set when that is all that was asked for; INVALID_ARGUMENT
// names the flag.
absl::Status ParseRouterFlags(int argc, char** argv, RouterFlags* flags, std::string* help_text);

}  // namespace weft::router
