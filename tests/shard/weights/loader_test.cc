#include "shard/weights/loader.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

using test::Collected;
using test::CollectingSink;
using test::ParamId;
using test::TempDir;

const std::atomic<bool> kNeverCancel{false};

std::unique_ptr<ModelFiles> OpenOrFail(const std::string& path) {
  auto files = ModelFiles::Open(path);
  INFO(files.status());
  REQUIRE(files.ok());
  return *std::move(files);
}

SlicePlan PlanOf(const ModelFiles& files, Rank rank, uint32_t world) {
  const auto plan = MakeSlicePlan(files.spec(), rank, world, files.mlp_multiple());
  INFO(plan.status());
  REQUIRE(plan.ok());
  return *plan;
}

std::map<ParamId, Collected> LoadAll(ModelFiles& files, const SlicePlan& plan, int threads = 2) {
  CollectingSink sink;
  LoadProgress progress;
  const absl::Status status = files.Load(plan, threads, sink, progress, kNeverCancel);
  INFO(status);
  REQUIRE(status.ok());
  CHECK(progress.bytes_total == files.SliceBytes(plan));
  CHECK(progress.bytes_done == progress.bytes_total);
  CHECK(progress.tensors_done == progress.tensors_total);
  CHECK(progress.tensors_total == sink.params().size());
  return sink.params();
}

// transformers' name -> parameter.
ParamId ParamOf(absl::string_view name) {
  static const auto* kinds = new std::map<std::string, ParamKind>{
      {"input_layernorm.weight", ParamKind::kAttentionNorm},
      {"self_attn.q_proj.weight", ParamKind::kQuery},
      {"self_attn.k_proj.weight", ParamKind::kKey},
      {"self_attn.v_proj.weight", ParamKind::kValue},
      {"self_attn.o_proj.weight", ParamKind::kOutput},
      {"post_attention_layernorm.weight", ParamKind::kMlpNorm},
      {"mlp.gate_proj.weight", ParamKind::kGate},
      {"mlp.up_proj.weight", ParamKind::kUp},
      {"mlp.down_proj.weight", ParamKind::kDown},
      {"self_attn.q_norm.weight", ParamKind::kQueryNorm},
      {"self_attn.k_norm.weight", ParamKind::kKeyNorm},
      {"self_attn.q_proj.bias", ParamKind::kQueryBias},
      {"self_attn.k_proj.bias", ParamKind::kKeyBias},
      {"self_attn.v_proj.bias", ParamKind::kValueBias},
      {"self_attn.o_proj.bias", ParamKind::kOutputBias},
      {"mlp.gate_proj.bias", ParamKind::kGateBias},
      {"mlp.up_proj.bias", ParamKind::kUpBias},
      {"mlp.down_proj.bias", ParamKind::kDownBias},
  };
  if (name == "model.embed_tokens.weight") return {ParamKind::kTokenEmbedding, 0};
  if (name == "model.norm.weight") return {ParamKind::kFinalNorm, 0};
  if (name == "lm_head.weight") return {ParamKind::kHead, 0};
  REQUIRE(absl::ConsumePrefix(&name, "model.layers."));
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits('.', 1));
  uint32_t layer = 0;
  REQUIRE(absl::SimpleAtoi(parts.first, &layer));
  return {kinds->at(parts.second), layer};
}

TEST_CASE("Loaded rows hold the values that PyPI gguf and torch hold", "[shard][weights]") {
  for (const std::string& name : test::GoldenModels()) {
    const std::unique_ptr<ModelFiles> files = OpenOrFail(test::GoldenModelPath(name));
    const std::map<ParamId, Collected> params = LoadAll(*files, PlanOf(*files, 0, 1));
    const boost::json::value golden = test::ReadGolden(name + "/golden.json");
    // Only models whose tensors have Llama's names have rows.
    if (!golden.as_object().contains("rows")) continue;
    int compared = 0;
    for (const boost::json::value& row : golden.at("rows").as_array()) {
      const boost::json::string& tensor = row.at("tensor").as_string();
      if (tensor == "lm_head.weight" && files->spec().tied_head) continue;
      INFO(name << " " << tensor);
      const Collected& got = params.at(ParamOf({tensor.data(), tensor.size()}));
      std::vector<float> values = got.values;
      if (values.empty()) {
        const auto index = row.at("row").to_number<uint64_t>();
        const auto row_bytes = BytesOf(got.type, static_cast<uint64_t>(got.inputs));
        values = test::DecodeRow(got.type, got.bytes.data() + index * row_bytes, got.inputs);
      }
      const boost::json::array& want = row.at("values").as_array();
      REQUIRE(values.size() == want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        REQUIRE(values[i] == static_cast<float>(want[i].to_number<double>()));
      }
      ++compared;
    }
    CHECK(compared >= 13);
  }
}

TEST_CASE("A GGUF file's unquantised weights are those of its safetensors twin",
          "[shard][weights]") {
  for (const std::string name :
       {"llama_tied_llama3", "llama_biased", "starcoder2", "stablelm", "stablelm_parallel",
        "gpt_neox", "gpt_neox_sequential", "bloom", "qwen2_yarn", "phi3_longrope"}) {
    const auto twin = OpenOrFail(test::GoldenModelPath(name));
    const auto gguf = OpenOrFail(test::GoldenModelPath(name + "_gguf"));
    const auto a = LoadAll(*twin, PlanOf(*twin, 0, 1));
    const auto b = LoadAll(*gguf, PlanOf(*gguf, 0, 1));
    REQUIRE(a.size() == b.size());
    for (const auto& [id, param] : a) {
      INFO(name << " kind " << static_cast<int>(id.first) << " layer " << id.second);
      CHECK(param.bytes == b.at(id).bytes);
      CHECK(param.values == b.at(id).values);
    }
    // Some scaling is told as a tensor of divisors, and means the same.
    const auto x = RopeInverseFrequencies(twin->spec().attention_kinds[0].rope);
    const auto y = RopeInverseFrequencies(gguf->spec().attention_kinds[0].rope);
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == Approx(y[i]).epsilon(1e-6));
    CHECK(twin->Hash() != gguf->Hash());
  }
}

// The part of `whole` that a rank must hold: bytes of a matrix.
std::string Cut(const Collected& whole, Range rows, Range columns) {
  const uint64_t row_bytes = BytesOf(whole.type, static_cast<uint64_t>(whole.inputs));
  std::string out;
  for (uint32_t row = rows.begin; row < rows.end; ++row) {
    out += whole.bytes.substr(row * row_bytes + BytesOf(whole.type, columns.begin),
                              BytesOf(whole.type, columns.size()));
  }
  return out;
}

TEST_CASE("Slices of 1 to 4 shards are the matching parts of the whole", "[shard][weights]") {
  for (const std::string& name : test::GoldenModels()) {
    const auto files = OpenOrFail(test::GoldenModelPath(name));
    const DecoderSpec& spec = files->spec();
    const auto whole = LoadAll(*files, PlanOf(*files, 0, 1));
    for (uint32_t world = 1; world <= test::GoldenRanksMax(name); ++world) {
      for (Rank rank = 0; rank < world; ++rank) {
        const SlicePlan plan = PlanOf(*files, rank, world);
        const auto scaled = [](Range range, uint32_t unit) {
          return Range{range.begin * unit, range.end * unit};
        };
        for (const auto& [id, part] : LoadAll(*files, plan, 1 + static_cast<int>(rank))) {
          const Collected& all = whole.at(id);
          INFO(name << " kind " << static_cast<int>(id.first) << " rank " << rank << "/" << world);
          const bool vector = !all.values.empty();
          Range rows{0, static_cast<uint32_t>(vector ? all.values.size() : all.outputs)};
          Range columns{0, static_cast<uint32_t>(all.inputs)};
          switch (id.first) {
            case ParamKind::kTokenEmbedding:
            case ParamKind::kHead:
            case ParamKind::kHeadBias:
              rows = plan.vocab;
              break;
            case ParamKind::kQuery:
            case ParamKind::kQueryBias:
              rows = scaled(plan.heads, spec.query_dim());
              break;
            case ParamKind::kKeyUp:
              rows = scaled(plan.heads, spec.latent.rank);
              break;
            case ParamKind::kValueUp:
              rows = scaled(plan.heads, spec.latent.value_dim);
              break;
            case ParamKind::kKey:
            case ParamKind::kValue:
            case ParamKind::kKeyBias:
            case ParamKind::kValueBias:
              rows = scaled(plan.kv_heads, spec.head_dim);
              break;
            case ParamKind::kSinks:
              rows = plan.heads;
              break;
            case ParamKind::kOutput:
              columns = scaled(plan.heads, spec.output_dim());
              break;
            case ParamKind::kGate:
            case ParamKind::kUp:
            case ParamKind::kGateBias:
            case ParamKind::kUpBias:
              rows = plan.mlp;
              break;
            case ParamKind::kDown:
              columns = plan.mlp;
              break;
            case ParamKind::kExpertGate:
            case ParamKind::kExpertUp:
            case ParamKind::kExpertGateBias:
            case ParamKind::kExpertUpBias:
              rows = plan.expert;
              break;
            case ParamKind::kExpertDown:
              columns = plan.expert;
              break;
            case ParamKind::kSharedGate:
            case ParamKind::kSharedUp:
              rows = plan.shared;
              break;
            case ParamKind::kSharedDown:
              columns = plan.shared;
              break;
            default:
              break;
          }
          if (vector) {
            REQUIRE(part.values == std::vector<float>(all.values.begin() + rows.begin,
                                                      all.values.begin() + rows.end));
            continue;
          }
          REQUIRE(part.type == all.type);
          REQUIRE(part.outputs == rows.size());
          REQUIRE(part.inputs == columns.size());
          REQUIRE(part.bytes == Cut(all, rows, columns));
        }
      }
    }
  }
}

TEST_CASE("Shards that would cut blocks of 256 are refused with counts that work",
          "[shard][weights]") {
  const auto files = OpenOrFail(test::GoldenModelPath("llama_super_blocks"));
  CHECK(files->mlp_multiple() == 256);
  CHECK(files->CheckCuts(PlanOf(*files, 1, 2)).ok());
  for (const uint32_t world : {3u, 4u}) {
    const absl::Status status = files->CheckCuts(PlanOf(*files, 0, world));
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), "model.gguf: tensor blk.0.attn_output.weight"));
    CHECK(absl::StrContains(status.message(), "shard counts that would work: 1, 2;"));
  }
}

TEST_CASE("Types and sizes of a model are told", "[shard][weights]") {
  const auto q4 = OpenOrFail(test::GoldenModelPath("llama_q4_1"));
  CHECK(q4->main_type() == TensorType::kQ4_1);
  CHECK(q4->mlp_multiple() == 32);
  const auto parts = OpenOrFail(test::GoldenModelPath("llama_untied_linear_parts"));
  CHECK(parts->main_type() == TensorType::kBf16);
  CHECK(parts->mlp_multiple() == 1);
  CHECK(parts->total_bytes() == 2 * parts->spec().parameters());
  CHECK(parts->SliceBytes(PlanOf(*parts, 0, 1)) == parts->total_bytes());
  CHECK(parts->Hash() == OpenOrFail(test::GoldenModelPath("llama_untied_linear_parts"))->Hash());
  const auto mixed = OpenOrFail(test::GoldenModelPath("llama_mixed"));
  CHECK(mixed->Hash() != q4->Hash());
}

TEST_CASE("A cancelled load ends early and says so", "[shard][weights]") {
  const auto files = OpenOrFail(test::GoldenModelPath("llama_q4_0"));
  CollectingSink sink;
  LoadProgress progress;
  const std::atomic<bool> cancel{true};
  const absl::Status status = files->Load(PlanOf(*files, 0, 1), 2, sink, progress, cancel);
  CHECK(absl::IsCancelled(status));
  CHECK(sink.params().empty());
  CHECK(progress.bytes_done == 0);
  CHECK(progress.bytes_total > 0);
}

// Fails at every matrix, and counts them.
class FullSink : public CollectingSink {
 public:
  absl::Status AddMatrix(ParamKey, const MatrixSource&) override {
    matrices.fetch_add(1);
    return absl::ResourceExhaustedError("no memory for it");
  }
  std::atomic<int> matrices{0};
};

TEST_CASE("An error of the sink ends the load and names file and tensor", "[shard][weights]") {
  const std::string path = test::GoldenModelPath("llama_q4_0");
  const auto files = OpenOrFail(path);
  for (const int threads : {1, 3}) {
    INFO(threads << " threads");
    FullSink sink;
    LoadProgress progress;
    const absl::Status status =
        files->Load(PlanOf(*files, 0, 1), threads, sink, progress, kNeverCancel);
    CHECK(absl::IsResourceExhausted(status));
    CHECK(absl::StartsWith(status.message(), path + ": tensor "));
    CHECK(absl::EndsWith(status.message(), "no memory for it"));
    // Each thread may have one tensor in its hands when another's fails, and takes none after it.
    CHECK(sink.matrices >= 1);
    CHECK(sink.matrices <= threads);
    CHECK(progress.tensors_done < progress.tensors_total);
  }
}

// KiB of `path` that are mapped and resident in this process.
int ResidentKib(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  int total = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (absl::StrContains(line, "-") && absl::StrContains(line.substr(0, 40), " r")) {
      ours = absl::EndsWith(line, path);
    }
    int kib = 0;
    absl::string_view rest = line;
    if (!ours || !absl::ConsumePrefix(&rest, "Rss:")) continue;
    rest = absl::StripSuffix(rest, " kB");
    REQUIRE(absl::SimpleAtoi(absl::StripAsciiWhitespace(rest), &kib));
    total += kib;
  }
  return total;
}

TEST_CASE("Loaded pages are dropped, so that weights are not resident twice", "[shard][weights]") {
  const std::string path =
      std::filesystem::canonical(test::GoldenModelPath("llama_tied_llama3_gguf")).string();
  const auto files = OpenOrFail(path);
  // Proves that the measure works: the header has just been read.
  CHECK(ResidentKib(path) > 0);
  LoadAll(*files, PlanOf(*files, 0, 1));
  CHECK(ResidentKib(path) == 0);
}

TEST_CASE("A file that shrinks while it is loaded is an error, not a crash", "[shard][weights]") {
  alignas(4096) static char page[4096];
  if (madvise(page, sizeof(page), MADV_POPULATE_READ) != 0) {
    test::SkipTest("populate_read", "this kernel cannot tell that pages of a file are gone");
  }
  const TempDir dir;
  const std::string path = dir.Write("m.gguf", test::ReadFile(test::GoldenModelPath("llama_q4_0")));
  const auto files = OpenOrFail(path);
  std::filesystem::resize_file(path, 1000);
  CollectingSink sink;
  LoadProgress progress;
  const absl::Status status = files->Load(PlanOf(*files, 0, 1), 2, sink, progress, kNeverCancel);
  INFO(status);
  CHECK(absl::IsDataLoss(status));
  CHECK(absl::StrContains(status.message(), "the file has shrunk or its disk has failed"));
}

// A copy of a golden model's directory that a test may change.
void CopyModel(const std::string& name, const TempDir& dir) {
  for (const auto& entry : std::filesystem::directory_iterator(test::GoldenPath(name))) {
    std::filesystem::copy(entry.path(), dir.path());
  }
}

std::string Refusal(const std::string& path) {
  const absl::Status status = ModelFiles::Open(path).status();
  CHECK_FALSE(status.ok());
  return std::string(status.message());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("Files that do not fit the config are refused by file and tensor", "[shard][weights]") {
  const TempDir dir;
  CopyModel("llama_nine_heads_f16", dir);
  const std::string config = test::ReadFile(dir.path() + "/config.json");
  const std::string weights = test::ReadFile(dir.path() + "/model.safetensors");
  const std::string file = dir.path() + "/model.safetensors: ";
  std::string got;

  dir.Write("config.json", Replaced(config, "\"vocab_size\": 199", "\"vocab_size\": 200"));
  got = Refusal(dir.path());
  CHECK(got == file +
                   "tensor model.embed_tokens.weight: expected shape [200, 72] (outputs first), "
                   "found [199, 72]; configuration and weights are of different models: save or "
                   "convert both together");

  dir.Write("config.json",
            Replaced(config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"));
  got = Refusal(dir.path());
  CHECK(absl::StrContains(got,
                          "tensor model.layers.2.input_layernorm.weight: expected [72], found "
                          "no such tensor"));

  dir.Write("config.json",
            Replaced(config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"));
  got = Refusal(dir.path());
  CHECK(absl::StrContains(got, file + "tensor model.layers.1."));
  CHECK(absl::StrContains(got, "is not part of a llama model of 1 layers"));

  // Which of the two is meant depends on the version of transformers.
  dir.Write("config.json",
            Replaced(config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"));
  got = Refusal(dir.path());
  CHECK(absl::StrContains(got, "tensor lm_head.weight is not model.embed_tokens.weight, but"));
  CHECK(absl::StrContains(got, "set tie_word_embeddings to false to use the head of the file"));

  dir.Write("config.json", config);
  dir.Write("model.safetensors", Replaced(weights, "lm_head.weight", "lm_tail.weight"));
  got = Refusal(dir.path());
  CHECK(absl::StrContains(got,
                          "tensor lm_head.weight: expected [199, 72], found no such tensor; a "
                          "model whose head is its embedding says tie_word_embeddings"));

  dir.Write("model.safetensors", weights.substr(0, weights.size() / 2));
  CHECK(absl::StrContains(Refusal(dir.path()), "truncated"));
}

TEST_CASE("A tensor of an unknown type is refused only by a model that reads it",
          "[shard][weights]") {
  const TempDir dir;
  CopyModel("llama_nine_heads_f16", dir);
  const std::string weights = test::ReadFile(dir.path() + "/model.safetensors");
  dir.Write("model.safetensors", Replaced(weights, R"("lm_head.weight":{"dtype":"F16")",
                                          R"("lm_head.weight":{"dtype":"I16")"));
  CHECK(absl::StrContains(Refusal(dir.path()),
                          "model.safetensors: tensor lm_head.weight: dtype \"I16\" is not "
                          "supported; known are F32, F16, BF16"));
  // Its masks are of BOOL, and nothing reads them.
  CHECK(ModelFiles::Open(test::GoldenModelPath("gpt_neox")).ok());
}

// The bytes of a tensor in a safetensors file: [begin, end).
std::pair<size_t, size_t> BytesInFile(const std::string& file, const char* tensor) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const size_t begin = sizeof(header_bytes) + header_bytes;
  const boost::json::value header =
      boost::json::parse(file.substr(sizeof(header_bytes), header_bytes));
  const boost::json::value& offsets = header.at(tensor).at("data_offsets");
  return {begin + offsets.at(0).to_number<size_t>(), begin + offsets.at(1).to_number<size_t>()};
}

TEST_CASE("A head beside a tied embedding is left out where it is the same", "[shard][weights]") {
  const TempDir dir;
  CopyModel("llama_nine_heads_f16", dir);
  dir.Write("config.json",
            Replaced(test::ReadFile(dir.path() + "/config.json"), "\"tie_word_embeddings\": false",
                     "\"tie_word_embeddings\": true"));
  std::string weights = test::ReadFile(dir.path() + "/model.safetensors");
  const auto head = BytesInFile(weights, "lm_head.weight");
  const auto embedding = BytesInFile(weights, "model.embed_tokens.weight");
  REQUIRE(head.second - head.first == embedding.second - embedding.first);
  weights.replace(head.first, head.second - head.first, weights, embedding.first,
                  embedding.second - embedding.first);
  dir.Write("model.safetensors", weights);
  CHECK(OpenOrFail(dir.path())->spec().tied_head);
  weights[head.second - 1] ^= 1;
  dir.Write("model.safetensors", weights);
  CHECK(absl::StrContains(Refusal(dir.path()), "tensor lm_head.weight is not "));
}

TEST_CASE("A path that is no model is refused with what is wanted", "[shard][weights]") {
  CHECK(absl::StrContains(Refusal("/nonexistent/model"), "/nonexistent/model"));
  const std::string file = test::GoldenPath("llama_nine_heads_f16/model.safetensors");
  CHECK(absl::StrContains(Refusal(file), "wants the directory that holds config.json"));
  CHECK(absl::StrContains(Refusal(test::GoldenPath("demo")), "config.json"));
}

TEST_CASE("Quantised vectors are refused", "[shard][weights]") {
  test::GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint("llama.block_count", 1)
      .Uint("llama.embedding_length", 32)
      .Uint("llama.feed_forward_length", 32)
      .Uint("llama.context_length", 64)
      .Uint("llama.attention.head_count", 4)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Tensor("token_embd.weight", {32, 5}, 8, std::string(5 * 34, '\0'))
      .Tensor("blk.0.attn_norm.weight", {32}, 8, std::string(34, '\0'));
  const TempDir dir;
  CHECK(absl::StrContains(Refusal(dir.Write("m.gguf", builder.Build())),
                          "tensor blk.0.attn_norm.weight: expected a vector of F32, F16 or BF16, "
                          "found Q8_0"));
}

TEST_CASE("Heads that are no whole blocks cannot be split", "[shard][weights]") {
  test::GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint("llama.block_count", 1)
      .Uint("llama.embedding_length", 32)
      .Uint("llama.feed_forward_length", 64)
      .Uint("llama.context_length", 64)
      .Uint("llama.attention.head_count", 4)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Tensor("token_embd.weight", {32, 5}, 8, std::string(5 * 34, '\0'))
      .Tensor("output_norm.weight", {32}, 0, std::string(128, '\0'))
      .Tensor("blk.0.attn_norm.weight", {32}, 0, std::string(128, '\0'))
      .Tensor("blk.0.ffn_norm.weight", {32}, 0, std::string(128, '\0'))
      .Tensor("blk.0.ffn_gate.weight", {32, 64}, 8, std::string(64 * 34, '\0'))
      .Tensor("blk.0.ffn_up.weight", {32, 64}, 8, std::string(64 * 34, '\0'))
      .Tensor("blk.0.ffn_down.weight", {64, 32}, 8, std::string(64 * 34, '\0'));
  for (const char* name : {"q", "k", "v", "output"}) {
    builder.Tensor(absl::StrCat("blk.0.attn_", name, ".weight"), {32, 32}, 8,
                   std::string(32 * 34, '\0'));
  }
  const TempDir dir;
  const auto files = OpenOrFail(dir.Write("m.gguf", builder.Build()));
  CollectingSink sink;
  LoadProgress progress;
  CHECK(files->Load(PlanOf(*files, 0, 1), 1, sink, progress, kNeverCancel).ok());
  const absl::Status status = files->Load(PlanOf(*files, 0, 2), 1, sink, progress, kNeverCancel);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(),
                          "tensor blk.0.attn_output.weight: this shard's columns 0 to 16 cut a "
                          "block of 32 Q8_0 numbers; shard counts that would work: 1"));
}

}  // namespace
}  // namespace weft::shard
