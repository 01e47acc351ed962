#include "deploy/launcher/hub/model_id.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::hub {
namespace {

constexpr size_t kNameMax = 96;
constexpr size_t kRevisionMax = 200;

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
}

bool IsName(absl::string_view name) {
  const auto at_edge = [](char c) { return c == '-' || c == '.'; };
  return !name.empty() && name.size() <= kNameMax &&
         std::all_of(name.begin(), name.end(), IsWordCharacter) && !at_edge(name.front()) &&
         !at_edge(name.back()) && !absl::StrContains(name, "--") && !absl::StrContains(name, "..");
}

// It becomes a path below refs/: no part of it may be hidden or lead elsewhere.
bool IsRevision(absl::string_view revision) {
  if (revision.size() > kRevisionMax) return false;
  for (const absl::string_view part : absl::StrSplit(revision, '/')) {
    if (part.empty() || part.front() == '.' || part.front() == '-' || part.back() == '.' ||
        absl::StrContains(part, "..") || !std::all_of(part.begin(), part.end(), [](char c) {
          return IsWordCharacter(c) || c == '+';
        })) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string ModelId::text() const {
  return revision == kMainRevision ? repository() : absl::StrCat(repository(), "@", revision);
}

absl::StatusOr<ModelId> ParseModelId(absl::string_view text) {
  ModelId id;
  const size_t at = text.find('@');
  const absl::string_view repository = text.substr(0, at);
  const size_t slash = repository.find('/');
  const absl::string_view org = repository.substr(0, slash);
  const absl::string_view name =
      slash == absl::string_view::npos ? absl::string_view() : repository.substr(slash + 1);
  if (!IsName(org) || !IsName(name) || absl::EndsWith(name, ".git")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "`", text,
        "` is no model's name; expected org/name or org/name@revision, each name of 1 .. ",
        kNameMax, " letters, digits, '-', '_' and '.'"));
  }
  if (at != absl::string_view::npos) {
    const absl::string_view revision = text.substr(at + 1);
    if (!IsRevision(revision)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`", revision, "` is no revision; expected a branch, a tag or a commit, as in ", org, "/",
          name, "@v1.0"));
    }
    id.revision = std::string(revision);
  }
  id.org = std::string(org);
  id.name = std::string(name);
  return id;
}

bool IsCommit(absl::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace weft::hub
