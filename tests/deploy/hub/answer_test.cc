#include "deploy/launcher/hub/answer.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"

namespace weft::hub {
namespace {

TEST_CASE("A server's wish to be left alone is read in its three forms and bounded", "[hub]") {
  const absl::Time now = absl::FromUnixSeconds(1'000'000'000);  // 2001-09-09 01:46:40 UTC
  CHECK(AskedWait({{"retry-after", "7"}}, now) == absl::Seconds(7));
  CHECK(AskedWait({{"retry-after", " 2.5 "}}, now) == absl::Seconds(2.5));
  CHECK(AskedWait({{"retry-after", "Sun, 09 Sep 2001 01:46:45 GMT"}}, now) == absl::Seconds(5));
  CHECK(AskedWait({{"ratelimit", "\"api\";r=0;t=55"}}, now) == absl::Seconds(55));
  CHECK(AskedWait({{"retry-after", "99999999"}}, now) == kAskedWaitMax);
  CHECK(AskedWait({{"retry-after", "-3"}}, now) == absl::ZeroDuration());
  CHECK_FALSE(AskedWait({{"retry-after", "soon"}}, now).has_value());
  CHECK_FALSE(AskedWait({}, now).has_value());
  // No number at all.
  CHECK(AskedWait({{"retry-after", "nan"}}, now).value_or(absl::ZeroDuration()) <= kAskedWaitMax);
}

TEST_CASE("What passes is tried again, after longer and longer waits", "[hub]") {
  for (const int status : {408, 429, 500, 502, 503, 504, 522}) CHECK(IsPassing(status));
  for (const int status : {400, 401, 403, 404, 416, 501}) CHECK_FALSE(IsPassing(status));
  CHECK(BackOff(1, 1) == absl::Milliseconds(500));
  CHECK(BackOff(3, 1) == absl::Seconds(2));
  CHECK(BackOff(100, 1) == absl::Seconds(30));
  CHECK(BackOff(3, 0.5) == absl::Seconds(1));
}

Asked Question(bool with_token) {
  Asked asked;
  asked.id.org = "org";
  asked.id.name = "name";
  asked.endpoint = "https://hub";
  asked.host = "hub";
  asked.with_token = with_token;
  return asked;
}

TEST_CASE("A refusal names the way out, with and without a token", "[hub]") {
  const absl::Status none = RefusalOf(401, {}, "", Question(false));
  CHECK(absl::IsUnauthenticated(none));
  CHECK(absl::StrContains(none.message(), "give a token by HF_TOKEN"));
  CHECK(absl::StrContains(RefusalOf(401, {}, "", Question(true)).message(), "is not valid there"));
  const absl::Status gated = RefusalOf(403, {{"x-error-code", "GatedRepo"}}, "", Question(true));
  CHECK(absl::IsPermissionDenied(gated));
  CHECK(absl::StrContains(gated.message(), "ask for access at https://hub/org/name"));
  const absl::Status revision =
      RefusalOf(404, {{"x-error-code", "RevisionNotFound"}}, "", Question(true));
  CHECK(absl::StrContains(revision.message(), "has no revision main"));
  CHECK(absl::IsUnavailable(RefusalOf(503, {}, "", Question(true))));
  CHECK(absl::IsFailedPrecondition(RefusalOf(400, {}, "", Question(true))));
}

TEST_CASE("What a hub says is shown without what a terminal would obey", "[hub]") {
  const absl::Status status =
      RefusalOf(404, {{"x-error-message", "no\x1b[2Jsuch"}}, "", Question(true));
  CHECK(absl::StrContains(status.message(), "the hub says: no\\x1b[2Jsuch"));
  const absl::Status body = RefusalOf(400, {}, "{\"error\":\"Bad thing\"}", Question(true));
  CHECK(absl::StrContains(body.message(), "(the hub says: Bad thing)"));
  const absl::Status longer =
      RefusalOf(404, {{"x-error-message", std::string(5000, 'x')}}, "", Question(true));
  CHECK(longer.message().size() < 700);
}

TEST_CASE("A range that is told is read or refused", "[hub]") {
  const auto range = ParseContentRange("bytes 5-9/100");
  REQUIRE(range.has_value());
  CHECK(range->from == 5);
  CHECK(range->to == 10);
  CHECK(range->all == 100);
  CHECK(ParseContentRange("bytes 0-0/*")->all == 0);
  for (const char* text : {"", "bytes", "bytes 9-5/100", "bytes -5/100", "items 1-2/3",
                           "bytes 1-18446744073709551615/*", "bytes 1-2/x", "bytes 1-2"}) {
    INFO(text);
    CHECK_FALSE(ParseContentRange(text).has_value());
  }
}

}  // namespace
}  // namespace weft::hub
