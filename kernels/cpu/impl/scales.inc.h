// Scales of 16 outputs at once: d, and m where the format has one, of a unit of inputs of a packed
// block (packing.h states the bytes). Every product is exact: at most 11 bits of an f16 number
// times 8, so that it does not matter whether they are made here or when a matrix is unpacked.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

// d and m of one unit. m is not set where the format has no minimum.
struct UnitScales {
  Floats d;
  Floats m;
};

template <ScaleLayout kLayout>
UnitScales LoadScales(const uint8_t* scales, int unit);

template <>
inline UnitScales LoadScales<ScaleLayout::kNone>(const uint8_t*, int) {
  return {Zero(), Zero()};
}

template <>
inline UnitScales LoadScales<ScaleLayout::kHalf>(const uint8_t* scales, int) {
  return {LoadHalfs(scales), Zero()};
}

template <>
inline UnitScales LoadScales<ScaleLayout::kHalfPair>(const uint8_t* scales, int) {
  return {LoadHalfs(scales), LoadHalfs(scales + 32)};
}

// d times the integers `scale`, and minus dmin times `minimum`, from the f16 d and dmin at `halfs`.
inline UnitScales ScaledPair(const uint8_t* halfs, const Ints& scale, const Ints& minimum) {
  const Floats negated = AsFloats(Xor(AsInts(LoadHalfs(halfs + 32)), SetInts(0x80000000u)));
  return {Mul(LoadHalfs(halfs), ToFloats(scale)), Mul(negated, ToFloats(minimum))};
}

template <>
inline UnitScales LoadScales<ScaleLayout::kFourPair>(const uint8_t* scales, int unit) {
  const Ints bytes = LoadBytes(scales + 16 * unit);
  return ScaledPair(scales + 256, And(bytes, SetInts(15)), ShiftRight<4>(bytes));
}

template <>
inline UnitScales LoadScales<ScaleLayout::kSixPair>(const uint8_t* scales, int unit) {
  const Ints low = LoadBytes(scales + 16 * unit);
  const Ints high = ShiftRightBy(LoadInts(scales + 128), 4 * unit);
  const Ints scale = Or(And(low, SetInts(15)), ShiftLeft<4>(And(high, SetInts(3))));
  const Ints minimum = Or(ShiftRight<4>(low), ShiftLeft<2>(And(high, SetInts(12))));
  return ScaledPair(scales + 192, scale, minimum);
}

// Units of six bits: nibbles in bytes by twos, then two bits in each of `high`.
inline UnitScales SixBitScale(const uint8_t* nibbles, const Ints& high, const uint8_t* halfs,
                              int unit) {
  const Ints low = ShiftRightBy(LoadBytes(nibbles + 16 * (unit / 2)), 4 * (unit % 2));
  const Ints upper = ShiftLeft<4>(And(ShiftRightBy(high, 2 * unit), SetInts(3)));
  const Ints scale = SubInts(Or(And(low, SetInts(15)), upper), SetInts(32));
  return {Mul(LoadHalfs(halfs), ToFloats(scale)), Zero()};
}

template <>
inline UnitScales LoadScales<ScaleLayout::kSix8>(const uint8_t* scales, int unit) {
  alignas(2) uint16_t words[kLanes];
  __builtin_memcpy(words, scales + 64, sizeof(words));
  return SixBitScale(scales, LoadWords(words), scales + 96, unit);
}

template <>
inline UnitScales LoadScales<ScaleLayout::kSix16>(const uint8_t* scales, int unit) {
  return SixBitScale(scales, LoadInts(scales + 128), scales + 192, unit);
}

template <>
inline UnitScales LoadScales<ScaleLayout::kEight>(const uint8_t* scales, int unit) {
  const Ints bytes = ShiftLeft<24>(LoadBytes(scales + 16 * unit));
  return {Mul(LoadHalfs(scales + 256), ToFloats(ShiftRightSigned<24>(bytes))), Zero()};
}

// 2^(e - 128) of an exponent e: subnormal for 0 and 1.
template <>
inline UnitScales LoadScales<ScaleLayout::kExponent>(const uint8_t* scales, int) {
  const Ints e = LoadBytes(scales);
  const Ints normal = ShiftLeft<23>(SubInts(e, SetInts(1)));
  const Ints subnormal = ShiftLeft<21>(AddInts(e, SetInts(1)));
  const Mask is_normal = Greater(ToFloats(e), Set(1.5f));
  return {AsFloats(SelectInts(is_normal, normal, subnormal)), Zero()};
}

}  // namespace
}  // namespace weft::kernels::cpu
