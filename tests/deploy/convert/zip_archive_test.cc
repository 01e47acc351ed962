// The directory of a zip file: what torch writes is read, what lies is refused by name.

#include "deploy/convert/zip_archive.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/deploy/convert/torch_builder.h"

namespace weft::convert {
namespace {

using test::ZipBuilder;

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Refusal(const std::string& bytes) {
  const auto archive = ZipArchive::Parse(AsBytes(bytes));
  REQUIRE(!archive.ok());
  return std::string(archive.status().message());
}

TEST_CASE("Entries of a zip file are found, also with zip64 sizes", "[deploy][convert]") {
  for (const bool zip64 : {false, true}) {
    ZipBuilder builder;
    builder.Add("a/one", "first", {.zip64 = zip64}).Add("a/none", "").Add("a/two", "second");
    const std::string bytes = builder.Build(zip64);
    CHECK(ZipArchive::Looks(AsBytes(bytes)));
    const auto archive = ZipArchive::Parse(AsBytes(bytes));
    INFO(archive.status());
    REQUIRE(archive.ok());
    REQUIRE(archive->entries().size() == 3);
    const auto text = [&archive](const char* name) {
      const ZipEntry* const entry = archive->Find(name);
      REQUIRE(entry != nullptr);
      return std::string(reinterpret_cast<const char*>(entry->data.data()), entry->data.size());
    };
    CHECK(text("a/one") == "first");
    CHECK(text("a/none").empty());
    CHECK(text("a/two") == "second");
    CHECK(archive->Find("one") == nullptr);
  }
}

TEST_CASE("A zip file that lies about its entries is refused", "[deploy][convert]") {
  struct Case {
    ZipBuilder::Lies lies;
    const char* want;
  };
  const Case cases[] = {
      {{.bytes_more = 1000}, "entry b: claims 1006 bytes"},
      {{.bytes_more = int64_t{1} << 40, .zip64 = true}, "entry b: claims 1099511627782 bytes"},
      {{.header_later = 7}, "entry b: is not at byte"},
      {{.header_later = 1 << 20}, "entry b: begins at byte"},
      {{.header_later = -37}, "entry b: is not at byte 0"},
      {{.method = 8}, "entry b: is packed or encrypted"},
      {{.flags = 1}, "entry b: is packed or encrypted"},
      {{.local_name = "c"}, "entry b: is not at byte"},
  };
  for (const Case& c : cases) {
    ZipBuilder builder;
    builder.Add("a", "first.").Add("b", "second", c.lies).Add("d", "third");
    CHECK(absl::StrContains(Refusal(builder.Build()), c.want));
  }
  ZipBuilder twice;
  twice.Add("a", "x").Add("a", "y");
  CHECK(absl::StrContains(Refusal(twice.Build()), "entry a appears twice"));
  ZipBuilder over;
  over.Add("a", "long enough", {.bytes_more = 20}).Add("b", "second").Add("c", "third");
  CHECK(absl::StrContains(Refusal(over.Build()), "entries a and b overlap"));
}

TEST_CASE("A zip file that is cut or claims too much is refused", "[deploy][convert]") {
  ZipBuilder builder;
  builder.Add("a", "first").Add("b", "second");
  const std::string bytes = builder.Build(/*zip64=*/true);
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO(size);
    CHECK(!ZipArchive::Parse(AsBytes(bytes.substr(0, size))).ok());
  }
  // Counts and places of the directory at the end.
  const std::string plain = builder.Build();
  for (const size_t at : {plain.size() - 12, plain.size() - 10, plain.size() - 6}) {
    std::string bad = plain;
    bad.replace(at, 2, "\xf0\xf0");
    INFO(at);
    CHECK(!ZipArchive::Parse(AsBytes(bad)).ok());
  }
}

}  // namespace
}  // namespace weft::convert
