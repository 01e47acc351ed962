#include "shard/flag_table.h"

#include "common/limits.h"

namespace weft::shard {

void DeclareShardFlags(Flags& flags, ShardFlagValues* values) {
  flags.Group("Model and device");
  flags.Add("model", &values->model, "Model directory or .gguf file");
  flags.Add("served-model-name", &values->served_model_name,
            "Name that requests use, for metrics; empty = the model's own");
  flags.Add("weights", &values->weights,
            "file, or random: only config.json is read, for benchmarks");
  flags.Add("device", &values->device, "auto, cpu or cuda");
  flags.AddNumber("device-index", &values->device_index, -1, 1023,
                  "GPU among those that this process sees, -1 = the only one, or by rank");
  DeclareMemoryFlags(flags, &values->memory);
  flags.AddSwitch("deterministic", &values->deterministic,
                  "CUDA, one shard, bfloat16: a token does not depend on what else is in its "
                  "batch nor on how its prompt was cut; slower");
  flags.AddNumber("threads", &values->threads, 0, 1024,
                  "Compute threads, 0 = cores, or what a CPU limit pays for, / shards of the host");
  flags.Add("cpu-isa", &values->cpu_isa, "auto, avx512_bf16, avx2 or portable");
  flags.Group("Group and connections");
  flags.AddNumber("world", &values->world, 1, kWorldMax, "Shards of the group");
  flags.AddNumber("rank", &values->rank, 0, kWorldMax - 1, "This shard's rank, below --world");
  flags.AddNumber("host-groups", &values->host_groups, 1, kWorldMax,
                  "Groups like this one that share the cores and the memory of this host");
  flags.AddNumber("host-group", &values->host_group, 0, kWorldMax - 1,
                  "Which of them this shard's is, for its name in logs");
  flags.AddSwitch("rank-from-hostname", &values->rank_from_hostname,
                  "The rank is the number at the end of the host's name, as in a StatefulSet");
  flags.Add("comm-host", &values->comm_host,
            "IP address of this host for ranks of other hosts; empty = all ranks on one host");
  flags.Add("comm-ports", &values->comm_ports,
            "CPU: ports for ranks of other hosts, as 7100-7199; empty = any that is free");
  flags.Add("socket", &values->socket, "Unix socket to listen on, an absolute path");
  flags.Add("listen", &values->listen, "host:port to listen on instead; port 0 = a free one");
  flags.Add("tls-cert", &values->tls_cert, "PEM file: certificate of this shard");
  flags.Add("tls-key", &values->tls_key, "PEM file: its key");
  flags.Add("tls-ca", &values->tls_ca, "PEM file: authority of the router's certificate");
  flags.AddNumber("peer-timeout-s", &values->peer_timeout_s, 1, 3600,
                  "Longest wait for another rank in a step, s");
  flags.AddNumber("metrics-port", &values->metrics_port, -1, 65535,
                  "Port of /metrics, /livez, /readyz and /startupz, 0 = a free one, -1 = none");
  flags.Add("metrics-host", &values->metrics_host, "Address of that port");
  flags.AddSwitch("expert-load", &values->expert_load,
                  "Count the rows of each expert of each layer, for /metrics of shard 0");
  flags.Group("Start and logs");
  flags.AddNumber("watchdog-s", &values->watchdog_s, 0, 86400,
                  "A thread that has work and does not come round for so long is named in the log, "
                  "with its stack, s, 0 = off");
  flags.AddSwitch("die-with-parent", &values->die_with_parent,
                  "Be killed when the parent process dies");
  flags.AddSwitch("load-progress", &values->load_progress,
                  "Tell the load's progress on stdout, for weft serve");
  flags.Add("log-format", &values->log_format, "text or json");
  flags.Add("log-level", &values->log_level, "trace, debug, info, warn or error");
}

}  // namespace weft::shard
