#include "shard/weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"
#include "boost/json/basic_parser_impl.hpp"
#include "common/status.h"

namespace weft::shard {
namespace {

namespace json = boost::json;

// The format allows 100 MB; a header of 100,000 tensors has about 12.
constexpr uint64_t kHeaderBytesMax = 16u << 20;
constexpr size_t kTensorsMax = 1u << 18;
constexpr size_t kShapeMax = 8;
constexpr const char* kDamaged = "; the file is truncated or damaged: copy or download it again";

// Collects the keys of the outermost object: the DOM parser keeps the last of two equal keys
// without a word, and which one counts must not depend on the parser.
struct KeyHandler {
  static constexpr size_t max_object_size = kTensorsMax;
  static constexpr size_t max_array_size = kTensorsMax;
  static constexpr size_t max_key_size = kHeaderBytesMax;
  static constexpr size_t max_string_size = kHeaderBytesMax;

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) { return ++depth != 0; }
  bool on_object_end(size_t, json::error_code&) { return --depth >= 0; }
  bool on_array_begin(json::error_code&) { return ++depth != 0; }
  bool on_array_end(size_t, json::error_code&) { return --depth >= 0; }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    if (depth == 1) key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code&) {
    if (depth != 1) return true;
    key.append(part.data(), part.size());
    if (!keys.insert(key).second) {
      duplicate = key;
      return false;
    }
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  int depth = 0;
  std::string key;
  std::string duplicate;
  absl::flat_hash_set<std::string> keys;
};

// The key that appears twice in the outermost object, or nothing.
std::string DuplicateKey(json::string_view text) {
  json::basic_parser<KeyHandler> parser{json::parse_options()};
  json::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().duplicate;
}

// Sets the tensor's type, or its unknown_type.
void ParseType(absl::string_view dtype, TensorView* tensor) {
  for (const TensorFormat& format : kTensorFormats) {
    if (format.safetensors_name == nullptr || dtype != format.safetensors_name) continue;
    tensor->type = format.type;
    return;
  }
  tensor->unknown_type = dtype.empty() ? "(none)" : absl::CHexEscape(dtype.substr(0, 40));
}

// Unsigned integers of a JSON list, `count_max` at most.
absl::StatusOr<std::vector<uint64_t>> ParseList(const json::object& object, const char* key,
                                                size_t count_max) {
  const auto bad = [key](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(key, " ", what));
  };
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || !value->is_array()) return bad("is missing or no list");
  if (value->get_array().size() > count_max) return bad("is too long");
  std::vector<uint64_t> out;
  for (const json::value& element : value->get_array()) {
    json::error_code error;
    out.push_back(element.to_number<uint64_t>(error));
    if (error || element.is_double()) return bad("holds something else than unsigned integers");
  }
  return out;
}

// Whether type and shape take the bytes of `range`.
absl::Status CheckBytes(const TensorView& tensor, const std::vector<uint64_t>& range) {
  uint64_t bytes = FormatOf(tensor.type).bytes;
  for (const uint64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape [", absl::StrJoin(tensor.shape, ", "), "] overflows"));
    }
  }
  if (range[1] - range[0] == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shape [", absl::StrJoin(tensor.shape, ", "), "] of ",
                   FormatOf(tensor.type).name, " needs ", bytes, " bytes, data_offsets [",
                   absl::StrJoin(range, ", "), "] have ", range[1] - range[0], kDamaged));
}

// One entry of the header; `data` is everything behind the header.
absl::StatusOr<TensorView> ParseTensor(const json::value& value, absl::Span<const uint8_t> data) {
  if (!value.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  const json::object& object = value.get_object();
  TensorView tensor;
  const json::value* const dtype = object.if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return absl::InvalidArgumentError("dtype is missing or no string");
  }
  ParseType({dtype->get_string().data(), dtype->get_string().size()}, &tensor);
  WEFT_ASSIGN_OR_RETURN(tensor.shape, ParseList(object, "shape", kShapeMax));
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint64_t> range, ParseList(object, "data_offsets", 2));
  if (range.size() != 2 || range[0] > range[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets [", absl::StrJoin(range, ", "), "] are no range"));
  }
  if (tensor.unknown_type.empty()) WEFT_RETURN_IF_ERROR(CheckBytes(tensor, range));
  if (range[1] > data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("data_offsets [", absl::StrJoin(range, ", "),
                                                   "] end outside the data, which ", "has ",
                                                   data.size(), " bytes", kDamaged));
  }
  tensor.data = data.subspan(range[0], range[1] - range[0]);
  return tensor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(mapped)));
  WEFT_RETURN_IF_ERROR(Annotate(file->Parse(), path));
  return file;
}

absl::Status SafetensorsFile::Parse() {
  const absl::Span<const uint8_t> bytes = file_.bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("is too short for a safetensors file: ", bytes.size(),
                     " bytes, expected 8 or more", kDamaged));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kHeaderBytesMax || header_bytes > bytes.size() - sizeof(header_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("the header claims ", header_bytes,
                                                   " bytes of a file of ", bytes.size(), " (limit ",
                                                   kHeaderBytesMax, ")", kDamaged));
  }
  const json::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes),
                               header_bytes);
  json::error_code error;
  const json::value header = json::parse(text, error);
  if (error || !header.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header is no JSON object: ", error ? error.message() : "another type", kDamaged));
  }
  if (header.get_object().size() > kTensorsMax) {
    return absl::InvalidArgumentError(absl::StrCat("has more than ", kTensorsMax, " tensors"));
  }
  if (const std::string key = DuplicateKey(text); !key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", absl::CHexEscape(key), " appears twice"));
  }
  const absl::Span<const uint8_t> data = bytes.subspan(sizeof(header_bytes) + header_bytes);
  for (const auto& [key, value] : header.get_object()) {
    const std::string name(key.data(), key.size());
    if (name == "__metadata__") continue;
    absl::StatusOr<TensorView> tensor = ParseTensor(value, data);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), absl::StrCat("tensor ", absl::CHexEscape(name)));
    }
    tensor->name = name;
    tensor->file = &file_;
    tensors_.push_back(*std::move(tensor));
  }
  // Empty tensors first where several begin at one place, so that they count as no overlap.
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) {
    return std::make_pair(a.data.data(), a.data.size()) <
           std::make_pair(b.data.data(), b.data.size());
  });
  const uint8_t* end = data.data();
  for (const TensorView& tensor : tensors_) {
    if (tensor.data.data() != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", absl::CHexEscape(tensor.name), " begins at byte ",
          tensor.data.data() - data.data(), " of the data, ",
          tensor.data.data() < end ? "inside the one before it, which ends at "
                                   : "leaving a hole behind the one before it, which ends at ",
          end - data.data(), kDamaged));
    }
    end = tensor.data.data() + tensor.data.size();
  }
  if (end != data.data() + data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the tensors end at byte ", end - data.data(),
                                                   " of the data, which has ", data.size(),
                                                   kDamaged));
  }
  return absl::OkStatus();
}

}  // namespace weft::shard
