#include "deploy/convert/bpe_vocab.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "boost/json.hpp"
#include "common/limits.h"
#include "common/model_path.h"
#include "common/small_file.h"
#include "common/status.h"
#include "common/utf8.h"
#include "shard/model/hf_config.h"

namespace weft::convert {
namespace {

constexpr size_t kFileBytesMax = 64u << 20;

std::string Shown(absl::string_view token) { return absl::CHexEscape(token.substr(0, 80)); }

absl::StatusOr<absl::flat_hash_map<std::string, uint32_t>> ReadIds(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::object object,
                        shard::ReadJsonObject(path, kFileBytesMax));
  if (object.empty() || object.size() > kVocabMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", object.size(), " tokens; expected 1 to ", kVocabMax));
  }
  absl::flat_hash_map<std::string, uint32_t> ids;
  absl::flat_hash_map<uint32_t, absl::string_view> tokens;
  for (const auto& [key, value] : object) {
    const absl::string_view token(key.data(), key.size());
    boost::json::error_code error;
    const auto id = value.to_number<uint32_t>(error);
    if (error || value.is_double() || id >= kVocabMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", Shown(token), ": expected an id in 0 .. ", kVocabMax - 1));
    }
    const auto [other, is_new] = tokens.emplace(id, token);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", Shown(token), " and ",
                                                     Shown(other->second), " have the id ", id));
    }
    ids.emplace(token, id);
  }
  return ids;
}

// One cut of a piece; views into it.
struct Cut {
  float score = 0;
  size_t left_characters = 0;
  size_t right_characters = 0;
  absl::string_view left;
  absl::string_view right;
};

// Where characters of `text` begin, and its end.
std::vector<size_t> CharacterStarts(absl::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += Utf8CharacterBytes(text.substr(at))) {
    starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

}  // namespace

absl::StatusOr<BpeVocab> ReadVocabAndMerges(const std::string& directory) {
  BpeVocab vocab;
  WEFT_ASSIGN_OR_RETURN(vocab.ids, ReadIds(absl::StrCat(directory, "/", kVocabName)));
  const std::string path = absl::StrCat(directory, "/", kMergesName);
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kFileBytesMax));
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripSuffix(line, "\r");
    if (line.empty() || absl::StartsWith(line, "#version")) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ' ');
    const auto bad = [&](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": line ", number, ": ", what...));
    };
    if (parts.size() != 2) return bad("expected two tokens with a blank between them");
    for (const std::string& token :
         {std::string(parts[0]), std::string(parts[1]), absl::StrCat(parts[0], parts[1])}) {
      if (!vocab.ids.contains(token)) return bad(Shown(token), " is not in ", kVocabName);
    }
    vocab.merges.emplace_back(parts[0], parts[1]);
  }
  return vocab;
}

BpeVocab VocabOf(const std::vector<SentencePiece>& pieces) {
  BpeVocab vocab;
  for (size_t id = 0; id < pieces.size(); ++id) {
    vocab.ids.emplace(pieces[id].text, static_cast<uint32_t>(id));
  }
  std::vector<Cut> cuts;
  for (const SentencePiece& piece : pieces) {
    const std::vector<size_t> starts = CharacterStarts(piece.text);
    const size_t characters = starts.size() - 1;
    const size_t first = cuts.size();
    for (size_t i = 1; i < characters; ++i) {
      const absl::string_view left = absl::string_view(piece.text).substr(0, starts[i]);
      const absl::string_view right = absl::string_view(piece.text).substr(starts[i]);
      if (!vocab.ids.contains(left) || !vocab.ids.contains(right)) continue;
      cuts.push_back({piece.score, i, characters - i, left, right});
    }
    std::sort(cuts.begin() + static_cast<ptrdiff_t>(first), cuts.end(),
              [&vocab](const Cut& a, const Cut& b) {
                return std::make_pair(vocab.ids.at(a.left), vocab.ids.at(a.right)) <
                       std::make_pair(vocab.ids.at(b.left), vocab.ids.at(b.right));
              });
  }
  // Stable: what is equal stays in the order of pieces and ids.
  std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) {
    return std::tie(a.score, a.left_characters, a.right_characters) >
           std::tie(b.score, b.left_characters, b.right_characters);
  });
  vocab.merges.reserve(cuts.size());
  for (const Cut& cut : cuts) vocab.merges.emplace_back(cut.left, cut.right);
  return vocab;
}

}  // namespace weft::convert
