// Command-line flags of all weft binaries, on top of CLI11. A value comes from the flag, else from
// the environment (WEFT_<NAME>), else from the file named by --config (TOML or INI), else from the
// default; common/flag_sources.h says which programs have an environment and a file. --help shows
// name, unit, range, environment variable and default, in groups. An unknown flag or key is an
// error. Used by main functions only, on one thread.
//
// `weft serve` takes the flags of the processes that it starts as well: it lets their own tables
// declare them here (For), and hands on what was set (Given) and where that came from.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/flag_sources.h"

// CLI11's headers take seconds to compile and are flags.cc's own.
namespace CLI {
class App;
class Error;
class Option;
}  // namespace CLI

namespace weft {

// In which a number of type T is parsed and compared.
template <typename T>
using NumberOf = std::conditional_t<std::is_floating_point_v<T>, double,
                                    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
// Whole `text` as a number. False when it is none or does not fit.
bool ParseNumber(absl::string_view text, int64_t* number);
bool ParseNumber(absl::string_view text, uint64_t* number);
bool ParseNumber(absl::string_view text, double* number);

class Flags {
 public:
  // `program` as it is typed; `description` is the first line of --help.
  Flags(const std::string& program, const std::string& description)
      : Flags(program, description, SourcesOf(program)) {}
  Flags(const std::string& program, const std::string& description, FlagSources sources);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // What is wrong with a value as it was typed; empty = nothing.
  using Check = std::function<std::string(const std::string& text)>;

  // Flags added from here on stand under `title` in --help.
  void Group(const std::string& title) { group_ = title; }
  // Flags added from here on belong to the process `owner` ("router", "shard"), in --help beside
  // the group; empty = this one. A name that is there already is not added again but belongs to
  // `owner` as well: one value for both. Those in `withheld` are what this program itself decides
  // for `owner`: they are not added at all, and do not belong to it where they are there already.
  void For(const std::string& owner, std::set<std::string> withheld) {
    owner_ = owner;
    withheld_ = std::move(withheld);
  }

  // Adds "--<name>", filled into *value, whose present content is the default. `help` says what it
  // is, with its unit. Names are lower case with dashes. Given twice, the last one counts; a vector
  // takes all. T is bool, a number, std::string, or a vector of numbers or strings; flags.cc has
  // the list.
  template <typename T>
  void Add(const std::string& name, T* value, const std::string& help, const Check& check = {});

  // The same for several, given one by one or with commas between them.
  void AddList(const std::string& name, std::vector<std::string>* values, const std::string& help);

  // The same for a number in least .. most, which --help and a refusal name.
  template <typename T>
  void AddNumber(const std::string& name, T* value, NumberOf<T> least, NumberOf<T> most,
                 const std::string& help) {
    const std::string range = absl::StrCat(least, " .. ", most);
    Add(name, value, absl::StrCat(help, "; ", range),
        [least, most, range](const std::string& text) {
          NumberOf<T> number = 0;
          const bool fits = ParseNumber(text, &number) && number >= least && number <= most;
          return fits ? std::string() : absl::StrCat(text, " is not in ", range);
        });
  }

  // Adds a switch "--<name>" that takes no value; in environment and file it is true or false.
  void AddSwitch(const std::string& name, bool* value, const std::string& help);

  // Adds an argument that is no flag; `name` stands for it in --help.
  void AddArgument(const std::string& name, std::string* value, const std::string& help);

  // Parses. OK with `help_text` set when --help or --version was given: print it and exit with 0.
  // INVALID_ARGUMENT with a message that names the flag otherwise.
  absl::Status Parse(int argc, char** argv, std::string* help_text);

  // Parses as another reading of a running program, before its first Parse: what its launcher had
  // from a file counts no more, and the file of reload_path() is read instead.
  void ReadAgain() { again_ = true; }
  // After Parse: the file whose changes concern this program, its own or its launcher's; empty =
  // none.
  const std::string& reload_path() const {
    return handed_reload_.empty() ? config_path_ : handed_reload_;
  }

  // All effective values with where each came from, for /config and the log: name -> "value
  // (flag)". What a launcher handed on (--flag-origins, --flag-config) says where the launcher had
  // it from.
  std::map<std::string, std::string> Effective() const;
  // For a launcher's child: arguments that say that `origins` (name, where from) hold there, and
  // which file this program has read. `reload_path`: where the child finds what concerns it of that
  // file, now and after changes; empty = nowhere.
  std::vector<std::string> HandedOn(const std::vector<std::pair<std::string, std::string>>& origins,
                                    const std::string& reload_path) const;

  // Where the value of "--<name>" came from: "flag", "environment", "file" or "default".
  std::string Origin(const std::string& name) const;

  struct GivenFlag {
    std::string name;
    // As they were typed; more than one for a list only.
    std::vector<std::string> values;
    // "flag", "environment" or "file".
    std::string origin;
  };
  // Of the flags that belong to `owner` those that were given, after Parse; in order of names.
  std::vector<GivenFlag> Given(const std::string& owner) const;

  struct UnknownVariable {
    std::string name;
    // The known one that it looks like; empty when there is none.
    std::string near;

    // For the log.
    std::string Line() const;
  };
  // The variables of `environment` that begin with WEFT_ and belong to no flag declared here, to
  // none of `others` and to nothing else of weft's: what they were to change stays as it is.
  std::vector<UnknownVariable> UnknownVariables(const char* const* environment,
                                                const std::set<std::string>& others = {}) const;

  // This program was started by `weft serve`, which has looked at environment and file.
  bool handed() const { return !handed_origins_.empty(); }

  // Environment variables of all flags that were declared here, also of those withheld.
  const std::set<std::string>& environment_names() const { return environment_names_; }

  // As it was named to the constructor.
  const std::string& program() const { return program_; }

  // Whether "--<name>" belongs to the process `owner` (For).
  bool Belongs(const std::string& name, const std::string& owner) const;

  // All that users may give, without dashes, in the order in which they were added.
  std::vector<std::string> Names() const;

 private:
  // Where a flag of that name is added: to the flags, or to those that nobody will parse.
  CLI::App& AppOf(const std::string& name);
  CLI::Option* Finish(CLI::Option* option, const std::string& name);
  // What is wrong with a flag or key of that name, which this program does not have.
  std::string Unknown(absl::string_view kind, const std::string& name) const;
  std::string ExtrasMessage() const;
  // The flag whose value is missing because another flag stands in its place; empty = none.
  std::string WithoutValue(int argc, char** argv) const;
  std::string MissingValue(const std::string& name) const;
  // The command line with "--name=" as two arguments, of which the second one is empty: CLI11 would
  // take the argument that follows for the value.
  std::vector<std::string> WithEmptyValues(int argc, char** argv) const;
  // The switch or truth value `name`: what "--no-<name>" is in other programs, this one has not.
  bool IsTruth(const std::string& name) const;
  // Those of `arguments` that a launcher has not taken from its file.
  std::vector<std::string> WithoutFileValues(std::vector<std::string> arguments) const;
  // `error` of the command line or the environment, and which of the two it was.
  std::string ParseMessage(const CLI::Error& error, int argc, char** argv) const;
  // Fills options that neither flag nor environment set from the file `config_path_`.
  absl::Status ApplyFile();
  // Where the value of an option came from: of "--flag-origins" what it says.
  void NoteOrigins(int argc, char** argv);

  const std::string program_;
  const FlagSources sources_;
  const std::unique_ptr<CLI::App> app_;
  // Takes declarations of flags that exist already or are withheld.
  const std::unique_ptr<CLI::App> unused_;
  std::string config_path_;
  std::vector<std::string> handed_origins_;
  std::string handed_config_;
  std::string handed_reload_;
  bool again_ = false;
  std::string group_ = "Options";
  std::string owner_;
  std::set<std::string> withheld_;
  // By name: who it belongs to besides this program; and where its value came from.
  std::map<std::string, std::set<std::string>> owners_;
  std::map<std::string, std::string> origin_;
  std::set<std::string> environment_names_;
  // Withheld from this program's own users.
  std::set<std::string> decided_;
};

}  // namespace weft
