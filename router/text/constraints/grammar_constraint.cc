#include "router/text/constraints/grammar_constraint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "router/errors.h"

namespace weft::router {
namespace {

class Grammar final : public TokenConstraint {
 public:
  Grammar(std::unique_ptr<GrammarMatcher> matcher, std::string field)
      : matcher_(std::move(matcher)), field_(std::move(field)) {}

  absl::Status Consume(TokenId id) override {
    const absl::StatusOr<bool> allowed = matcher_->Consume(id);
    if (!allowed.ok()) return Named(allowed.status());
    if (*allowed) return absl::OkStatus();
    // Sampled under a mask it cannot be; of a resumed answer it may.
    return FieldError(field_, absl::StrCat("token ", id, " at position ", matcher_->size(),
                                           " of the answer does not fit it"));
  }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    return Named(matcher_->ComputeMask(words));
  }

 private:
  // What goes beyond the limits here is the grammar's fault, not the server's load.
  absl::Status Named(const absl::Status& status) const {
    if (!absl::IsResourceExhausted(status)) return status;
    return FieldError(field_, absl::StrCat("is too complex: ", status.message()));
  }

  const std::unique_ptr<GrammarMatcher> matcher_;
  const std::string field_;
};

}  // namespace

std::unique_ptr<TokenConstraint> FollowGrammar(std::unique_ptr<GrammarMatcher> matcher,
                                               std::string field) {
  return std::make_unique<Grammar>(std::move(matcher), std::move(field));
}

}  // namespace weft::router
