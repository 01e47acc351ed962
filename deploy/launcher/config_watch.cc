#include "deploy/launcher/config_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/log_level.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/serve_options.h"

namespace weft::launcher {
namespace {

// As much as is read of it (common/flags.cc).
constexpr size_t kConfigBytesMax = 1u << 20;
constexpr char kLogLevel[] = "log-level";

}  // namespace

ConfigWatch::ConfigWatch(std::vector<std::string> arguments, const Flags& flags,
                         std::string router_path)
    : arguments_(std::move(arguments)),
      router_path_(std::move(router_path)),
      changes_({flags.reload_path()}),
      news_({flags.reload_path()}, kConfigBytesMax),
      values_(flags.Effective()) {}

absl::Status ConfigWatch::WriteForRouter(const Flags& flags) {
  return WriteFileAtomically(router_path_, RouterConfig(flags));
}

void ConfigWatch::Look() {
  if (changes_.Look()) Reload();
}

void ConfigWatch::Reload() {
  const absl::Status status = TryReload();
  switch (news_.Look(status)) {
    case ReloadNews::Kind::kNone:
      break;
    case ReloadNews::Kind::kBad:
      WEFT_LOG_ERROR("the configuration stays as it was: {}", std::string(status.message()));
      break;
    case ReloadNews::Kind::kGoodAgain:
      WEFT_LOG_INFO("the configuration can be read again");
      break;
  }
}

absl::Status ConfigWatch::TryReload() {
  std::vector<std::string> copies = arguments_;
  std::vector<char*> argv;
  for (std::string& argument : copies) argv.push_back(argument.data());
  ServeOptions options;
  Flags fresh("weft serve", "");
  DeclareServeFlags(fresh, &options);
  std::string help;
  WEFT_RETURN_IF_ERROR(fresh.Parse(static_cast<int>(argv.size()), argv.data(), &help));
  WEFT_RETURN_IF_ERROR(ParseLogLevel(options.router.log_level).status());
  Take(fresh, options.router.log_level);
  return WriteForRouter(fresh);
}

void ConfigWatch::Take(const Flags& fresh, const std::string& log_level) {
  for (const auto& [name, value] : fresh.Effective()) {
    std::string& in_effect = values_[name];
    if (value == in_effect) {
      told_.erase(name);
    } else if (name == kLogLevel) {
      ChangeLogLevel(*ParseLogLevel(log_level),
                     absl::StrCat("configuration: ", name, " is ", value, ", was ", in_effect,
                                  "; shards keep theirs until the next start"));
      in_effect = value;
    } else if (!IsTheRoutersNews(fresh, name) && std::exchange(told_[name], value) != value) {
      WEFT_LOG_WARN("configuration: {} is {} from the next start on; until then it is {}", name,
                    value, in_effect);
    }
  }
}

}  // namespace weft::launcher
