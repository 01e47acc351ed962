// Lines that a library would write to stderr by itself, and wait for it: through our log instead.
// Each process's main hands its libraries' log functions here. Thread-safe; never waits, but for
// the last words of a library that ends the process next.

#pragma once

#include "absl/strings/string_view.h"

namespace weft {

// Logs "<library>: <message>" at debug level: what went wrong comes as a Status as well, in our
// words and once, while the library says it for each try. Last words (a failed assertion, a thread
// that could not be started) are logged as errors and flushed, since an abort follows.
void LogLibraryLine(absl::string_view library, absl::string_view message);

}  // namespace weft
