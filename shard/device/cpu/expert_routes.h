// Which experts the rows of a step take: chosen row by row from the router's numbers, then sorted
// so that the rows of one expert lie behind each other and its matrices are read once. Owned by
// CpuOps; Choose may run on several compute threads for different rows, all else on the device
// thread. Takes no memory after its construction.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cpu/kernels.h"
#include "shard/model/experts_spec.h"

namespace weft::shard {

class ExpertRoutes {
 public:
  // Of one row. A choice is at a place: its number when all choices of the step are ordered by
  // expert and, of one expert, by row.
  struct Choice {
    uint32_t expert = 0;
    float weight = 0.0f;
    uint32_t place = 0;
  };
  // The places [begin, end) are those of `expert`.
  struct Group {
    uint32_t expert = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  // For steps of up to `rows_max` rows.
  ExpertRoutes(const ExpertsSpec& experts, uint32_t rows_max);

  // Sets the choices of `row` but for their places, in the order of the experts' numbers.
  // numbers[experts] is overwritten; choice_bias[experts] counts where the spec has one. A row with
  // NaN or infinity among its numbers takes the first experts with weights that are NaN, so that
  // its logits are NaN too and the step says so.
  void Choose(const kernels::cpu::Kernels& kernels, uint32_t row, float* numbers,
              const float* choice_bias = nullptr);
  // After all rows [0, rows) have chosen.
  void Sort(uint32_t rows);

  absl::Span<const Choice> choices(uint32_t row) const {
    return absl::MakeConstSpan(choices_).subspan(size_t{row} * per_token_, per_token_);
  }
  // Of experts that a row has chosen, in order.
  absl::Span<const Group> groups() const { return groups_; }
  // The row of each place.
  absl::Span<const uint32_t> rows() const { return rows_; }

 private:
  // Hides the experts of groups that are not taken.
  void HideGroups(float* scores) const;

  const ExpertsSpec spec_;
  const uint32_t count_;
  const uint32_t per_token_;
  std::vector<Choice> choices_;
  std::vector<Group> groups_;
  std::vector<uint32_t> rows_;
  // By expert: the next place to give out.
  std::vector<uint32_t> next_;
};

}  // namespace weft::shard
