// The flags of `weft serve` and the command lines they make for router and shards. Pure: starts
// nothing.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flags.h"
#include "deploy/launcher/supervisor.h"

namespace weft::launcher {

// A flag that `weft serve` hands on as it is; its meaning, unit and range are the target's.
struct ForwardedFlag {
  std::string name;
  std::string value;
  bool to_router = false;
  bool to_shards = false;
};

struct ServeOptions {
  // Empty = the demo model that deploy/setup.sh put into the cache.
  std::string model;
  uint32_t shards = 1;
  std::string host = "127.0.0.1";
  uint16_t http_port = 8080;
  uint16_t grpc_port = 8081;
  // Port of rank 0's /metrics, the next ones the other ranks'; 0 = free ones, -1 = off.
  int32_t shard_metrics_port = -1;
  uint32_t drain_timeout_s = 30;
  std::string log_format = "text";
  std::string log_level = "info";
  std::vector<ForwardedFlag> forwarded;
};

// Declares all flags on `flags`, filled into *options (which must outlive the parse).
void DeclareServeFlags(Flags& flags, ServeOptions* options);

// Path of the model to serve. NOT_FOUND with the way out when there is none.
absl::StatusOr<std::string> ResolveModel(const ServeOptions& options);

// Path of a binary beside this one. NOT_FOUND when it is not there.
absl::StatusOr<std::string> SiblingBinary(const std::string& name);

std::string ShardSocketPath(const std::string& run_dir, uint32_t rank);

// Command lines. `run_dir` holds the sockets; `model` is resolved.
std::vector<ChildSpec> ShardSpecs(const ServeOptions& options, const std::string& binary,
                                  const std::string& model, const std::string& run_dir);
ChildSpec RouterSpec(const ServeOptions& options, const std::string& binary,
                     const std::string& model, const std::string& run_dir);

}  // namespace weft::launcher
