// The router without its doors: makes text pool, admission, engine loop and shard clients, wires
// them together and is the Intake that all doors share. Made and shut down by main; every Intake
// method is thread-safe and never blocks.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "router/intake.h"
#include "router/shards/client.h"

namespace weft::router {

class Probe;

struct EngineOptions {
  // Directory in Hugging Face layout, or a .gguf file: tokenizer, chat template, EOS ids.
  std::string model_path;
  // Name that requests use; empty = the model's own.
  std::string served_model_name;
  // One per rank, in order: "unix:/path/shard-0.sock" or "host:port". 1 .. kWorldMax.
  std::vector<std::string> shards;
  // For shards on other hosts; they are not reached without.
  ShardTls shard_tls;
  // `weft serve`'s socket; empty = nobody to ask for restarts.
  std::string supervisor_socket;

  // Threads of the text pool. > 0.
  uint32_t text_threads = 2;
  // Upper bounds; the shards' memory plan may set lower ones.
  uint32_t running_max = kRunningDefault;
  uint32_t step_tokens_max = kStepTokensDefault;
  // Longest sequence; 0 = the model's context.
  uint32_t context_tokens_max = 0;
  uint32_t queue_requests_max = kQueueRequestsDefault;
  uint64_t queue_tokens_max = kQueueTokensDefault;
  // Target of the time between two tokens of a stream while prompts enter; 0 = each
  // prompt may add a step's decode time.
  uint32_t inter_token_target_us = 0;
  bool prefix_cache = true;

  // No heartbeat and no CPU time for this long = hung; 0 = 5,000 for "cpu" shards, 2,000 for
  // others.
  int64_t hang_timeout_ms = 0;
  // Live requests are ended when the group is not back after this long.
  int64_t recovery_timeout_s = 120;

  // Called once, from the engine loop, when serving is impossible for good (another router took
  // the shards; the shards do not fit together): the process is to end with this error.
  std::function<void(const absl::Status&)> on_fatal;
  // Added to every step on the engine loop, to prove that the shards do not wait for it.
  int64_t step_delay_for_test_us = 0;
};

class Engine : public Intake {
 public:
  // Refuses new requests from now on and lets live ones finish; those still there after `timeout`
  // fail with UNAVAILABLE. Returns at once; a second call shortens the time only.
  virtual void StartDrain(absl::Duration timeout) = 0;
  // Waits until no request is left, up to `timeout`. True when none is.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
  // Ends live requests with UNAVAILABLE, leaves the shards READY where they answer, and joins all
  // threads. Idempotent; the destructor does it too.
  virtual void Shutdown() = 0;
};

// Loads the model's text side, starts all threads and returns while the shards may still be
// loading. `probe` must outlive the engine. Errors name the file or the option.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineIntake(EngineOptions options, Probe* probe);

}  // namespace weft::router
