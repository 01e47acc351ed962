// The threads that work masks out, and the log that a constraint reads: every row is heard of once,
// in however many pieces, and one that fails costs nobody else.

#include "router/engine/mask_maker.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/executor.h"
#include "common/limits.h"
#include "router/errors.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr uint32_t kVocab = 40;

// Allows the id after the last one; calls `before` first.
class NextId final : public TokenConstraint {
 public:
  NextId(TokenId first, std::function<absl::Status()> before)
      : next_(first), before_(std::move(before)) {}
  absl::Status Consume(TokenId id) override {
    consumed.push_back(id);
    if (id == 13) return absl::InvalidArgumentError("13 is not allowed");
    next_ = id + 1;
    return absl::OkStatus();
  }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    if (before_) {
      if (absl::Status status = before_(); !status.ok()) return status;
    }
    std::fill(words.begin(), words.end(), 0);
    words[next_ / 32] |= 1u << (next_ % 32);
    return absl::OkStatus();
  }
  std::vector<TokenId> consumed;

 private:
  TokenId next_;
  const std::function<absl::Status()> before_;
};

std::shared_ptr<ConstrainedLog> LogOf(TokenId first, std::function<absl::Status()> before = {}) {
  return std::make_shared<ConstrainedLog>(std::make_unique<NextId>(first, std::move(before)),
                                          std::vector<std::string>{"a", "b"});
}

// Everything that was made, until there are so many rows.
class Made {
 public:
  MaskMaker::Done Sink() {
    return [this](MadeMasks made) {
      absl::MutexLock lock(&mutex_);
      rows_ += made.sequences.size();
      parts_.push_back(std::move(made));
    };
  }
  std::vector<MadeMasks> Await(size_t rows) {
    absl::MutexLock lock(&mutex_);
    const auto all = [&] { return rows_ >= rows; };
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(60)));
    return parts_;
  }
  size_t rows() {
    absl::MutexLock lock(&mutex_);
    return rows_;
  }

 private:
  absl::Mutex mutex_;
  size_t rows_ = 0;
  std::vector<MadeMasks> parts_;
};

std::map<Slot, wire::RowMask> RowsOf(const std::vector<MadeMasks>& parts) {
  std::map<Slot, wire::RowMask> rows;
  for (const MadeMasks& part : parts) {
    wire::MaskRowsRequest request;
    REQUIRE(request.ParseFromString(part.rows));
    CHECK(static_cast<size_t>(request.rows_size()) == part.sequences.size());
    for (const wire::RowMask& row : request.rows()) CHECK(rows.emplace(row.slot(), row).second);
  }
  return rows;
}

TEST_CASE("All rows of a step are worked out, in a few pieces", "[router][engine][masks]") {
  MaskMaker maker(3, &ThreadExecutor());
  for (const size_t count : {1u, 4u, 7u, 8u, 9u, 100u}) {
    Made made;
    std::vector<MaskJob> jobs;
    for (Slot slot = 0; slot < count; ++slot) {
      jobs.push_back({slot, slot + 1000, LogOf(slot % kVocab)});
    }
    maker.Make(3, count, kVocab, std::move(jobs), made.Sink());
    const std::vector<MadeMasks> parts = made.Await(count);
    CHECK(parts.size() == std::min<size_t>(std::max<size_t>(count / 2, 1), 3));
    std::vector<SequenceId> sequences;
    for (const MadeMasks& part : parts) {
      CHECK(part.epoch == 3);
      CHECK(part.step == count);
      CHECK(part.failures.empty());
      sequences.insert(sequences.end(), part.sequences.begin(), part.sequences.end());
    }
    std::sort(sequences.begin(), sequences.end());
    REQUIRE(sequences.size() == count);
    for (size_t i = 0; i < count; ++i) CHECK(sequences[i] == i + 1000);
    const auto rows = RowsOf(parts);
    REQUIRE(rows.size() == count);
    for (const auto& [slot, row] : rows) CHECK(row.only().ids(0) == slot % kVocab);
  }
}

// Every second id of any vocabulary.
class EvenIds final : public TokenConstraint {
 public:
  absl::Status Consume(TokenId) override { return absl::OkStatus(); }
  absl::Status Allow(absl::Span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0x55555555u);
    return absl::OkStatus();
  }
};

TEST_CASE("Long masks are handed on before they are too long for a message",
          "[router][engine][masks]") {
  MaskMaker maker(1, &ThreadExecutor());
  Made made;
  std::vector<MaskJob> jobs;
  for (Slot slot = 0; slot < 200; ++slot) {
    jobs.push_back({slot, slot + 1,
                    std::make_shared<ConstrainedLog>(std::make_unique<EvenIds>(),
                                                     std::vector<std::string>{"a"})});
  }
  constexpr uint32_t kLargeVocab = 1 << 20;
  maker.Make(1, 1, kLargeVocab, std::move(jobs), made.Sink());
  const std::vector<MadeMasks> parts = made.Await(200);
  for (const MadeMasks& part : parts) {
    CHECK(part.epoch == 1);
    CHECK(part.step == 1);
    CHECK(part.rows.size() < kShardMessageBytesMax / 8);
  }
  CHECK(RowsOf(parts).size() == 200);
}

TEST_CASE("A constraint that fails frees its row and no other", "[router][engine][masks]") {
  MaskMaker maker(1, &ThreadExecutor());
  Made made;
  const auto refused = LogOf(0);
  refused->Append(13);
  std::vector<MaskJob> jobs;
  jobs.push_back({0, 1, LogOf(4)});
  jobs.push_back({1, 2, LogOf(4, [] { return absl::InternalError("it broke"); })});
  jobs.push_back({2, 3, refused});
  jobs.push_back({3, 4, LogOf(kVocab)});  // beyond the vocabulary: nothing may come
  jobs.push_back({4, 5, LogOf(5)});
  maker.Make(1, 1, kVocab, std::move(jobs), made.Sink());
  const std::vector<MadeMasks> parts = made.Await(5);
  REQUIRE(parts.size() == 1);
  const auto rows = RowsOf(parts);
  CHECK(rows.at(0).only().ids(0) == 4);
  CHECK(rows.at(4).only().ids(0) == 5);
  for (const Slot slot : {1u, 2u, 3u}) {
    CHECK(rows.at(slot).has_all_but());
    CHECK(rows.at(slot).all_but().ids().empty());
  }
  REQUIRE(parts[0].failures.size() == 3);
  CHECK(parts[0].failures[0].first == 2);
  CHECK(parts[0].failures[0].second == absl::InternalError("it broke"));
  CHECK(parts[0].failures[1].first == 3);
  CHECK(absl::IsInvalidArgument(parts[0].failures[1].second));
  CHECK(parts[0].failures[2].first == 4);
  CHECK(parts[0].failures[2].second ==
        FieldsError(std::vector<std::string>{"a", "b"}, "no token may come next"));
}

TEST_CASE("Work that finds no room fails at once", "[router][engine][masks]") {
  MaskMaker maker(1, &ThreadExecutor());
  absl::Notification begun;
  absl::Notification go_on;
  Made held;
  maker.Make(1, 1, kVocab,
             {{0, 1,
               LogOf(1,
                     [&] {
                       begun.Notify();
                       go_on.WaitForNotification();
                       return absl::OkStatus();
                     })}},
             held.Sink());
  begun.WaitForNotification();
  Made made;
  // Until the queue is full: then the answer comes before Make returns.
  constexpr size_t kMost = 100'000;
  size_t asked = 0;
  while (made.rows() == 0 && asked < kMost) {
    ++asked;
    maker.Make(1, 2, kVocab, {{7, asked, LogOf(1)}}, made.Sink());
  }
  REQUIRE(asked < kMost);
  const std::vector<MadeMasks> parts = made.Await(1);
  REQUIRE(parts.size() == 1);
  REQUIRE(parts[0].failures.size() == 1);
  CHECK(parts[0].sequences == std::vector<SequenceId>{asked});
  CHECK(parts[0].failures[0].first == asked);
  CHECK(absl::IsResourceExhausted(parts[0].failures[0].second));
  CHECK(RowsOf(parts).at(7).has_all_but());
  // What had room is made.
  go_on.Notify();
  for (const MadeMasks& part : made.Await(asked)) {
    CHECK(part.failures.empty() == (part.sequences[0] != asked));
  }
  held.Await(1);
}

TEST_CASE("After Stop nothing is made", "[router][engine][masks]") {
  MaskMaker maker(2, &ThreadExecutor());
  Made made;
  maker.Make(1, 1, kVocab, {{0, 1, LogOf(1)}}, made.Sink());
  made.Await(1);
  maker.Stop();
  maker.Make(1, 2, kVocab, {{0, 1, LogOf(1)}}, made.Sink());
  maker.Stop();
  CHECK(made.rows() == 1);
}

TEST_CASE("A log hands each token to its constraint once, in order", "[router][engine][masks]") {
  auto owned = std::make_unique<NextId>(0, nullptr);
  const NextId& constraint = *owned;
  ConstrainedLog log(std::move(owned), {"a"});
  std::vector<uint32_t> words(2);
  log.Append(3);
  log.Append(5);
  CHECK(constraint.consumed.empty());
  REQUIRE(log.NextMask(absl::MakeSpan(words)).ok());
  CHECK(words[0] == 1u << 6);
  CHECK(constraint.consumed == std::vector<TokenId>{3, 5});
  REQUIRE(log.NextMask(absl::MakeSpan(words)).ok());
  CHECK(constraint.consumed == std::vector<TokenId>{3, 5});
  log.Append(32);
  REQUIRE(log.NextMask(absl::MakeSpan(words)).ok());
  CHECK(words == std::vector<uint32_t>{0, 2});
  CHECK(constraint.consumed == std::vector<TokenId>{3, 5, 32});
}

TEST_CASE("A log that has failed stays failed and asks no more", "[router][engine][masks]") {
  auto owned = std::make_unique<NextId>(0, nullptr);
  const NextId& constraint = *owned;
  ConstrainedLog log(std::move(owned), {"a"});
  std::vector<uint32_t> words(2);
  for (const TokenId id : {1u, 13u, 2u}) log.Append(id);
  const absl::Status failed = log.NextMask(absl::MakeSpan(words));
  CHECK(absl::IsInvalidArgument(failed));
  log.Append(4);
  CHECK(log.NextMask(absl::MakeSpan(words)) == failed);
  CHECK(constraint.consumed == std::vector<TokenId>{1, 13});
}

TEST_CASE("A token is noted while a mask is worked out", "[router][engine][masks]") {
  absl::Notification begun;
  absl::Notification go_on;
  const auto log = LogOf(1, [&] {
    if (!begun.HasBeenNotified()) begun.Notify();
    go_on.WaitForNotification();
    return absl::OkStatus();
  });
  MaskMaker maker(1, &ThreadExecutor());
  Made made;
  maker.Make(1, 1, kVocab, {{0, 1, log}}, made.Sink());
  begun.WaitForNotification();
  log->Append(8);  // would never return if it waited
  go_on.Notify();
  CHECK(RowsOf(made.Await(1)).at(0).only().ids(0) == 1);
  std::vector<uint32_t> words(2);
  REQUIRE(log->NextMask(absl::MakeSpan(words)).ok());
  CHECK(words[0] == 1u << 9);
}

}  // namespace
}  // namespace weft::router
