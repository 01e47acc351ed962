// Errors that name fields: of one and of several, under the names of any door.

#include "router/errors.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/context_length.h"

namespace weft::router {
namespace {

using Fields = std::vector<std::string>;

TEST_CASE("An error names its field, and may be told another name", "[router][errors]") {
  const absl::Status error = FieldError("stop", "is too long");
  CHECK(absl::IsInvalidArgument(error));
  CHECK(error.message() == "`stop`: is too long");
  CHECK(ErrorField(error) == "stop");
  CHECK(ErrorFields(error) == Fields{"stop"});
  const absl::Status renamed = RenameField(error, "stopping.stop");
  CHECK(renamed.message() == "`stopping.stop`: is too long");
  CHECK(ErrorField(renamed) == "stopping.stop");
}

TEST_CASE("An error of several fields names each of them", "[router][errors]") {
  const absl::Status error = FieldsError(Fields{"a", "b", "c"}, "leave nothing");
  CHECK(absl::IsInvalidArgument(error));
  CHECK(error.message() == "`a`, `b`, `c`: leave nothing");
  CHECK(ErrorField(error) == "a");
  CHECK(ErrorFields(error) == Fields{"a", "b", "c"});
  const absl::Status renamed =
      RenameFields(error, [](const std::string& name) { return absl::StrCat("in.", name); });
  CHECK(renamed.message() == "`in.a`, `in.b`, `in.c`: leave nothing");
  CHECK(ErrorFields(renamed) == Fields{"in.a", "in.b", "in.c"});
}

TEST_CASE("What an error says beside its fields stays when they are renamed", "[router][errors]") {
  const absl::Status error = ContextLengthError("prompt", "is too long", 8);
  const absl::Status renamed = RenameField(error, "inputs");
  CHECK(ErrorReason(renamed) == ErrorReason(error));
  CHECK_FALSE(ErrorReason(renamed).empty());
}

TEST_CASE("An error without fields is left as it is", "[router][errors]") {
  const absl::Status error = absl::InternalError("broke");
  CHECK(ErrorFields(error).empty());
  CHECK(RenameField(error, "a") == error);
}

}  // namespace
}  // namespace weft::router
