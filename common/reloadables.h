// What a process reads again on SIGHUP: keys, certificates, lists. Filled by main while it wires
// the process together, run by main's thread when the signal comes; never by two threads. One part
// that cannot be read keeps what it had, and the others are read all the same.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace weft {

class Reloadables {
 public:
  // `reload` reads the part called `name` again; on an error it has kept the old one, and has
  // logged why if this was news. It may read files, and must not wait for anything else.
  void Add(std::string name, absl::AnyInvocable<absl::Status()> reload) {
    parts_.push_back({std::move(name), std::move(reload)});
  }

  // Reloads all parts in the order they were added, and logs one line for each (one in all when
  // there are none). The number of parts that failed.
  int ReloadAll();

 private:
  struct Part {
    std::string name;
    absl::AnyInvocable<absl::Status()> reload;
  };
  std::vector<Part> parts_;
};

}  // namespace weft
