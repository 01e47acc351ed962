// What generation_config.json recommends, and what of it is refused.

#include "router/text/sampling_defaults.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "tests/support/demo_model.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

TEST_CASE("A model's sampling is read from its generation_config.json", "[router][text]") {
  const PatchDir dir;
  CHECK(SamplingDefaultsText(*ReadSamplingDefaults(dir.path())) == "none");
  dir.Write("generation_config.json",
            R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05,
                "typical_p": 0.9, "repetition_penalty": 1.05, "eos_token_id": [1, 2]})");
  const absl::StatusOr<SamplingParams> read = ReadSamplingDefaults(dir.path());
  REQUIRE(read.ok());
  CHECK(read->temperature == 0.6f);
  CHECK(read->top_k == 20);
  CHECK(read->top_p == 0.95f);
  CHECK(read->min_p == 0.05f);
  CHECK(read->typical_p == 0.9f);
  CHECK(read->repetition_penalty == 1.05f);
  CHECK(SamplingDefaultsText(*read) ==
        "temperature=0.6 top_k=20 top_p=0.95 min_p=0.05 typical_p=0.9 repetition_penalty=1.05");
}

TEST_CASE("A model that does not sample is greedy", "[router][text]") {
  const PatchDir dir;
  dir.Write("generation_config.json",
            R"({"do_sample": false, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.2})");
  CHECK(SamplingDefaultsText(*ReadSamplingDefaults(dir.path())) ==
        "temperature=0 repetition_penalty=1.2");
}

TEST_CASE("A file has no recommendations", "[router][text]") {
  CHECK(SamplingDefaultsText(*ReadSamplingDefaults(test::DemoModelOrSkip())) == "none");
}

TEST_CASE("Recommendations out of range name file and key", "[router][text]") {
  const PatchDir dir;
  const auto refused = [&dir](const std::string& json, const std::string& key) {
    dir.Write("generation_config.json", json);
    const absl::Status status = ReadSamplingDefaults(dir.path()).status();
    INFO(json << ": " << status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), "generation_config.json: " + key));
  };
  refused(R"({"temperature": -1})", "temperature");
  refused(R"({"temperature": "hot"})", "temperature");
  refused(R"({"top_p": 0})", "top_p");
  refused(R"({"top_k": -1})", "top_k");
  refused(R"({"min_p": 2})", "min_p");
  refused(R"({"repetition_penalty": 0})", "repetition_penalty");
  refused(R"({"do_sample": "yes"})", "do_sample");
  refused("[1]", "expected a JSON object");
}

}  // namespace
}  // namespace weft::router
