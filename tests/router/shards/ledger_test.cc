#include "router/shards/ledger.h"

#include <catch2/catch.hpp>

namespace weft::router {
namespace {

StepAnswer Answer(StepNumber step, std::initializer_list<uint32_t> ids, bool from_rank_0,
                  Epoch epoch = 3) {
  StepAnswer answer;
  answer.response.set_epoch(epoch);
  answer.response.set_step(step);
  for (uint32_t id : ids) answer.response.add_ids(id);
  answer.response.set_ids_hash(HashIds(answer.response.ids()));
  if (!from_rank_0) answer.response.clear_ids();
  return answer;
}

TEST_CASE("HashIds is FNV-1a of the little-endian bytes", "[router][shards]") {
  google::protobuf::RepeatedField<uint32_t> ids;
  CHECK(HashIds(ids) == 0x811C9DC5u);
  ids.Add(0x64636261);  // "abcd"
  CHECK(HashIds(ids) == 0xCE3479BDu);
}

TEST_CASE("The ledger gives rank 0's answers in step order", "[router][shards]") {
  StepLedger ledger;
  ledger.Reset(3, 2);
  ledger.Sent(1, 10);
  ledger.Sent(2, 20);
  CHECK(ledger.OwesSinceUs(0) == 10);
  REQUIRE(ledger.Answered(0, Answer(2, {7}, true)).ok());
  CHECK(!ledger.TakeNext().has_value());
  REQUIRE(ledger.Answered(0, Answer(1, {5}, true)).ok());
  CHECK(ledger.OwesSinceUs(0) == 0);
  CHECK(ledger.OwesSinceUs(1) == 10);
  CHECK(ledger.TakeNext()->response.step() == 1);
  CHECK(ledger.TakeNext()->response.step() == 2);
  CHECK(!ledger.TakeNext().has_value());
  REQUIRE(ledger.Answered(1, Answer(1, {5}, false)).ok());
  REQUIRE(ledger.Answered(1, Answer(2, {7}, false)).ok());
  CHECK(ledger.in_flight() == 0);
}

TEST_CASE("The ledger holds answers back while a rank is more than two steps behind",
          "[router][shards]") {
  StepLedger ledger;
  ledger.Reset(3, 2);
  for (StepNumber step = 1; step <= 3; ++step) {
    ledger.Sent(step, 0);
    REQUIRE(ledger.Answered(0, Answer(step, {1}, true)).ok());
  }
  CHECK(ledger.TakeNext()->response.step() == 1);
  CHECK(ledger.TakeNext()->response.step() == 2);
  CHECK(!ledger.TakeNext().has_value());
  REQUIRE(ledger.Answered(1, Answer(1, {1}, false)).ok());
  CHECK(ledger.TakeNext()->response.step() == 3);
}

TEST_CASE("The ledger refuses answers that cannot be", "[router][shards]") {
  StepLedger ledger;
  ledger.Reset(3, 2);
  ledger.Sent(1, 0);
  CHECK(!ledger.Answered(0, Answer(1, {1}, true, 2)).ok());
  CHECK(!ledger.Answered(0, Answer(2, {1}, true)).ok());
  StepAnswer wrong = Answer(1, {1}, true);
  wrong.response.set_ids_hash(5);
  CHECK(!ledger.Answered(0, wrong).ok());
  REQUIRE(ledger.Answered(0, Answer(1, {1}, true)).ok());
  CHECK(!ledger.Answered(0, Answer(1, {1}, true)).ok());
  CHECK(!ledger.Answered(1, Answer(1, {2}, false)).ok());
}

}  // namespace
}  // namespace weft::router
