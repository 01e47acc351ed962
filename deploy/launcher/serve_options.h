// The flags of `weft serve` and the command lines and environments they make for router and shards.
// Beside a few of its own it takes every flag of the two, from their own tables, and hands on what
// was set and nothing else. Pure: starts nothing. Main thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/flags.h"
#include "deploy/launcher/supervisor.h"
#include "router/flag_table.h"
#include "shard/flag_table.h"

namespace weft::launcher {

struct ServeOptions {
  // Empty = the demo model that deploy/setup.sh put into the cache.
  std::string model;
  // Fetch it from the hub before the start.
  bool pull = false;
  // Globs: what of it is fetched, and which of its .gguf files is served.
  std::vector<std::string> pull_include;
  // Of each replica.
  uint32_t shards = 1;
  uint32_t replicas = 1;
  uint32_t all_shards() const { return replicas * shards; }
  // Port of rank 0's /metrics, the next ones the other ranks'; 0 = free ones, -1 = off.
  int32_t shard_metrics_port = -1;
  // What the children would understand of the command line; the ports change when free ones are
  // known.
  router::RouterFlagValues router;
  shard::ShardFlagValues shard;
};

// Declares all flags on `flags`, filled into *options (which must outlive the parse).
void DeclareServeFlags(Flags& flags, ServeOptions* options);

// Says on stderr which variables of the environment that begin with WEFT_ are no flag's of `flags`,
// nor of `weft serve`, whose variables may be set beside `program`.
void WarnOfVariables(absl::string_view program, const Flags& flags);

// Path of the model to serve; of a hub's model where it was pulled to. An error, with the way out,
// when there is none or it cannot be one. Never touches the network.
absl::StatusOr<std::string> ResolveModel(const ServeOptions& options);

// Path of a binary beside this one. NOT_FOUND when it is not there.
absl::StatusOr<std::string> SiblingBinary(const std::string& name);

// Ranks are counted through all replicas.
std::string ShardSocketPath(const std::string& run_dir, uint32_t rank);

// The router's part of the configuration file lies there, for as long as the server runs.
std::string RouterConfigPath(const std::string& run_dir);
// That part, of `flags` after their parse: what the file said, but of ports, which may have been
// chosen since.
std::string RouterConfig(const Flags& flags);

// Whether the router itself says what becomes of a new value of "--<name>".
bool IsTheRoutersNews(const Flags& flags, const std::string& name);

// Where the children live.
struct ServePlaces {
  std::string router_binary;
  std::string shard_binary;
  // Resolved.
  std::string model;
  // What it is served as unless a flag says otherwise; empty = as its path says.
  std::string model_name;
  // Holds the sockets.
  std::string run_dir;
};

// What to run, of `flags` that were parsed into `options`. The environment is `environment` (as
// environ) without the variables that stand for flags: those were read here, and mean another thing
// to each child or nothing.
std::vector<ChildSpec> ShardSpecs(const Flags& flags, const ServeOptions& options,
                                  const ServePlaces& places, const char* const* environment);
ChildSpec RouterSpec(const Flags& flags, const ServeOptions& options, const ServePlaces& places,
                     const char* const* environment);

}  // namespace weft::launcher
