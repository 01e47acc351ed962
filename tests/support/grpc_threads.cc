#include "tests/support/grpc_threads.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "common/check.h"

namespace weft::testing {
namespace {

// A server that listens nowhere.
struct Keeper {
  Keeper() {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
    WEFT_CHECK(server != nullptr);
  }
  grpc::CallbackGenericService service;
  std::unique_ptr<grpc::Server> server;
};

}  // namespace

void KeepGrpcThreads() {
  static Keeper* const keeper = std::make_unique<Keeper>().release();  // for good
  WEFT_CHECK(keeper != nullptr);
}

}  // namespace weft::testing
