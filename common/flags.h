// Command-line flags of all weft binaries, on top of CLI11. A value comes from the flag, else from
// the environment (WEFT_<NAME>), else from the file named by --config (TOML or INI), else from the
// default; --help shows name, unit, environment variable and default. An unknown flag or key is an
// error. Used by main functions only.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "CLI/Validators.hpp"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace weft {

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

class Flags {
 public:
  // `program` as it is typed; `description` is the first line of --help.
  Flags(const std::string& program, const std::string& description);

  // Adds "--<name>", filled into *value, whose present content is the default. `help` says what it
  // is, with unit and range. Names are lower case with dashes. Given twice, the last one counts; a
  // vector takes all.
  template <typename T>
  CLI::Option* Add(const std::string& name, T* value, const std::string& help) {
    CLI::Option* option = app_.add_option("--" + name, *value, help);
    if constexpr (!IsVector<T>::value) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    return option->envname(EnvName(name))->capture_default_str();
  }

  // Adds a switch "--<name>" that takes no value; in environment and file it is true or false.
  CLI::Option* AddSwitch(const std::string& name, bool* value, const std::string& help) {
    return app_.add_flag("--" + name, *value, help)->envname(EnvName(name));
  }

  // The same kept as text, to hand it on: empty when it was not given, else "true" or what was.
  CLI::Option* AddSwitch(const std::string& name, std::string* value, const std::string& help) {
    return app_.add_flag("--" + name, *value, help)
        ->envname(EnvName(name))
        ->check(CLI::IsMember({"true", "false", "1", "0"}));
  }

  // Parses. OK with `help_text` set when --help or --version was given: print it and exit with 0.
  // INVALID_ARGUMENT with a message that names the flag otherwise.
  absl::Status Parse(int argc, char** argv, std::string* help_text);

  // All effective values with where each came from, for /config and the log: name -> "value
  // (flag)".
  std::map<std::string, std::string> Effective() const;

  // For positional arguments and sub-commands.
  CLI::App& app() { return app_; }

 private:
  static std::string EnvName(const std::string& name) {
    return "WEFT_" + absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}));
  }
  // Fills options that neither flag nor environment set from the file `config_path_`.
  absl::Status ApplyFile();

  CLI::App app_;
  std::string config_path_;
  std::map<std::string, std::string> origin_;
};

}  // namespace weft
