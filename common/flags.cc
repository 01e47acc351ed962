#include "common/flags.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "CLI/Validators.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/near_name.h"
#include "common/small_file.h"
#include "common/status.h"
#include "common/version.h"

namespace weft {
namespace {

constexpr char kOrigins[] = "flag-origins";
constexpr char kHandedConfig[] = "flag-config";
constexpr char kHandedReload[] = "flag-reload";
constexpr absl::string_view kFromFile = ":file";
// A configuration has a line for each flag.
constexpr size_t kConfigBytesMax = 1u << 20;

constexpr absl::string_view kVariablePrefix = "WEFT_";

std::string EnvironmentName(const std::string& name) {
  return std::string(kVariablePrefix) +
         absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}));
}

// "--name" or "--name=value" as an argument.
bool IsArgument(absl::string_view argument, const std::string& name) {
  return argument == name ||
         (absl::StartsWith(argument, name) && argument.substr(name.size(), 1) == "=");
}

// As they were typed, but of a flag that was given more than once only what counts.
std::vector<std::string> Values(const CLI::Option& option) {
  const std::vector<std::string>& all = option.results();
  const bool last = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast;
  return last && !all.empty() ? std::vector<std::string>{all.back()} : all;
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

CLI::Validator Validator(const Flags::Check& check) {
  return CLI::Validator([check](std::string& text) { return check(text); }, "");
}

std::string IsTrueOrFalse(const std::string& text) {
  const bool fits = text == "true" || text == "false" || text == "1" || text == "0";
  return fits ? std::string() : absl::StrCat(text, " is neither true nor false");
}

}  // namespace

bool ParseNumber(absl::string_view text, int64_t* number) { return absl::SimpleAtoi(text, number); }
bool ParseNumber(absl::string_view text, uint64_t* number) {
  return absl::SimpleAtoi(text, number);
}
bool ParseNumber(absl::string_view text, double* number) {
  return absl::SimpleAtod(text, number) && std::isfinite(*number);
}

Flags::Flags(const std::string& program, const std::string& description, FlagSources sources)
    : program_(program),
      sources_(sources),
      app_(std::make_unique<CLI::App>(description, program)),
      unused_(std::make_unique<CLI::App>()) {
  app_->set_version_flag("--version", absl::StrCat(program, " ", Version(), " (", Revision(), ")"));
  if (sources_.file) {
    Add("config", &config_path_, "File with values (TOML or INI), one key per flag");
  }
  // For `weft serve` alone, which knows better than a command line where a value came from.
  app_->add_option(absl::StrCat("--", kOrigins), handed_origins_)->delimiter(',')->group("");
  app_->add_option(absl::StrCat("--", kHandedConfig), handed_config_)->group("");
  app_->add_option(absl::StrCat("--", kHandedReload), handed_reload_)->group("");
  app_->get_formatter()->column_width(44);
}

Flags::~Flags() = default;

template <typename T>
void Flags::Add(const std::string& name, T* value, const std::string& help, const Check& check) {
  CLI::Option* option = AppOf(name).add_option("--" + name, *value, help);
  if constexpr (!IsVector<T>::value) {
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  Finish(option, name)->capture_default_str();
  if constexpr (std::is_same_v<T, bool>) {
    option->check(Validator(IsTrueOrFalse))->default_str(*value ? "true" : "false");
  }
  if (check != nullptr) option->check(Validator(check));
}

#define WEFT_FLAG_TYPE(T) \
  template void Flags::Add(const std::string&, T*, const std::string&, const Check&)
WEFT_FLAG_TYPE(bool);
WEFT_FLAG_TYPE(int);
WEFT_FLAG_TYPE(int64_t);
WEFT_FLAG_TYPE(uint16_t);
WEFT_FLAG_TYPE(uint32_t);
WEFT_FLAG_TYPE(uint64_t);
WEFT_FLAG_TYPE(float);
WEFT_FLAG_TYPE(double);
WEFT_FLAG_TYPE(std::string);
WEFT_FLAG_TYPE(std::vector<std::string>);
#undef WEFT_FLAG_TYPE

void Flags::AddList(const std::string& name, std::vector<std::string>* values,
                    const std::string& help) {
  CLI::Option* const option = AppOf(name).add_option("--" + name, *values, help);
  Finish(option, name)->capture_default_str()->delimiter(',');
}

void Flags::AddSwitch(const std::string& name, bool* value, const std::string& help) {
  CLI::Option* const option = AppOf(name).add_flag("--" + name, *value, help);
  Finish(option, name)->check(Validator(IsTrueOrFalse))->default_str(*value ? "true" : "false");
}

void Flags::AddArgument(const std::string& name, std::string* value, const std::string& help) {
  app_->add_option(name, *value, help);
}

CLI::App& Flags::AppOf(const std::string& name) {
  const bool withheld = withheld_.count(name) != 0;
  if (withheld) decided_.insert(name);
  if (!owner_.empty() && !withheld) owners_[name].insert(owner_);
  const bool used = !withheld && app_->get_option_no_throw("--" + name) == nullptr;
  if (used) return *app_;
  if (CLI::Option* const other = unused_->get_option_no_throw("--" + name)) {
    unused_->remove_option(other);
  }
  return *unused_;
}

CLI::Option* Flags::Finish(CLI::Option* option, const std::string& name) {
  if (sources_.environment) {
    environment_names_.insert(EnvironmentName(name));
    option->envname(EnvironmentName(name));
  }
  return option->group(owner_.empty() ? group_ : absl::StrCat(group_, " (", owner_, ")"));
}

void Flags::NoteOrigins(int argc, char** argv) {
  for (const CLI::Option* option : app_->get_options()) {
    // Hidden ones have no name.
    if (option->count() == 0 || option->get_group().empty()) continue;
    bool on_line = false;
    for (int i = 1; i < argc; ++i) on_line |= IsArgument(argv[i], option->get_name());
    origin_[option->get_name()] = on_line ? "flag" : "environment";
  }
  for (const std::string& handed : handed_origins_) {
    if (again_ && absl::EndsWith(handed, kFromFile)) continue;
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(handed, absl::MaxSplits(':', 1));
    origin_["--" + pair.first] = pair.second;
  }
}

std::string Flags::Unknown(absl::string_view kind, const std::string& name) const {
  const std::string typed = absl::StrCat(kind == "flag" ? "--" : "", name);
  if (decided_.count(name) != 0) {
    return absl::StrCat(kind, " ", typed, " is not taken: ", program_, " decides it itself");
  }
  std::string out = absl::StrCat("unknown ", kind, " ", typed);
  const std::vector<std::string> names = Names();
  const absl::string_view dashes = kind == "flag" ? "--" : "";
  absl::string_view positive = name;
  if (absl::ConsumePrefix(&positive, "no-")) {
    const std::string near = NearName(positive, names);
    if (!near.empty() && IsTruth(near)) {
      return absl::StrCat(out, "; the nearest known one is ", dashes, near, "=false");
    }
  }
  const std::string near = NearName(name, names);
  if (!near.empty()) absl::StrAppend(&out, "; the nearest known one is ", dashes, near);
  return out;
}

std::vector<std::string> Flags::Names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string known = option->get_name();
    // Hidden ones have no group.
    if (absl::StartsWith(known, "--") && !option->get_group().empty()) {
      names.push_back(known.substr(2));
    }
  }
  return names;
}

bool Flags::IsTruth(const std::string& name) const {
  const CLI::Option* const option = app_->get_option_no_throw("--" + name);
  if (option == nullptr || name == "help" || name == "version") return false;
  return option->get_default_str() == "true" || option->get_default_str() == "false";
}

std::string Flags::MissingValue(const std::string& name) const {
  return absl::StrCat("--", name, ": its value is missing; write --", name,
                      IsTruth(name) ? absl::StrCat("=true or --", name, "=false") : "=VALUE");
}

std::string Flags::WithoutValue(int argc, char** argv) const {
  for (int i = 1; i + 1 < argc; ++i) {
    const absl::string_view typed = argv[i];
    if (!absl::StartsWith(typed, "--") || absl::StrContains(typed, '=')) continue;
    const CLI::Option* const option = app_->get_option_no_throw(std::string(typed));
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    const absl::string_view next = argv[++i];
    const std::string name(next.substr(0, next.find('=')));
    if (!absl::StartsWith(next, "--") || app_->get_option_no_throw(name) == nullptr) continue;
    return std::string(typed.substr(2));
  }
  return "";
}

std::vector<std::string> Flags::WithEmptyValues(int argc, char** argv) const {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const bool empty = text.size() > 3 && text.find('=') == text.size() - 1;
    const std::string name = empty ? text.substr(0, text.size() - 1) : "";
    const CLI::Option* const option = empty ? app_->get_option_no_throw(name) : nullptr;
    if (option == nullptr || option->get_items_expected_min() == 0) {
      arguments.push_back(text);
      continue;
    }
    arguments.push_back(name);
    arguments.push_back("");
  }
  return arguments;
}

std::string Flags::UnknownVariable::Line() const {
  return absl::StrCat("the environment variable ", name, " is none of weft's and changes nothing",
                      near.empty() ? "" : absl::StrCat("; the nearest known one is ", near));
}

std::vector<Flags::UnknownVariable> Flags::UnknownVariables(
    const char* const* environment, const std::set<std::string>& others) const {
  std::set<std::string> known = others;
  known.insert(environment_names_.begin(), environment_names_.end());
  known.insert(std::begin(kOtherVariables), std::end(kOtherVariables));
  std::vector<std::string> short_names;
  for (const std::string& name : known) short_names.push_back(name.substr(kVariablePrefix.size()));
  std::vector<UnknownVariable> unknown;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!absl::StartsWith(name, kVariablePrefix) || IsServiceVariable(name)) continue;
    if (known.count(name) != 0) continue;
    const std::string near = NearName(name.substr(kVariablePrefix.size()), short_names);
    unknown.push_back({name, near.empty() ? "" : absl::StrCat(kVariablePrefix, near)});
  }
  return unknown;
}

std::string Flags::ExtrasMessage() const {
  const std::vector<std::string> extras = app_->remaining();
  for (const std::string& extra : extras) {
    // What stands behind an unknown flag may be its value.
    if (extra == "--" || !absl::StartsWith(extra, "--")) continue;
    return Unknown("flag", extra.substr(2, extra.find('=') - 2));
  }
  for (const std::string& extra : extras) {
    if (extra.size() < 3 || extra[0] != '-' || !absl::ascii_isalpha(extra[1])) continue;
    const std::string near = NearName(extra.substr(1, extra.find('=') - 1), Names());
    if (near.empty()) continue;
    return absl::StrCat("unexpected argument ", extra, "; the nearest flag is --", near);
  }
  return absl::StrCat("unexpected argument ", absl::StrJoin(extras, " "));
}

std::string Flags::ParseMessage(const CLI::Error& error, int argc, char** argv) const {
  const std::string message = error.what();
  const bool no_value = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = option->get_name();
    const std::string variable = option->get_envname();
    if (!absl::StartsWith(message, absl::StrCat(name, ":"))) continue;
    if (no_value) return MissingValue(name.substr(2));
    if (variable.empty()) continue;
    bool on_line = false;
    for (int i = 1; i < argc; ++i) on_line |= IsArgument(argv[i], name);
    if (!on_line && std::getenv(variable.c_str()) != nullptr) {
      return absl::StrCat(message, ", as ", variable, " says");
    }
  }
  return message;
}

std::vector<std::string> Flags::WithoutFileValues(std::vector<std::string> arguments) const {
  const std::string origins = absl::StrCat("--", kOrigins, "=");
  std::set<std::string> from_file;
  for (const std::string& argument : arguments) {
    absl::string_view list = argument;
    if (!absl::ConsumePrefix(&list, origins)) continue;
    for (absl::string_view pair : absl::StrSplit(list, ',')) {
      if (absl::ConsumeSuffix(&pair, kFromFile)) from_file.insert(absl::StrCat("--", pair));
    }
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    if (from_file.count(arguments[i].substr(0, equals)) == 0) {
      out.push_back(std::move(arguments[i]));
    } else if (equals == std::string::npos) {
      ++i;  // its empty value
    }
  }
  return out;
}

absl::Status Flags::Parse(int argc, char** argv, std::string* help_text) {
  // CLI11 would take the next flag for the value.
  if (const std::string name = WithoutValue(argc, argv); !name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(MissingValue(name), " (see --help)"));
  }
  // CLI11 reports everything by exceptions; this is the edge where they become a Status.
  try {
    std::vector<std::string> arguments = WithEmptyValues(argc, argv);
    if (again_) arguments = WithoutFileValues(std::move(arguments));
    std::reverse(arguments.begin(), arguments.end());  // as the library wants them
    app_->parse(std::move(arguments));
    NoteOrigins(argc, argv);
    return ApplyFile();
  } catch (const CLI::CallForHelp&) {
    *help_text = app_->help();
  } catch (const CLI::CallForAllHelp&) {
    *help_text = app_->help("", CLI::AppFormatMode::All);
  } catch (const CLI::CallForVersion&) {
    *help_text = absl::StrCat(app_->version(), "\n");
  } catch (const CLI::ExtrasError&) {
    return absl::InvalidArgumentError(absl::StrCat(ExtrasMessage(), " (see --help)"));
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(ParseMessage(error, argc, argv), " (see --help)"));
  }
  return absl::OkStatus();
}

absl::Status Flags::ApplyFile() {
  // At its start a child has its launcher's values as flags.
  const std::string& path = again_ ? reload_path() : config_path_;
  if (path.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadSmallFile(path, kConfigBytesMax);
  if (!text.ok()) return Annotate(text.status(), "--config");
  std::istringstream stream(*text);
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
    if (item.name == "++" || item.name == "--") continue;  // CLI11's section marks
    CLI::Option* option = app_->get_option_no_throw("--" + item.name);
    if (option == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", Unknown("key", item.fullname()), " (see --help)"));
    }
    if (option->count() > 0) continue;
    for (const std::string& value : item.inputs) option->add_result(value);
    try {
      option->run_callback();
    } catch (const CLI::Error& error) {
      return absl::InvalidArgumentError(
          absl::StrCat(error.what(), ", as ", path, " says (see --help)"));
    }
    origin_[option->get_name()] = "file";
  }
  return absl::OkStatus();
}

std::string Flags::Origin(const std::string& name) const {
  const auto origin = origin_.find("--" + name);
  return origin == origin_.end() ? "default" : origin->second;
}

bool Flags::Belongs(const std::string& name, const std::string& owner) const {
  const auto owners = owners_.find(name);
  return owners != owners_.end() && owners->second.count(owner) != 0;
}

std::map<std::string, std::string> Flags::Effective() const {
  std::map<std::string, std::string> out;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string name = option->get_name();
    if (name == "--help" || name == "--version" || option->get_group().empty()) continue;
    if (!absl::StartsWith(name, "--")) continue;
    const std::string value =
        option->count() == 0 ? option->get_default_str() : absl::StrJoin(Values(*option), ",");
    out[name.substr(2)] = absl::StrCat(value, " (", Origin(name.substr(2)), ")");
  }
  // The file was read by the launcher, and its values came as flags.
  if (!handed_config_.empty()) {
    out["config"] = absl::StrCat(handed_config_, " (", Origin("config"), ")");
  }
  return out;
}

std::vector<std::string> Flags::HandedOn(
    const std::vector<std::pair<std::string, std::string>>& origins,
    const std::string& reload_path) const {
  std::vector<std::string> pairs;
  for (const auto& [name, from] : origins) pairs.push_back(absl::StrCat(name, ":", from));
  std::vector<std::string> out;
  if (!config_path_.empty()) {
    pairs.push_back(absl::StrCat("config:", Origin("config")));
    out.push_back(absl::StrCat("--", kHandedConfig, "=", config_path_));
    if (!reload_path.empty()) out.push_back(absl::StrCat("--", kHandedReload, "=", reload_path));
  }
  out.push_back(absl::StrCat("--", kOrigins, "=", absl::StrJoin(pairs, ",")));
  return out;
}

std::vector<Flags::GivenFlag> Flags::Given(const std::string& owner) const {
  std::vector<GivenFlag> out;
  for (const auto& [name, owners] : owners_) {
    const CLI::Option* const option = app_->get_option_no_throw("--" + name);
    if (owners.count(owner) == 0 || option == nullptr || option->count() == 0) continue;
    out.push_back({name, Values(*option), Origin(name)});
  }
  return out;
}

}  // namespace weft
