// The metrics by tenant: their labels are bounded, and all series together say the whole.

#include "router/observe/tenant_metrics.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/metrics.h"

namespace weft::router {
namespace {

// Values of a family by tenant, as served.
std::map<std::string, double> Served(const std::string& name) {
  std::map<std::string, double> values;
  const std::string text = RenderMetrics();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, name + "{")) continue;
    const size_t begin = line.find("tenant=\"") + 8;
    const std::string tenant(line.substr(begin, line.find('"', begin) - begin));
    values[tenant] = std::atof(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return values;
}

constexpr char kTokens[] = "weft_tenant_generation_tokens_total";

// Leaves the registry, which is the process's, without names.
struct Metrics {
  TenantMetrics metrics;
  TenantUseBook book{4096};
  const double other_before = Served(kTokens)[kOtherTenants];
  TenantUseBook::Reading last;

  void Update(TenantUseBook::Reading reading) {
    last = reading;
    metrics.Update(std::move(reading));
  }
  void Update() { Update(book.Read()); }
  double Other() const { return Served(kTokens)[kOtherTenants] - other_before; }
  ~Metrics() {
    for (const auto& [name, counts] : last.by_name) last.forgotten += counts;
    last.by_name.clear();
    metrics.Update(std::move(last));
  }
};

std::string Name(int i) { return absl::StrCat("tenant-", i); }

TEST_CASE("Fifty tenants have labels and all others are one", "[router][probe]") {
  Metrics tested;
  std::vector<std::shared_ptr<TenantUse>> uses;
  double total = 0;
  for (int i = 0; i < 300; ++i) {
    uses.push_back(tested.book.Open(Name(i)));
    uses.back()->AddGenerated(1000 + 100 * i);
    total += 1000 + 100 * i;
  }
  tested.Update();
  const std::map<std::string, double> served = Served(kTokens);
  CHECK(served.size() == kTenantLabelsMax + 1);
  CHECK(served.at(Name(299)) == 1000 + 100 * 299);
  CHECK(served.count(Name(250)) == 1);
  CHECK(served.count(Name(249)) == 0);
  double sum = tested.Other();
  for (const auto& [name, value] : served) sum += name == kOtherTenants ? 0 : value;
  CHECK(sum == total);
}

TEST_CASE("Who has a label keeps it until somebody has a tenth more", "[router][probe]") {
  Metrics tested;
  for (int i = 0; i < 50; ++i) tested.book.Open(Name(i))->AddGenerated(i == 0 ? 1000 : 5000);
  tested.Update();
  const auto late = tested.book.Open("late");
  late->AddGenerated(1050);
  tested.Update();
  CHECK(Served(kTokens).count("late") == 0);
  CHECK(tested.Other() == 1050);
  late->AddGenerated(100);
  tested.Update();
  const std::map<std::string, double> served = Served(kTokens);
  CHECK(served.count(Name(0)) == 0);
  CHECK(served.size() == kTenantLabelsMax + 1);
  // What was seen before it had a label stays where it was counted.
  CHECK(served.at("late") == 100);
  CHECK(tested.Other() == 1050);
  // Who lost the label goes on in `other`.
  tested.book.Open(Name(0))->AddGenerated(7);
  tested.Update();
  CHECK(tested.Other() == 1057);
}

TEST_CASE("A name that was forgotten and comes again is counted once", "[router][probe]") {
  Metrics tested;
  TenantUseBook::Reading reading;
  reading.by_name["a"].generated_tokens = 100;
  tested.Update(reading);
  CHECK(Served(kTokens).at("a") == 100);
  // Forgotten with 120, and 5 since.
  reading.forgotten.generated_tokens = 120;
  reading.by_name["a"].generated_tokens = 5;
  tested.Update(reading);
  CHECK(Served(kTokens).at("a") == 105);
  CHECK(tested.Other() == 20);
  reading.by_name.clear();
  reading.forgotten.generated_tokens = 125;
  tested.Update(reading);
  CHECK(Served(kTokens).count("a") == 0);
  CHECK(tested.Other() == 20);
}

TEST_CASE("A tenant called other has no label of its own", "[router][probe]") {
  Metrics tested;
  tested.book.Open(kOtherTenants)->AddGenerated(11);
  tested.Update();
  CHECK(tested.Other() == 11);
}

}  // namespace
}  // namespace weft::router
