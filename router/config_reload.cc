#include "router/config_reload.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/log.h"
#include "common/log_level.h"
#include "common/status.h"

namespace weft::router {
namespace {

// As much as is read of it (common/flags.cc).
constexpr size_t kConfigBytesMax = 1u << 20;

constexpr absl::string_view kLogLevel = "log-level";
constexpr std::array<absl::string_view, 4> kChangeable = {kLogLevel, "queue-requests-max",
                                                          "queue-tokens-max", "text-bytes-max"};

bool IsChangeable(absl::string_view name) {
  return std::find(kChangeable.begin(), kChangeable.end(), name) != kChangeable.end();
}

// Of a router that `weft serve` has started: the launcher speaks of these. It may have chosen the
// ports, and names of files here are its own.
bool IsLaunchers(absl::string_view name) {
  return name == "http-port" || name == "grpc-port" || name == "config";
}

absl::StatusOr<RouterFlags> Read(const std::vector<std::string>& arguments) {
  WEFT_ASSIGN_OR_RETURN(RouterFlags flags, ReadRouterFlagsAgain(arguments));
  WEFT_RETURN_IF_ERROR(ParseLogLevel(flags.log_level).status());
  return flags;
}

}  // namespace

ConfigReload::ConfigReload(const RouterFlags& flags, Targets targets)
    : arguments_(flags.arguments),
      handed_(flags.handed),
      targets_(std::move(targets)),
      news_({flags.reload_path}, kConfigBytesMax),
      values_(flags.doors.config) {}

absl::Status ConfigReload::Reload() {
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<RouterFlags> fresh = Read(arguments_);
  switch (news_.Look(fresh.status())) {
    case ReloadNews::Kind::kNone:
      break;
    case ReloadNews::Kind::kBad:
      WEFT_LOG_ERROR("the configuration stays as it was: {}",
                     std::string(fresh.status().message()));
      break;
    case ReloadNews::Kind::kGoodAgain:
      WEFT_LOG_INFO("the configuration can be read again");
      break;
  }
  if (fresh.ok()) Take(*fresh);
  return fresh.status();
}

void ConfigReload::Take(const RouterFlags& fresh) {
  bool changed = false;
  std::string level_news;
  for (const auto& [name, value] : fresh.doors.config) {
    std::string& in_effect = values_[name];
    if (value == in_effect) {
      told_.erase(name);
    } else if (!IsChangeable(name)) {
      TellOfStart(name, value);
    } else {
      const std::string news =
          absl::StrCat("configuration: ", name, " is ", value, ", was ", in_effect);
      in_effect = value;
      changed = true;
      if (name == kLogLevel) {
        level_news = news;
      } else {
        WEFT_LOG_INFO("{}", news);
      }
    }
  }
  if (!changed) return;
  // Last, so that a quieter level hides none of the lines above. Read has looked at the name.
  if (!level_news.empty()) ChangeLogLevel(*ParseLogLevel(fresh.log_level), level_news);
  targets_.queue_limits({fresh.engine.queue_requests_max, fresh.engine.queue_tokens_max,
                         fresh.engine.text_bytes_max});
  targets_.config(values_);
}

void ConfigReload::TellOfStart(const std::string& name, const std::string& value) {
  if (handed_ && IsLaunchers(name)) return;
  if (std::exchange(told_[name], value) == value) return;
  WEFT_LOG_WARN("configuration: {} is {} from the next start on; until then it is {}", name, value,
                values_[name]);
}

}  // namespace weft::router
