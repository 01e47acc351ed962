#include "common/wait_status.h"

#include <sys/wait.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {

std::string DescribeWaitStatus(int wait_status) {
  if (WIFEXITED(wait_status)) return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
  const int signal_number = WTERMSIG(wait_status);
  return absl::StrCat("signal ", signal_number, " (", strsignal(signal_number), ")");
}

}  // namespace weft
