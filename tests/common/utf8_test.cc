#include "common/utf8.h"

#include <catch2/catch.hpp>

namespace weft {
namespace {

TEST_CASE("Characters are told from bytes that are none, at every border", "[common]") {
  struct Case {
    absl::string_view text;
    size_t bytes;
  };
  for (const Case& c : {Case{"", 0},
                        Case{"a", 1},
                        Case{"\x7f", 1},
                        Case{"\x80", 0},
                        Case{"\xc1\xbf", 0},
                        Case{"\xc2\x80", 2},
                        Case{"\xdf\xbf", 2},
                        Case{"\xc3", 0},
                        Case{"\xe0\x9f\xbf", 0},
                        Case{"\xe0\xa0\x80", 3},
                        Case{"\xed\x9f\xbf", 3},
                        Case{"\xed\xa0\x80", 0},
                        Case{"\xef\xbf\xbf", 3},
                        Case{"\xe2\x82", 0},
                        Case{"\xe2\x82q", 0},
                        Case{"\xf0\x8f\xbf\xbf", 0},
                        Case{"\xf0\x90\x80\x80", 4},
                        Case{"\xf4\x8f\xbf\xbf", 4},
                        Case{"\xf4\x90\x80\x80", 0},
                        Case{"\xf5\x80\x80\x80", 0},
                        Case{"\xf0\x9f\x98", 0},
                        Case{"\xf0\x9f\x98\x80z", 4}}) {
    INFO(c.text);
    CHECK(Utf8CharacterBytes(c.text) == c.bytes);
  }
}

}  // namespace
}  // namespace weft
