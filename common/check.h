// CHECK macros for what cannot happen: they print file, line, the condition and both values, then
// abort. They are on in every build. Never use them on input from outside; that is absl::Status.

#pragma once

#include <sstream>
#include <string>

namespace weft::internal {

// How a process says what it dies of. InitLogging sets it, so that the words come behind the log
// lines that wait and a stderr that takes nothing is not waited for; until then, and in programs
// without a log, they go straight to stderr. This file knows no logger: the scheduler is pure.
using LastWordsFunction = void (*)(const std::string& line);
void SetLastWords(LastWordsFunction function);

// Says the message and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& message);

template <typename A, typename B>
std::string CheckOpMessage(const char* condition, const A& a, const B& b) {
  std::ostringstream out;
  out << condition << " (" << a << " vs. " << b << ")";
  return out.str();
}

}  // namespace weft::internal

#define WEFT_CHECK(condition)                                        \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::weft::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// WEFT_CHECK with a std::string that says more.
#define WEFT_CHECK_MSG(condition, message)                                                         \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::weft::internal::CheckFailed(__FILE__, __LINE__, std::string(#condition ": ") + (message)); \
  } while (false)

#define WEFT_CHECK_OP_(op, a, b)                                                  \
  do {                                                                            \
    auto&& weft_a_ = (a);                                                         \
    auto&& weft_b_ = (b);                                                         \
    if (!(weft_a_ op weft_b_)) [[unlikely]]                                       \
      ::weft::internal::CheckFailed(                                              \
          __FILE__, __LINE__,                                                     \
          ::weft::internal::CheckOpMessage(#a " " #op " " #b, weft_a_, weft_b_)); \
  } while (false)

#define WEFT_CHECK_EQ(a, b) WEFT_CHECK_OP_(==, a, b)
#define WEFT_CHECK_NE(a, b) WEFT_CHECK_OP_(!=, a, b)
#define WEFT_CHECK_LT(a, b) WEFT_CHECK_OP_(<, a, b)
#define WEFT_CHECK_LE(a, b) WEFT_CHECK_OP_(<=, a, b)
#define WEFT_CHECK_GT(a, b) WEFT_CHECK_OP_(>, a, b)
#define WEFT_CHECK_GE(a, b) WEFT_CHECK_OP_(>=, a, b)
