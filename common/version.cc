#include "common/version.h"

namespace weft {

const char* Version() { return WEFT_VERSION; }
const char* Revision() { return WEFT_REVISION; }

}  // namespace weft
