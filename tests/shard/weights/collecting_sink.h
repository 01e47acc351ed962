// A WeightSink that keeps everything, and the float32 value of every element by a decoder that is
// written from the format's description alone. Thread-safe.

#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "shard/weights/row_convert.h"
#include "shard/weights/tensor_view.h"
#include "shard/weights/weight_sink.h"

namespace weft::test {

// Kind and layer; of what experts have, kLayersMax more for each expert.
using ParamId = std::pair<shard::ParamKind, uint32_t>;
inline ParamId IdOf(shard::ParamKey key) { return {key.kind, key.expert * kLayersMax + key.layer}; }

struct Collected {
  TensorType type = TensorType::kF32;
  int64_t outputs = 0;
  int64_t inputs = 0;
  // Rows behind each other.
  std::string bytes;
  // Vectors only.
  std::vector<float> values;
};

class CollectingSink : public shard::WeightSink {
 public:
  absl::Status AddMatrix(shard::ParamKey key, const shard::MatrixSource& source) override {
    Collected out{source.type, source.outputs, source.inputs, {}, {}};
    const uint64_t row_bytes = BytesOf(source.type, static_cast<uint64_t>(source.inputs));
    for (int64_t i = 0; i < source.outputs; ++i) {
      out.bytes.append(reinterpret_cast<const char*>(source.row(i)), row_bytes);
    }
    return Add(key, std::move(out));
  }

  absl::Status AddVector(shard::ParamKey key, absl::Span<const float> values) override {
    Collected out;
    out.values.assign(values.begin(), values.end());
    return Add(key, std::move(out));
  }

  const std::map<ParamId, Collected>& params() const { return params_; }

 private:
  absl::Status Add(shard::ParamKey key, Collected collected) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!params_.emplace(IdOf(key), std::move(collected)).second) {
      return absl::InternalError("a parameter came twice");
    }
    return absl::OkStatus();
  }

  std::mutex mutex_;
  std::map<ParamId, Collected> params_;
};

inline float Half(const char* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  const int exponent = bits >> 10 & 31;
  const float fraction = static_cast<float>(bits & 1023) / 1024.0f;
  const float value =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0f + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -value : value;
}

// Elements of one row.
inline std::vector<float> DecodeRow(TensorType type, const char* row, int64_t inputs) {
  std::vector<float> out;
  const auto nibble = [](const char* block, int64_t i) {
    const auto byte = static_cast<uint8_t>(block[i % 16]);
    return static_cast<float>(i < 16 ? byte & 15 : byte >> 4);
  };
  for (int64_t i = 0; i < inputs; ++i) {
    const int64_t in_block = i % 32;
    const char* const block = row + i / 32 * static_cast<int64_t>(FormatOf(type).bytes);
    float value = 0;
    switch (type) {
      case TensorType::kF32:
        std::memcpy(&value, row + 4 * i, 4);
        break;
      case TensorType::kF16:
        value = Half(row + 2 * i);
        break;
      case TensorType::kBf16: {
        uint16_t bits = 0;
        std::memcpy(&bits, row + 2 * i, 2);
        value = std::bit_cast<float>(uint32_t{bits} << 16);
        break;
      }
      case TensorType::kQ8_0:
        value = static_cast<float>(static_cast<int8_t>(block[2 + in_block])) * Half(block);
        break;
      case TensorType::kQ4_0:
        value = (nibble(block + 2, in_block) - 8.0f) * Half(block);
        break;
      case TensorType::kQ4_1:
        value = nibble(block + 4, in_block) * Half(block) + Half(block + 2);
        break;
      default:
        // Held against PyPI gguf by tests/kernels/packing_test.cc.
        out.resize(static_cast<size_t>(inputs));
        shard::RowToFloat(type, reinterpret_cast<const uint8_t*>(row), inputs, out.data());
        return out;
    }
    out.push_back(value);
  }
  return out;
}

}  // namespace weft::test
