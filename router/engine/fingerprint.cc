#include "router/engine/fingerprint.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weft::router {
namespace {

// FNV-1a, 64 bits: the same everywhere and for ever, as names that clients keep must be.
uint64_t Hash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::string GroupFingerprint(absl::string_view model, const FormedGroup& group) {
  const weft::shard::v1::InfoResponse& info = group.info;
  const std::string& isa = group.agreement.isa.empty() ? info.isa() : group.agreement.isa;
  // One line each, so that two lists of facts never read alike.
  const std::string facts = absl::StrCat(
      model, "\n", info.build().version(), "\n", info.build().revision(), "\n", info.spec_hash(),
      "\n", info.tokenizer_fingerprint(), "\n", info.dtype(), "\n", info.kv_dtype(), "\n",
      info.device(), "\n", isa, "\n", info.world(), "\n", info.deterministic() ? 1 : 0, "\n");
  return absl::StrCat("weft-", absl::string_view(info.build().version()).substr(0, 64), "-",
                      absl::Hex(Hash(facts), absl::kZeroPad16));
}

}  // namespace weft::router
