// A service made of our own calls: each method, whatever its form, is registered with gRPC as a
// stream both ways of bytes (router/doors/grpc/call.h says why). Base of what the gRPC server
// registers; outlives the grpc::Server.

#pragma once

#include <memory>

#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "router/doors/grpc/call.h"

namespace weft::router {

class CallMethods : public grpc::Service {
 protected:
  // `make` gets a grpc::CallbackServerContext* and returns a shared_ptr to its call, on one of
  // gRPC's threads. `path` must live as long as this.
  template <typename Make>
  void Add(const char* path, Make make) {
    using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
    const auto begin = [make](grpc::CallbackServerContext* context) {
      return GrpcCall::Start(make(context));
    };
    AddMethod(std::make_unique<grpc::internal::RpcServiceMethod>(
                  path, grpc::internal::RpcMethod::BIDI_STREAMING, nullptr)
                  .release());
    MarkMethodRawCallback(methods_++, std::make_unique<Handler>(begin).release());
  }

 private:
  int methods_ = 0;
};

}  // namespace weft::router
