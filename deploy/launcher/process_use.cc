#include "deploy/launcher/process_use.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::launcher {

double ProcessCpuSeconds(const std::string& pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::stringstream text;
  text << file.rdbuf();
  // The second field is the name in parentheses and may hold spaces.
  const std::string all = text.str();
  const size_t end_of_name = all.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(all.substr(end_of_name + 2), ' ');
  double user = 0;
  double system = 0;
  if (fields.size() < 13 || !absl::SimpleAtod(fields[11], &user) ||
      !absl::SimpleAtod(fields[12], &system)) {
    return 0;
  }
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double ProcessPssMib(const std::string& pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/smaps_rollup"));
  std::string line;
  while (std::getline(file, line)) {
    long kib = 0;
    if (std::sscanf(line.c_str(), "Pss: %ld kB", &kib) == 1) {
      return static_cast<double>(kib) / 1024;
    }
  }
  return 0;
}

}  // namespace weft::launcher
