#include "text_fixture.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/check.h"
#include "tests/support/demo_model.h"

namespace weft::router {
namespace {

// Where the demo file's tensor data begins: all metadata lies before.
constexpr size_t kDemoMetadataBytes = 1785664;

std::string ReadFile(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  std::string contents(std::min<size_t>(bytes_max, std::filesystem::file_size(path)), '\0');
  file.read(contents.data(), static_cast<std::streamsize>(contents.size()));
  return contents;
}

}  // namespace

const boost::json::value& Golden(const char* key) {
  static const boost::json::value goldens =
      boost::json::parse(ReadFile(WEFT_TEXT_TEST_DIR "/goldens.json", SIZE_MAX));
  return goldens.at(key);
}

std::string Text(const boost::json::value& value) {
  const boost::json::string& text = value.as_string();
  return std::string(text.data(), text.size());
}

std::vector<TokenId> Ids(const boost::json::value& value) {
  return boost::json::value_to<std::vector<TokenId>>(value);
}

std::vector<std::pair<uint32_t, uint32_t>> Offsets(const boost::json::value& value) {
  return boost::json::value_to<std::vector<std::pair<uint32_t, uint32_t>>>(value);
}

const Tokenizer& DemoTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    auto loaded = Tokenizer::FromModel(test::DemoModelOrSkip());
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    return std::move(loaded).value();
  }();
  return *tokenizer;
}

std::string ModelPath(const std::string& name) { return WEFT_TEXT_TEST_DIR "/models/" + name; }

std::unique_ptr<Tokenizer> LoadSmall(const std::string& name) {
  auto loaded = Tokenizer::FromModel(ModelPath(name));
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return std::move(loaded).value();
}

std::unique_ptr<TemplateHost> StartTemplates(const TemplateLimits& limits) {
  TemplateHostOptions options;
  options.limits = limits;
  options.program = WEFT_TEMPLATE_SERVER;
  auto started = TemplateHost::Start(std::move(options));
  INFO(started.status().ToString());
  REQUIRE(started.ok());
  return std::move(started).value();
}

TemplateHost& Templates() {
  static const std::unique_ptr<TemplateHost> host = StartTemplates();
  return *host;
}

std::unique_ptr<ChatTemplate> Compile(absl::string_view source) {
  ChatTemplate::Options options;
  options.bos_token = "<bos>";
  options.eos_token = "<eos>";
  auto made = ChatTemplate::Create(&Templates(), &DemoTokenizer(), source, options);
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  return std::move(made).value();
}

std::string PatchDir::PatchDemo(const std::string& name, absl::string_view from,
                                absl::string_view to) const {
  REQUIRE(from.size() == to.size());
  const std::string demo = test::DemoModelOrSkip();
  std::string metadata = ReadFile(demo, kDemoMetadataBytes);
  const size_t at = metadata.find(std::string(from));
  REQUIRE(at != std::string::npos);
  metadata.replace(at, to.size(), std::string(to));
  const std::string path = Write(name, metadata);
  std::filesystem::resize_file(path, std::filesystem::file_size(demo));
  return path;
}

}  // namespace weft::router
