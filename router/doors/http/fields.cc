#include "router/doors/http/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "router/doors/http/json.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr size_t kIgnoredNameBytesMax = 64;

absl::string_view View(boost::json::string_view text) { return {text.data(), text.size()}; }

bool IsNeutral(const boost::json::value& value, absl::string_view neutral) {
  if (neutral.empty()) return false;
  for (const absl::string_view text : absl::StrSplit(neutral, '|')) {
    const absl::StatusOr<boost::json::value> one = ParseJson(text);
    if (!one.ok()) continue;
    if (*one == value) return true;
    // 1.0 is 1, and an equal number of another kind is not equal to Boost.JSON.
    if (one->is_number() && value.is_number() &&
        one->to_number<double>() == value.to_number<double>()) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<int64_t> WholeNumber(const boost::json::value& value) {
  if (const int64_t* number = value.if_int64()) return *number;
  // Whole doubles below 2^53 are exact.
  if (const double* number = value.if_double();
      number != nullptr && std::trunc(*number) == *number && std::abs(*number) < 0x1p53) {
    return static_cast<int64_t>(*number);
  }
  return std::nullopt;
}

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
    Fail(name, absl::StrCat("must be a number ", range.Text(), ", not ", JsonKindName(*value)));
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  // Compared as the float that is used: 1e-60 is not "greater than 0". What the range holds as a
  // double fits a float.
  if (range.Contains(number) && range.Contains(static_cast<float>(number))) {
    return static_cast<float>(number);
  }
  Fail(name, absl::StrCat("must be ", range.Text(), ", not ", NumberText(number)));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(absl::string_view name, int64_t low, int64_t high) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number.has_value() && *number >= low && *number <= high) return number;
  std::string found(JsonKindName(*value));
  if (number.has_value()) {
    found = absl::StrCat(*number);
  } else if (const uint64_t* huge = value->if_uint64()) {
    found = absl::StrCat(*huge);
  } else if (const double* real = value->if_double()) {
    found = absl::StrCat(*real);
  }
  Fail(name, absl::StrCat("must be an integer between ", low, " and ", high, ", not ", found));
  return std::nullopt;
}

std::optional<uint64_t> FieldReader::Bits(absl::string_view name) {
  const boost::json::value* value = Value(name);
  if (value == nullptr) return std::nullopt;
  if (const uint64_t* number = value->if_uint64()) return *number;
  if (const std::optional<int64_t> number = WholeNumber(*value)) {
    return static_cast<uint64_t>(*number);
  }
  Fail(name, absl::StrCat("must be an integer between -2^63 and 2^64 - 1, not ",
                          value->is_double() ? "a number with a fraction or beyond them"
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
  AddUnknown(&names);
  return names;
}

void FieldReader::AddUnknown(std::vector<std::string>* names) const {
  for (const auto& member : object_) {
    const absl::string_view name = View(member.key());
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      names->push_back(absl::StrCat(path_, name));
    }
  }
}

bool HasMember(const boost::json::object& object, absl::string_view name) {
  const boost::json::value* const value = object.if_contains({name.data(), name.size()});
  return value != nullptr && !value->is_null();
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
