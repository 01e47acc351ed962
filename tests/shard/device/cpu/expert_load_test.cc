// The rows that experts get (--expert-load), against the routing of a tiny model computed here.

#include "shard/expert_load.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "boost/json.hpp"
#include "kernels/half.h"
#include "shard/weights/row_convert.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/device/cpu/rank_group.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

// Layer 0 of a copy of qwen3_moe whose attention there adds nothing: what the router sees of a
// token follows from its id alone.
class QuietModel {
 public:
  QuietModel() {
    const std::string golden = test::GoldenPath("qwen3_moe");
    for (const auto& entry : std::filesystem::directory_iterator(golden)) {
      std::filesystem::copy(entry.path(), dir_.path());
    }
    file_ = test::ReadFile(golden + "/model.safetensors");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file_.data(), sizeof(header_bytes));
    header_ = boost::json::parse(file_.substr(8, header_bytes));
    data_ = 8 + header_bytes;
    const boost::json::value& output = header_.at("model.layers.0.self_attn.o_proj.weight");
    const auto begin = output.at("data_offsets").at(0).to_number<uint64_t>();
    const auto end = output.at("data_offsets").at(1).to_number<uint64_t>();
    std::fill_n(file_.begin() + static_cast<ptrdiff_t>(data_ + begin), end - begin, '\0');
    dir_.Write("model.safetensors", file_);
    embedding_ = Numbers("model.embed_tokens.weight");
    norm_ = Numbers("model.layers.0.post_attention_layernorm.weight");
    router_ = Numbers("model.layers.0.mlp.gate.weight");
  }

  const std::string& path() const { return dir_.path(); }

  // The experts of layer 0 that a token takes.
  std::vector<uint32_t> ExpertsOf(TokenId token, const DecoderSpec& spec) const {
    const float* const x = embedding_.data() + size_t{token} * spec.hidden;
    double squares = 0;
    for (uint32_t i = 0; i < spec.hidden; ++i) squares += double{x[i]} * x[i];
    const double scale = 1 / std::sqrt(squares / spec.hidden + spec.norm_epsilon);
    std::vector<double> scores(spec.experts.count);
    for (uint32_t expert = 0; expert < spec.experts.count; ++expert) {
      for (uint32_t i = 0; i < spec.hidden; ++i) {
        scores[expert] += scale * x[i] * norm_[i] * router_[expert * spec.hidden + i];
      }
    }
    std::vector<uint32_t> order(spec.experts.count);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    // Float32 must see the same order.
    REQUIRE(scores[order[spec.experts.per_token - 1]] - scores[order[spec.experts.per_token]] >
            1e-4);
    order.resize(spec.experts.per_token);
    return order;
  }

 private:
  std::vector<float> Numbers(const char* name) const {
    const boost::json::value& tensor = header_.at(name);
    REQUIRE(tensor.at("dtype").as_string() == "F16");
    const auto begin = tensor.at("data_offsets").at(0).to_number<uint64_t>();
    const auto end = tensor.at("data_offsets").at(1).to_number<uint64_t>();
    std::vector<float> out((end - begin) / 2);
    RowToFloat(TensorType::kF16, reinterpret_cast<const uint8_t*>(file_.data()) + data_ + begin,
               static_cast<int64_t>(out.size()), out.data());
    return out;
  }

  const test::TempDir dir_;
  std::string file_;
  boost::json::value header_;
  uint64_t data_ = 0;
  std::vector<float> embedding_;
  std::vector<float> norm_;
  std::vector<float> router_;
};

std::vector<uint64_t> ReadLoad(RankGroup& group) {
  const std::shared_ptr<ExpertLoad> load = group.rank(0).expert_load();
  REQUIRE(load != nullptr);
  const auto rows = load->Read();
  REQUIRE(rows.ok());
  return *rows;
}

TEST_CASE("Rows are counted by layer and expert, those of warm-ups left out",
          "[shard][compute][experts]") {
  const QuietModel model;
  for (const uint32_t world : {1u, 2u}) {
    GroupOptions options;
    options.model = model.path();
    options.world = world;
    options.threads = 2;
    options.expert_load = true;
    RankGroup group(options);
    const DecoderSpec& spec = group.spec();
    const uint32_t experts = spec.experts.count;
    CHECK(group.rank(0).expert_load()->layers() == std::vector<uint32_t>{0, 1});
    CHECK(group.rank(0).expert_load()->experts() == experts);
    if (world == 2) CHECK(group.rank(1).expert_load() == nullptr);
    CHECK(ReadLoad(group) == std::vector<uint64_t>(2 * experts, 0));

    // Three prompts, one of them in two pieces, then four tokens more of each.
    StepMaker maker = group.Maker();
    std::vector<TokenId> seen;
    uint64_t sampled = 0;
    const auto chunk = [&](Slot slot, const std::vector<TokenId>& ids, bool sample) {
      maker.Chunk(slot, ids, sample);
      seen.insert(seen.end(), ids.begin(), ids.end());
      sampled += sample ? 1 : 0;
    };
    for (Slot slot = 0; slot < 3; ++slot) maker.Start(slot, SamplingParams{});
    chunk(0, {3, 14, 15, 92, 65}, false);
    StepResult result = group.Run(maker.Take());
    chunk(0, {35, 89, 79}, true);
    chunk(1, {3, 23, 84, 62, 64, 33, 83, 27, 95}, true);
    chunk(2, {28, 84, 19, 71}, true);
    result = group.Run(maker.Take());
    for (int step = 0; step < 4; ++step) {
      REQUIRE(result.ids.size() == 3);
      seen.insert(seen.end(), result.ids.begin(), result.ids.end());
      sampled += 3;
      for (Slot slot = 0; slot < 3; ++slot) maker.Decode(slot);
      result = group.Run(maker.Take());
    }

    std::vector<uint64_t> want(experts, 0);
    for (const TokenId token : seen) {
      for (const uint32_t expert : model.ExpertsOf(token, spec)) ++want[expert];
    }
    const std::vector<uint64_t> got = ReadLoad(group);
    CHECK(std::vector<uint64_t>(got.begin(), got.begin() + experts) == want);
    // The last layer has the rows alone that sample.
    CHECK(std::accumulate(got.begin() + experts, got.end(), uint64_t{0}) ==
          sampled * spec.experts.per_token);
    group.NewEpoch("");
    CHECK(ReadLoad(group) == got);
  }
}

TEST_CASE("Experts' rows are not counted unasked, and not of a model without",
          "[shard][compute][experts]") {
  GroupOptions options;
  options.model = test::GoldenModelPath("qwen3_moe");
  CHECK(RankGroup(options).rank(0).expert_load() == nullptr);
  options.expert_load = true;
  options.model = test::GoldenModelPath("qwen3");
  CHECK(RankGroup(options).rank(0).expert_load() == nullptr);
}

TEST_CASE("Layers without experts are left out", "[shard][compute][experts]") {
  GroupOptions options;
  // The first of three layers is plain.
  options.model = test::GoldenModelPath("deepseek_v2");
  options.expert_load = true;
  RankGroup group(options);
  CHECK(group.rank(0).expert_load()->layers() == std::vector<uint32_t>{1, 2});
  StepMaker maker = group.Maker();
  maker.Start(0, SamplingParams{});
  maker.Chunk(0, {3, 1, 4, 15, 92, 65, 35}, true);
  (void)group.Run(maker.Take());
  const std::vector<uint64_t> rows = ReadLoad(group);
  REQUIRE(rows.size() == 2 * 8);
  CHECK(std::accumulate(rows.begin(), rows.begin() + 8, uint64_t{0}) == 7 * 3);
  CHECK(std::accumulate(rows.begin() + 8, rows.end(), uint64_t{0}) == 3);
}

}  // namespace
}  // namespace weft::shard
