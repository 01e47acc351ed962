// The masks of the steps that are not answered yet: which steps have some, and in which order steps
// and masks may come.

#include "shard/control/mask_window.h"

#include <catch2/catch.hpp>

namespace weft::shard {
namespace {

constexpr StepNumber kWindow = StepOrder::kWindow;

TEST_CASE("A step's masks are the same for all who ask, whoever is first", "[shard][masks]") {
  MaskWindow window;
  CHECK(window.Find(1) == nullptr);
  const auto first = window.Of(1, 1);
  REQUIRE(first.ok());
  CHECK(window.Find(1) == *first);
  CHECK(*window.Of(1, 1) == *first);
  const auto second = window.Of(2, 1);
  REQUIRE(second.ok());
  CHECK(*second != *first);
  CHECK(window.Find(1) == *first);
  CHECK(window.Find(2) == *second);
  // Any order.
  REQUIRE(window.Of(4, 1).ok());
  REQUIRE(window.Of(3, 1).ok());
  CHECK(window.Find(1) == *first);
}

TEST_CASE("Masks come for steps of the window alone", "[shard][masks]") {
  MaskWindow window;
  CHECK(absl::IsInvalidArgument(window.Of(0, 1).status()));
  CHECK(window.Of(kWindow, 1).ok());
  CHECK(absl::IsFailedPrecondition(window.Of(kWindow + 1, 1).status()));
  CHECK(absl::IsFailedPrecondition(window.Of(StepNumber{1} << 40, 1).status()));
  // One answer later there is room for one more.
  CHECK(window.Of(kWindow + 1, 2).ok());
  const absl::Status answered = window.Of(1, 2).status();
  CHECK(absl::IsAlreadyExists(answered));
  CHECK(answered.message() == "step: 1 has been answered");
}

TEST_CASE("A step in the place of an answered one has masks of its own", "[shard][masks]") {
  MaskWindow window;
  const auto old = window.Of(1, 1);
  REQUIRE(old.ok());
  REQUIRE((*old)->Put(0, RowMask{{1}}, 4).ok());
  CHECK(window.Find(1 + kWindow) == nullptr);
  const auto next = window.Of(1 + kWindow, 2);
  REQUIRE(next.ok());
  CHECK(*next != *old);
  CHECK(window.Find(1) == nullptr);
  CHECK((*next)->Put(0, RowMask{{2}}, 4).ok());
}

TEST_CASE("The end of an epoch ends the waits of all its steps", "[shard][masks]") {
  MaskWindow window;
  const auto first = window.Of(1, 1);
  const auto second = window.Of(2, 1);
  REQUIRE((*first)->Expect({0}).ok());
  REQUIRE((*second)->Expect({0}).ok());
  window.Abort();
  CHECK(absl::IsAborted((*first)->Wait()));
  CHECK(absl::IsAborted((*second)->Wait()));
}

}  // namespace
}  // namespace weft::shard
