// A folder whose files are bytes in memory, for fuzz targets: writing files each time would be most
// of the work. Made once by a target; Put replaces a file of that name.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tests/common/temp_dir.h"
#include "tests/shard/weights/memory_file.h"

namespace weft::test {

class MemoryFolder {
 public:
  const std::string& path() const { return folder_.path(); }

  // The path of a file of these bytes.
  std::string Put(const std::string& name, const uint8_t* data, size_t size) {
    const std::string path = folder_.path() + "/" + name;
    auto file = std::make_unique<MemoryFile>(data, size);
    std::filesystem::remove(path);
    std::filesystem::create_symlink(file->path(), path);
    files_[name] = std::move(file);
    return path;
  }

 private:
  TempDir folder_;
  std::map<std::string, std::unique_ptr<MemoryFile>> files_;
};

}  // namespace weft::test
