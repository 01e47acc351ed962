// Requests in the shapes of published traces of LLM services: how they arrive, how long prompts and
// answers are, and which beginnings they share. Made by a generator from one seed; the traces
// themselves are not needed. A request's tokens follow from its session, so that a later turn of a
// session begins with all of the turn before it.

#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router::scale {

// Tokens of a KV block, and the unit in which prompts share beginnings.
inline constexpr uint32_t kBlockTokens = 64;

// A log-normal length, cut off at `most`.
struct Length {
  double median;
  // Of the whole distribution before it is cut: says how long its tail is.
  double mean;
  uint32_t most;
};

struct TraceShape {
  const char* name;
  Length prompt;
  Length output;
  // Times between arrivals have a Gamma distribution of this shape: 1 = Poisson, below 1 = bursts.
  double gamma_shape = 1;
  // Each `kBurstUs` the rate is drawn anew from a Gamma distribution of this shape; 0: it is not.
  double rate_shape = 0;
  // The rate's least part of its peak, over a wave of `kWaveUs`; 1 = constant.
  double valley = 1;
  // Sessions: a request is the next turn of an open session with this probability; a turn adds a
  // text of `turn` tokens to what was said.
  double next_turn = 0;
  Length turn = {1, 1, 1};
  // Prompts of a new session begin with one of so many texts (0: with none of them), popular as
  // 1 / rank, of so many blocks.
  uint32_t system_texts = 0;
  uint32_t system_blocks = 0;
};

// One turn of the slow wave in the rate: a day, made short.
inline constexpr int64_t kWaveUs = 600'000'000;
inline constexpr int64_t kBurstUs = 10'000'000;
// A session that has not gone on for about so long is over.
inline constexpr double kSessionS = 60;

// Sources and what of them is published or chosen: docs/PERFORMANCE.md.
absl::Span<const TraceShape> Shapes();
// Null when there is none of this name.
const TraceShape* FindShape(const std::string& name);

struct TraceRequest {
  int64_t arrival_us = 0;
  uint32_t tenant = 0;
  // Whose tokens these are, and those of its first blocks.
  uint64_t session = 0;
  uint64_t system = 0;
  uint32_t system_blocks = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // Tokens of the prompt that an earlier request of the trace began with, in full blocks.
  uint32_t seen_tokens = 0;
};

// The token of a request at a position of its block: the same for all 64 of them, so that the last
// one can be the block's hash (SchedulerConfig::label_ids). Never an id that ends a text.
TokenId TokenAt(const TraceRequest& request, uint32_t position);
std::vector<TokenId> PromptOf(const TraceRequest& request);

struct Demand {
  // At the peak of the wave; the mean of bursts.
  double requests_per_s = 1;
  // The first tenant has this part of all requests, the others the rest alike.
  uint32_t tenants = 8;
  double first_share = 0.125;
};

class TraceSource {
 public:
  TraceSource(const TraceShape& shape, const Demand& demand, uint64_t seed);

  TraceRequest Next();

 private:
  struct Session {
    uint64_t id;
    uint32_t tenant;
    uint64_t system;
    uint32_t system_blocks;
    uint32_t tokens;
  };

  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  // Box and Muller's, so that every standard library draws the same.
  double Normal();
  uint32_t Draw(const Length& length);
  double GammaDraw(double shape);
  int64_t NextGapUs();
  Session NewSession();

  const TraceShape shape_;
  const Demand demand_;
  std::mt19937_64 random_;
  int64_t now_us_ = 0;
  // Of the rate, until the next draw.
  double burst_ = 1;
  int64_t burst_until_us_ = 0;
  uint64_t sessions_ = 0;
  double system_weights_ = 0;
  std::vector<bool> systems_seen_;
  // Sessions that may go on, the oldest first.
  std::deque<Session> open_;
};

}  // namespace weft::router::scale
