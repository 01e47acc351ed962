// What happens to a simulated router from outside: its settings, the requests of its clients and
// the faults of its shards, each with its time. Made from a seed, or read from a text; a plain
// value. All that is random inside a run is drawn for one request or shard from the settings' seed,
// so that a script with an action less is otherwise the same run: that is what lets a failing one
// shrink.
//
// As text, a line each: `set NAME NUMBER` for settings that are not the default, then
// `at MICROSECONDS KIND name=number ...` for actions. `#` begins a comment.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::router::sim {

struct Settings {
  // Of the draws inside the run.
  int64_t seed = 1;
  // Shards of each group.
  int64_t world = 1;
  int64_t groups = 1;
  int64_t running_max = 8;
  int64_t step_tokens_max = 32;
  int64_t block_tokens = 4;
  int64_t kv_blocks = 64;
  // So many more on rank 0.
  int64_t more_blocks = 0;
  // Window of a second KV group; 0 = there is one group, which sees the whole context.
  int64_t window = 0;
  int64_t context_tokens = 128;
  int64_t eos_permille = 10;
  int64_t prefix_cache = 1;
  int64_t inter_token_target_us = 0;
  int64_t queue_requests_max = 32;
  int64_t queue_tokens_max = 4096;
  int64_t text_bytes_max = 1 << 20;
  int64_t text_threads = 1;
  int64_t stream_batches_max = 1024;
  int64_t queue_timeout_s = 0;
  int64_t recovery_timeout_s = 20;
  int64_t hang_timeout_ms = 500;
  // Of a step with one row; each row and token adds to it.
  int64_t step_us = 500;
  // Most of a call's or a reply's way.
  int64_t wire_us_max = 60;
  // Most until a loop that was woken runs.
  int64_t wake_us_max = 20;
  int64_t tenants = 1;
  // Of tenant 1, for there is none that many by default; 0 = no limit.
  int64_t tenant_requests_max = 0;
  int64_t tenant_tokens_per_minute = 0;
  // Somebody restarts dead shards and tells of their deaths.
  int64_t supervisor = 1;
  // A dead shard is back after so long.
  int64_t restart_us = 300'000;
  int64_t load_us = 200'000;
};

enum class Kind : uint8_t {
  // -- Clients
  kRequest,
  kCancel,
  kTokenize,
  kDrain,
  kFlush,
  // -- Shards
  kKill,
  kHang,
  kStick,
  kBreak,
  kSlow,
  kLose,
  kRepeat,
  kReorder,
  kLie,
  kError,
  // -- The router's own threads
  kStall,
};

// What is wrong with a request.
enum Bad : int64_t { kGood, kTooLong, kBadId, kBadBias, kEmpty, kBadPriority };
// What is wrong with an answer of a step.
enum Lie : int64_t {
  kLieHash = 1,
  kLieEpoch,
  kLieStep,
  kLieIds,
  kLieRows,
  kLieMalformed,
  kLieInvalidRow,
};

// One action; fields that its kind does not use are 0.
struct Action {
  int64_t at_us = 0;
  Kind kind = Kind::kRequest;

  // -- kRequest. `id` names it in other actions and in messages.
  int64_t id = 0;
  int64_t tenant = 0;
  int64_t prompt = 0;
  // So many first tokens are those of all requests with the same `prefix_of`.
  int64_t prefix = 0;
  int64_t prefix_of = 0;
  // 0 = the client names no limit, or no seed.
  int64_t max_tokens = 0;
  int64_t seed = 0;
  int64_t text = 0;
  int64_t echo = 0;
  int64_t stop = 0;
  int64_t keep_stop = 0;
  int64_t ignore_eos = 0;
  int64_t min_p = 0;
  int64_t penalty = 0;
  int64_t logprobs = 0;
  // 1 + the most likely tokens wanted of each of the prompt's; 0 = it is not scored.
  int64_t scores = 0;
  int64_t priority = 0;
  int64_t deadline_us = 0;
  int64_t bad = 0;
  // The client reads one token, then waits so long; 0 = all there is, at once.
  int64_t pause_us = 0;
  // The client goes away after so many tokens, or so long after its request.
  int64_t leave_tokens = 0;
  int64_t leave_us = 0;
  // The client has had so many tokens from elsewhere, or all if there are fewer; needs a seed.
  int64_t resume = 0;
  // The answer is of some few ids alone, or has none of some words, drawn from this; 0 = any may
  // be.
  int64_t allow = 0;
  int64_t ban = 0;

  // -- kCancel: the request `id`, in the name of the tenant `tenant`. kTokenize: a text of `prompt`
  // bytes.
  // -- Faults: of `rank`, counted through all groups, for `us`; `count` of them, after `skip`
  // others.
  int64_t rank = 0;
  int64_t us = 0;
  int64_t count = 0;
  int64_t skip = 0;
  // kKill: with which call it dies (ShardCall + 1); 0 = now. kStall: 1 engine, 2 text in, 3 text
  // out, 4 dispatcher, 5 masks.
  int64_t call = 0;
  // kLie: which.
  int64_t lie = 0;
  // kKill: what it is when it is back: blocks of its pool; another model; both for one life.
  int64_t blocks = 0;
  int64_t other_model = 0;
  // kKill: nobody says that it died.
  int64_t untold = 0;
};

struct Script {
  Settings settings;
  // In order of time.
  std::vector<Action> actions;
};

Script MakeScript(uint64_t seed);
// With two or three groups.
Script MakeGroupsScript(uint64_t seed);

std::string ToText(const Script& script);
std::string ToText(const Action& action);
absl::StatusOr<Script> ParseScript(absl::string_view text);

}  // namespace weft::router::sim
