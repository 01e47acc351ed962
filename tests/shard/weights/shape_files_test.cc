#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "shard/weights/loader.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

using test::Collected;
using test::CollectingSink;
using test::ParamId;
using test::TempDir;

const std::atomic<bool> kNeverCancel{false};

// A directory with config.json alone.
std::unique_ptr<ModelFiles> OpenShapeOf(const std::string& golden, const TempDir& dir) {
  dir.Write("config.json", test::ReadFile(test::GoldenPath(golden) + "/config.json"));
  auto files = ModelFiles::OpenShape(dir.path());
  INFO(files.status());
  REQUIRE(files.ok());
  return *std::move(files);
}

std::map<ParamId, Collected> LoadRank(ModelFiles& files, Rank rank, uint32_t world, int threads) {
  const auto plan = MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple());
  REQUIRE(plan.ok());
  CollectingSink sink;
  LoadProgress progress;
  REQUIRE(files.Load(*plan, threads, sink, progress, kNeverCancel).ok());
  CHECK(progress.bytes_total == files.SliceBytes(*plan));
  CHECK(progress.bytes_done == progress.bytes_total);
  CHECK(progress.tensors_total == sink.params().size());
  CHECK(progress.tensors_done == progress.tensors_total);
  return sink.params();
}

TEST_CASE("A shape has the parameters of its model, and no files", "[shard][weights]") {
  const TempDir dir;
  const auto files = OpenShapeOf("llama_biased", dir);
  const auto real = ModelFiles::Open(test::GoldenModelPath("llama_biased"));
  REQUIRE(real.ok());
  CHECK(files->random());
  CHECK_FALSE((*real)->random());
  CHECK(files->main_type() == TensorType::kBf16);
  CHECK(files->spec().Hash() == (*real)->spec().Hash());
  CHECK(files->Hash() != (*real)->Hash());
  CHECK(files->Hash() != files->spec().Hash());
  CHECK(files->total_bytes() == 2 * files->spec().parameters());

  const auto plan = MakeSlicePlan(files->spec(), 0, 1, 1);
  REQUIRE(plan.ok());
  CHECK(files->SliceBytes(*plan) == files->total_bytes());
  CollectingSink sink;
  LoadProgress progress;
  REQUIRE((*real)->Load(*plan, 1, sink, progress, kNeverCancel).ok());
  const auto made = LoadRank(*files, 0, 1, 2);
  REQUIRE(made.size() == sink.params().size());
  for (const auto& [id, param] : sink.params()) {
    INFO("kind " << static_cast<int>(id.first) << " layer " << id.second);
    const Collected& got = made.at(id);
    CHECK(got.outputs == param.outputs);
    CHECK(got.inputs == param.inputs);
    const float value = IsNorm(id.first) ? 1.0f : 0.0f;
    CHECK(got.values == std::vector<float>(param.values.size(), value));
  }
}

TEST_CASE("Random weights are spread as said, and no two matrices are alike", "[shard][weights]") {
  const TempDir dir;
  const auto files = OpenShapeOf("llama_untied_linear_parts", dir);
  std::map<std::string, int> first_rows;
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (const auto& [id, param] : LoadRank(*files, 0, 1, 1)) {
    if (!param.values.empty()) continue;
    REQUIRE(param.type == TensorType::kBf16);
    const uint64_t row_bytes = BytesOf(param.type, static_cast<uint64_t>(param.inputs));
    for (int64_t row = 0; row < param.outputs; ++row) {
      ++first_rows[param.bytes.substr(static_cast<uint64_t>(row) * row_bytes, 32)];
    }
    const auto all = test::DecodeRow(param.type, param.bytes.data(), param.outputs * param.inputs);
    for (const float x : all) {
      REQUIRE(std::abs(x) <= 0.0347f);
      sum += x;
      squares += double{x} * x;
    }
    count += static_cast<double>(all.size());
  }
  for (const auto& [bytes, times] : first_rows) REQUIRE(times == 1);
  CHECK(std::abs(sum / count) < 5e-4);
  CHECK(std::sqrt(squares / count) == Approx(0.02).epsilon(0.02));
}

TEST_CASE("Every rank holds its part of the same random model", "[shard][weights]") {
  const TempDir dir;
  const auto files = OpenShapeOf("llama_untied_linear_parts", dir);
  const DecoderSpec& spec = files->spec();
  const auto whole = LoadRank(*files, 0, 1, 1);
  CHECK(whole.at({ParamKind::kUp, 1}).bytes ==
        LoadRank(*files, 0, 1, 3).at({ParamKind::kUp, 1}).bytes);
  for (Rank rank = 0; rank < 3; ++rank) {
    const auto plan = MakeSlicePlan(spec, rank, 3, 1);
    REQUIRE(plan.ok());
    const auto part = LoadRank(*files, rank, 3, 2);
    const auto same = [&](ParamKind kind, uint32_t layer, uint64_t row_begin,
                          uint64_t column_begin) {
      const Collected& all = whole.at({kind, layer});
      const Collected& got = part.at({kind, layer});
      const auto columns = static_cast<uint64_t>(got.inputs);
      for (uint64_t row = 0; row < static_cast<uint64_t>(got.outputs); ++row) {
        const uint64_t at = (row_begin + row) * static_cast<uint64_t>(all.inputs) + column_begin;
        REQUIRE(got.bytes.substr(row * columns * 2, columns * 2) ==
                all.bytes.substr(at * 2, columns * 2));
      }
    };
    same(ParamKind::kTokenEmbedding, 0, plan->vocab.begin, 0);
    same(ParamKind::kHead, 0, plan->vocab.begin, 0);
    for (uint32_t layer = 0; layer < spec.layers; ++layer) {
      same(ParamKind::kQuery, layer, plan->heads.begin * spec.head_dim, 0);
      same(ParamKind::kKey, layer, plan->kv_heads.begin * spec.head_dim, 0);
      same(ParamKind::kOutput, layer, 0, plan->heads.begin * spec.head_dim);
      same(ParamKind::kUp, layer, plan->mlp.begin, 0);
      same(ParamKind::kDown, layer, 0, plan->mlp.begin);
    }
  }
}

TEST_CASE("The shapes of the benchmarks have the sizes that are published", "[shard][weights]") {
  const struct {
    const char* name;
    uint64_t parameters;
    bool tied;
  } cases[] = {
      {"llama-3.2-1b", 1235814400, true},
      {"llama-3.1-8b", 8030261248, false},
      {"llama-3.1-70b", 70553706496, false},
  };
  for (const auto& c : cases) {
    INFO(c.name);
    const auto files = ModelFiles::OpenShape(test::GoldenPath("../bench/shapes/") + c.name);
    INFO(files.status());
    REQUIRE(files.ok());
    const DecoderSpec& spec = (*files)->spec();
    CHECK(spec.parameters() == c.parameters);
    CHECK(spec.tied_head == c.tied);
    CHECK(spec.attention_kinds[0].rope.scaling == RopeScalingKind::kLlama3);
    CHECK(spec.eos_ids == std::vector<uint32_t>{128001, 128008, 128009});
  }
}

TEST_CASE("A shape is refused for what its config.json says", "[shard][weights]") {
  const TempDir dir;
  CHECK(absl::StrContains(ModelFiles::OpenShape(dir.path()).status().message(), "config.json"));
  const absl::Status gguf = ModelFiles::OpenShape(test::GoldenModelPath("llama_q4_0")).status();
  CHECK(absl::IsInvalidArgument(gguf));
  CHECK(absl::StrContains(gguf.message(), "--weights random wants a directory"));
  dir.Write("config.json", R"({"model_type": "llama", "num_hidden_layers": 2})");
  CHECK(absl::StrContains(ModelFiles::OpenShape(dir.path()).status().message(), "hidden_size"));
}

TEST_CASE("Making random weights ends when it is cancelled", "[shard][weights]") {
  const TempDir dir;
  const auto files = OpenShapeOf("llama_biased", dir);
  const auto plan = MakeSlicePlan(files->spec(), 0, 1, 1);
  REQUIRE(plan.ok());
  CollectingSink sink;
  LoadProgress progress;
  const std::atomic<bool> cancel{true};
  CHECK(absl::IsCancelled(files->Load(*plan, 2, sink, progress, cancel)));
  CHECK(sink.params().empty());
}

}  // namespace
}  // namespace weft::shard
