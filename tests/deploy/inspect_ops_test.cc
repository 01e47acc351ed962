#include "deploy/launcher/inspect_ops.h"

#include <catch2/catch.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "tests/shard/weights/goldens.h"

namespace weft::launcher {
namespace {

std::unique_ptr<shard::ModelFiles> Shape(const std::string& name) {
  auto files = shard::ModelFiles::OpenShape(test::GoldenPath("../bench/shapes/") + name);
  REQUIRE(files.ok());
  return *std::move(files);
}

PlanOptions OnCpu() {
  PlanOptions options;
  options.device = "cpu";
  options.memory.dtype = "bfloat16";
  return options;
}

TEST_CASE("A step's operations are joined over layers and read the model once", "[inspect][plan]") {
  const auto files = Shape("llama-3.2-1b");
  const StepOptions step;
  const auto ops = PlanStep(*files, OnCpu(), step);
  REQUIRE(ops.ok());
  uint32_t attentions = 0;
  for (const StepOp& op : ops->ops) {
    if (op.op.kind == shard::OpKind::kAttend) attentions += op.times;
  }
  CHECK(attentions == files->spec().layers);
  // First layer, those between, last layer, and what is behind.
  CHECK(ops->ops.size() < 4 * 12);
  // All matrices but the embedding, whose rows are the head's here; activations add little.
  CHECK(ops->bytes > files->total_bytes());
  CHECK(ops->bytes < files->total_bytes() * 11 / 10);
  const std::string text = StepText(*ops);
  CHECK(absl::StrContains(text, "layers 1 to 14, each"));
  CHECK(absl::StrContains(text, "behind the layers"));
  CHECK_FALSE(absl::StrContains(text, " us"));
}

TEST_CASE("Rows next to an embedding of another width are as wide as it", "[inspect][plan]") {
  auto files = shard::ModelFiles::OpenShape(test::GoldenPath("opt_350m"));
  REQUIRE(files.ok());
  const shard::DecoderSpec& spec = (*files)->spec();
  const auto ops = PlanStep(**files, OnCpu(), StepOptions());
  REQUIRE(ops.ok());
  std::vector<uint64_t> rounded;
  uint64_t head = 0;
  for (const StepOp& op : ops->ops) {
    if (op.op.kind == shard::OpKind::kRound && op.op.in == shard::Buffer::kEmbedded) {
      rounded.push_back(op.bytes);
    }
    if (op.op.matrix == shard::Matrix::kHead) head = op.bytes;
  }
  // In front of the layers and of the head: float32 in, bfloat16 out.
  const uint64_t embedding = spec.embedding_dim;
  CHECK(rounded == std::vector<uint64_t>(2, 6 * embedding));
  CHECK(head == 2 * embedding * spec.vocab + 2 * embedding + 4 * spec.vocab);
}

TEST_CASE("A known speed gives times", "[inspect][plan]") {
  StepOptions step;
  step.limit_gbytes_per_s = 100;
  const auto ops = PlanStep(*Shape("llama-3.2-1b"), OnCpu(), step);
  REQUIRE(ops.ok());
  CHECK(absl::StrContains(StepText(*ops), " us"));
}

TEST_CASE("More context is more bytes in attention alone", "[inspect][plan]") {
  const auto files = Shape("llama-3.2-1b");
  StepOptions step;
  const auto few = PlanStep(*files, OnCpu(), step);
  step.context = 2048;
  const auto more = PlanStep(*files, OnCpu(), step);
  REQUIRE(few.ok());
  REQUIRE(more.ok());
  REQUIRE(few->ops.size() == more->ops.size());
  for (size_t i = 0; i < few->ops.size(); ++i) {
    const bool attends = few->ops[i].op.kind == shard::OpKind::kAttend;
    CHECK((more->ops[i].bytes > few->ops[i].bytes) == attends);
  }
}

TEST_CASE("Latents of a context are read once, without values", "[inspect][plan]") {
  const auto files = Shape("deepseek-v2-lite");
  StepOptions step;
  step.decode_rows = 1;
  step.context = 4096;
  const auto ops = PlanStep(*files, OnCpu(), step);
  REQUIRE(ops.ok());
  uint64_t attended = 0;
  for (const StepOp& op : ops->ops) {
    if (op.op.kind == shard::OpKind::kAttend) attended += op.times * op.bytes;
  }
  // Two bytes a number; queries and what is made of them come on top.
  const uint64_t latents = uint64_t{2} * 27 * 4096 * (512 + 64);
  CHECK(attended > latents);
  CHECK(attended < latents * 11 / 10);
  CHECK(absl::StrContains(StepText(*ops), "heads' linear key up"));
}

TEST_CASE("Steps that cannot be are refused by flag", "[inspect][plan]") {
  const auto files = Shape("llama-3.2-1b");
  StepOptions step;
  step.decode_rows = 0;
  CHECK(absl::StrContains(PlanStep(*files, OnCpu(), step).status().message(), "--plan-rows"));
  step = {};
  step.shards = 0;
  CHECK(absl::StrContains(PlanStep(*files, OnCpu(), step).status().message(), "--plan-shards"));
  step.shards = 1000;
  CHECK(absl::StrContains(PlanStep(*files, OnCpu(), step).status().message(), "too many"));
  const auto refusal = [&files](const StepOptions& of) {
    return std::string(PlanStep(*files, OnCpu(), of).status().message());
  };
  step = {};
  step.decode_rows = 1025;
  CHECK(refusal(step) == "--plan-rows: must be at most 1024, found 1025");
  step = {};
  step.context = files->spec().context_tokens + 1;
  CHECK(absl::StrContains(refusal(step), "--plan-context: must be at most 131072, found 131073"));
  step = {};
  step.prompt_tokens = 16385;
  CHECK(refusal(step) == "--plan-prompt: must be at most 16384, found 16385");
}

TEST_CASE("A step as JSON has what its text has", "[inspect][plan]") {
  StepOptions step;
  step.decode_rows = 3;
  step.limit_gbytes_per_s = 100;
  const auto ops = PlanStep(*Shape("llama-3.2-1b"), OnCpu(), step);
  REQUIRE(ops.ok());
  const boost::json::object out = StepJson(*ops);
  CHECK(out.at("decode_rows") == 3);
  CHECK(out.at("context_tokens") == 1024);
  CHECK(out.at("bytes").to_number<uint64_t>() == ops->bytes);
  uint64_t bytes = 0;
  for (const boost::json::value& op : out.at("ops").as_array()) {
    const uint64_t times =
        op.as_object().contains("layers") ? op.at("layers").to_number<uint64_t>() : 1;
    bytes += times * op.at("bytes").to_number<uint64_t>();
    CHECK(absl::StrContains(StepText(*ops), std::string(op.at("op").as_string())));
  }
  CHECK(bytes == ops->bytes);
}

}  // namespace
}  // namespace weft::launcher
