// The command line of weft-shard: the values of its flag table (shard/flag_table.h), checked as far
// as that needs no model, and turned into options. Used by main only.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/log.h"
#include "shard/comm/tcp_socket.h"
#include "shard/control/step_service.h"
#include "shard/device/cuda/runner.h"
#include "shard/kv/memory_plan.h"

namespace weft::shard {

struct ShardFlags {
  std::string model;
  // What metrics call it: the name that the router serves it by.
  std::string model_label;
  uint32_t rank = 0;
  uint32_t world = 1;
  // "shard-<rank>", the rank counted through all groups of this host.
  std::string log_name;
  // Where ranks of other hosts reach this one; empty = all ranks are on this host.
  std::string comm_host;
  PortRange comm_ports;
  ListenOptions listen;
  // Of --device-index.
  std::optional<uint32_t> device_index;
  // The GPU to compute on; none = the CPU.
  std::optional<CudaDevice> gpu;
  // Why --device auto took the CPU (FindCudaDevice); OK when it did not.
  absl::Status no_gpu;
  // Of --weights: nothing but config.json is read, and the matrices are random.
  bool random_weights = false;
  // Types, pool, limits and threads, resolved from the texts of the flags.
  MemoryFlags memory;
  // Empty = the best of this machine.
  std::string isa;
  // Off without a value; 0 = a free port.
  std::optional<uint32_t> metrics_port;
  std::string metrics_host = "127.0.0.1";
  absl::Duration peer_timeout;
  // 0 = no watchdog.
  absl::Duration watchdog_limit;
  bool die_with_parent = false;
  // Tell the load's progress on stdout.
  bool load_progress = false;
  LogFormat log_format = LogFormat::kText;
  std::string log_level = "info";
  // Variables of the environment that look like one of this program's, and are none. Empty when
  // `weft serve` started it, which warns itself.
  std::vector<Flags::UnknownVariable> unknown_variables;
};

// Fills `flags`. OK with `help_text` set when that is all that was asked for. INVALID_ARGUMENT
// names the flag, what it was and what it may be; FindCudaDevice's errors, with the way out, for
// --device cuda.
absl::Status ParseShardFlags(int argc, char** argv, ShardFlags* flags, std::string* help_text);

}  // namespace weft::shard
