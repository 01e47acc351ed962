// Streams an answer over gRPC: deadline, retries that the server asks for, Ctrl-C.
//
//     generate PROMPT [ADDRESS]

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "weft/v1/generation.grpc.pb.h"

namespace {

constexpr std::chrono::seconds kDeadline(60);
constexpr int kTries = 5;

// What a signal handler may touch; the stream looks at it between two events.
std::atomic<bool> interrupted{false};

// What the error's RetryInfo says; empty where a retry makes no sense.
std::optional<std::chrono::milliseconds> RetryDelay(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::RetryInfo info;
    if (!detail.UnpackTo(&info)) continue;
    return std::chrono::milliseconds(info.retry_delay().seconds() * 1000 +
                                     info.retry_delay().nanos() / 1'000'000);
  }
  return std::nullopt;
}

// Prints one answer. *begun becomes true with its first event.
grpc::Status Generate(weft::v1::TextGeneration::Stub* stub,
                      const weft::v1::GenerateRequest& request, bool* begun) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  const auto stream = stub->Generate(&context, request);
  weft::v1::GenerateResponse event;
  while (stream->Read(&event)) {
    *begun = true;
    if (interrupted) context.TryCancel();
    std::cout << event.output().text() << std::flush;
  }
  const grpc::Status status = stream->Finish();
  if (status.ok()) return status;
  const auto& head = context.GetServerInitialMetadata();
  const auto name = head.find("x-request-id");
  std::cerr << "[" << status.error_code() << ": " << status.error_message() << " (request "
            << (name == head.end() ? "-" : std::string(name->second.data(), name->second.size()))
            << ")]\n";
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: generate PROMPT [ADDRESS]\n";
    return 2;
  }
  std::signal(SIGINT, [](int) { interrupted = true; });
  const auto stub = weft::v1::TextGeneration::NewStub(grpc::CreateChannel(
      argc > 2 ? argv[2] : "127.0.0.1:8081", grpc::InsecureChannelCredentials()));
  weft::v1::GenerateRequest request;
  request.set_text(argv[1]);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(32);
  for (int tries = 1; tries <= kTries && !interrupted; ++tries) {
    bool begun = false;
    const grpc::Status status = Generate(stub.get(), request, &begun);
    if (status.ok()) {
      std::cout << "\n";
      return 0;
    }
    const auto delay = RetryDelay(status);
    if (begun || !delay.has_value()) break;
    std::this_thread::sleep_for(*delay);
  }
  return 1;
}
