#include "deploy/launcher/hub/urls.h"

#include <catch2/catch.hpp>
#include <string>

namespace weft::hub {
namespace {

TEST_CASE("Names are escaped in the addresses that are asked", "[hub]") {
  const ModelId id = ParseModelId("org/name@refs/pr/3").value();
  CHECK(FileListUrl("https://hub", id) ==
        "https://hub/api/models/org/name/revision/refs%2Fpr%2F3?blobs=true");
  CHECK(FileUrl("http://hub:81/prefix", id, "abc", "dir/a b?c#d%2f.gguf") ==
        "http://hub:81/prefix/org/name/resolve/abc/dir/a%20b%3Fc%23d%252f.gguf");
}

TEST_CASE("A redirect may lead anywhere on the web but back from https to http", "[hub]") {
  CHECK(Redirected("https://hub/a/b", "/c?d=e").value() == "https://hub/c?d=e");
  CHECK(Redirected("https://hub/a/b", "https://cdn/x?y=%2F").value() == "https://cdn/x?y=%2F");
  CHECK(Redirected("http://hub/a", "https://cdn/x").ok());
  for (const char* location :
       {"http://cdn/x", "file:///etc/passwd", "ftp://h/x", "gopher://h", "scp://h/x"}) {
    INFO(location);
    CHECK_FALSE(Redirected("https://hub/a", location).ok());
  }
}

TEST_CASE("The token's origin is scheme, host and port", "[hub]") {
  CHECK(IsSameOrigin("https://hub/x", "https://HUB:443/y"));
  CHECK_FALSE(IsSameOrigin("https://hub/x", "http://hub/x"));
  CHECK_FALSE(IsSameOrigin("https://hub/x", "https://hub:444/x"));
  CHECK_FALSE(IsSameOrigin("https://hub/x", "https://hub.evil/x"));
  CHECK_FALSE(IsSameOrigin("https://hub@evil/x", "https://hub/x"));
  CHECK_FALSE(IsSameOrigin("nonsense", "nonsense:"));
}

TEST_CASE("An endpoint is an address of http or https and nothing more", "[hub]") {
  CHECK(CheckEndpoint("https://hub.example/prefix").ok());
  CHECK(CheckEndpoint("http://127.0.0.1:8080").ok());
  for (const char* text : {"", "hub.example", "ftp://hub", "https://", "https://u:p@hub",
                           "https://hub?x", "https://hub#x", "file:///x"}) {
    INFO(text);
    CHECK_FALSE(CheckEndpoint(text).ok());
  }
}

}  // namespace
}  // namespace weft::hub
