#include "shard/device/cuda/gemm_plan.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "shard/device/cuda/gemm_plan_table.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;

constexpr char kData[] =
    "0000000000000001123456789abcdef000000000000000000000000000000000000000000000000000000000000000"
    "0"
    "00000000000000000ffffffffffffffff";

TEST_CASE("A plan's text and the plan are the same in both directions", "[gemm-plan]") {
  const std::string line = GENERATE(as<std::string>{},
                                    "n=6144 k=4096 in=bf16 out=bf16 rows=9-16 use=cublaslt id=66 "
                                    "tile=9 stages=35 splits=1 reduction=0 swizzle=0 custom=3 "
                                    "inner=0 cluster=2",
                                    "n=8 k=8 in=f32 out+=f32 rows=1-1 use=gemv",
                                    "n=4096 k=14336 in=bf16 out+=f32 rows=33-40 use=small splits=4 "
                                    "sharers=2  # 7.25 us, 9.50");
  const auto plan = ParseGemmPlan(line);
  CAPTURE(plan.status().ToString());
  REQUIRE(plan.ok());
  CHECK(FormatGemmPlan(*plan) == line);
}

TEST_CASE("A plan's words become its fields", "[gemm-plan]") {
  const auto plan = ParseGemmPlan(absl::StrCat(
      "  n=6144   k=4096 in=bf16 out+=f32 rows=9-16 use=cublaslt id=66 tile=9 stages=35 splits=5 "
      "reduction=2 swizzle=1 custom=3 inner=7 cluster=4 data=",
      absl::string_view(kData).substr(0, 128), " # why"));
  CAPTURE(plan.status().ToString());
  REQUIRE(plan.ok());
  CHECK((plan->shape == GemmShape{16, 6144, 4096, DType::kBfloat16, DType::kFloat32, true}));
  CHECK(plan->rows_min == 9);
  CHECK(plan->note == "why");
  const auto* const choice = std::get_if<CublasLtChoice>(&plan->kernel);
  REQUIRE(choice != nullptr);
  REQUIRE(choice->data.size() == kCublasLtDataWords);
  CHECK(choice->data[1] == 0x123456789abcdef0u);
  CublasLtChoice expected{66, 9, 35, 5, 2, 1, 3, 7, 4, choice->data};
  CHECK((*choice == expected));
  const auto again = ParseGemmPlan(FormatGemmPlan(*plan));
  REQUIRE(again.ok());
  CHECK((*again == *plan));
}

TEST_CASE("A line that is no plan is refused by the word that is wrong", "[gemm-plan]") {
  const auto [line, message] = GENERATE(table<std::string, std::string>({
      {"", "expected n=, found the end of the line"},
      {"k=1", "expected n=, found \"k=1\""},
      {"n=0 k=8", "n=: \"0\" is no number from 1 to"},
      {"n=8 k=x", "k=: \"x\" is no number"},
      {"n=8 k=8 in=f16", "in=: \"f16\" is neither bf16 nor f32"},
      {"n=8 k=8 in=bf16 rows=1-1", "expected out=, found \"rows=1-1\""},
      {"n=8 k=8 in=bf16 out=bf16 rows=4", "rows=: \"4\" is no range"},
      {"n=8 k=8 in=bf16 out=bf16 rows=9-8", "rows=: \"8\" is no number from 9 to"},
      {"n=8 k=8 in=bf16 out=bf16 rows=1-1 use=magic", "use=: \"magic\" is none of"},
      {"n=8 k=8 in=bf16 out=bf16 rows=1-1 use=gemv now", "expected the end of the line"},
      {"n=8 k=8 in=bf16 out=bf16 rows=1-1 use=small splits=9", "splits=: \"9\" is no number"},
      {"n=8 k=8 in=bf16 out=bf16 rows=1-1 use=small splits=1", "expected sharers="},
      {"n=8 k=8 in=bf16 out=bf16 rows=1-1 use=cublaslt id=-1", "id=: \"-1\" is no number"},
      {"n=8 k=8 in=bf16 out=bf16 rows=1-1 use=cublaslt id=1 tile=1 stages=1 splits=1 reduction=0 "
       "swizzle=0 custom=0 inner=0 cluster=0 data=12",
       "data=: not 128 hexadecimal digits"},
  }));
  CAPTURE(line);
  const auto plan = ParseGemmPlan(line);
  REQUIRE(plan.status().code() == absl::StatusCode::kInvalidArgument);
  CAPTURE(plan.status().ToString());
  CHECK(plan.status().message().find(message) != absl::string_view::npos);
}

constexpr char kTable[] =
    "# of a test\n"
    "\n"
    "n=64 k=64 in=bf16 out=bf16 rows=5-8 use=small splits=1 sharers=1\n"
    "n=64 k=64 in=bf16 out=bf16 rows=1-2 use=gemv  # fast\n"
    "n=64 k=64 in=bf16 out+=f32 rows=1-4 use=gemv\n";

TEST_CASE("A table finds the plan whose rows hold the shape's", "[gemm-plan]") {
  const auto table = GemmPlanTable::Parse(kTable);
  CAPTURE(table.status().ToString());
  REQUIRE(table.ok());
  CHECK(table->size() == 3);
  GemmShape shape{1, 64, 64, DType::kBfloat16, DType::kBfloat16, false};
  const auto served = [&](uint32_t rows) {
    shape.rows = rows;
    const GemmPlan* const plan = table->Find(shape);
    return plan == nullptr ? 0 : plan->shape.rows;
  };
  CHECK(served(1) == 2);
  CHECK(served(2) == 2);
  CHECK(served(3) == 0);
  CHECK(served(5) == 8);
  CHECK(served(8) == 8);
  CHECK(served(9) == 0);
  shape.k = 128;
  CHECK(served(1) == 0);
  shape = {4, 64, 64, DType::kBfloat16, DType::kFloat32, true};
  CHECK(served(4) == 4);
}

TEST_CASE("A table's text names the line that is wrong", "[gemm-plan]") {
  const auto broken = GemmPlanTable::Parse(absl::StrCat(kTable, "n=1 what\n"));
  CHECK(broken.status().message() == "line 6: expected k=, found \"what\"");
  const auto twice =
      GemmPlanTable::Parse(absl::StrCat(kTable, "n=64 k=64 in=bf16 out=bf16 rows=8-12 use=gemv\n"));
  CHECK(twice.status().message() == "line 6: another plan serves some of these rows");
}

TEST_CASE("A table is written sorted and read back as it was", "[gemm-plan]") {
  const auto table = GemmPlanTable::Parse(kTable);
  REQUIRE(table.ok());
  const std::string text = table->Format("# header\n");
  CHECK(text ==
        "# header\n"
        "\n"
        "n=64 k=64 in=bf16 out+=f32 rows=1-4 use=gemv\n"
        "\n"
        "n=64 k=64 in=bf16 out=bf16 rows=1-2 use=gemv  # fast\n"
        "n=64 k=64 in=bf16 out=bf16 rows=5-8 use=small splits=1 sharers=1\n");
  const auto again = GemmPlanTable::Parse(text);
  REQUIRE(again.ok());
  CHECK(again->Format("# header\n") == text);
}

TEST_CASE("A new plan takes the place of all that share rows with it", "[gemm-plan]") {
  auto table = GemmPlanTable::Parse(kTable);
  REQUIRE(table.ok());
  auto plan = ParseGemmPlan("n=64 k=64 in=bf16 out=bf16 rows=2-6 use=gemv");
  REQUIRE(plan.ok());
  table->Put(*plan);
  CHECK(table->size() == 2);
  plan->rows_min = 7;
  plan->shape.rows = 7;
  table->Put(*plan);
  CHECK(table->size() == 3);
  plan->shape.rows = 6;
  CHECK(table->Find(plan->shape)->rows_min == 2);
}

TEST_CASE("The committed tables are in the binary and can be read", "[gemm-plan]") {
  CHECK(GemmPlanTableName("NVIDIA H200", 130100) == "nvidia-h200_130100");
  const auto text = CommittedGemmPlans("nvidia-h200_130100");
  REQUIRE(text.has_value());
  const auto table = GemmPlanTable::Parse(*text);
  CAPTURE(table.status().ToString());
  CHECK(table.ok());
  CHECK(!CommittedGemmPlans("abacus_1").has_value());
}

}  // namespace
}  // namespace weft::shard
