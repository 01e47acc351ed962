// Weights of a packed block as float32: the integers of quantised types before scaling, exactly. A
// block of 32 inputs is 32 steps, one input each, in kGroups groups of loads; see linear.inc.h.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/packed_format.h"
#include "kernels/weight_super_blocks.h"

namespace weft::kernels::cpu {
namespace {

// What all float32 decoders share: activations are float32, products multiply-adds.
struct FloatSteps {
  static constexpr int kSteps = static_cast<int>(kBlockInputs);
  static constexpr int kDirectRows = kDirectRowsMax;
  static constexpr int kPanelRows = kPanelRowsMax;
  static constexpr bool kKernelsApart = true;
  using Weight = Floats;
  using Input = Floats;

  static Input Broadcast(const uint8_t* x) {
    float value;
    __builtin_memcpy(&value, x, 4);
    return Set(value);
  }
  static Floats Product(const Weight& w, const Input& x, const Floats& sum) {
    return MulAdd(x, w, sum);
  }
  static Weight Ones() { return Set(1.0f); }

  // Steps 2i and 2i + 1 as a line of a panel (panel.inc.h): pairs of bf16, which hold integers of
  // 8 bits exactly.
  static constexpr int kStepsOfLine = 2;
  static void StoreLine(uint8_t* line, const Weight* steps) {
    const Ints even = ShiftRight<16>(AsInts(steps[0]));
    StoreInts(line, Or(even, And(AsInts(steps[1]), SetInts(0xFFFF0000u))));
  }
};

template <WeightType kType>
struct FloatDecoder;

template <>
struct FloatDecoder<WeightType::kF32> : FloatSteps {
  static constexpr int kGroups = 32;
  struct Group {
    Floats weights;
  };
  Group LoadGroup(const uint8_t* block, int j) const {
    return Group{Load(reinterpret_cast<const float*>(block) + kLanes * j)};
  }
  Weight Step(const Group& group, int) const { return group.weights; }
};

template <>
struct FloatDecoder<WeightType::kF16> : FloatSteps {
  static constexpr int kGroups = 32;
  struct Group {
    Floats weights;
  };
  Group LoadGroup(const uint8_t* block, int j) const { return Group{LoadHalfs(block + 32 * j)}; }
  Weight Step(const Group& group, int) const { return group.weights; }
};

template <>
struct FloatDecoder<WeightType::kBf16> : FloatSteps {
  static constexpr int kGroups = 16;
  struct Group {
    Ints pairs;
  };
  Group LoadGroup(const uint8_t* block, int j) const { return Group{LoadInts(block + 64 * j)}; }
  Weight Step(const Group& group, int s) const {
    return AsFloats(s == 0 ? ShiftLeft<16>(group.pairs) : And(group.pairs, SetInts(0xFFFF0000u)));
  }
};

template <>
struct FloatDecoder<WeightType::kQ8_0> : FloatSteps {
  static constexpr int kGroups = 8;
  struct Group {
    Ints pairs[2];
  };
  Group LoadGroup(const uint8_t* block, int j) const {
    Group group;
    LoadByteGroup(block + 64 * j, &group.pairs[0], &group.pairs[1]);
    return group;
  }
  Weight Step(const Group& group, int s) const {
    const Ints pair = group.pairs[s / 2];
    return ToFloats(ShiftRightSigned<24>(s % 2 == 0 ? ShiftLeft<16>(pair) : pair));
  }
};

// Codes in planes of 4 or 2 and 1 or 2 bits: a group of 8 inputs is a 32-bit word in each lane,
// whose lower half holds even inputs and whose upper half odd ones. Step s of group j is input 8j +
// s: field s / 2 of half s % 2.
template <WeightType kType>
struct CodeFloatDecoder : FloatSteps {
  static constexpr int kGroups = 4;
  static constexpr int kLow = PackedFormatOf(kType).low_bits;
  static constexpr int kHigh = PackedFormatOf(kType).high_bits;
  static constexpr int kZero = -Block<kType>::Value(0);
  // Whether a code is its value and kZero; else a table says what it stands for.
  static constexpr bool kLinear = Block<kType>::Value(1) - Block<kType>::Value(0) == 1 &&
                                  Block<kType>::Value(7) - Block<kType>::Value(0) == 7;
  static_assert(kLinear || (kLow == 4 && kHigh == 0));
  // Whether the group's eight values are put together side by side, as signed bytes, and not one by
  // one: a third fewer instructions.
  static constexpr bool kAsBytes = kLinear && kLow == 4 && kHigh > 0;

  struct LowFields {
    Ints low;
  };
  struct BothFields {
    Ints low;
    Ints high;
  };
  // Of steps 0, 4, 1, 5 and of steps 2, 6, 3, 7, from the lowest byte on.
  struct Bytes {
    Ints of[2];
  };
  // No member that nobody uses: compilers would copy groups through memory.
  using Group =
      std::conditional_t<kAsBytes, Bytes, std::conditional_t<(kHigh > 0), BothFields, LowFields>>;
  Table16 table;

  static constexpr std::array<float, 16> Values() {
    std::array<float, 16> values{};
    for (size_t i = 0; i < 16; ++i) {
      values[i] = static_cast<float>(Block<kType>::Value(static_cast<uint8_t>(i)));
    }
    return values;
  }
  CodeFloatDecoder() {
    static constexpr std::array<float, 16> kValues = Values();
    table = LoadTable16(kValues.data());
  }

  // Fields of group j, moved to the lowest bits of the halves.
  template <int kBits>
  static Ints LoadFields(const uint8_t* plane, int j) {
    constexpr int kGroupsOfLine = 4 / kBits;
    const Ints line = LoadInts(plane + 64 * (j / kGroupsOfLine));
    if constexpr (kBits == 4) return line;
    return ShiftRightBy(line, 4 * kBits * (j % kGroupsOfLine));
  }
  // The high bits of Bytes::of[kSecond], in their places: of each half of `fields`, fields 0 and 2,
  // or 1 and 3, belong at bits 4 and 12. One product moves both: it holds each of them moved by
  // what either needs, and the mask takes the right ones.
  template <int kSecond>
  static Ints HighBits(const Ints& fields) {
    constexpr uint32_t kField = (1u << kHigh) - 1;
    constexpr uint32_t kTwo = kField | kField << 2 * kHigh;
    constexpr uint32_t kFactor = 1u << 4 | 1u << (12 - 2 * kHigh);
    const Ints two = And(ShiftRight<kSecond * kHigh>(fields), SetInts(kTwo << 16 | kTwo));
    constexpr uint32_t kPlaces = kField << 4 | kField << 12;
    return And(MulHalves(two, SetInts(kFactor << 16 | kFactor)), SetInts(kPlaces << 16 | kPlaces));
  }
  static Bytes LoadBytesOfGroup(const uint8_t* block, int j) {
    const Ints low = LoadFields<kLow>(block, j);
    const Ints high = LoadFields<kHigh>(block + 64 * kLow, j);
    const Ints nibbles = SetInts(0x0F0F0F0Fu);
    Bytes group;
    group.of[0] = Or(And(low, nibbles), HighBits<0>(high));
    group.of[1] = Or(And(ShiftRight<4>(low), nibbles), HighBits<1>(high));
    if constexpr (kZero != 0) {
      for (Ints& bytes : group.of) bytes = SubBytes(bytes, SetInts(0x01010101u * kZero));
    }
    return group;
  }
  Group LoadGroup(const uint8_t* block, int j) const {
    if constexpr (kAsBytes) {
      return LoadBytesOfGroup(block, j);
    } else {
      Group group;
      group.low = LoadFields<kLow>(block, j);
      if constexpr (kHigh > 0) group.high = LoadFields<kHigh>(block + 64 * kLow, j);
      return group;
    }
  }
  template <int kStep>
  Weight Field(const Group& group) const {
    constexpr int kShift = kStep % 2 * 16 + kStep / 2 * kLow;
    if constexpr (kAsBytes) {
      constexpr int kByte = kStep % 2 * 2 + kStep / 4;
      const Ints& bytes = group.of[kStep / 2 % 2];
      return ToFloats(ShiftRightSigned<24>(kByte == 3 ? bytes : ShiftLeft<24 - 8 * kByte>(bytes)));
    } else if constexpr (!kLinear) {
      return LookUpNibble<kShift>(group.low, table);
    } else if constexpr (kLow == 4 && kHigh == 0) {
      return NibbleFloats<kShift, kZero>(group.low);
    } else {
      Ints code = And(ShiftRight<kShift>(group.low), SetInts((1u << kLow) - 1));
      if constexpr (kHigh > 0) {
        constexpr int kMove = kStep % 2 * 16 + kStep / 2 * kHigh - kLow;
        const Ints moved = kMove >= 0 ? ShiftRight<(kMove >= 0 ? kMove : 0)>(group.high)
                                      : ShiftLeft<(kMove < 0 ? -kMove : 0)>(group.high);
        code = Or(code, And(moved, SetInts(((1u << kHigh) - 1) << kLow)));
      }
      return ToFloats(kZero == 0 ? code : SubInts(code, SetInts(kZero)));
    }
  }
  Weight Step(const Group& group, int s) const {
    switch (s) {
      case 0:
        return Field<0>(group);
      case 1:
        return Field<1>(group);
      case 2:
        return Field<2>(group);
      case 3:
        return Field<3>(group);
      case 4:
        return Field<4>(group);
      case 5:
        return Field<5>(group);
      case 6:
        return Field<6>(group);
      default:
        return Field<7>(group);
    }
  }
};
template <WeightType kType>
struct FloatDecoder : CodeFloatDecoder<kType> {};

}  // namespace
}  // namespace weft::kernels::cpu
