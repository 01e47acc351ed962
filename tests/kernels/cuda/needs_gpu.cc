// Linked into executables whose every test needs a GPU: without one the run ends before the first
// test, with the reason and exit code 77, which tests/gpu/run.sh takes for "not here".

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {
namespace {

constexpr int kNotHere = 77;

struct NeedsGpu : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo& info) override {
    const std::string reason = NoGpu();
    if (reason.empty()) return;
    std::printf("%s: skipped, %s\n", info.name.c_str(), reason.c_str());
    std::fflush(stdout);
    std::_Exit(kNotHere);
  }
};

CATCH_REGISTER_LISTENER(NeedsGpu)

}  // namespace
}  // namespace weft::kernels::cuda::testing
