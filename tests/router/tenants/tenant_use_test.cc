#include "router/tenants/tenant_use.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/tenants/tenant_meter.h"

namespace weft::router {
namespace {

TEST_CASE("A tenant's use outlives its meters and is one under one name", "[router][identity]") {
  TenantUseBook book(4);
  book.Open("a")->AddPrompt(7);
  const auto again = book.Open("a");
  again->AddGenerated(2);
  const TenantUseBook::Reading reading = book.Read();
  REQUIRE(reading.by_name.size() == 1);
  CHECK(reading.by_name.at("a").tokens() == 9);
  CHECK(reading.forgotten == TenantUseCounts());
}

TEST_CASE("Names that nobody uses give way, and what they used is not lost", "[router][identity]") {
  TenantUseBook book(3);
  const auto kept = book.Open("kept");
  for (int i = 0; i < 100; ++i) {
    book.Open(absl::StrCat("passing-", i))->AddPrompt(10);
    kept->AddRequest();
    CHECK(book.Read().by_name.size() <= 3);
  }
  const TenantUseBook::Reading reading = book.Read();
  CHECK(reading.by_name.at("kept").requests == 100);
  TenantUseCounts total = reading.forgotten;
  for (const auto& [name, counts] : reading.by_name) total += counts;
  CHECK(total.prompt_tokens == 1000);
}

TEST_CASE("A permit counts its prompt when it runs and its tokens by its end",
          "[router][identity]") {
  ManualClock clock;
  const auto use = std::make_shared<TenantUse>();
  const auto meter = std::make_shared<TenantMeter>("team", TenantLimits(), &clock, use);
  {
    auto permit = *meter->Enter();
    CHECK(permit.ChargePrompt(30).ok());
    CHECK(use->Read().prompt_tokens == 0);
    permit.CountPrompt();
    CHECK(use->Read().prompt_tokens == 30);
    for (int i = 0; i < 100; ++i) permit.Charge(1);
    // The last few are on their way.
    CHECK(use->Read().generated_tokens == 64);
    auto moved = std::move(permit);
    moved.Charge(5);
  }
  CHECK(use->Read().generated_tokens == 105);
  CHECK(&meter->use() == use.get());
}

}  // namespace
}  // namespace weft::router
