#include "router/text/constraints/watermark.h"

namespace weft::router {
namespace {

class GreenList final : public TokenConstraint {
 public:
  explicit GreenList(TokenId before) : before_(before) {}

  absl::Status Consume(TokenId id) override {
    before_ = id;
    return absl::OkStatus();
  }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    for (size_t i = 0; i < words.size(); ++i) {
      const uint64_t bits = GreenBits(before_, static_cast<uint32_t>(i / 2));
      words[i] = static_cast<uint32_t>(i % 2 == 0 ? bits : bits >> 32);
    }
    return absl::OkStatus();
  }

 private:
  TokenId before_;
};

}  // namespace

std::unique_ptr<TokenConstraint> PreferGreen(TokenId last_of_prompt) {
  return std::make_unique<GreenList>(last_of_prompt);
}

}  // namespace weft::router
