#include "common/flags.h"

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/small_file.h"
#include "common/status.h"
#include "common/version.h"

namespace weft {
namespace {

constexpr char kOrigins[] = "flag-origins";
// A configuration has a line for each flag.
constexpr size_t kConfigBytesMax = 1u << 20;

std::string EnvironmentName(const std::string& name) {
  return "WEFT_" + absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}));
}

// "--name" or "--name=value" as an argument.
bool IsArgument(absl::string_view argument, const std::string& name) {
  return argument == name ||
         (absl::StartsWith(argument, name) && argument.substr(name.size(), 1) == "=");
}

}  // namespace

bool ParseNumber(absl::string_view text, int64_t* number) { return absl::SimpleAtoi(text, number); }
bool ParseNumber(absl::string_view text, uint64_t* number) {
  return absl::SimpleAtoi(text, number);
}
bool ParseNumber(absl::string_view text, double* number) {
  return absl::SimpleAtod(text, number) && std::isfinite(*number);
}

Flags::Flags(const std::string& program, const std::string& description)
    : app_(description, program) {
  app_.set_version_flag("--version", absl::StrCat(program, " ", Version(), " (", Revision(), ")"));
  Add("config", &config_path_, "File with values (TOML or INI), one key per flag");
  // For `weft serve` alone, which knows better than a command line where a value came from.
  app_.add_option(absl::StrCat("--", kOrigins), handed_origins_)->delimiter(',')->group("");
  app_.get_formatter()->column_width(44);
}

CLI::Validator Flags::IsTrueOrFalse() {
  return CLI::Validator(
      [](std::string& text) {
        const bool fits = text == "true" || text == "false" || text == "1" || text == "0";
        return fits ? std::string() : absl::StrCat(text, " is neither true nor false");
      },
      "");
}

CLI::App& Flags::AppOf(const std::string& name) {
  if (!owner_.empty()) owners_[name].insert(owner_);
  const bool used = withheld_.count(name) == 0 && app_.get_option_no_throw("--" + name) == nullptr;
  if (used) return app_;
  if (CLI::Option* const other = unused_.get_option_no_throw("--" + name)) {
    unused_.remove_option(other);
  }
  return unused_;
}

CLI::Option* Flags::Finish(CLI::Option* option, const std::string& name) {
  environment_names_.insert(EnvironmentName(name));
  return option->envname(EnvironmentName(name))
      ->group(owner_.empty() ? group_ : absl::StrCat(group_, " (", owner_, ")"));
}

void Flags::NoteOrigins(int argc, char** argv) {
  for (const CLI::Option* option : app_.get_options()) {
    // Hidden ones have no name.
    if (option->count() == 0 || option->get_group().empty()) continue;
    bool on_line = false;
    for (int i = 1; i < argc; ++i) on_line |= IsArgument(argv[i], option->get_name());
    origin_[option->get_name()] = on_line ? "flag" : "environment";
  }
  for (const std::string& handed : handed_origins_) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(handed, absl::MaxSplits(':', 1));
    origin_["--" + pair.first] = pair.second;
  }
}

absl::Status Flags::Parse(int argc, char** argv, std::string* help_text) {
  // CLI11 reports everything by exceptions; this is the edge where they become a Status.
  try {
    app_.parse(argc, argv);
    NoteOrigins(argc, argv);
    return ApplyFile();
  } catch (const CLI::CallForHelp&) {
    *help_text = app_.help();
  } catch (const CLI::CallForAllHelp&) {
    *help_text = app_.help("", CLI::AppFormatMode::All);
  } catch (const CLI::CallForVersion&) {
    *help_text = absl::StrCat(app_.version(), "\n");
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), " (see --help)"));
  }
  return absl::OkStatus();
}

absl::Status Flags::ApplyFile() {
  if (config_path_.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadSmallFile(config_path_, kConfigBytesMax);
  if (!text.ok()) return Annotate(text.status(), "--config");
  std::istringstream stream(*text);
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
    if (item.name == "++" || item.name == "--") continue;  // CLI11's section marks
    CLI::Option* option = app_.get_option_no_throw("--" + item.name);
    if (option == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(config_path_, ": unknown key \"", item.fullname(), "\""));
    }
    if (option->count() > 0) continue;
    for (const std::string& value : item.inputs) option->add_result(value);
    option->run_callback();
    origin_[option->get_name()] = "file";
  }
  return absl::OkStatus();
}

std::map<std::string, std::string> Flags::Effective() const {
  std::map<std::string, std::string> out;
  for (const CLI::Option* option : app_.get_options()) {
    const std::string name = option->get_name();
    if (name == "--help" || name == "--version" || option->get_group().empty()) continue;
    if (!absl::StartsWith(name, "--")) continue;
    const auto origin = origin_.find(name);
    const std::string value =
        option->count() == 0 ? option->get_default_str() : absl::StrJoin(option->results(), ",");
    out[name.substr(2)] =
        absl::StrCat(value, " (", origin == origin_.end() ? "default" : origin->second, ")");
  }
  return out;
}

std::vector<Flags::GivenFlag> Flags::Given(const std::string& owner) const {
  std::vector<GivenFlag> out;
  for (const auto& [name, owners] : owners_) {
    const CLI::Option* const option = app_.get_option_no_throw("--" + name);
    if (owners.count(owner) == 0 || option == nullptr || option->count() == 0) continue;
    const auto origin = origin_.find("--" + name);
    out.push_back({name, option->results(), origin == origin_.end() ? "flag" : origin->second});
  }
  return out;
}

}  // namespace weft
