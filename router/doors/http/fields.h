// Reads the fields of a JSON object for a door: each present field has the right type and range, is
// refused by name, or is reported as unknown (invariant input.first). null counts as absent. The
// first error stays; the readers after it return nothing. Made per request, on its thread.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "boost/json/array.hpp"
#include "boost/json/object.hpp"
#include "boost/json/value.hpp"
#include "router/doors/http/message.h"
#include "router/range.h"

namespace weft::router {

// A field that weft knows and does not serve.
struct RefusedField {
  absl::string_view name;
  // JSON values that change nothing, separated by '|': they are accepted, as null is.
  absl::string_view neutral;
};

class FieldReader {
 public:
  // `path` stands before names in errors: "parameters." or nothing. The object must outlive this.
  explicit FieldReader(const boost::json::object& object, std::string path = "");

  // Each names the field and marks it as known.
  std::optional<bool> Bool(absl::string_view name);
  std::optional<std::string> String(absl::string_view name);
  std::optional<float> Float(absl::string_view name, const Range& range);
  // A number without a fraction, low .. high.
  std::optional<int64_t> Integer(absl::string_view name, int64_t low, int64_t high);
  // Any 64-bit number, negative ones as their two's complement.
  std::optional<uint64_t> Bits(absl::string_view name);
  const boost::json::object* Object(absl::string_view name);
  const boost::json::array* Array(absl::string_view name);
  // The value as it is; null when absent.
  const boost::json::value* Value(absl::string_view name);
  // Known, and of no effect whatever it holds.
  void Accept(absl::string_view name) { Value(name); }
  // Fails when one of `fields` is present with a value that is not neutral.
  void Refuse(absl::Span<const RefusedField> fields);

  // Sets the error, unless there is one.
  void Fail(absl::string_view name, absl::string_view message);
  void Fail(const absl::Status& status);
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  // Fields nobody asked for, with the path.
  std::vector<std::string> Unknown() const;
  // Adds them to *names.
  void AddUnknown(std::vector<std::string>* names) const;

  const std::string& path() const { return path_; }

 private:
  const boost::json::object& object_;
  const std::string path_;
  absl::InlinedVector<absl::string_view, 64> known_;
  absl::Status status_;
};

// The header that lists ignored fields; nothing when there are none. Names come from the client:
// bytes outside [A-Za-z0-9_.\[\]-] become '?', names and list are cut.
void AddIgnoredHeader(const std::vector<std::string>& names, HttpHeaders* headers);

// The number when `value` is one without a fraction (16.0 is the same JSON number as 16). Nothing
// for other values and beyond 64 bits.
std::optional<int64_t> WholeNumber(const boost::json::value& value);

// True for a member that is there and not null.
bool HasMember(const boost::json::object& object, absl::string_view name);

// "a string", "an integer" ... for messages.
absl::string_view JsonKindName(const boost::json::value& value);

}  // namespace weft::router
