#include "deploy/launcher/load_report.h"

#include <catch2/catch.hpp>

#include "boost/json.hpp"

namespace weft::launcher {
namespace {

StreamResult Stream(int64_t due_us, int64_t sent_us, std::vector<int64_t> token_us) {
  StreamResult result;
  result.due_us = due_us;
  result.sent_us = sent_us;
  result.end_us = token_us.empty() ? sent_us : token_us.back();
  result.token_us = std::move(token_us);
  return result;
}

TEST_CASE("Quantiles are nearest ranks", "[launcher]") {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Quantiles quantiles = MakeQuantiles(values);
  CHECK(quantiles.count == 100);
  CHECK(quantiles.p50 == 50);
  CHECK(quantiles.p90 == 90);
  CHECK(quantiles.p99 == 99);
  CHECK(quantiles.max == 100);
  CHECK(MakeQuantiles({7}).p50 == 7);
  CHECK(MakeQuantiles({}).count == 0);
}

TEST_CASE("A report keeps prompt time, gaps, lag and failures apart", "[launcher]") {
  std::vector<StreamResult> results;
  results.push_back(Stream(0, 1'000, {11'000, 13'000, 18'000}));
  results.push_back(Stream(5'000, 5'000, {25'000, 31'000}));
  results.push_back(Stream(6'000, 6'000, {}));
  results.back().error = "HTTP 429";
  const LoadReport report = MakeReport(results);
  CHECK(report.requests == 3);
  CHECK(report.failed == 1);
  CHECK(report.first_error == "HTTP 429");
  CHECK(report.output_tokens == 5);
  CHECK(report.wall_s == Approx(0.030));
  CHECK(report.tokens_per_s == Approx(5 / 0.030));
  CHECK(report.ttft_ms.p50 == Approx(10));
  CHECK(report.ttft_ms.max == Approx(20));
  CHECK(report.inter_token_ms.count == 3);
  CHECK(report.inter_token_ms.p50 == Approx(5));
  CHECK(report.lag_ms.max == Approx(1));
  const auto json = boost::json::parse(ReportJson(report)).as_object();
  CHECK(json.at("failed").as_int64() == 1);
}

}  // namespace
}  // namespace weft::launcher
