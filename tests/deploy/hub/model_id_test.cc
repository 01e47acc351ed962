#include "deploy/launcher/hub/model_id.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"

namespace weft::hub {
namespace {

TEST_CASE("A model's name has an organisation, a name and perhaps a revision", "[hub]") {
  const ModelId plain = ParseModelId("org/My_Model-1.5").value();
  CHECK(plain.repository() == "org/My_Model-1.5");
  CHECK(plain.revision == "main");
  CHECK(plain.text() == "org/My_Model-1.5");
  const ModelId pinned = ParseModelId("org/name@refs/pr/3").value();
  CHECK(pinned.revision == "refs/pr/3");
  CHECK(pinned.text() == "org/name@refs/pr/3");
}

TEST_CASE("What could leave its folder or its URL is no model's name", "[hub]") {
  for (const char* text : {"",
                           "name",
                           "/name",
                           "org/",
                           "a/b/c",
                           "../etc",
                           "org/..",
                           "org/.hidden",
                           "-o/n",
                           "o/n-",
                           "o--p/n",
                           "o/n--m",
                           "o/n..m",
                           "o/n m",
                           "o/n?x",
                           "o/n.git",
                           "org/name@",
                           "org/name@../x",
                           "org/name@a/../b",
                           "org/name@/a",
                           "org/name@a//b",
                           "org/name@.a",
                           "org/name@a b",
                           "org/name@-x",
                           "o/n@a.",
                           "ö/n",
                           "org/name@a%2fb"}) {
    INFO(text);
    const auto id = ParseModelId(text);
    REQUIRE_FALSE(id.ok());
    CHECK(absl::StrContains(id.status().message(), "expected"));
  }
  CHECK_FALSE(ParseModelId("o/" + std::string(97, 'n')).ok());
  CHECK(ParseModelId("o/" + std::string(96, 'n')).ok());
  CHECK_FALSE(ParseModelId("o/n@" + std::string(201, 'r')).ok());
}

TEST_CASE("A commit is forty digits in lower case", "[hub]") {
  CHECK(IsCommit(std::string(40, 'a')));
  CHECK_FALSE(IsCommit(std::string(39, 'a')));
  CHECK_FALSE(IsCommit(std::string(40, 'A')));
  CHECK_FALSE(IsCommit(std::string(40, 'g')));
}

}  // namespace
}  // namespace weft::hub
