// What the text tests share: goldens.json (made by make_goldens.py), the demo model and patched
// copies of it, files in a directory of their own.

#pragma once

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "router/text/chat_template.h"
#include "router/text/template_host.h"
#include "router/text/tokenizer.h"
#include "tests/common/temp_dir.h"

namespace weft::router {

// A member of goldens.json.
const boost::json::value& Golden(const char* key);
std::string Text(const boost::json::value& value);
std::vector<TokenId> Ids(const boost::json::value& value);
std::vector<std::pair<uint32_t, uint32_t>> Offsets(const boost::json::value& value);

// Of the demo model, loaded once for all tests; without one the test is skipped.
const Tokenizer& DemoTokenizer();
// Folder of a small committed model.
std::string ModelPath(const std::string& name);
// The small model, loaded anew.
std::unique_ptr<Tokenizer> LoadSmall(const std::string& name);

// The processes for chat templates; started by the first test that asks.
TemplateHost& Templates();
// One of its own.
std::unique_ptr<TemplateHost> StartTemplates(const TemplateLimits& limits = {});
// `source` compiled for the demo model's tokenizer, with "<bos>" and "<eos>".
std::unique_ptr<ChatTemplate> Compile(absl::string_view source);

// A tokenizer.json made of a small model with another pipeline.
struct TokenizerVariant {
  std::string name;
  std::string json;
};
// Every pre-tokenizer that cuts.rs knows and some that it does not, with added tokens of all kinds.
std::vector<TokenizerVariant> TokenizerVariants();

// A directory for copies of the demo model.
class PatchDir : public test::TempDir {
 public:
  // A copy of the demo GGUF with the first `from` of its metadata replaced by `to` (equal length);
  // the tensor data is a hole in the file.
  std::string PatchDemo(const std::string& name, absl::string_view from,
                        absl::string_view to) const;
};

}  // namespace weft::router
