#include "router/scheduler/prefix_hash.h"

#include <bit>

namespace weft::router {
namespace {

class SipState {
 public:
  explicit SipState(const uint64_t key[2])
      : v0_(key[0] ^ 0x736f6d6570736575u),
        v1_(key[1] ^ 0x646f72616e646f6du ^ 0xee),
        v2_(key[0] ^ 0x6c7967656e657261u),
        v3_(key[1] ^ 0x7465646279746573u) {}

  void Absorb(uint64_t word) {
    v3_ ^= word;
    Rounds(2);
    v0_ ^= word;
  }

  BlockHash Finish() {
    BlockHash hash;
    v2_ ^= 0xee;
    Rounds(4);
    hash.low = v0_ ^ v1_ ^ v2_ ^ v3_;
    v1_ ^= 0xdd;
    Rounds(4);
    hash.high = v0_ ^ v1_ ^ v2_ ^ v3_;
    return hash;
  }

 private:
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0_ += v1_;
      v1_ = std::rotl(v1_, 13) ^ v0_;
      v0_ = std::rotl(v0_, 32);
      v2_ += v3_;
      v3_ = std::rotl(v3_, 16) ^ v2_;
      v0_ += v3_;
      v3_ = std::rotl(v3_, 21) ^ v0_;
      v2_ += v1_;
      v1_ = std::rotl(v1_, 17) ^ v2_;
      v2_ = std::rotl(v2_, 32);
    }
  }

  uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace

BlockHash HashBlock(const uint64_t key[2], const BlockHash& parent, absl::Span<const TokenId> ids) {
  SipState state(key);
  state.Absorb(parent.low);
  state.Absorb(parent.high);
  size_t i = 0;
  for (; i + 2 <= ids.size(); i += 2) {
    state.Absorb(ids[i] | uint64_t{ids[i + 1]} << 32);
  }
  const uint64_t length_bytes = 16 + 4 * ids.size();
  state.Absorb(length_bytes << 56 | (i < ids.size() ? ids[i] : 0));
  return state.Finish();
}

}  // namespace weft::router
