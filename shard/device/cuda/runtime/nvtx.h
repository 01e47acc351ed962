// Names in NVIDIA's profilers (nsys profile weft-shard ...): a range on the calling thread while it
// lives, in the domain "weft". Without a profiler a range is a look at a pointer. Of NVTX 3, which
// is headers alone and comes with a CUDA toolkit; where it does not, there are no ranges. Any
// thread.

#pragma once

#if __has_include("nvtx3/nvToolsExt.h")
#include "nvtx3/nvToolsExt.h"
#define WEFT_HAVE_NVTX 1
#endif

namespace weft::shard {

class NvtxRange {
 public:
#ifdef WEFT_HAVE_NVTX
  // `name` is copied by whoever listens.
  explicit NvtxRange(const char* name) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(Domain(), &attributes);
  }
  ~NvtxRange() { nvtxDomainRangePop(Domain()); }
#else
  explicit NvtxRange(const char* /*name*/) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
#ifdef WEFT_HAVE_NVTX
  static nvtxDomainHandle_t Domain() {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("weft");
    return domain;
  }
#endif
};

}  // namespace weft::shard
