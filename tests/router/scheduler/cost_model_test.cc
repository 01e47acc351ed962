#include "router/scheduler/cost_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

namespace weft::router {
namespace {

TEST_CASE("The cost model goes through its first points and on behind them",
          "[router][scheduler]") {
  const GroupInfo::Cost points[] = {{1, 0, 0, 1000}, {0, 64, 0, 1000}, {0, 512, 0, 8000}};
  CostModel model;
  CHECK(model.StepUs({1, 0, 0}) == 0);
  model.Reset(points);
  CHECK(model.StepUs({1, 0, 0}) == Approx(1000));
  CHECK(model.StepUs({8, 56, 0}) == Approx(1000));
  CHECK(model.StepUs({0, 512, 0}) == Approx(8000));
  CHECK(model.StepUs({0, 1024, 0}) == Approx(16000));
}

TEST_CASE("Two points with equal rows tell the cost of context", "[router][scheduler]") {
  const GroupInfo::Cost points[] = {{1, 0, 0, 1000}, {1, 0, 10000, 3000}};
  CostModel model;
  model.Reset(points);
  CHECK(model.StepUs({1, 0, 5000}) == Approx(2000));
}

TEST_CASE("Without points the first observation is the first point", "[router][scheduler]") {
  CostModel model;
  model.Reset({});
  model.Observe({4, 0, 100}, 4000);
  CHECK(model.StepUs({4, 0, 100}) == Approx(4000));
  CHECK(model.StepUs({8, 0, 0}) == Approx(8000));
}

TEST_CASE("Observations move the model to the device's true cost", "[router][scheduler]") {
  // Reading weights 5000 us or 20 us a row, whichever is more, and 0.05 us a context token.
  const auto truth = [](const StepShape& s) {
    return std::max(5000.0, 20.0 * (s.rows + s.prompt_tokens)) + 0.05 * s.context_tokens;
  };
  const GroupInfo::Cost points[] = {{1, 0, 16, 900}, {0, 64, 64, 2000}};
  CostModel model;
  model.Reset(points);
  uint64_t random = 1;
  for (int i = 0; i < 5000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    StepShape shape;
    shape.rows = 1 + (random >> 33) % 64;
    shape.prompt_tokens = (random >> 40) % 3 == 0 ? (random >> 45) % 1024 : 0;
    shape.context_tokens = shape.rows * ((random >> 50) % 1000);
    model.Observe(shape, static_cast<uint32_t>(truth(shape)));
  }
  for (const StepShape& shape :
       {StepShape{1, 0, 100}, StepShape{32, 0, 20000}, StepShape{32, 512, 10000}}) {
    CAPTURE(shape.rows, shape.prompt_tokens, shape.context_tokens);
    CHECK(model.StepUs(shape) == Approx(truth(shape)).epsilon(0.1));
  }
}

TEST_CASE("A disturbed step moves the model only so far, and the cost never falls with rows",
          "[router][scheduler]") {
  const GroupInfo::Cost points[] = {{1, 0, 0, 1000}, {0, 64, 0, 2000}};
  CostModel model;
  model.Reset(points);
  model.Observe({1, 0, 0}, 1000000);
  CHECK(model.StepUs({1, 0, 0}) < 2000);
  model.Observe({0, 32, 0}, 1);
  double before = 0;
  for (uint32_t rows = 1; rows <= 16384; rows += 7) {
    const double us = model.StepUs({rows, 0, 0});
    CHECK(us >= before);
    before = us;
  }
}

TEST_CASE("PromptTokensWithin finds the largest chunk within the target", "[router][scheduler]") {
  const GroupInfo::Cost points[] = {{1, 0, 0, 100}, {1, 0, 1000, 600}, {0, 100, 0, 10000}};
  CostModel model;
  model.Reset(points);
  const StepShape rows = {4, 0, 100};
  const auto cost = [&](uint32_t tokens) {
    return model.StepUs({4, tokens, 100 + 50 + uint64_t{tokens}});
  };
  const uint32_t tokens = model.PromptTokensWithin(rows, 50, 1000, 3000);
  CHECK(tokens > 1);
  CHECK(cost(tokens) <= 3000);
  CHECK(cost(tokens + 1) > 3000);
  CHECK(model.PromptTokensWithin(rows, 50, 10, 3000) == 10);
  CHECK(model.PromptTokensWithin(rows, 50, 1000, 100) == 0);
}

}  // namespace
}  // namespace weft::router
