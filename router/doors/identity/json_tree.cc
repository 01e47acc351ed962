#include "router/doors/identity/json_tree.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "boost/json/basic_parser_impl.hpp"

namespace weft::router {
namespace {

using boost::json::error_code;
using BoostView = boost::json::string_view;

// Takes the parser's events. Strings cannot hold a line break, so each event but an array's or
// object's end belongs to the line that is being fed.
struct Builder {
  // What bounds them is the number of values, the members of an object and the file's length.
  static constexpr size_t max_array_size = SIZE_MAX;
  static constexpr size_t max_object_size = SIZE_MAX;
  static constexpr size_t max_string_size = SIZE_MAX;
  static constexpr size_t max_key_size = SIZE_MAX;

  int line = 1;
  JsonNode root;
  // Arrays and objects that are open, outermost first; `names` has the member's at hand.
  std::vector<JsonNode> open;
  std::vector<std::string> names;
  std::string part;
  size_t values = 0;
  // What Boost has no word for.
  std::string problem;

  bool Fail(std::string what, error_code& error) {
    problem = std::move(what);
    error = boost::json::error::syntax;
    return false;
  }

  JsonNode Make(JsonNode::Kind kind) const {
    JsonNode node;
    node.kind = kind;
    node.line = line;
    return node;
  }

  bool Put(JsonNode node, error_code& error) {
    if (++values > kJsonTreeValuesMax) {
      return Fail(absl::StrCat("more than ", kJsonTreeValuesMax, " values"), error);
    }
    if (open.empty()) {
      root = std::move(node);
      return true;
    }
    JsonNode& parent = open.back();
    if (parent.kind == JsonNode::Kind::kObject) {
      parent.names.push_back(std::move(names.back()));
      names.pop_back();
    }
    parent.items.push_back(std::move(node));
    return true;
  }

  bool Begin(JsonNode::Kind kind) {
    open.push_back(Make(kind));
    return true;
  }
  bool End(error_code& error) {
    JsonNode node = std::move(open.back());
    open.pop_back();
    return Put(std::move(node), error);
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_array_begin(error_code&) { return Begin(JsonNode::Kind::kArray); }
  bool on_array_end(size_t, error_code& error) { return End(error); }
  bool on_object_begin(error_code&) { return Begin(JsonNode::Kind::kObject); }
  bool on_object_end(size_t, error_code& error) { return End(error); }
  bool on_string_part(BoostView text, size_t, error_code&) {
    part.append(text.data(), text.size());
    return true;
  }
  bool on_string(BoostView text, size_t, error_code& error) {
    part.append(text.data(), text.size());
    JsonNode node = Make(JsonNode::Kind::kString);
    node.text = std::exchange(part, {});
    return Put(std::move(node), error);
  }
  bool on_key_part(BoostView text, size_t, error_code&) {
    part.append(text.data(), text.size());
    return true;
  }
  bool on_key(BoostView text, size_t, error_code& error) {
    part.append(text.data(), text.size());
    const std::vector<std::string>& others = open.back().names;
    if (std::find(others.begin(), others.end(), part) != others.end()) {
      return Fail(absl::StrCat("a second `", part, "` in one object"), error);
    }
    // Objects here have a handful of members; many would make the search above slow.
    if (others.size() >= 64) return Fail("more than 64 members in one object", error);
    names.push_back(std::exchange(part, {}));
    return true;
  }
  bool on_number_part(BoostView, error_code&) { return true; }
  bool on_int64(int64_t value, BoostView, error_code& error) {
    JsonNode node = Make(JsonNode::Kind::kNumber);
    node.number = static_cast<double>(value);
    node.integer = value;
    return Put(std::move(node), error);
  }
  bool on_uint64(uint64_t value, BoostView, error_code& error) {
    return on_double(static_cast<double>(value), {}, error);
  }
  bool on_double(double value, BoostView, error_code& error) {
    JsonNode node = Make(JsonNode::Kind::kNumber);
    node.number = value;
    return Put(std::move(node), error);
  }
  bool on_bool(bool value, error_code& error) {
    JsonNode node = Make(JsonNode::Kind::kBool);
    node.truth = value;
    return Put(std::move(node), error);
  }
  bool on_null(error_code& error) { return Put(Make(JsonNode::Kind::kNull), error); }
  bool on_comment_part(BoostView, error_code&) { return true; }
  bool on_comment(BoostView, error_code&) { return true; }
};

absl::Status PositionError(const std::string& path, int line, size_t column,
                           absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ":", column, ": ", what));
}

// What to say of `error`, met in `line` where the rest is `rest`.
std::string Describe(const Builder& builder, const error_code& error, absl::string_view rest) {
  if (!builder.problem.empty()) return builder.problem;
  if (error == boost::json::error::too_deep) {
    return absl::StrCat("more than ", kJsonTreeDepthMax, " levels of arrays and objects");
  }
  if (rest.empty() || !absl::ascii_isprint(static_cast<unsigned char>(rest[0]))) {
    return absl::StrCat("expected JSON: ", error.message());
  }
  return absl::StrCat("expected other JSON than `", rest.substr(0, 1), "`: ", error.message());
}

}  // namespace

const JsonNode* JsonNode::Find(absl::string_view name) const {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &items[i];
  }
  return nullptr;
}

absl::string_view KindName(JsonNode::Kind kind) {
  switch (kind) {
    case JsonNode::Kind::kNull:
      return "null";
    case JsonNode::Kind::kBool:
      return "a boolean";
    case JsonNode::Kind::kNumber:
      return "a number";
    case JsonNode::Kind::kString:
      return "a string";
    case JsonNode::Kind::kArray:
      return "an array";
    case JsonNode::Kind::kObject:
      return "an object";
  }
  return "?";
}

absl::StatusOr<JsonNode> ParseJsonTree(const std::string& path, absl::string_view text) {
  boost::json::parse_options options;
  options.max_depth = kJsonTreeDepthMax;
  boost::json::basic_parser<Builder> parser(options);
  Builder& builder = parser.handler();
  size_t at = 0;
  size_t line_length = 0;
  error_code error;
  for (int line = 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const absl::string_view bytes = text.substr(at, end - at);
    builder.line = line;
    const size_t read = parser.write_some(true, bytes.data(), bytes.size(), error);
    if (!error && read < bytes.size()) error = boost::json::error::extra_data;
    if (error) {
      return PositionError(path, line, read + 1, Describe(builder, error, bytes.substr(read)));
    }
    at = end;
    line_length = bytes.size();
  }
  parser.write_some(false, nullptr, 0, error);
  if (error) return PositionError(path, builder.line, line_length, "expected more: the file ends");
  return std::move(builder.root);
}

}  // namespace weft::router
