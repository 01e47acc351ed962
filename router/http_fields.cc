#include "router/http_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/errors.h"
#include "router/json.h"

namespace weft::router {
namespace {

constexpr size_t kIgnoredNamesMax = 16;
constexpr size_t kIgnoredNameBytesMax = 64;

absl::string_view View(boost::json::string_view text) { return {text.data(), text.size()}; }

bool IsNeutral(const boost::json::value& value, absl::string_view neutral) {
  if (neutral.empty()) return false;
  for (const absl::string_view text : absl::StrSplit(neutral, '|')) {
    const absl::StatusOr<boost::json::value> one = ParseJson(text);
    if (one.ok() && *one == value) return true;
  }
  return false;
}

}  // namespace

absl::string_view JsonKindName(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      return "an object";
  }
  return "something else";
}

FieldReader::FieldReader(const boost::json::object& object, std::string path)
    : object_(object), path_(std::move(path)) {}

const boost::json::value* FieldReader::Value(absl::string_view name) {
  known_.push_back(name);
  if (!ok()) return nullptr;
  const boost::json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> FieldReader::Bool(absl::string_view name) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  Fail(name, absl::StrCat("must be a boolean, not ", JsonKindName(*value)));
  return std::nullopt;
}

std::optional<std::string> FieldReader::String(absl::string_view name) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  if (const boost::json::string* text = value->if_string()) {
    return std::string(text->data(), text->size());
  }
  Fail(name, absl::StrCat("must be a string, not ", JsonKindName(*value)));
  return std::nullopt;
}

std::optional<float> FieldReader::Float(absl::string_view name, const Range& range) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(name, absl::StrCat("must be a number, not ", JsonKindName(*value)));
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  // Compared as the float that is used: 1e-60 is not "greater than 0".
  const auto narrow = static_cast<float>(number);
  if (range.Contains(number) && range.Contains(narrow)) return narrow;
  Fail(name, absl::StrCat("must be ", range.Text(), ", not ", number));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(absl::string_view name, int64_t low, int64_t high) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  int64_t number = 0;
  if (const int64_t* small = value->if_int64()) {
    number = *small;
  } else if (value->is_uint64()) {
    number = std::numeric_limits<int64_t>::max();  // above int64: out of every range here
  } else if (const double* real = value->if_double();
             real != nullptr && std::trunc(*real) == *real && std::abs(*real) < 9e15) {
    number = static_cast<int64_t>(*real);  // 16.0 is the same JSON number as 16
  } else {
    Fail(name, absl::StrCat("must be an integer, not ", JsonKindName(*value)));
    return std::nullopt;
  }
  if (number >= low && number <= high) return number;
  Fail(name,
       absl::StrCat("must be between ", low, " and ", high, ", not ",
                    value->is_uint64() ? absl::StrCat(value->get_uint64()) : absl::StrCat(number)));
  return std::nullopt;
}

std::optional<uint64_t> FieldReader::Bits(absl::string_view name) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  if (const int64_t* number = value->if_int64()) return static_cast<uint64_t>(*number);
  if (const uint64_t* number = value->if_uint64()) return *number;
  Fail(name, absl::StrCat("must be a 64-bit integer, not ",
                          value->is_double() ? "a number with a fraction or beyond 64 bits"
                                             : JsonKindName(*value)));
  return std::nullopt;
}

const boost::json::object* FieldReader::Object(absl::string_view name) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return nullptr;
  if (const boost::json::object* object = value->if_object()) return object;
  Fail(name, absl::StrCat("must be an object, not ", JsonKindName(*value)));
  return nullptr;
}

const boost::json::array* FieldReader::Array(absl::string_view name) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return nullptr;
  if (const boost::json::array* array = value->if_array()) return array;
  Fail(name, absl::StrCat("must be an array, not ", JsonKindName(*value)));
  return nullptr;
}

void FieldReader::Refuse(absl::Span<const RefusedField> fields) {
  for (const RefusedField& field : fields) {
    const boost::json::value* value = Value(field.name);
    if (value == nullptr || IsNeutral(*value, field.neutral)) continue;
    Fail(field.name,
         field.neutral.empty()
             ? std::string("is not supported")
             : absl::StrCat("is not supported; leave it out or use ",
                            absl::string_view(field.neutral).substr(0, field.neutral.find('|'))));
  }
}

void FieldReader::Fail(absl::string_view name, absl::string_view message) {
  Fail(FieldError(absl::StrCat(path_, name), message));
}

void FieldReader::Fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

std::vector<std::string> FieldReader::Unknown() const {
  std::vector<std::string> names;
  for (const auto& member : object_) {
    const absl::string_view name = View(member.key());
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      names.push_back(absl::StrCat(path_, name));
    }
  }
  return names;
}

void AddIgnoredHeader(const std::vector<std::string>& names, HttpHeaders* headers) {
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < names.size() && i < kIgnoredNamesMax; ++i) {
    if (i > 0) list += ", ";
    for (const char c : names[i].substr(0, kIgnoredNameBytesMax)) {
      const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
                         c == '.' || c == '-' || c == '[' || c == ']';
      list.push_back(plain ? c : '?');
    }
  }
  if (names.size() > kIgnoredNamesMax)
    absl::StrAppend(&list, ", and ", names.size() - kIgnoredNamesMax, " more");
  headers->emplace_back("x-weft-ignored-fields", std::move(list));
}

}  // namespace weft::router
