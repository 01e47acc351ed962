// How answers are drawn: the parameters of docs/API.md that a conversation can set, by name. Each
// is at the server's default until it is set, and takes only values in its range. Pure; used by the
// main thread.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft::launcher {

class Settings {
 public:
  // What a parameter is and takes, with its range in words.
  struct Info {
    const char* name;
    const char* range;
    const char* help;
  };
  static const std::vector<Info>& All();

  // `text` "default" takes a value back. INVALID_ARGUMENT names the parameter and its range, or, of
  // an unknown one, those that there are.
  absl::Status Set(absl::string_view name, absl::string_view text);

  // Nothing = the server's default. `name` is one of All().
  absl::optional<double> Real(absl::string_view name) const;
  absl::optional<uint64_t> Integer(absl::string_view name) const;

  // Names, values and ranges, a line each; of `name` alone what it does as well.
  std::string Show() const;
  absl::optional<std::string> Show(absl::string_view name) const;

 private:
  std::string Line(const Info& info) const;

  // As they were typed.
  std::map<std::string, std::string> values_;
};

}  // namespace weft::launcher
