// Which group gets a request, rule by rule.

#include "router/groups/placement.h"

#include <catch2/catch.hpp>
#include <vector>

namespace weft::router {
namespace {

using Kind = Placement::Kind;

// Serves, with room for 64 sequences and 10,000 tokens.
GroupLoad Idle() {
  GroupLoad load;
  load.serving = true;
  load.running_max = 64;
  load.pool_tokens = load.free_tokens = 10'000;
  load.request_tokens_max = 4'000;
  return load;
}

GroupLoad Holding(uint32_t running, uint64_t tokens) {
  GroupLoad load = Idle();
  load.running = running;
  load.free_tokens -= tokens;
  return load;
}

PlacedRequest Prompt(uint32_t tokens) { return {tokens, tokens + 10, false}; }

TEST_CASE("A request goes to the group with the fewest tokens", "[router][groups]") {
  const Placement place =
      Place({Holding(1, 500), Holding(3, 400), Holding(2, 600)}, Prompt(100), {0, 0, 0});
  CHECK(place.kind == Kind::kLeastLoaded);
  CHECK(place.group == 1);
}

TEST_CASE("Prompts that wait are load", "[router][groups]") {
  GroupLoad waited = Idle();
  waited.waiting = 1;
  waited.waiting_tokens = 300;
  CHECK(Place({waited, Holding(1, 200)}, Prompt(100), {0, 0}).group == 1);
}

TEST_CASE("Of equal groups the one with fewer requests gets it, then the one that had least so far",
          "[router][groups]") {
  CHECK(Place({Holding(2, 200), Holding(1, 200)}, Prompt(100), {0, 0}).group == 1);
  GroupLoad used = Idle();
  used.received_tokens = 100;
  CHECK(Place({used, Idle()}, Prompt(100), {0, 0}).group == 1);
  CHECK(Place({Idle(), Idle()}, Prompt(100), {0, 0}).group == 0);
}

TEST_CASE("A group that does not serve gets nothing", "[router][groups]") {
  GroupLoad lost = Idle();
  lost.serving = false;
  CHECK(Place({lost, Holding(9, 5'000)}, Prompt(100), {100, 0}).group == 1);
  CHECK(Place({lost, lost}, Prompt(100), {0, 0}).kind == Kind::kLater);
}

TEST_CASE("A prompt goes to the group that knows its beginning", "[router][groups]") {
  const Placement place = Place({Idle(), Holding(1, 1'200)}, Prompt(400), {0, 128});
  CHECK(place.kind == Kind::kPrefix);
  CHECK(place.group == 1);
}

TEST_CASE("A cache that saves less than a quarter of the prompt does not count",
          "[router][groups]") {
  CHECK(Place({Idle(), Holding(1, 1'200)}, Prompt(400), {0, 99}).group == 0);
  CHECK(Place({Idle(), Holding(1, 1'200)}, Prompt(400), {0, 100}).group == 1);
  // What the least loaded group has itself is not saved.
  CHECK(Place({Idle(), Holding(1, 1'200)}, Prompt(400), {320, 400}).group == 0);
}

TEST_CASE("A cache does not count when its group is overloaded beside the least loaded one",
          "[router][groups]") {
  // Half as much again as 2,000, and an eighth of 10,000.
  CHECK(Place({Holding(4, 2'000), Holding(9, 4'250)}, Prompt(400), {0, 400}).group == 1);
  CHECK(Place({Holding(4, 2'000), Holding(9, 4'251)}, Prompt(400), {0, 400}).group == 0);
}

TEST_CASE("A group without room is left out, whatever it knows", "[router][groups]") {
  GroupLoad full = Holding(64, 5'000);
  full.waiting = LookAhead(64);
  CHECK(Place({full, Holding(60, 9'000)}, Prompt(400), {400, 0}).group == 1);
  CHECK(Place({full, full}, Prompt(400), {400, 0}).kind == Kind::kLater);
}

TEST_CASE("A few requests wait in a full group for the next place", "[router][groups]") {
  GroupLoad full = Holding(64, 5'000);
  CHECK(LookAhead(64) == 4);
  for (; full.waiting < LookAhead(64); ++full.waiting) CHECK(HasRoom(full, Prompt(100)));
  CHECK_FALSE(HasRoom(full, Prompt(100)));
  CHECK(LookAhead(1) == 2);
  CHECK(LookAhead(1'000) == 8);
}

TEST_CASE("A group without KV for a prompt lets only a few wait", "[router][groups]") {
  GroupLoad tight = Holding(3, 9'900);
  tight.waiting = LookAhead(64);
  CHECK(HasRoom(tight, Prompt(100)));
  CHECK_FALSE(HasRoom(tight, Prompt(101)));
  tight.waiting_tokens = 50;
  CHECK_FALSE(HasRoom(tight, Prompt(100)));
}

TEST_CASE("A tenant with its share leaves the last places to others", "[router][groups]") {
  PlacedRequest greedy = Prompt(100);
  greedy.leaves_reserve = true;
  GroupLoad nearly_full = Holding(60, 5'000);
  nearly_full.waiting = LookAhead(64) - 1;
  CHECK(HasRoom(nearly_full, Prompt(100)));
  CHECK_FALSE(HasRoom(nearly_full, greedy));
}

TEST_CASE("A request that is too long for every group that serves is told apart",
          "[router][groups]") {
  GroupLoad small = Idle();
  small.request_tokens_max = 100;
  CHECK(Place({small, small}, Prompt(200), {0, 0}).kind == Kind::kTooLong);
  CHECK(Place({small, Holding(5, 5'000)}, Prompt(200), {0, 0}).group == 1);
}

}  // namespace
}  // namespace weft::router
