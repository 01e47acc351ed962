// A set of slots as a bitmap: constant-time changes, ascending iteration, no allocation after the
// constructor. Used by the scheduler only.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace weft::router {

class SlotSet {
 public:
  explicit SlotSet(uint32_t slots) : words_((slots + 63) / 64) {}

  void Insert(Slot slot) { words_[slot / 64] |= Bit(slot); }
  void Erase(Slot slot) { words_[slot / 64] &= ~Bit(slot); }
  bool Contains(Slot slot) const { return (words_[slot / 64] & Bit(slot)) != 0; }
  void Clear() { words_.assign(words_.size(), 0); }

  // The lowest slot, or kNoSlot.
  Slot First() const {
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] != 0) return static_cast<Slot>(i * 64 + std::countr_zero(words_[i]));
    }
    return kNoSlot;
  }

  // Calls f(slot) in ascending order. `f` must not change the set.
  template <typename F>
  void ForEach(F f) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        f(static_cast<Slot>(i * 64 + std::countr_zero(word)));
      }
    }
  }

 private:
  static uint64_t Bit(Slot slot) { return uint64_t{1} << (slot % 64); }

  std::vector<uint64_t> words_;
};

}  // namespace weft::router
