// weft bench offline: hands a server all requests at once, as gRPC streams, and reports what it
// makes of them: the throughput of the whole path when it is never short of work.

#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/clock.h"
#include "common/flags.h"
#include "common/status.h"
#include "deploy/launcher/client_access.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/load_report.h"
#include "deploy/launcher/run_command.h"
#include "grpcpp/support/channel_arguments.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::launcher {
namespace {

constexpr absl::Duration kConnectWait = absl::Seconds(10);

struct OfflineOptions {
  AccessFlags access = {"127.0.0.1:8081", false, "", ""};
  uint32_t requests = 1000;
  uint32_t isl = 128;
  uint32_t osl = 128;
  uint32_t channels = 8;
  uint32_t vocab = 49152;
  uint64_t seed = 1;
  uint32_t timeout_s = 600;
  std::string json;
};

void Declare(Flags& flags, OfflineOptions* options) {
  DeclareAccessFlags(flags, "gRPC address of the server, host:port or https://host:port",
                     &options->access);
  flags.Add("requests", &options->requests, "Requests, all sent at once, > 0");
  flags.Add("isl", &options->isl, "Prompt tokens of each: random ids, > 0");
  flags.Add("osl", &options->osl, "New tokens of each, exactly, > 0");
  flags.Add("channels", &options->channels, "Connections that share the streams, > 0");
  flags.Add("vocab", &options->vocab, "Prompt ids are drawn from 100 .. vocab - 1");
  flags.Add("seed", &options->seed, "Of the prompts");
  flags.Add("timeout-s", &options->timeout_s, "Deadline of every request, seconds");
  flags.Add("json", &options->json, "Also write the report as JSON to this file; - = stdout");
}

v1::GenerateRequest MakeRequest(const OfflineOptions& options, std::mt19937_64& random) {
  v1::GenerateRequest request;
  for (uint32_t i = 0; i < options.isl; ++i) {
    request.mutable_token_ids()->add_ids(100 +
                                         static_cast<uint32_t>(random() % (options.vocab - 100)));
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(options.osl);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// One stream; called by gRPC's threads, one at a time.
class OfflineStream : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  OfflineStream(v1::GenerateRequest request, uint32_t osl, absl::BlockingCounter* left)
      : request_(std::move(request)), osl_(osl), left_(*left) {
    result_.token_us.reserve(osl);
  }

  void Start(v1::TextGeneration::Stub& stub, const ServerAccess& access, absl::Duration timeout) {
    AddApiKey(access, &context_);
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    result_.due_us = result_.sent_us = MonotonicClock().NowUs();
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const int64_t now_us = MonotonicClock().NowUs();
    for (int i = 0; i < response_.output().token_ids_size(); ++i) {
      result_.token_us.push_back(now_us);
    }
    if (response_.has_finish_info()) {
      result_.prompt_tokens = response_.finish_info().prompt_tokens();
      result_.output_tokens = response_.finish_info().output_tokens();
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    result_.end_us = MonotonicClock().NowUs();
    if (!status.ok()) {
      result_.error = absl::StrCat(status.error_code(), ": ", status.error_message());
    } else if (result_.token_us.size() != osl_) {
      result_.error = absl::StrCat(result_.token_us.size(), " tokens came, not ", osl_);
    }
    left_.DecrementCount();
  }

  const StreamResult& result() const { return result_; }

 private:
  const v1::GenerateRequest request_;
  const uint32_t osl_;
  absl::BlockingCounter& left_;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  StreamResult result_;
};

std::vector<std::unique_ptr<v1::TextGeneration::Stub>> Connect(const OfflineOptions& options,
                                                               const ServerAccess& access) {
  std::vector<std::unique_ptr<v1::TextGeneration::Stub>> stubs;
  for (uint32_t i = 0; i < options.channels; ++i) {
    grpc::ChannelArguments arguments;
    // Channels to one address share a connection unless they differ.
    arguments.SetInt("weft.bench.channel", static_cast<int>(i));
    stubs.push_back(v1::TextGeneration::NewStub(ConnectGrpc(access, arguments)));
  }
  return stubs;
}

absl::Status RunOffline(const OfflineOptions& options) {
  if (options.requests == 0 || options.isl == 0 || options.osl == 0 || options.channels == 0 ||
      options.vocab <= 100) {
    return absl::InvalidArgumentError(
        "--requests, --isl, --osl and --channels must be positive, --vocab above 100");
  }
  WEFT_ASSIGN_OR_RETURN(const ServerAccess access, ResolveAccess(options.access));
  // One that is not there is named once, and not by each request.
  if (!ConnectGrpc(access)->WaitForConnected(absl::ToChronoTime(absl::Now() + kConnectWait))) {
    return NoGrpcServer(access);
  }
  const auto stubs = Connect(options, access);
  std::mt19937_64 random(options.seed);
  absl::BlockingCounter left(static_cast<int>(options.requests));
  std::vector<std::unique_ptr<OfflineStream>> streams;
  for (uint32_t i = 0; i < options.requests; ++i) {
    streams.push_back(
        std::make_unique<OfflineStream>(MakeRequest(options, random), options.osl, &left));
  }
  for (uint32_t i = 0; i < options.requests; ++i) {
    streams[i]->Start(*stubs[i % stubs.size()], access, absl::Seconds(options.timeout_s));
  }
  left.Wait();
  std::vector<StreamResult> results;
  for (const auto& stream : streams) results.push_back(stream->result());
  const LoadReport report = MakeReport(results);
  std::fputs(ReportTable(report).c_str(), stderr);
  if (options.json == "-") {
    std::fputs(ReportJson(report).c_str(), stdout);
  } else if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << ReportJson(report);
    if (!file) return absl::UnavailableError(absl::StrCat("--json: cannot write ", options.json));
  }
  if (report.failed == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(report.failed, " requests failed, the first with: ", report.first_error));
}

}  // namespace

int RunBenchOffline(int argc, char** argv) {
  OfflineOptions options;
  Flags flags("weft bench offline",
              "Hands a server all requests at once as gRPC streams and reports its throughput.");
  Declare(flags, &options);
  return RunCommand(flags, argc, argv, [&options] { return RunOffline(options); });
}

}  // namespace weft::launcher
