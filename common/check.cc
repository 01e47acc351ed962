#include "common/check.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace weft::internal {
namespace {

std::atomic<LastWordsFunction> last_words{nullptr};

}  // namespace

void SetLastWords(LastWordsFunction function) { last_words.store(function); }

void CheckFailed(const char* file, int line, const std::string& message) {
  const std::string text =
      std::string(file) + ":" + std::to_string(line) + ": CHECK failed: " + message;
  if (const LastWordsFunction function = last_words.load()) {
    function(text);
  } else {
    (void)!write(STDERR_FILENO, (text + "\n").data(), text.size() + 1);
  }
  std::abort();
}

}  // namespace weft::internal
