// What the shards say of their loading, as a line for a person: how far, how fast. Fed with the
// lines that shards print under --load-progress. Main thread of the launcher; pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::launcher {

class ShardProgress {
 public:
  explicit ShardProgress(size_t shards) : shards_(shards) {}

  // Takes a line of the stdout of shard `rank`: "loading <bytes done> <bytes in all> <us so far>"
  // or "loaded". False when it is neither.
  bool OnLine(size_t rank, absl::string_view line);

  // For example "shard-0 [#######...]  72 %  1.40 GB/s   shard-1 ready"; empty before any shard has
  // said something.
  std::string Line() const;

 private:
  struct Shard {
    bool spoke = false;
    bool loaded = false;
    uint64_t done_bytes = 0;
    uint64_t total_bytes = 0;
    uint64_t elapsed_us = 0;
  };
  static std::string Describe(const Shard& shard);

  std::vector<Shard> shards_;
};

}  // namespace weft::launcher
