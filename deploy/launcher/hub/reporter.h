// What a pull says while it runs; the command and `weft serve` show it each in their way. Called on
// the pull's thread; never waits long.

#pragma once

#include <string>

namespace weft::hub {

class Reporter {
 public:
  virtual ~Reporter() = default;
  // One line that stays.
  virtual void Say(const std::string& line) = 0;
  // How far it is: called often, each replaces the one before.
  virtual void ShowProgress(const std::string& line) = 0;
};

}  // namespace weft::hub
