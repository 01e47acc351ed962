#include "deploy/launcher/chat/settings.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/flags.h"
#include "common/near_name.h"

namespace weft::launcher {
namespace {

// Beside each Info, in its order. Integers are those with `real` false.
struct Bounds {
  bool real;
  double least;
  // `least` itself is no value.
  bool above;
  double most;
};

constexpr double kAny = std::numeric_limits<double>::max();

// docs/API.md, "Parameters".
constexpr Bounds kBounds[] = {
    {true, 0, false, 100},   {true, 0, true, 1},   {false, 0, false, 1048576},
    {true, 0, false, 1},     {true, 0, true, 1},   {true, 0.01, false, 10},
    {true, -2, false, 2},    {true, -2, false, 2}, {false, 1, false, 4294967295.0},
    {false, 0, false, kAny},
};

const Bounds* BoundsOf(absl::string_view name) {
  const std::vector<Settings::Info>& all = Settings::All();
  for (size_t i = 0; i < all.size(); ++i) {
    if (name == all[i].name) return &kBounds[i];
  }
  return nullptr;
}

bool Fits(const Bounds& bounds, absl::string_view text) {
  double number = 0;
  if (bounds.real) {
    if (!ParseNumber(text, &number)) return false;
  } else {
    uint64_t integer = 0;
    if (!ParseNumber(text, &integer)) return false;
    number = static_cast<double>(integer);
  }
  // A number that is none compares as false.
  return (bounds.above ? number > bounds.least : number >= bounds.least) && number <= bounds.most;
}

absl::Status Unknown(absl::string_view name) {
  std::vector<std::string> names;
  for (const Settings::Info& info : Settings::All()) names.emplace_back(info.name);
  const std::string near = NearName(name, names);
  return absl::InvalidArgumentError(absl::StrCat("nothing is called \"", name, "\"",
                                                 near.empty() ? "" : absl::StrCat(" (", near, "?)"),
                                                 "; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace

const std::vector<Settings::Info>& Settings::All() {
  static const auto* const all = new std::vector<Info>{
      {"temperature", "0 .. 100", "how much answers vary; 0 = always the likeliest token"},
      {"top_p", "above 0, at most 1", "only the likeliest tokens that make up this share; 1 = all"},
      {"top_k", "0 .. 1048576", "only so many likeliest tokens; 0 = all"},
      {"min_p", "0 .. 1", "only tokens at least this likely beside the likeliest; 0 = all"},
      {"typical_p", "above 0, at most 1", "only tokens about as likely as expected; 1 = all"},
      {"repetition_penalty", "0.01 .. 10", "above 1: words that were there are less likely"},
      {"presence_penalty", "-2 .. 2", "less likely once a token was in the answer"},
      {"frequency_penalty", "-2 .. 2", "less likely with each time"},
      {"max_tokens", "1 .. 4294967295", "tokens of an answer at most; default: what is free"},
      {"seed", "0 .. 18446744073709551615", "the same seed draws the same answer again"},
  };
  static_assert(sizeof(kBounds) / sizeof(kBounds[0]) == 10, "one for each");
  return *all;
}

absl::Status Settings::Set(absl::string_view name, absl::string_view text) {
  const Bounds* const bounds = BoundsOf(name);
  if (bounds == nullptr) return Unknown(name);
  if (text == "default") {
    values_.erase(std::string(name));
    return absl::OkStatus();
  }
  if (!Fits(*bounds, text)) {
    for (const Info& info : All()) {
      if (name != info.name) continue;
      return absl::InvalidArgumentError(absl::StrCat(name, ": \"", text, "\" is no ",
                                                     bounds->real ? "number" : "whole number",
                                                     " in ", info.range, " (or: default)"));
    }
  }
  values_[std::string(name)] = std::string(text);
  return absl::OkStatus();
}

absl::optional<double> Settings::Real(absl::string_view name) const {
  const auto found = values_.find(std::string(name));
  double number = 0;
  if (found == values_.end() || !ParseNumber(found->second, &number)) return absl::nullopt;
  return number;
}

absl::optional<uint64_t> Settings::Integer(absl::string_view name) const {
  const auto found = values_.find(std::string(name));
  uint64_t number = 0;
  if (found == values_.end() || !ParseNumber(found->second, &number)) return absl::nullopt;
  return number;
}

std::string Settings::Line(const Info& info) const {
  const auto found = values_.find(info.name);
  return absl::StrFormat("  %-18s %-8s  %s\n", info.name,
                         found == values_.end() ? "default" : found->second, info.range);
}

absl::optional<std::string> Settings::Show(absl::string_view name) const {
  for (const Info& info : All()) {
    if (name == info.name) return absl::StrCat(Line(info), "  ", info.help, "\n");
  }
  return absl::nullopt;
}

std::string Settings::Show() const {
  std::string all;
  for (const Info& info : All()) absl::StrAppend(&all, Line(info));
  return all;
}

}  // namespace weft::launcher
