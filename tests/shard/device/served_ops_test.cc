// Operations and types that no kernel serves are refused before anything is loaded, each by name;
// every golden model in every type that it is tested in passes, on both kinds of device.

#include "shard/device/served_ops.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shard/device/cpu/planner.h"
#include "shard/device/cpu/served.h"
#include "shard/device/cuda/planning.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

using Catch::Contains;

std::unique_ptr<ModelFiles> Open(const std::string& name) {
  auto files = ModelFiles::Open(test::GoldenModelPath(name));
  REQUIRE(files.ok());
  return *std::move(files);
}

MemoryFlags Types(NumberType dtype, NumberType kv = NumberType::kAuto) {
  MemoryFlags flags;
  flags.dtype = dtype;
  flags.kv_dtype = kv;
  flags.running_max = 8;
  flags.step_tokens_max = 64;
  return flags;
}

absl::Status OnCpu(const ModelFiles& files, const MemoryFlags& flags, uint32_t world = 1) {
  return CheckCpuServes(files, world, flags, CpuPlanRules());
}

absl::Status OnCuda(const ModelFiles& files, const MemoryFlags& flags, uint32_t world = 1) {
  return CheckCudaServes(files, *MakeSlicePlan(files.spec(), 0, world, files.mlp_multiple()),
                         flags);
}

std::string Refusal(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("Every golden model is served in every type, alone and by two ranks",
          "[shard][compute][served]") {
  for (const std::string& name : test::GoldenModels()) {
    const auto files = Open(name);
    for (const uint32_t world : {1u, 2u}) {
      if (world > test::GoldenRanksMax(name)) continue;
      for (const NumberType dtype :
           {NumberType::kAuto, NumberType::kFloat32, NumberType::kBfloat16}) {
        INFO(name << " on " << world << " in " << NumberTypeName(dtype));
        for (const NumberType kv : {NumberType::kAuto, NumberType::kFloat32, NumberType::kBfloat16,
                                    NumberType::kFloat16}) {
          const absl::Status cpu = OnCpu(*files, Types(dtype, kv), world);
          INFO(cpu);
          CHECK(cpu.ok());
        }
        if (!CudaIsBuilt().ok()) {
          test::LeaveOut("cuda_build", "built with WEFT_CUDA=OFF");
          continue;
        }
        const absl::Status cuda = OnCuda(*files, Types(dtype), world);
        INFO(cuda);
        CHECK(cuda.ok());
      }
    }
  }
}

TEST_CASE("Float16 activations are refused by both kinds of device", "[shard][compute][served]") {
  const auto files = Open("llama_nine_heads_f16");
  const std::string cpu = Refusal(OnCpu(*files, Types(NumberType::kFloat16)));
  CHECK_THAT(cpu, Contains("--dtype float16: layer 0 embed") &&
                      Contains("CPU shards have no kernel for float16 activations, only for "
                               "float32 or bfloat16; use --dtype auto"));
  if (!CudaIsBuilt().ok()) return test::LeaveOut("cuda_build", "built with WEFT_CUDA=OFF");
  CHECK_THAT(Refusal(OnCuda(*files, Types(NumberType::kFloat16))),
             Contains("CUDA shards have no kernel for float16 activations"));
}

TEST_CASE("On CUDA the KV cache has the type of activations", "[shard][compute][served]") {
  if (!CudaIsBuilt().ok()) test::SkipTest("cuda_build", "built with WEFT_CUDA=OFF");
  const auto files = Open("llama_nine_heads_f16");
  CHECK_THAT(Refusal(OnCuda(*files, Types(NumberType::kBfloat16, NumberType::kFloat16))),
             Contains("--kv-dtype float16: layer 0 ") && Contains("append") &&
                 Contains("a KV cache in float16 beside bfloat16 activations, only for bfloat16") &&
                 Contains("use --kv-dtype auto, or --device cpu"));
  CHECK_THAT(Refusal(OnCuda(*files, Types(NumberType::kFloat32, NumberType::kBfloat16))),
             Contains("a KV cache in bfloat16 beside float32 activations, only for float32"));
}

// A device that serves all that the CPU does, but for what `change` takes away.
absl::Status OnLesser(const ModelFiles& files, std::vector<MatrixFormat> held,
                      const std::function<void(std::vector<ServedOp>&)>& change) {
  std::vector<ServedOp> ops(CpuServedOps().ops.begin(), CpuServedOps().ops.end());
  change(ops);
  ServedOps served = CpuServedOps();
  served.ops = ops;
  return CheckServed(served, MakeCpuPlan(files.spec(), 1, CpuPlanRules()), files.spec(),
                     {NumberType::kBfloat16, NumberType::kFloat16}, held);
}

TEST_CASE("A device that lacks an operation, an epilogue or a format says which, and where",
          "[shard][compute][served]") {
  const auto files = Open("mixtral");
  const std::vector<MatrixFormat> held = files->Matrices();
  CHECK(OnLesser(*files, held, [](auto&) {}).ok());
  const auto without = [](OpKind kind) {
    return [kind](std::vector<ServedOp>& ops) {
      ops.erase(std::remove_if(ops.begin(), ops.end(),
                               [kind](const ServedOp& op) { return op.kind == kind; }),
                ops.end());
    };
  };
  CHECK_THAT(Refusal(OnLesser(*files, held, without(OpKind::kRoute))),
             Contains("layer 0 route: ") &&
                 Contains("CPU shards have no kernel for this operation; use --device cuda"));
  const auto narrow = [](OpKind kind, uint32_t ServedOp::*set, uint32_t to) {
    return [=](std::vector<ServedOp>& ops) {
      for (ServedOp& op : ops) {
        if (op.kind == kind) op.*set = to;
      }
    };
  };
  CHECK_THAT(
      Refusal(OnLesser(*files, held,
                       narrow(OpKind::kLinear, &ServedOp::epilogues, SetOf(Epilogue::kStore)))),
      Contains("adds to it: CPU shards have no kernel for this operation"));
  const std::string format = FormatOf(held[0].type).name;
  CHECK_THAT(Refusal(OnLesser(*files, held,
                              narrow(OpKind::kLinear, &ServedOp::weights,
                                     SetOf(TensorType::kQ8_0, TensorType::kQ4_0)))),
             Contains("layer 0 linear qkv") && Contains("query of layer 0 in " + format) &&
                 Contains("beside bfloat16 activations, only in Q8_0, Q4_0") &&
                 Contains("use another --dtype, or --device cuda"));
  // What lies behind the layers has no number of its own.
  std::vector<MatrixFormat> other_head = held;
  for (MatrixFormat& matrix : other_head) {
    if (matrix.key.kind == ParamKind::kHead) matrix.type = TensorType::kQ2K;
  }
  CHECK_THAT(Refusal(OnLesser(*files, other_head,
                              narrow(OpKind::kLinear, &ServedOp::weights,
                                     kAllTensorTypes & ~SetOf(TensorType::kQ2K)))),
             Contains("behind the layers linear head") && Contains("in Q2_K"));
}

TEST_CASE("Experts of one layer in several types are refused where products take one",
          "[shard][compute][served]") {
  const auto files = Open("mixtral");
  std::vector<MatrixFormat> held = files->Matrices();
  for (MatrixFormat& matrix : held) {
    const ParamKey& key = matrix.key;
    if (key.kind == ParamKind::kExpertUp && key.layer == 1 && key.expert == 2) {
      matrix.type = TensorType::kQ8_0;
    }
  }
  CHECK_THAT(Refusal(OnLesser(*files, held, [](auto&) {})),
             Contains("layer 1 ") && Contains("of layer 1 in Q8_0 beside") &&
                 Contains("all experts of a layer in one type"));
}

}  // namespace
}  // namespace weft::shard
