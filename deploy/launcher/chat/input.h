// What a typed message is: a command, or text for the model. Pure; main thread.
//
// A command begins with a slash. "//" begins a message with a slash, and text between two lines of
// """ is a message whatever it begins with.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::launcher {

struct Input {
  enum class Kind {
    kNothing,
    kMessage,
    kSet,
    kSystem,
    kStats,
    kSave,
    kLoad,
    kRetry,
    kUndo,
    kClear,
    kHelp,
    kExit
  };
  Kind kind = Kind::kNothing;
  // The message, or what follows the command's name, without blanks around it.
  std::string text;
};

// INVALID_ARGUMENT: an unknown command, one with words that it does not take, or without one that
// it needs. It never goes to the model.
absl::StatusOr<Input> ParseInput(absl::string_view typed);

// False while """ is open: Enter is a line break then.
bool IsCompleteInput(absl::string_view typed);

// What /help says, and what Tab completes.
std::string HelpText();
std::vector<std::string> CompletedWords();

}  // namespace weft::launcher
