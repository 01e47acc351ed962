// The fingerprint of a group: another one for each fact that tokens depend on, and the same one
// whatever else is different.

#include "router/engine/fingerprint.h"

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "router/request.h"

namespace weft::router {
namespace {

FormedGroup OneGroup() {
  FormedGroup group;
  group.epoch = 3;
  group.kv_blocks = 100;
  group.agreement.isa = "avx2";
  group.info.mutable_build()->set_version("1.2.3");
  group.info.mutable_build()->set_revision("abc");
  group.info.set_spec_hash(17);
  group.info.set_tokenizer_fingerprint(18);
  group.info.set_dtype(weft::v1::DATA_TYPE_BFLOAT16);
  group.info.set_kv_dtype(weft::v1::DATA_TYPE_FLOAT16);
  group.info.set_device("cpu");
  group.info.set_isa("avx512_bf16");
  group.info.set_world(2);
  group.info.set_deterministic(true);
  return group;
}

TEST_CASE("Each fact that tokens depend on gives another fingerprint", "[router][engine]") {
  const std::vector<std::function<void(FormedGroup&)>> changes = {
      [](FormedGroup&) {},
      [](FormedGroup& g) { g.agreement.isa = "portable"; },
      [](FormedGroup& g) { g.info.mutable_build()->set_version("1.2.4"); },
      [](FormedGroup& g) { g.info.mutable_build()->set_revision("abd"); },
      [](FormedGroup& g) { g.info.set_spec_hash(16); },
      [](FormedGroup& g) { g.info.set_tokenizer_fingerprint(17); },
      [](FormedGroup& g) { g.info.set_dtype(weft::v1::DATA_TYPE_FLOAT32); },
      [](FormedGroup& g) { g.info.set_kv_dtype(weft::v1::DATA_TYPE_FLOAT32); },
      [](FormedGroup& g) { g.info.set_device("NVIDIA H200"); },
      [](FormedGroup& g) { g.info.set_world(1); },
      [](FormedGroup& g) { g.info.set_deterministic(false); }};
  std::set<std::string> seen = {GroupFingerprint("another model", OneGroup())};
  for (const auto& change : changes) {
    FormedGroup group = OneGroup();
    change(group);
    const std::string fingerprint = GroupFingerprint("model", group);
    CHECK(absl::StartsWith(fingerprint, "weft-1.2."));
    CHECK(fingerprint.size() <= kFingerprintBytesMax);
    seen.insert(fingerprint);
  }
  CHECK(seen.size() == changes.size() + 1);
}

TEST_CASE("What tokens do not depend on leaves the fingerprint alone", "[router][engine]") {
  FormedGroup other = OneGroup();
  other.epoch = 4;
  other.kv_blocks = 7;
  other.agreement.running_max = 9;
  // What a rank would choose alone is not what the group runs.
  other.info.set_isa("avx2");
  other.info.set_pid(77);
  other.info.set_heartbeat_age_us(5);
  other.info.set_running_max(3);
  CHECK(GroupFingerprint("model", other) == GroupFingerprint("model", OneGroup()));
  other.info.mutable_build()->set_version(std::string(500, '9'));
  CHECK(GroupFingerprint("model", other).size() <= kFingerprintBytesMax);
}

}  // namespace
}  // namespace weft::router
