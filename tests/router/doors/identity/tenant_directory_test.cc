#include "router/doors/identity/tenant_directory.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace weft::router {
namespace {

KeyFile File(const std::vector<std::string>& names) {
  KeyFile file;
  for (const std::string& name : names) {
    file.tenants.emplace_back();
    file.tenants.back().name = name;
  }
  return file;
}

TEST_CASE("A tenant keeps index, salt and meter through every reading", "[router][identity]") {
  ManualClock clock;
  TenantUseBook uses(kTenantIndexMax);
  TenantDirectory directory(&clock, &uses);
  const auto first = directory.Update(File({"a", "b"})).value();
  KeyFile file = File({"c", "b", "a"});
  file.tenants[1].limits.requests_max = 1;
  const auto second = directory.Update(file).value();
  CHECK(second[1]->index == first[1]->index);
  CHECK(second[2]->index == first[0]->index);
  CHECK(second[1]->cache_salt == first[1]->cache_salt);
  CHECK(second[1]->meter == first[1]->meter);
  // The new limit holds for whoever came under the old reading, too.
  auto permit = first[1]->meter->Enter();
  CHECK(permit.ok());
  CHECK_FALSE(second[1]->meter->Enter().ok());
  CHECK_FALSE(first[1]->limits.requests_max.has_value());
  std::set<uint32_t> indexes = {directory.anonymous()->index};
  std::set<uint64_t> salts = {0, directory.anonymous()->cache_salt};
  for (const TenantRef& tenant : second) {
    indexes.insert(tenant->index);
    salts.insert(tenant->cache_salt);
  }
  CHECK(directory.anonymous()->index == 0);
  CHECK(indexes.size() == 4);
  CHECK(salts.size() == 5);
  // Another process has other salts.
  CHECK(TenantDirectory(&clock, &uses).anonymous()->cache_salt !=
        directory.anonymous()->cache_salt);
}

TEST_CASE("A tenant that comes back is the one it was", "[router][identity]") {
  ManualClock clock;
  TenantUseBook uses(kTenantIndexMax);
  TenantDirectory directory(&clock, &uses);
  const uint32_t index = directory.Update(File({"a"})).value()[0]->index;
  const auto other = directory.Update(File({"b"})).value();
  CHECK(other[0]->index != index);
  CHECK(directory.Update(File({"a"})).value()[0]->index == index);
}

TEST_CASE("Indexes stay within their bound and are never two tenants' at once",
          "[router][identity]") {
  ManualClock clock;
  TenantUseBook uses(kTenantIndexMax);
  TenantDirectory directory(&clock, &uses);
  // Held by a request long after its tenant has left the file.
  const TenantRef held = directory.Update(File({"held"})).value()[0];
  int name = 0;
  for (int reading = 0; reading < 12; ++reading) {
    std::vector<std::string> names;
    for (size_t i = 0; i < kTenantsMax; ++i) names.push_back(absl::StrCat("t", name++));
    std::set<uint32_t> indexes = {0, held->index};
    const std::vector<TenantRef> tenants = directory.Update(File(names)).value();
    for (const TenantRef& tenant : tenants) {
      CHECK(tenant->index < kTenantIndexMax);
      indexes.insert(tenant->index);
    }
    CHECK(indexes.size() == kTenantsMax + 2);
  }
  // With every index in use a reading is refused, and the ones before stay good.
  std::vector<std::vector<TenantRef>> holders;
  absl::Status refused;
  for (int reading = 0; reading < 4 && refused.ok(); ++reading) {
    std::vector<std::string> names;
    for (size_t i = 0; i < kTenantsMax; ++i) names.push_back(absl::StrCat("t", name++));
    auto tenants = directory.Update(File(names));
    refused = tenants.status();
    if (tenants.ok()) holders.push_back(*std::move(tenants));
  }
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  holders.clear();
  CHECK(directory.Update(File({"new"})).ok());
}

}  // namespace
}  // namespace weft::router
