// Weights of a packed block as float32: the integers of quantised types before scaling, exactly. A
// block of 32 inputs is 32 steps, one input each, in kGroups groups of loads; see linear.inc.h.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// What all float32 decoders share: activations are float32, products multiply-adds.
struct FloatSteps {
  static constexpr int kSteps = static_cast<int>(kBlockInputs);
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

// Step s of group j is input 8j + s: nibble s / 2 of word s % 2.
template <int kBias>
struct NibbleFloatDecoder : FloatSteps {
  static constexpr int kGroups = 4;
  struct Group {
    Ints words;
  };
  Group LoadGroup(const uint8_t* block, int j) const { return Group{LoadInts(block + 64 * j)}; }
  Weight Step(const Group& group, int s) const {
    switch (s) {
      case 0:
        return NibbleFloats<0, kBias>(group.words);
      case 1:
        return NibbleFloats<16, kBias>(group.words);
      case 2:
        return NibbleFloats<4, kBias>(group.words);
      case 3:
        return NibbleFloats<20, kBias>(group.words);
      case 4:
        return NibbleFloats<8, kBias>(group.words);
      case 5:
        return NibbleFloats<24, kBias>(group.words);
      case 6:
        return NibbleFloats<12, kBias>(group.words);
      default:
        return NibbleFloats<28, kBias>(group.words);
    }
  }
};
template <>
struct FloatDecoder<WeightType::kQ4_0> : NibbleFloatDecoder<8> {};
template <>
struct FloatDecoder<WeightType::kQ4_1> : NibbleFloatDecoder<0> {};

}  // namespace
}  // namespace weft::kernels::cpu
