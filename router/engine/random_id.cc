#include "router/engine/random_id.h"

#include <sys/random.h>

#include "common/check.h"

namespace weft::router {

uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) {
    WEFT_CHECK_EQ(getrandom(&id, sizeof(id), 0), static_cast<ssize_t>(sizeof(id)));
  }
  return id;
}

}  // namespace weft::router
