// The masks of one step: early and late ones, those that nobody expects, and how a wait ends.

#include "shard/step_masks.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace weft::shard {
namespace {

constexpr uint32_t kRowsMax = 4;
constexpr std::chrono::hours kLong(1);

RowMask Mask(uint32_t word) { return RowMask{{word}}; }

TEST_CASE("A step has its masks once each of its rows has one", "[shard][masks]") {
  StepMasks masks(nullptr, kLong);
  REQUIRE(masks.Put(2, Mask(2), kRowsMax).ok());
  CHECK_FALSE(masks.Settled());
  REQUIRE(masks.Expect({1, 2, 3}).ok());
  CHECK_FALSE(masks.Settled());
  REQUIRE(masks.Put(3, Mask(3), kRowsMax).ok());
  CHECK_FALSE(masks.Settled());
  std::thread last([&] { CHECK(masks.Put(1, RowMask(), kRowsMax).ok()); });
  CHECK(masks.Wait().ok());
  last.join();
  CHECK(masks.Settled());
  CHECK(masks.Of(1).words.empty());
  CHECK(masks.Of(2).words == std::vector<uint32_t>{2});
  CHECK(masks.Of(3).words == std::vector<uint32_t>{3});
}

TEST_CASE("Masks that are all early are there as soon as the step is", "[shard][masks]") {
  StepMasks masks(nullptr, kLong);
  REQUIRE(masks.Put(0, Mask(1), kRowsMax).ok());
  // Nobody knows yet whether more rows want one.
  CHECK_FALSE(masks.Settled());
  REQUIRE(masks.Expect({0}).ok());
  CHECK(masks.Settled());
  CHECK(masks.Wait().ok());
}

TEST_CASE("A step whose rows expect no mask waits for none", "[shard][masks]") {
  StepMasks masks(nullptr, kLong);
  REQUIRE(masks.Expect({}).ok());
  CHECK(masks.Wait().ok());
  CHECK(absl::IsInvalidArgument(masks.Put(0, Mask(1), kRowsMax)));
}

TEST_CASE("A second mask of a row is refused, and the first one stays", "[shard][masks]") {
  StepMasks masks(nullptr, kLong);
  REQUIRE(masks.Put(0, Mask(1), kRowsMax).ok());
  CHECK(absl::IsAlreadyExists(masks.Put(0, Mask(2), kRowsMax)));
  REQUIRE(masks.Expect({0, 1}).ok());
  CHECK(absl::IsAlreadyExists(masks.Put(0, Mask(2), kRowsMax)));
  // It has not been counted as that of the other row.
  CHECK_FALSE(masks.Settled());
  REQUIRE(masks.Put(1, Mask(4), kRowsMax).ok());
  CHECK(absl::IsAlreadyExists(masks.Put(1, Mask(2), kRowsMax)));
  CHECK(masks.Of(0).words == std::vector<uint32_t>{1});
  CHECK(masks.Of(1).words == std::vector<uint32_t>{4});
}

TEST_CASE("A mask of a slot that samples no masked row is refused, early or late",
          "[shard][masks]") {
  StepMasks late(nullptr, kLong);
  REQUIRE(late.Expect({0}).ok());
  const absl::Status refused = late.Put(3, Mask(1), kRowsMax);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("rows: slot 3"));
  CHECK_FALSE(late.Settled());
  StepMasks early(nullptr, kLong);
  REQUIRE(early.Put(3, Mask(1), kRowsMax).ok());
  REQUIRE(early.Put(0, Mask(1), kRowsMax).ok());
  CHECK(absl::IsInvalidArgument(early.Expect({0})));
}

TEST_CASE("Early masks are bounded", "[shard][masks]") {
  StepMasks masks(nullptr, kLong);
  for (Slot slot = 0; slot < kRowsMax; ++slot) REQUIRE(masks.Put(slot, Mask(1), kRowsMax).ok());
  CHECK(absl::IsResourceExhausted(masks.Put(kRowsMax, Mask(1), kRowsMax)));
  CHECK(masks.Expect({0, 1, 2, 3}).ok());
}

TEST_CASE("Abort ends a wait for masks, before and after it begins", "[shard][masks]") {
  StepMasks masks(nullptr, kLong);
  REQUIRE(masks.Expect({0}).ok());
  std::thread aborter([&] { masks.Abort(); });
  CHECK(absl::IsAborted(masks.Wait()));
  aborter.join();
  CHECK(masks.Settled());
  CHECK(absl::IsAborted(masks.Wait()));
  // Also where the masks come all the same, and where nothing was expected yet.
  REQUIRE(masks.Put(0, Mask(1), kRowsMax).ok());
  CHECK(absl::IsAborted(masks.Wait()));
  StepMasks before(nullptr, kLong);
  before.Abort();
  REQUIRE(before.Expect({0}).ok());
  CHECK(absl::IsAborted(before.Wait()));
}

TEST_CASE("Masks that do not come in time end the wait", "[shard][masks]") {
  StepMasks masks(nullptr, std::chrono::milliseconds(5));
  REQUIRE(masks.Put(1, Mask(1), kRowsMax).ok());
  // Without a step nothing is late.
  CHECK_FALSE(masks.Settled());
  REQUIRE(masks.Expect({0, 1, 2}).ok());
  const absl::Status late = masks.Wait();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(late.message() == "2 masks of the step have not come");
  CHECK(masks.Settled());
}

TEST_CASE("A device that waits for masks shows life", "[shard][masks]") {
  ManualClock clock(1'000'000);
  Heartbeat heartbeat(clock);
  StepMasks masks(&heartbeat, kLong);
  REQUIRE(masks.Expect({0}).ok());
  clock.AdvanceUs(400'000);
  CHECK(heartbeat.age_us() == 400'000);
  std::thread waiter([&] { CHECK(masks.Wait().ok()); });
  const int64_t begin_us = MonotonicClock().NowUs();
  while (heartbeat.age_us() != 0 && MonotonicClock().NowUs() - begin_us < 10'000'000) {
    std::this_thread::yield();
  }
  CHECK(heartbeat.age_us() == 0);
  CHECK(masks.Put(0, Mask(1), kRowsMax).ok());
  waiter.join();
}

}  // namespace
}  // namespace weft::shard
