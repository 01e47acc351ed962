// Bodies with one field added, and what a door says when it refuses that field. Shared by the tests
// of fields.

#pragma once

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {

enum class Body { kTgi, kTgiParameters, kChat, kCompletion };

inline std::string PathOf(Body body) {
  if (body == Body::kChat) return "/v1/chat/completions";
  return body == Body::kCompletion ? "/v1/completions" : "/generate";
}

// A good body with `field` ("\"top_k\":3") added to it.
inline std::string With(Body body, const std::string& field) {
  const std::string more = field.empty() ? "" : "," + field;
  switch (body) {
    case Body::kTgi:
      return absl::StrCat(R"({"inputs":"x")", more, "}");
    case Body::kTgiParameters:
      return absl::StrCat(R"({"inputs":"x","parameters":{)", field, "}}");
    case Body::kChat:
      return absl::StrCat(R"({"messages":[{"role":"user","content":"x"}])", more, "}");
    case Body::kCompletion:
      return absl::StrCat(R"({"prompt":"x")", more, "}");
  }
  return "";
}

struct Case {
  const char* field;
  const char* value;
};

inline void CheckRefused(const DoorsFixture& fixture, Body body, const std::string& name,
                         const std::string& text) {
  INFO(text);
  const RawResponse response = fixture.Post(PathOf(body), text);
  const bool tgi = body == Body::kTgi || body == Body::kTgiParameters;
  CHECK(response.status == (tgi ? 422 : 400));
  const std::string full = body == Body::kTgiParameters ? "parameters." + name : name;
  if (tgi) {
    CHECK(absl::StrContains(response.body, absl::StrCat("{\"error\":\"`", full, "`: ")));
    CHECK(absl::EndsWith(response.body, R"(,"error_type":"validation"})"));
  } else {
    CHECK(absl::StrContains(
        response.body,
        absl::StrCat(R"(,"type":"invalid_request_error","param":")", full, R"(","code":null}})")));
  }
}

}  // namespace weft::router
