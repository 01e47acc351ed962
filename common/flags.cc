#include "common/flags.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "common/version.h"

namespace weft {

Flags::Flags(const std::string& program, const std::string& description)
    : app_(description, program) {
  app_.set_version_flag("--version", absl::StrCat(program, " ", Version(), " (", Revision(), ")"));
  app_.add_option("--config", config_path_, "File with values (TOML or INI), one key per flag")
      ->envname("WEFT_CONFIG");
  app_.get_formatter()->column_width(44);
}

absl::Status Flags::Parse(int argc, char** argv, std::string* help_text) {
  // CLI11 reports everything by exceptions; this is the edge where they become a Status.
  try {
    app_.parse(argc, argv);
    for (const CLI::Option* option : app_.get_options()) {
      if (option->count() == 0) continue;
      bool on_line = false;
      for (int i = 1; i < argc; ++i) {
        const absl::string_view arg(argv[i]);
        const std::string name = option->get_name();
        on_line |= arg == name || (arg.size() > name.size() && arg[name.size()] == '=' &&
                                   arg.substr(0, name.size()) == name);
      }
      origin_[option->get_name()] = on_line ? "flag" : "environment";
    }
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
  std::ifstream file(config_path_);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("--config: cannot read ", config_path_));
  }
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(file)) {
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
    if (name == "--help" || name == "--version" || name.substr(0, 2) != "--") continue;
    const auto origin = origin_.find(name);
    const std::string value =
        origin == origin_.end() ? option->get_default_str() : absl::StrJoin(option->results(), ",");
    out[name.substr(2)] =
        absl::StrCat(value, " (", origin == origin_.end() ? "default" : origin->second, ")");
  }
  return out;
}

}  // namespace weft
