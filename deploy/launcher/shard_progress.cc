#include "deploy/launcher/shard_progress.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "proto/shard.grpc.pb.h"

namespace weft::launcher {
namespace {

constexpr int kBarCells = 20;

std::string Describe(size_t rank, const shard::v1::InfoResponse& info) {
  const std::string name = absl::StrCat("shard-", rank, " ");
  if (info.state() == shard::v1::SHARD_STATE_FAILED) return name + "failed";
  if (info.state() != shard::v1::SHARD_STATE_LOADING) return name + "ready";
  const shard::v1::LoadProgress& load = info.load();
  const double share =
      load.bytes_total() == 0 ? 0.0 : static_cast<double>(load.bytes_done()) / load.bytes_total();
  const double gbytes_per_s =
      load.elapsed_us() == 0 ? 0.0 : load.bytes_done() * 1e-3 / load.elapsed_us();
  const int cells = static_cast<int>(share * kBarCells);
  return absl::StrFormat("%s[%s%s] %3.0f %%  %.2f GB/s", name, std::string(cells, '#'),
                         std::string(kBarCells - cells, '.'), share * 100, gbytes_per_s);
}

}  // namespace

ShardProgress::ShardProgress(std::vector<std::string> sockets)
    : sockets_(std::move(sockets)), thread_("progress", [this] { Run(); }) {}

ShardProgress::~ShardProgress() { stop_.Notify(); }

std::string ShardProgress::Line() const {
  absl::MutexLock lock(&mutex_);
  return line_;
}

void ShardProgress::Run() {
  std::vector<std::unique_ptr<shard::v1::ShardService::Stub>> stubs;
  // The sockets are not there yet: the library would wait a second before it tries again.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  for (const std::string& socket : sockets_) {
    stubs.push_back(shard::v1::ShardService::NewStub(grpc::CreateCustomChannel(
        "unix:" + socket, grpc::InsecureChannelCredentials(), arguments)));
  }
  do {
    std::string line;
    for (size_t rank = 0; rank < stubs.size() && !stop_.HasBeenNotified(); ++rank) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200)));
      // The library works on a connection only while a call waits for it.
      context.set_wait_for_ready(true);
      shard::v1::InfoRequest request;
      request.set_protocol_version(kShardProtocolVersion);
      shard::v1::InfoResponse info;
      const bool answered = stubs[rank]->Info(&context, request, &info).ok();
      absl::StrAppend(&line, rank == 0 ? "" : "   ",
                      answered ? Describe(rank, info) : absl::StrCat("shard-", rank, " starting"));
    }
    absl::MutexLock lock(&mutex_);
    line_ = std::move(line);
  } while (!stop_.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
}

}  // namespace weft::launcher
