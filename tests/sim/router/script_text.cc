// Scripts as text: one table of names serves writing and reading.

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/sim/router/script.h"

namespace weft::router::sim {
namespace {

constexpr std::array<const char*, 16> kKindNames = {
    "request", "cancel", "tokenize", "drain",  "flush",   "kill", "hang",  "stick",
    "break",   "slow",   "lose",     "repeat", "reorder", "lie",  "error", "stall"};

template <typename Owner>
struct Field {
  const char* name;
  int64_t Owner::*member;
};

constexpr Field<Settings> kSettings[] = {
    {"seed", &Settings::seed},
    {"world", &Settings::world},
    {"groups", &Settings::groups},
    {"running_max", &Settings::running_max},
    {"step_tokens_max", &Settings::step_tokens_max},
    {"block_tokens", &Settings::block_tokens},
    {"kv_blocks", &Settings::kv_blocks},
    {"more_blocks", &Settings::more_blocks},
    {"window", &Settings::window},
    {"context_tokens", &Settings::context_tokens},
    {"eos_permille", &Settings::eos_permille},
    {"prefix_cache", &Settings::prefix_cache},
    {"inter_token_target_us", &Settings::inter_token_target_us},
    {"queue_requests_max", &Settings::queue_requests_max},
    {"queue_tokens_max", &Settings::queue_tokens_max},
    {"text_bytes_max", &Settings::text_bytes_max},
    {"text_threads", &Settings::text_threads},
    {"stream_batches_max", &Settings::stream_batches_max},
    {"queue_timeout_s", &Settings::queue_timeout_s},
    {"recovery_timeout_s", &Settings::recovery_timeout_s},
    {"hang_timeout_ms", &Settings::hang_timeout_ms},
    {"step_us", &Settings::step_us},
    {"wire_us_max", &Settings::wire_us_max},
    {"wake_us_max", &Settings::wake_us_max},
    {"tenants", &Settings::tenants},
    {"tenant_requests_max", &Settings::tenant_requests_max},
    {"tenant_tokens_per_minute", &Settings::tenant_tokens_per_minute},
    {"supervisor", &Settings::supervisor},
    {"restart_us", &Settings::restart_us},
    {"load_us", &Settings::load_us},
};

constexpr Field<Action> kFields[] = {
    {"id", &Action::id},
    {"tenant", &Action::tenant},
    {"prompt", &Action::prompt},
    {"prefix", &Action::prefix},
    {"prefix_of", &Action::prefix_of},
    {"max_tokens", &Action::max_tokens},
    {"seed", &Action::seed},
    {"text", &Action::text},
    {"echo", &Action::echo},
    {"stop", &Action::stop},
    {"keep_stop", &Action::keep_stop},
    {"ignore_eos", &Action::ignore_eos},
    {"min_p", &Action::min_p},
    {"penalty", &Action::penalty},
    {"logprobs", &Action::logprobs},
    {"scores", &Action::scores},
    {"priority", &Action::priority},
    {"deadline_us", &Action::deadline_us},
    {"bad", &Action::bad},
    {"pause_us", &Action::pause_us},
    {"leave_tokens", &Action::leave_tokens},
    {"leave_us", &Action::leave_us},
    {"resume", &Action::resume},
    {"allow", &Action::allow},
    {"ban", &Action::ban},
    {"rank", &Action::rank},
    {"us", &Action::us},
    {"count", &Action::count},
    {"skip", &Action::skip},
    {"call", &Action::call},
    {"lie", &Action::lie},
    {"blocks", &Action::blocks},
    {"other_model", &Action::other_model},
    {"untold", &Action::untold},
};

template <typename Owner, size_t kCount>
bool Assign(const Field<Owner> (&fields)[kCount], absl::string_view name, int64_t value,
            Owner* owner) {
  for (const Field<Owner>& field : fields) {
    if (name != field.name) continue;
    owner->*field.member = value;
    return true;
  }
  return false;
}

bool ParseAction(const std::vector<absl::string_view>& words, Action* action) {
  if (words.size() < 3 || !absl::SimpleAtoi(words[1], &action->at_us)) return false;
  size_t kind = 0;
  while (kind < kKindNames.size() && words[2] != kKindNames[kind]) ++kind;
  if (kind == kKindNames.size()) return false;
  action->kind = static_cast<Kind>(kind);
  for (size_t i = 3; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (!absl::SimpleAtoi(parts.second, &value)) return false;
    if (!Assign(kFields, parts.first, value, action)) return false;
  }
  return true;
}

}  // namespace

std::string ToText(const Action& action) {
  std::string text =
      absl::StrCat("at ", action.at_us, " ", kKindNames[static_cast<size_t>(action.kind)]);
  const Action none;
  for (const Field<Action>& field : kFields) {
    if (action.*field.member == none.*field.member) continue;
    absl::StrAppend(&text, " ", field.name, "=", action.*field.member);
  }
  return text;
}

std::string ToText(const Script& script) {
  std::string text;
  const Settings usual;
  for (const Field<Settings>& field : kSettings) {
    if (script.settings.*field.member == usual.*field.member) continue;
    absl::StrAppend(&text, "set ", field.name, " ", script.settings.*field.member, "\n");
  }
  for (const Action& action : script.actions) absl::StrAppend(&text, ToText(action), "\n");
  return text;
}

absl::StatusOr<Script> ParseScript(absl::string_view text) {
  Script script;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    bool good = false;
    int64_t value = 0;
    if (words[0] == "set" && words.size() == 3 && absl::SimpleAtoi(words[2], &value)) {
      good = Assign(kSettings, words[1], value, &script.settings);
    } else if (words[0] == "at") {
      Action& action = script.actions.emplace_back();
      good = ParseAction(words, &action);
    }
    if (!good) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": expected \"set NAME NUMBER\" or \"at TIME KIND name=number ...\", ",
          "with names of script_text.cc; found \"", line, "\""));
    }
  }
  return script;
}

}  // namespace weft::router::sim
