// Reads weft.v1 request messages into what the entrance takes: every field is checked and named as
// in generation.proto. No gRPC in here, only messages. Pure; any thread.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "router/doors/door_context.h"
#include "router/request.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

// OK for a message of at most `bytes_max` bytes.
absl::Status CheckMessageBytes(size_t bytes, size_t bytes_max);

// Numbers of fields this build does not know ("30", "sampling.12"); refused when the server is
// strict, else counted and added to *ignored. Texts of the prompt are moved, not copied.
absl::StatusOr<GenerateInput> ReadGenerate(const DoorContext& doors,
                                           weft::v1::GenerateRequest* request,
                                           std::vector<std::string>* ignored);

// Frees the memory of a prompt that has been read; of which kind it was can still be asked.
void FreePrompt(weft::v1::GenerateRequest* request);

// Texts are moved.
absl::StatusOr<std::variant<std::string, ChatPrompt>> ReadTokenize(
    weft::v1::TokenizeRequest* request);
absl::StatusOr<std::vector<TokenId>> ReadDetokenize(const weft::v1::DetokenizeRequest& request);

// An error of the engine, its canonical field name turned into the path in GenerateRequest.
absl::Status WithGrpcField(const absl::Status& status, const weft::v1::GenerateRequest& request);

}  // namespace weft::router
