// The flags of weft-shard: names, groups, ranges, defaults and units, as they are typed; what they
// mean to a shard is in shard/flags.h. `weft serve` declares the same table and hands on what it
// was given. Main thread.

#pragma once

#include <cstdint>
#include <string>

#include "common/flags.h"
#include "shard/kv/memory_texts.h"

namespace weft::shard {

struct ShardFlagValues {
  std::string model;
  std::string served_model_name;
  std::string weights = "file";
  std::string device = "auto";
  int32_t device_index = -1;
  MemoryTexts memory;
  bool deterministic = false;
  std::string cpu_isa = "auto";
  // 0 = cores / world.
  uint32_t threads = 0;

  uint32_t rank = 0;
  bool rank_from_hostname = false;
  uint32_t world = 1;
  // 1 = no other group is on this host.
  uint32_t host_groups = 1;
  uint32_t host_group = 0;
  std::string comm_host;
  std::string comm_ports;
  std::string socket;
  std::string listen;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  uint32_t peer_timeout_s = 30;
  // -1 = none.
  int32_t metrics_port = -1;
  std::string metrics_host = "127.0.0.1";
  bool expert_load = false;

  double watchdog_s = 10;
  bool die_with_parent = false;
  bool load_progress = false;
  std::string log_format = "text";
  std::string log_level = "info";
};

// Declares them on `flags`, filled into *values (which must outlive the parse).
void DeclareShardFlags(Flags& flags, ShardFlagValues* values);

}  // namespace weft::shard
