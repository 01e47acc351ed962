// Exponential, logarithm and rounding over the vector vocabulary. The same bits on every
// instruction set: explicit fma.

#pragma once

#include <cstdint>

namespace weft::kernels::cpu {
namespace {

constexpr float kInfinity = __builtin_inff();

// exp(x): x = n ln 2 + r, a polynomial in r (coefficients of the Cephes library's expf), 2^n put
// into the exponent. Below ln 2^-126 the result is 0, above ln of the largest float infinity.
inline Floats Exp(const Floats& x) {
  // Adding 1.5 * 2^23 rounds to an integer, which then sits in the low bits.
  const float kMagic = 12582912.0f;
  const Floats shifted = Fma(x, Set(1.44269504088896341f), Set(kMagic));
  const Floats n = Sub(shifted, Set(kMagic));
  Floats r = Fma(n, Set(-0.693359375f), x);
  r = Fma(n, Set(2.12194440e-4f), r);
  Floats y = Set(1.9875691500e-4f);
  y = Fma(y, r, Set(1.3981999507e-3f));
  y = Fma(y, r, Set(8.3334519073e-3f));
  y = Fma(y, r, Set(4.1665795894e-2f));
  y = Fma(y, r, Set(1.6666665459e-1f));
  y = Fma(y, r, Set(5.0000001201e-1f));
  y = Add(Fma(y, Mul(r, r), r), Set(1.0f));
  y = AsFloats(AddInts(AsInts(y), ShiftLeft<23>(AsInts(shifted))));
  y = Select(Greater(Set(-87.3365447505f), x), Zero(), y);
  y = Select(Greater(x, Set(88.7228317261f)), Set(kInfinity), y);
  return Select(IsNan(x), x, y);
}

// tanh(x) within 4 ulp: below 0.625 a polynomial (coefficients of the Cephes library's tanhf),
// above it 1 - 2 / (exp(2 |x|) + 1) with the sign of x. The same bits on every instruction set. NaN
// stays.
inline Floats Tanh(const Floats& x) {
  const Ints sign = And(AsInts(x), SetInts(0x80000000u));
  const Floats size = AsFloats(And(AsInts(x), SetInts(0x7FFFFFFFu)));
  const Floats square = Mul(x, x);
  Floats y = Set(-5.70498872745e-3f);
  y = Fma(y, square, Set(2.06390887954e-2f));
  y = Fma(y, square, Set(-5.37397155531e-2f));
  y = Fma(y, square, Set(1.33314422036e-1f));
  y = Fma(y, square, Set(-3.33332819422e-1f));
  const Floats small = Fma(Mul(y, square), x, x);
  const Floats large = Sub(Set(1.0f), Div(Set(2.0f), Add(Exp(Add(size, size)), Set(1.0f))));
  return Select(Greater(size, Set(0.625f)), AsFloats(Or(AsInts(large), sign)), small);
}

// PolyLog of kernels/philox.h.
inline Floats Log(const Floats& x) {
  const Ints base = SetInts(0x3F3504F3u);
  const Ints shifted = SubInts(AsInts(x), base);
  const Floats e = ToFloats(ShiftRightSigned<23>(shifted));
  const Floats f = Add(AsFloats(AddInts(And(shifted, SetInts(0x007FFFFFu)), base)), Set(-1.0f));
  const Floats ff = Mul(f, f);
  Floats y = Set(7.0376836292e-2f);
  y = Fma(y, f, Set(-1.1514610310e-1f));
  y = Fma(y, f, Set(1.1676998740e-1f));
  y = Fma(y, f, Set(-1.2420140846e-1f));
  y = Fma(y, f, Set(1.4249322787e-1f));
  y = Fma(y, f, Set(-1.6668057665e-1f));
  y = Fma(y, f, Set(2.0000714765e-1f));
  y = Fma(y, f, Set(-2.4999993993e-1f));
  y = Fma(y, f, Set(3.3333331174e-1f));
  y = Mul(Mul(y, f), ff);
  y = Fma(e, Set(-2.12194440e-4f), y);
  y = Fma(ff, Set(-0.5f), y);
  return Fma(e, Set(0.693359375f), Add(f, y));
}

// The bits of x rounded to bf16, to nearest even, in the low half of each lane. NaN stays NaN.
inline Ints RoundToBf16(const Floats& x) {
  const Ints bits = AsInts(x);
  const Ints odd = And(ShiftRight<16>(bits), SetInts(1));
  const Ints rounded = ShiftRight<16>(AddInts(bits, AddInts(odd, SetInts(0x7FFFu))));
  const Ints quiet = Or(ShiftRight<16>(bits), SetInts(0x40));
  return SelectInts(IsNan(x), quiet, rounded);
}

}  // namespace
}  // namespace weft::kernels::cpu
