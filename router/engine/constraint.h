// What decides which tokens an answer may go on with: a grammar, a list of allowed ids, words that
// must not appear. Text in makes it (TokenConstraint is what the engine wants of it); the engine
// loop notes the tokens of the answer and mask workers ask what may follow. The loop never waits
// for a worker.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/errors.h"

namespace weft::router {

// Not thread-safe: one caller at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // The answer goes on with `id`. An error ends its request: it is one that was not allowed.
  virtual absl::Status Consume(TokenId id) = 0;
  // Sets bit id % 32 of words[id / 32] for each id that may come next, and clears all others; the
  // words are as many as the vocabulary takes. An error ends the request.
  virtual absl::Status Allow(absl::Span<uint32_t> words) = 0;
};

// A constraint with the tokens that it has not looked at yet.
class ConstrainedLog {
 public:
  // `fields` are those of the request that `constraint` comes from, at least one.
  ConstrainedLog(std::unique_ptr<TokenConstraint> constraint, std::vector<std::string> fields)
      : constraint_(std::move(constraint)), fields_(std::move(fields)) {}

  // A token of the answer; never waits for NextMask. Engine loop's thread.
  void Append(TokenId id) {
    const std::lock_guard<std::mutex> lock(tokens_mutex_);
    tokens_.push_back(id);
  }
  // What may follow the tokens so far. Any thread; of several calls one runs at a time.
  absl::Status NextMask(absl::Span<uint32_t> words) {
    const std::lock_guard<std::mutex> work(work_mutex_);
    std::vector<TokenId> tokens;
    {
      const std::lock_guard<std::mutex> lock(tokens_mutex_);
      tokens.swap(tokens_);
    }
    for (const TokenId id : tokens) {
      if (failure_.ok()) failure_ = constraint_->Consume(id);
    }
    return failure_.ok() ? constraint_->Allow(words) : failure_;
  }
  // The error of a request that NextMask left nothing. Any thread.
  absl::Status NothingLeft() const { return FieldsError(fields_, "no token may come next"); }

 private:
  std::mutex work_mutex_;
  const std::unique_ptr<TokenConstraint> constraint_;
  const std::vector<std::string> fields_;
  absl::Status failure_;
  std::mutex tokens_mutex_;
  std::vector<TokenId> tokens_;
};

}  // namespace weft::router
