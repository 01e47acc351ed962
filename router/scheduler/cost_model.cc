#include "router/scheduler/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "common/limits.h"

namespace weft::router {
namespace {

// Share of an error that one observation corrects.
constexpr double kCorrection = 0.25;
// A step that took this many times more or less than expected was disturbed from outside: it counts
// as this much only.
constexpr double kOutlier = 4.0;
// Context tokens that weigh as much as one knot when an error is shared out.
constexpr double kContextUnit = 4096.0;

struct Point {
  double tokens;
  double us;
};

// Of two points with equal rows the slope over the context; 0 when no such pair exists.
double ContextSlope(absl::Span<const GroupInfo::Cost> points) {
  double slope = 0;
  for (const auto& a : points) {
    for (const auto& b : points) {
      if (a.rows + a.prompt_tokens != b.rows + b.prompt_tokens) continue;
      if (a.context_tokens >= b.context_tokens) continue;
      const double rise_us = static_cast<double>(b.step_us) - a.step_us;
      slope = std::max(slope, rise_us / static_cast<double>(b.context_tokens - a.context_tokens));
    }
  }
  return slope;
}

// The line through the points, flat before the first and going on with the last slope behind the
// last; through the origin when there is one point only (a safe guess for long prompts).
double Interpolate(const std::vector<Point>& points, double tokens) {
  if (tokens <= points.front().tokens) return points.front().us;
  size_t right = 1;
  while (right < points.size() && points[right].tokens < tokens) ++right;
  if (points.size() == 1) return points[0].us * tokens / points[0].tokens;
  right = std::min(right, points.size() - 1);
  const Point& a = points[right - 1];
  const Point& b = points[right];
  return a.us + (b.us - a.us) * (tokens - a.tokens) / (b.tokens - a.tokens);
}

}  // namespace

void CostModel::Reset(absl::Span<const GroupInfo::Cost> points) {
  known_ = !points.empty();
  knots_us_.fill(0);
  context_token_us_ = ContextSlope(points);
  if (!known_) return;
  std::vector<Point> curve;
  for (const auto& p : points) {
    const double attention_us = context_token_us_ * static_cast<double>(p.context_tokens);
    curve.push_back({std::max(1.0, static_cast<double>(p.rows) + p.prompt_tokens),
                     std::max(1.0, p.step_us - attention_us)});
  }
  std::sort(curve.begin(), curve.end(), [](const Point& a, const Point& b) {
    return a.tokens != b.tokens ? a.tokens < b.tokens : a.us < b.us;
  });
  // One point per row count, the cheapest; never falling.
  std::vector<Point> line;
  for (const Point& p : curve) {
    if (!line.empty() && line.back().tokens == p.tokens) continue;
    line.push_back({p.tokens, line.empty() ? p.us : std::max(p.us, line.back().us)});
  }
  for (int i = 0; i < kKnots; ++i) knots_us_[i] = Interpolate(line, std::ldexp(1.0, i));
}

CostModel::Place CostModel::Locate(uint32_t tokens) {
  tokens = std::clamp(tokens, 1u, kStepTokensMax);
  const int low = std::min(static_cast<int>(std::bit_width(tokens)) - 1, kKnots - 2);
  const double base = std::ldexp(1.0, low);
  return {low, (tokens - base) / base};
}

double CostModel::StepUs(const StepShape& shape) const {
  const Place place = Locate(shape.rows + shape.prompt_tokens);
  return knots_us_[place.low] * (1 - place.high_share) +
         knots_us_[place.low + 1] * place.high_share +
         context_token_us_ * static_cast<double>(shape.context_tokens);
}

void CostModel::Observe(const StepShape& shape, uint32_t measured_us) {
  if (measured_us == 0 || shape.rows + shape.prompt_tokens == 0) return;
  if (!known_) {
    const GroupInfo::Cost point = {shape.rows, shape.prompt_tokens, shape.context_tokens,
                                   measured_us};
    Reset({&point, 1});
    return;
  }
  // Normalised least mean squares over the two knots and the context's slope.
  const double expected_us = StepUs(shape);
  const double seen_us =
      std::clamp<double>(measured_us, expected_us / kOutlier, expected_us * kOutlier);
  const Place place = Locate(shape.rows + shape.prompt_tokens);
  const double low = 1 - place.high_share;
  const double high = place.high_share;
  const double context = static_cast<double>(shape.context_tokens) / kContextUnit;
  const double step =
      kCorrection * (seen_us - expected_us) / (low * low + high * high + context * context);
  knots_us_[place.low] = std::max(1.0, knots_us_[place.low] + step * low);
  knots_us_[place.low + 1] = std::max(1.0, knots_us_[place.low + 1] + step * high);
  context_token_us_ = std::max(0.0, context_token_us_ + step * context / kContextUnit);
  // Never falling: the corrected pair moves its neighbours.
  knots_us_[place.low + 1] = std::max(knots_us_[place.low + 1], knots_us_[place.low]);
  for (int i = place.low + 2; i < kKnots; ++i) {
    knots_us_[i] = std::max(knots_us_[i], knots_us_[i - 1]);
  }
  for (int i = place.low - 1; i >= 0; --i) {
    knots_us_[i] = std::min(knots_us_[i], knots_us_[i + 1]);
  }
}

void CostModel::Save(SchedulerState* state) const {
  state->cost_known = known_;
  state->knots_us.assign(knots_us_.begin(), knots_us_.end());
  state->context_token_us = context_token_us_;
}

absl::Status CostModel::Restore(const SchedulerState& state) {
  if (state.knots_us.size() != knots_us_.size()) {
    return absl::InvalidArgumentError("the scheduler's state has another cost model");
  }
  known_ = state.cost_known;
  std::copy(state.knots_us.begin(), state.knots_us.end(), knots_us_.begin());
  context_token_us_ = state.context_token_us;
  return absl::OkStatus();
}

uint32_t CostModel::PromptTokensWithin(StepShape rows, uint32_t prompt_start, uint32_t tokens_max,
                                       uint32_t target_us) const {
  const auto fits = [&](uint32_t tokens) {
    StepShape shape = rows;
    shape.prompt_tokens += tokens;
    shape.context_tokens += uint64_t{prompt_start} + tokens;
    return StepUs(shape) <= target_us;
  };
  // The cost never falls with more tokens.
  uint32_t low = 0;
  uint32_t high = tokens_max;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace weft::router
