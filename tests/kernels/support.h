// Helpers of the kernel tests and the kernel bench: seeded numbers, aligned memory, random source
// matrices with an independent decoder, packing.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/kernels.h"

namespace weft::kernels::cpu::testing {

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Uniform in [low, high).
  float Uniform(float low, float high);
  // Roughly normal: the sum of uniform ones.
  float Normal();
  // In [0, count).
  uint64_t Below(uint64_t count) { return Next() % count; }

 private:
  uint64_t state_;
};

// Zeroed (or poisoned) memory at a multiple of 64 bytes.
class Aligned {
 public:
  explicit Aligned(int64_t bytes, int fill = 0);
  uint8_t* bytes() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  int64_t size_;
  std::unique_ptr<uint8_t[], Free> data_;
};

const char* TypeName(WeightType type);
std::vector<WeightType> AllWeightTypes();

uint16_t HalfOf(float x);
float FloatOfHalf(uint16_t half);
uint16_t Bf16Of(float x);
float FloatOfBf16(uint16_t bits);

// A matrix in its source format, and packed.
struct TestMatrix {
  WeightType type;
  int64_t outputs;
  int64_t inputs;
  // outputs rows of SourceRowBytes.
  std::vector<uint8_t> source;
  Aligned packed;
  // Of formats that At does not decode by itself.
  std::vector<float> values = {};

  PackedMatrix view() const { return PackedMatrix{type, outputs, inputs, packed.bytes()}; }
  // Weight [n][k], decoded from the source bytes by code of the tests' own; of formats whose
  // UnpackToFloat is held against PyPI gguf by packing_test, by that.
  float At(int64_t n, int64_t k) const;
};

TestMatrix RandomMatrix(WeightType type, int64_t outputs, int64_t inputs, uint64_t seed);
void Pack(TestMatrix& matrix);

// Prepared rows and the memory behind them.
struct TestActivations {
  Activations view;
  Aligned values;
  Aligned sums;
};
TestActivations Prepare(const Kernels& kernels, ActivationType type, const float* x, int64_t rows,
                        int64_t inputs);

std::vector<float> RandomFloats(int64_t count, uint64_t seed);

}  // namespace weft::kernels::cpu::testing
