// MaskedSteps against a plain model of what has to be: each masked row of a step that is not given
// up gets exactly one mask, none before the token it depends on, and parts are of steps that were
// sent.

#include "router/engine/masked_steps.h"

#include <catch2/catch.hpp>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/limits.h"
#include "router/engine/mask_row.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

// A mask of one id, by which a test knows it again.
std::string RowOf(Slot slot, TokenId id) {
  wire::MaskRowsRequest request;
  wire::RowMask* row = request.add_rows();
  row->set_slot(slot);
  row->mutable_only()->add_ids(id);
  return request.SerializeAsString();
}

wire::MaskRowsRequest Parsed(const MaskedSteps::Part& part) {
  wire::MaskRowsRequest request;
  REQUIRE(request.ParseFromString(part.request));
  CHECK(request.step() == part.step);
  return request;
}

TEST_CASE("A step's masks are sent together once all are there", "[router][engine][masks]") {
  MaskedSteps steps;
  steps.Reset(7);
  CHECK(steps.Add(1, 0, 100));
  CHECK(steps.Add(1, 1, 101));
  steps.Made(1, {100}, RowOf(0, 10));
  steps.Sent(1);
  CHECK(steps.TakeReady().empty());
  steps.Made(1, {101}, RowOf(1, 11));
  const auto parts = steps.TakeReady();
  REQUIRE(parts.size() == 1);
  const wire::MaskRowsRequest request = Parsed(parts[0]);
  CHECK(request.epoch() == 7);
  REQUIRE(request.rows_size() == 2);
  CHECK(request.rows(0).slot() == 0);
  CHECK(request.rows(1).only().ids(0) == 11);
  CHECK(steps.TakeReady().empty());
}

TEST_CASE("A row waits for the token of the row before it", "[router][engine][masks]") {
  MaskedSteps steps;
  steps.Reset(1);
  CHECK(steps.Add(1, 0, 100));
  steps.Sent(1);
  CHECK_FALSE(steps.Add(2, 0, 100));
  CHECK(steps.Add(2, 1, 101));
  steps.Sent(2);
  steps.Made(1, {100}, RowOf(0, 1));
  REQUIRE(steps.TakeReady().size() == 1);
  steps.Made(2, {101}, RowOf(1, 2));
  CHECK(steps.TakeReady().empty());
  steps.Answered(1);
  const auto next = steps.TakeNext(100);
  REQUIRE(next.has_value());
  CHECK(next->step == 2);
  CHECK(next->slot == 0);
  CHECK_FALSE(steps.TakeNext(100).has_value());
  CHECK_FALSE(steps.TakeNext(101).has_value());
  steps.Made(2, {100}, RowOf(0, 3));
  CHECK(steps.TakeReady().size() == 1);
  CHECK(steps.rows() == 2);
  steps.Answered(2);
  CHECK(steps.rows() == 0);
}

TEST_CASE("The row of a sequence that has ended is free", "[router][engine][masks]") {
  MaskedSteps steps;
  steps.Reset(1);
  steps.Add(1, 0, 100);
  steps.Sent(1);
  steps.Add(2, 0, 100);
  steps.Sent(2);
  // What is being worked out still comes; what waits for a token needs none.
  steps.Free(100);
  auto parts = steps.TakeReady();
  REQUIRE(parts.size() == 1);
  CHECK(Parsed(parts[0]).step() == 2);
  CHECK(Parsed(parts[0]).rows(0).has_all_but());
  steps.Free(100);
  CHECK(steps.TakeReady().empty());
  steps.Made(1, {100}, RowOf(0, 5));
  parts = steps.TakeReady();
  REQUIRE(parts.size() == 1);
  CHECK(Parsed(parts[0]).rows(0).has_only());
  steps.Answered(1);
  CHECK_FALSE(steps.TakeNext(100).has_value());
}

TEST_CASE("Masks of a step that is no more are dropped", "[router][engine][masks]") {
  MaskedSteps steps;
  steps.Reset(1);
  steps.Add(1, 0, 100);
  steps.Sent(1);
  SECTION("it was answered all the same") { steps.Answered(1); }
  SECTION("its epoch is over") {
    steps.Reset(2);
    CHECK(steps.rows() == 0);
    CHECK_FALSE(steps.TakeNext(100).has_value());
  }
  steps.Made(1, {100}, RowOf(0, 5));
  CHECK(steps.TakeReady().empty());
}

TEST_CASE("A message has no more masks than it may hold", "[router][engine][masks]") {
  MaskedSteps steps;
  steps.Reset(1);
  constexpr uint32_t kVocab = 1 << 20;
  const std::vector<uint32_t> words((kVocab + 31) / 32, 0x55555555);
  std::set<Slot> slots;
  size_t sent = 0;
  for (Slot slot = 0; slot < 100; ++slot) steps.Add(1, slot, slot + 1);
  steps.Sent(1);
  for (Slot slot = 0; slot < 100; ++slot) {
    std::string row;
    REQUIRE(AppendMaskRow(slot, words, kVocab, &row));
    steps.Made(1, {slot + 1}, std::move(row));
    for (const MaskedSteps::Part& part : steps.TakeReady()) {
      ++sent;
      CHECK(part.request.size() <= kShardMessageBytesMax / 2);
      const wire::MaskRowsRequest request = Parsed(part);
      for (const wire::RowMask& one : request.rows()) CHECK(slots.insert(one.slot()).second);
    }
  }
  CHECK(slots.size() == 100);
  CHECK(sent > 2);
}

// The sequences of a random run, each in one slot for ever, two steps in flight at most; what each
// part may hold and when.
class RandomRun {
 public:
  explicit RandomRun(uint32_t seed) : random_(seed) { Begin(); }

  void Act() {
    const uint32_t what = random_() % 100;
    if (what < 35 && sent_ - answered_ < 2) return Send();
    if (what < 60) return AnswerOldest();
    if (what < 90) return MakeSome();
    if (what < 98) return End(random_() % kSequences);
    Begin();
  }
  // Everything comes: no row is left without its mask.
  void Finish() {
    while (answered_ < sent_) {
      while (!jobs_.empty()) MakeSome();
      const StepNumber before = answered_;
      AnswerOldest();
      REQUIRE(answered_ == before + 1);
    }
    CHECK(steps_.rows() == 0);
  }

 private:
  static constexpr uint32_t kSequences = 5;
  using Row = std::pair<StepNumber, SequenceId>;

  void Begin() {
    steps_.Reset(++epoch_);
    sent_ = answered_ = 0;
    // What was asked for in the old epoch comes no more: the loop drops it unread.
    jobs_.clear();
    waiting_.clear();
    wanted_.clear();
    free_.clear();
    had_.clear();
    for (uint32_t i = 0; i < kSequences; ++i) ended_[i] = false;
  }

  void Send() {
    ++sent_;
    for (uint32_t i = 0; i < kSequences; ++i) {
      if (ended_[i] || random_() % 3 == 0) continue;
      const bool alone = !wanted_.contains({sent_ - 1, i}) || answered_ >= sent_ - 1;
      CHECK(steps_.Add(sent_, i, i) == alone);
      (alone ? jobs_ : waiting_).insert({sent_, i});
      wanted_.insert({sent_, i});
    }
    steps_.Sent(sent_);
    Take();
  }

  void AnswerOldest() {
    if (answered_ == sent_) return;
    for (const Row& row : wanted_) {
      if (row.first == answered_ + 1 && !had_.contains(row)) return;  // shards wait for it
    }
    ++answered_;
    // A sequence may end with this token.
    std::vector<SequenceId> went_on;
    for (uint32_t i = 0; i < kSequences; ++i) {
      if (!wanted_.contains({answered_, i})) continue;
      if (!ended_[i] && random_() % 10 == 0) End(i);
      went_on.push_back(i);
    }
    steps_.Answered(answered_);
    for (const SequenceId sequence : went_on) {
      const auto row = steps_.TakeNext(sequence);
      const bool waits = waiting_.contains({answered_ + 1, sequence});
      REQUIRE(row.has_value() == waits);
      if (!waits) continue;
      CHECK(row->step == answered_ + 1);
      CHECK(row->slot == sequence);
      waiting_.erase({row->step, sequence});
      jobs_.insert({row->step, sequence});
    }
    Take();
  }

  void MakeSome() {
    if (jobs_.empty()) return;
    const StepNumber step = std::next(jobs_.begin(), random_() % jobs_.size())->first;
    std::vector<SequenceId> sequences;
    std::string rows;
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      if (job->first == step && (sequences.empty() || random_() % 2 == 0)) {
        sequences.push_back(job->second);
        rows += RowOf(static_cast<Slot>(job->second), static_cast<TokenId>(step));
        job = jobs_.erase(job);
      } else {
        ++job;
      }
    }
    steps_.Made(step, sequences, std::move(rows));
    Take();
  }

  void End(SequenceId sequence) {
    ended_[sequence] = true;
    steps_.Free(sequence);
    for (StepNumber step = answered_ + 1; step <= sent_; ++step) {
      if (waiting_.erase({step, sequence}) > 0) free_.insert({step, sequence});
    }
    Take();
  }

  void Take() {
    for (const MaskedSteps::Part& part : steps_.TakeReady()) {
      const wire::MaskRowsRequest request = Parsed(part);
      CHECK(request.epoch() == epoch_);
      CHECK(request.step() <= sent_);
      REQUIRE(request.step() > answered_);
      for (const wire::RowMask& row : request.rows()) {
        const Row is{request.step(), row.slot()};
        CHECK(wanted_.contains(is));
        CHECK(had_.insert(is).second);
        CHECK_FALSE(jobs_.contains(is));
        CHECK_FALSE(waiting_.contains(is));
        CHECK(row.has_all_but() == (free_.erase(is) > 0));
        if (row.has_only()) CHECK(row.only().ids(0) == request.step());
      }
    }
  }

  std::mt19937 random_;
  MaskedSteps steps_;
  Epoch epoch_ = 0;
  StepNumber sent_ = 0;
  StepNumber answered_ = 0;
  bool ended_[kSequences] = {};
  // Masked rows in flight; of these: being worked out, waiting for a token, free; those that were
  // sent.
  std::set<Row> wanted_;
  std::set<Row> jobs_;
  std::set<Row> waiting_;
  std::set<Row> free_;
  std::set<Row> had_;
};

TEST_CASE("Each masked row has exactly one mask, in any order of events",
          "[router][engine][masks]") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    RandomRun run(seed);
    for (int i = 0; i < 200; ++i) run.Act();
    run.Finish();
  }
}

}  // namespace
}  // namespace weft::router
