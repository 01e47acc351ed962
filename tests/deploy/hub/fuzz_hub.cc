// Fuzz target: what a hub says is refused or is in bounds: a list of files whose every path stays
// in its folder and whose every blob is one name, an index, a Content-Range, headers in words.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "deploy/launcher/hub/answer.h"
#include "deploy/launcher/hub/file_list.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/model_id.h"
#include "deploy/launcher/hub/selection.h"

namespace {

void CheckPath(const std::string& path) {
  WEFT_CHECK(!path.empty() && path.size() <= weft::hub::kPathBytesMax);
  const std::string walled = "/" + path + "/";
  for (const char* part : {"//", "/./", "/../"}) WEFT_CHECK(!absl::StrContains(walled, part));
  for (const char c : path) WEFT_CHECK(static_cast<unsigned char>(c) >= 0x20);
}

void CheckList(absl::string_view text) {
  const auto list = weft::hub::ParseFileList(text);
  if (!list.ok()) return;
  WEFT_CHECK(weft::hub::IsCommit(list->commit));
  std::set<std::string> paths;
  for (const weft::hub::HubFile& file : list->files) {
    CheckPath(file.path);
    WEFT_CHECK(paths.insert(file.path).second);
    WEFT_CHECK(file.bytes.value_or(0) <= weft::hub::kFileBytesMax);
    WEFT_CHECK(!absl::StrContains(file.blob.text, '/') && !absl::StartsWith(file.blob.text, "."));
  }
  const auto selection = weft::hub::Select(list->files, {}, {});
  if (!selection.ok()) return;
  for (const weft::hub::HubFile& file : selection->files) WEFT_CHECK(paths.count(file.path) == 1);
}

void CheckHeaders(absl::string_view text) {
  if (const auto range = weft::hub::ParseContentRange(text); range.has_value()) {
    WEFT_CHECK(range->from < range->to);
  }
  const std::string value(text.substr(0, 4096));
  const auto wait = weft::hub::AskedWait({{"retry-after", value}, {"ratelimit", value}},
                                         absl::FromUnixSeconds(1'800'000'000));
  if (wait.has_value()) {
    WEFT_CHECK(*wait >= absl::ZeroDuration() && *wait <= weft::hub::kAskedWaitMax);
  }
  const absl::Status refusal =
      weft::hub::RefusalOf(404, {{"x-error-message", value}}, text, weft::hub::Asked());
  for (const char c : refusal.message()) WEFT_CHECK(static_cast<unsigned char>(c) >= 0x20);
  const auto blob = weft::hub::ParseBlobName(text);
  if (blob.ok()) WEFT_CHECK(!blob->empty() && !absl::StrContains(blob->text, '/'));
  const auto id = weft::hub::ParseModelId(text);
  if (id.ok()) CheckPath(id->org + "/" + id->name + "/" + id->revision);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  CheckList(text);
  CheckHeaders(text);
  const auto parts = weft::hub::ParseSafetensorsIndex(text);
  if (!parts.ok()) return 0;
  for (const std::string& part : *parts) CheckPath(part);
  return 0;
}
