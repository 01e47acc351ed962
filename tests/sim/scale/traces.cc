#include "tests/sim/scale/traces.h"

#include <algorithm>
#include <cmath>

#include "tests/support/splitmix.h"

namespace weft::router::scale {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr uint32_t kContext = 131072;

const TraceShape kShapes[] = {
    {.name = "azure-code",
     .prompt = {1500, 2048, 7500},
     .output = {13, 28, 2000},
     .valley = 1 / 34.6},
    {.name = "azure-conv",
     .prompt = {1020, 1155, 14000},
     .output = {129, 211, 1000},
     .valley = 1 / 3.3},
    {.name = "burstgpt",
     .prompt = {450, 700, 16000},
     .output = {200, 280, 4000},
     .gamma_shape = 0.25,
     .rate_shape = 4},
    {.name = "mooncake-conv",
     .prompt = {6500, 10500, kContext - 4000},
     .output = {250, 343, 2000},
     .next_turn = 0.41,
     .turn = {1200, 2500, 30000}},
    {.name = "mooncake-agent",
     .prompt = {2200, 3600, kContext - 20000},
     .output = {110, 182, 2000},
     .next_turn = 0.08,
     .turn = {800, 1500, 20000},
     .system_texts = 40,
     .system_blocks = 72},
};

double Sigma(const Length& length) { return std::sqrt(2 * std::log(length.mean / length.median)); }

}  // namespace

absl::Span<const TraceShape> Shapes() { return kShapes; }

const TraceShape* FindShape(const std::string& name) {
  for (const TraceShape& shape : kShapes) {
    if (name == shape.name) return &shape;
  }
  return nullptr;
}

TokenId TokenAt(const TraceRequest& request, uint32_t position) {
  const uint32_t block = position / kBlockTokens;
  const uint64_t whose = block < request.system_blocks ? request.system : request.session;
  return 2 + static_cast<TokenId>(test::Splitmix(whose * 0x9E3779B97F4A7C15u + block) >> 34);
}

std::vector<TokenId> PromptOf(const TraceRequest& request) {
  std::vector<TokenId> ids;
  // And room for what is generated.
  ids.reserve(request.prompt_tokens + 256);
  for (uint32_t at = 0; at < request.prompt_tokens; at += kBlockTokens) {
    ids.resize(std::min(at + kBlockTokens, request.prompt_tokens), TokenAt(request, at));
  }
  return ids;
}

TraceSource::TraceSource(const TraceShape& shape, const Demand& demand, uint64_t seed)
    : shape_(shape), demand_(demand), random_(seed), systems_seen_(shape.system_texts + 1) {
  for (uint32_t rank = 1; rank <= shape.system_texts; ++rank) system_weights_ += 1.0 / rank;
}

double TraceSource::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * kPi * Uniform());
}

uint32_t TraceSource::Draw(const Length& length) {
  const double drawn = length.median * std::exp(Sigma(length) * Normal());
  return static_cast<uint32_t>(std::clamp(drawn, 1.0, static_cast<double>(length.most)));
}

// Marsaglia and Tsang's, with their step for shapes below 1.
double TraceSource::GammaDraw(double shape) {
  if (shape < 1) return GammaDraw(shape + 1) * std::pow(1 - Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

int64_t TraceSource::NextGapUs() {
  double rate = demand_.requests_per_s;
  // The rate falls and rises by its logarithm.
  const double reach = -std::log(shape_.valley) / 2;
  const double phase = 2 * kPi * static_cast<double>(now_us_ % kWaveUs) / kWaveUs;
  rate *= std::exp(reach * (std::sin(phase) - 1));
  if (shape_.rate_shape > 0 && now_us_ >= burst_until_us_) {
    // Never so low that the next draw is far away.
    burst_ = std::max(0.05, GammaDraw(shape_.rate_shape) / shape_.rate_shape);
    burst_until_us_ = now_us_ + kBurstUs;
  }
  rate *= burst_;
  const double gap = shape_.gamma_shape == 1 ? -std::log(1 - Uniform())
                                             : GammaDraw(shape_.gamma_shape) / shape_.gamma_shape;
  return std::llround(1e6 * gap / rate);
}

TraceSource::Session TraceSource::NewSession() {
  Session session;
  session.id = ++sessions_ << 20;
  session.system = 0;
  session.system_blocks = 0;
  const double who = Uniform();
  session.tenant =
      who < demand_.first_share || demand_.tenants == 1
          ? 0
          : 1 + static_cast<uint32_t>((who - demand_.first_share) / (1 - demand_.first_share) *
                                      (demand_.tenants - 1));
  session.tokens = Draw(shape_.prompt);
  if (shape_.system_texts > 0) {
    double at = Uniform() * system_weights_;
    uint32_t rank = 1;
    while (rank < shape_.system_texts && (at -= 1.0 / rank) > 0) ++rank;
    session.system = rank;
    session.system_blocks = shape_.system_blocks;
    session.tokens += shape_.system_blocks * kBlockTokens;
  }
  return session;
}

TraceRequest TraceSource::Next() {
  now_us_ += NextGapUs();
  TraceRequest request;
  request.arrival_us = now_us_;
  const bool goes_on = Uniform() < shape_.next_turn && !open_.empty();
  Session session;
  if (goes_on) {
    // One that has not spoken for a while.
    const size_t which = static_cast<size_t>(Uniform() * static_cast<double>(open_.size()) / 2);
    session = open_[which];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    request.seen_tokens = session.tokens / kBlockTokens * kBlockTokens;
    session.tokens += Draw(shape_.turn);
  } else {
    session = NewSession();
    if (session.system != 0 && systems_seen_[session.system]) {
      request.seen_tokens = session.system_blocks * kBlockTokens;
    }
    systems_seen_[session.system] = true;
  }
  request.tenant = session.tenant;
  request.session = session.id;
  request.system = session.system;
  request.system_blocks = session.system_blocks;
  request.prompt_tokens = session.tokens;
  request.output_tokens = Draw(shape_.output);
  session.tokens += request.output_tokens;
  if (shape_.next_turn > 0 && session.tokens + shape_.turn.most + shape_.output.most < kContext) {
    open_.push_back(session);
    const auto most = static_cast<size_t>(demand_.requests_per_s * kSessionS);
    if (open_.size() > std::max<size_t>(most, 16)) open_.pop_front();
  }
  return request;
}

}  // namespace weft::router::scale
