// How a child process ended, in words for logs and errors. Stateless; any thread.

#pragma once

#include <string>

namespace weft {

// "exit code 3" or "signal 9 (Killed)", of a status as waitpid(2) gives it.
std::string DescribeWaitStatus(int wait_status);

}  // namespace weft
