// The router without its doors: owns text in, text out, admission, engine loop and shard clients,
// wires them together and is the Entrance that all doors share. Made and shut down by main; every
// method of Entrance is thread-safe and never blocks.

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
#include "router/admission.h"
#include "router/doors/entrance.h"
#include "router/engine/runtime.h"
#include "router/recording/part_writer.h"
#include "router/shards/claims.h"
#include "router/shards/client.h"

namespace weft::router {

class Probe;
class TemplateHost;
class Tracer;

struct EngineOptions {
  // Directory in Hugging Face layout, or a .gguf file: tokenizer, chat template, EOS ids.
  std::string model_path;
  // Runs the model's chat template; outlives the core. Null: a model that has one is refused.
  TemplateHost* template_host = nullptr;
  // Control tokens in chat messages are read as such (text/chat_template.h).
  bool allow_control_tokens = false;
  // Formats of calls and of reasoning in answers: names (text/parts/part_parser.h), "none", or
  // "auto": what the chat template shows.
  std::string tool_parser = "auto";
  std::string reasoning_parser = "auto";
  // "auto": what a request does not say of sampling is as generation_config.json recommends;
  // "none": neutral.
  std::string generation_config = "none";
  // Name that requests use; empty = the model's own.
  std::string served_model_name;
  // By group, then one per rank in order: "unix:/path/shard-0.sock" or "host:port". 1 .. kGroupsMax
  // groups, 1 .. kWorldMax shards in all. Supervisor and metrics count ranks through all groups.
  std::vector<std::vector<std::string>> groups;
  // For shards on other hosts; they are not reached without.
  ShardTls shard_tls;
  // `weft serve`'s socket; empty = nobody to ask for restarts.
  std::string supervisor_socket;
  // Which start of the router by which launcher this is, so that it takes the shards over from the
  // process before it.
  LauncherClaim launcher;

  // Threads of text in for short texts, and of text out. > 0.
  uint32_t text_threads = 2;
  // Threads that work out masks of constrained rows. > 0.
  uint32_t mask_threads = 2;
  // Upper bounds of each group; the shards' memory plan may set lower ones.
  uint32_t running_max = kRunningDefault;
  uint32_t step_tokens_max = kStepTokensDefault;
  // Longest sequence; 0 = the model's context.
  uint32_t context_tokens_max = 0;
  uint32_t queue_requests_max = kQueueRequestsDefault;
  uint64_t queue_tokens_max = kQueueTokensDefault;
  size_t text_bytes_max = kTextBytesDefault;
  // A request that waits so long for its first step ends; 0 = never.
  int64_t queue_timeout_s = 0;
  // Target of the time between two tokens of a stream while prompts enter; 0 = each
  // prompt may add a step's decode time.
  uint32_t inter_token_target_us = 0;
  bool prefix_cache = true;
  // Who exports traces of requests; outlives the core. Null: nobody.
  Tracer* tracer = nullptr;
  // Where the scheduler's events and decisions go; with an empty path nowhere.
  recording::RecordOptions record;

  // No heartbeat and no CPU time for this long = hung; 0 = 5,000 for "cpu" shards, 2,000 for
  // others.
  int64_t hang_timeout_ms = 0;
  // Live requests are ended when the group is not back after this long.
  int64_t recovery_timeout_s = 120;

  // Called once, from the engine loop, when serving is impossible for good (another router took
  // the shards; the shards do not fit together): the process is to end with this error.
  std::function<void(const absl::Status&)> on_fatal;
  // Called from the engine loop when the shards begin to serve, each time; must not block.
  std::function<void()> on_serving;
  // How a shard is reached.
  ShardClientFactory make_shard_client = MakeShardClient;
  // What it all runs on.
  Runtime runtime;

  // Of all groups.
  uint32_t shards() const {
    size_t count = 0;
    for (const std::vector<std::string>& group : groups) count += group.size();
    return static_cast<uint32_t>(count);
  }
};

// Made before there is a model: ports open in the first milliseconds and say "starting" while
// tokenizer and shards load.
class Core : public Entrance {
 public:
  // Loads the model's text side, starts all threads and returns while the shards may still be
  // loading. Once. Errors name the file or the option.
  virtual absl::Status Start(EngineOptions options) = 0;
  // For requests that come from now on. Only after Start. Any thread.
  virtual void SetQueueLimits(const QueueLimits& limits) = 0;
  // Forgets the cached prefixes that no request uses, in all groups and before any request that
  // comes after this call. UNAVAILABLE before Start and when an engine loop has too much to do:
  // then some groups may have been flushed. Any thread.
  virtual absl::Status FlushPrefixCache() = 0;
  // Refuses new requests from now on and lets live ones finish; those still there after `timeout`
  // fail with UNAVAILABLE. Returns at once; a second call shortens the time only.
  virtual void StartDrain(absl::Duration timeout) = 0;
  // Waits until every request has ended and its answer was read or dropped, up to `timeout`. True
  // when none is left.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
  // Ends live requests with UNAVAILABLE, leaves the shards READY where they answer, and joins all
  // threads. Idempotent; the destructor does it too.
  virtual void Shutdown() = 0;
};

// `probe` must outlive the core; the core outlives all who use it as an Entrance.
std::unique_ptr<Core> MakeCore(Probe* probe);

}  // namespace weft::router
