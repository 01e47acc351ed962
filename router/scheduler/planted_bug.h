// Bugs that the simulation must catch (DESIGN.md section 9). The tests build the scheduler once
// more for each, with WEFT_PLANTED_BUG set; in the product every Planted() is a constant false.

#pragma once

namespace weft::router {

enum class PlantedBug {
  kNone = 0,
  // A block goes to the free list although another sequence still shares it.
  kBlockFreedEarly = 1,
  // A prefix that another block already holds is published again. (Only loses prefix hits.)
  kDoublePublish = 2,
  // A cancel that arrives while a row is in flight is forgotten.
  kLostCancel = 3,
  // The rows in flight are left out when a row is checked against the length limit.
  kRowPlannedTwice = 4,
  // A slot is given to another sequence before the shard is told to drop the one that had it.
  kSlotReusedInFlight = 5,
};

#ifndef WEFT_PLANTED_BUG
#define WEFT_PLANTED_BUG 0
#endif

constexpr bool Planted(PlantedBug bug) { return static_cast<int>(bug) == WEFT_PLANTED_BUG; }

}  // namespace weft::router
