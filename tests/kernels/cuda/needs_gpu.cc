// Linked into executables whose every test needs a GPU: without one the run ends before the first
// test, with the reason and exit code 77, which tests/gpu/run.sh takes for "not here".

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/support/skip.h"

namespace weft::kernels::cuda::testing {
namespace {

struct NeedsGpu : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo& info) override {
    const std::string reason = NoGpu();
    if (reason.empty()) return;
    const bool required = test::IsRequired("gpu");
    std::printf("%s %s, no gpu: %s\n", required ? "WEFT_REQUIRE fails" : "SKIPPED all of",
                info.name.c_str(), reason.c_str());
    std::fflush(stdout);
    std::_Exit(required ? 1 : test::kSkippedExit);
  }
};

CATCH_REGISTER_LISTENER(NeedsGpu)

}  // namespace
}  // namespace weft::kernels::cuda::testing
