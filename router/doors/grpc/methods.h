// What is registered with gRPC: the methods of weft.v1.TextGeneration, and what answers calls of
// methods that do not exist. Made by the gRPC server, outlives the grpc::Server. Handlers run on
// gRPC's threads and never wait.

#pragma once

#include <memory>

#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server_context.h"
#include "router/doors/grpc/call.h"
#include "router/doors/grpc/call_methods.h"

namespace weft::router {

class UnaryCall;

// Messages come as bytes, so that one which does not parse gets INVALID_ARGUMENT from us and not a
// bare UNIMPLEMENTED from the library.
class TextGenerationMethods : public CallMethods {
 public:
  // What `door` points to must outlive this.
  explicit TextGenerationMethods(const GrpcDoor& door);

 private:
  using Answerer = void (TextGenerationMethods::*)(const std::shared_ptr<UnaryCall>& call);

  void AddUnary(const char* path, Answerer answer);

  void Tokenize(const std::shared_ptr<UnaryCall>& call);
  void Detokenize(const std::shared_ptr<UnaryCall>& call);
  void Cancel(const std::shared_ptr<UnaryCall>& call);
  void GetModel(const std::shared_ptr<UnaryCall>& call);

  const GrpcDoor door_;
};

// UNIMPLEMENTED, counted and logged as the route "other". Without threads of its own, unlike what
// the library has for such calls.
class UnknownMethods : public grpc::CallbackGenericService {
 public:
  UnknownMethods(DoorContext* doors, GrpcCallWatch* watch) : doors_(doors), watch_(watch) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  DoorContext* const doors_;
  GrpcCallWatch* const watch_;
};

}  // namespace weft::router
