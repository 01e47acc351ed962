#include "router/process_figures.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>

namespace weft::router {

uint64_t ResidentBytes() {
  unsigned long long total_pages = 0, resident_pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%llu %llu", &total_pages, &resident_pages) != 2) resident_pages = 0;
  std::fclose(file);
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int OpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int count = -3;  // ".", ".." and the descriptor of the directory itself
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

}  // namespace weft::router
