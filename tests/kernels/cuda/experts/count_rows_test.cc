#include "kernels/cuda/experts/count_rows.h"

#include <catch2/catch.hpp>

#include "kernels/cuda/kv.h"
#include "tests/kernels/cuda/experts/experts_rig.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::HostRoutes;

TEST_CASE("Rows of experts add up over steps, without those of padding", "[cuda][experts]") {
  std::mt19937_64 random(testing::Seed());
  struct Size {
    uint32_t experts, per_token;
  };
  for (const Size size : {Size{5, 2}, Size{128, 8}, Size{1024, 10}}) {
    DeviceArray<uint64_t> counts(std::vector<uint64_t>(size.experts, 0));
    DeviceArray<uint32_t> counting(std::vector<uint32_t>{1});
    DeviceArray<uint32_t> not_counting(std::vector<uint32_t>{0});
    std::vector<uint64_t> want(size.experts, 0);
    for (const uint32_t rows : {1u, 7u, 64u, 300u}) {
      const std::vector<float> numbers =
          testing::RandomFloats(random, size_t{rows} * size.experts, 2.0f);
      const HostRoutes routes =
          testing::RouteOnHost(numbers, rows, size.experts, size.experts, size.per_token, false);
      const DeviceArray<uint32_t> row_of_place(routes.row_of_place);
      const DeviceArray<uint32_t> expert_of_place(routes.expert_of_place);
      std::vector<uint32_t> sequences(rows);
      for (uint32_t& sequence : sequences) sequence = random() % 3 == 0 ? kNoSequence : 1;
      const DeviceArray<uint32_t> row_sequences(sequences);
      CountExpertRowsParams params;
      params.row_of_place = row_of_place.data();
      params.expert_of_place = expert_of_place.data();
      params.places = rows * size.per_token;
      params.counts = counts.data();
      for (const bool padded : {false, true}) {
        params.row_sequences = padded ? row_sequences.data() : nullptr;
        for (size_t i = 0; i < routes.experts.size(); ++i) {
          const bool counts_row = !padded || sequences[i / size.per_token] != kNoSequence;
          want[routes.experts[i]] += counts_row ? 1 : 0;
        }
        params.counting = not_counting.data();
        WEFT_CUDA_CHECK(CountExpertRows(params, nullptr));
        params.counting = counting.data();
        params.dependent = true;
        WEFT_CUDA_CHECK(CountExpertRows(params, nullptr));
        INFO(rows << " rows, " << size.per_token << " of " << size.experts);
        CHECK(counts.Host() == want);
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cuda
