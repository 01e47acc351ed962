// The demo model, where it is installed: shape, sizes and the speed of a load without packing.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <iostream>

#include "shard/weights/loader.h"
#include "shard/weights/tensor_view.h"
#include "tests/support/demo_model.h"

namespace weft::shard {
namespace {

// Reads every byte once and keeps nothing but a sum.
class SummingSink : public WeightSink {
 public:
  absl::Status AddMatrix(ParamKey, const MatrixSource& source) override {
    const uint64_t row_bytes = BytesOf(source.type, static_cast<uint64_t>(source.inputs));
    uint64_t sum = 0;
    for (int64_t row = 0; row < source.outputs; ++row) {
      const uint8_t* const data = source.row(row);
      for (uint64_t i = 0; i + 8 <= row_bytes; i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data + i, 8);
        sum += word;
      }
    }
    sum_.fetch_add(sum, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  absl::Status AddVector(ParamKey, absl::Span<const float> values) override {
    sum_.fetch_add(values.size(), std::memory_order_relaxed);
    return absl::OkStatus();
  }
  uint64_t sum() const { return sum_; }

 private:
  std::atomic<uint64_t> sum_{0};
};

TEST_CASE("The demo model opens and loads at memory speed", "[shard][weights][demo]") {
  const std::string path = test::DemoModelOrSkip();
  const auto files = ModelFiles::Open(path);
  INFO(files.status());
  REQUIRE(files.ok());
  const DecoderSpec& spec = (*files)->spec();
  CHECK(spec.layers == 30);
  CHECK(spec.heads == 9);
  CHECK(spec.kv_heads == 3);
  CHECK(spec.head_dim == 64);
  CHECK(spec.vocab == 49152);
  CHECK(spec.tied_head);
  CHECK(spec.norm_epsilon == 9.999999747e-06f);
  CHECK(spec.attention_kinds[0].rope.theta == 100000.0f);
  CHECK(spec.eos_ids == std::vector<uint32_t>{2});
  CHECK(spec.parameters() == 134515008);
  CHECK((*files)->main_type() == TensorType::kQ4_1);
  CHECK((*files)->mlp_multiple() == 32);
  CHECK((*files)->total_bytes() == 66'355'200 + 30'081'024 + 140'544);

  std::vector<uint64_t> sums;
  for (const int threads : {1, 2}) {
    for (int pass = 0; pass < 3; ++pass) {
      const auto plan = MakeSlicePlan(spec, 0, 1, 32);
      SummingSink sink;
      LoadProgress progress;
      const std::atomic<bool> cancel{false};
      const auto begin = std::chrono::steady_clock::now();
      REQUIRE((*files)->Load(*plan, threads, sink, progress, cancel).ok());
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      std::cout << "demo load without packing, " << threads << " threads: " << took.count() * 1e3
                << " ms, " << static_cast<double>(progress.bytes_done) / took.count() * 1e-9
                << " GB/s\n";
      sums.push_back(sink.sum());
    }
  }
  CHECK(std::count(sums.begin(), sums.end(), sums[0]) == 6);
}

}  // namespace
}  // namespace weft::shard
