// FNV-1a: hashes whose value is the same on every machine, unlike absl::Hash's. For what processes
// compare with each other; not against attackers. Pure; any thread.
// http://www.isthe.com/chongo/tech/comp/fnv/index.html

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// `Word` is uint32_t or uint64_t.
template <typename Word>
class Fnv1a {
 public:
  Fnv1a() = default;
  // Goes on from an earlier value.
  explicit Fnv1a(Word value) : value_(value) {}

  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * kPrime; }
  void AddBytes(absl::string_view bytes) {
    for (const char c : bytes) AddByte(static_cast<uint8_t>(c));
  }
  // All bytes of `value`, the lowest first.
  template <typename Value>
  void AddNumber(Value value) {
    for (unsigned i = 0; i < sizeof(Value); ++i) AddByte(static_cast<uint8_t>(value >> (8 * i)));
  }

  Word value() const { return value_; }

 private:
  static constexpr bool kWide = sizeof(Word) == 8;
  static constexpr Word kPrime = static_cast<Word>(kWide ? 0x100000001b3u : 0x01000193u);

  Word value_ = static_cast<Word>(kWide ? 0xcbf29ce484222325u : 0x811c9dc5u);
};

// Of token ids, 4 bytes each (StepResponse.ids_hash). `Ids` is any range of them.
template <typename Ids>
uint32_t HashIds(const Ids& ids) {
  Fnv1a<uint32_t> hash;
  for (const uint32_t id : ids) hash.AddNumber(id);
  return hash.value();
}

}  // namespace weft
