// weft bench load: load generator for a running server.

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/json.hpp"
#include "common/clock.h"
#include "common/flags.h"
#include "common/host_port.h"
#include "common/status.h"
#include "deploy/launcher/client_access.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/load_report.h"
#include "deploy/launcher/load_stream.h"
#include "deploy/launcher/process_use.h"
#include "deploy/launcher/read_bandwidth.h"
#include "deploy/launcher/run_command.h"

namespace weft::launcher {
namespace {

struct LoadOptions {
  AccessFlags access = {"127.0.0.1:8080", false, "", ""};
  std::string route = "completions";
  std::string model;
  uint32_t streams = 1;
  double rate_per_s = 0;
  uint32_t requests = 8;
  uint32_t prompt_tokens = 48;
  uint32_t output_tokens = 128;
  uint32_t vocab = 49152;
  double temperature = 0;
  uint64_t seed = 1;
  uint32_t timeout_s = 300;
  bool same_prompt = false;
  bool bandwidth = false;
  std::vector<std::string> processes;
  std::string json;
};

void Declare(Flags& flags, LoadOptions* options) {
  DeclareAccessFlags(flags, "HTTP address of the server, host:port or https://host:port",
                     &options->access);
  flags.Add("route", &options->route, "completions, chat or tgi");
  flags.Add("model", &options->model, "Model name in requests; empty = the one that is served");
  flags.Add("streams", &options->streams, "Closed loop: requests under way at a time");
  flags.Add("rate-per-s", &options->rate_per_s,
            "Open loop: Poisson arrivals at this rate; 0 = closed loop");
  flags.Add("requests", &options->requests, "Requests in all");
  flags.Add("prompt-tokens", &options->prompt_tokens,
            "Prompt length: random ids (completions), about as many words (chat, tgi)");
  flags.Add("output-tokens", &options->output_tokens, "New tokens of each request, exactly");
  flags.Add("vocab", &options->vocab, "Prompt ids are drawn from 100 .. vocab - 1");
  flags.Add("temperature", &options->temperature, "0 = greedy");
  flags.Add("seed", &options->seed, "Of prompts and arrivals");
  flags.Add("timeout-s", &options->timeout_s, "Seconds a request may take");
  flags.AddSwitch("same-prompt", &options->same_prompt, "Send one prompt again and again");
  flags.AddSwitch("bandwidth", &options->bandwidth,
                  "Measure the memory read bandwidth of this machine before and after");
  flags.Add("process", &options->processes,
            "name=pid of a process whose CPU time and memory to report; may be repeated");
  flags.Add("json", &options->json, "Also write the report as JSON to this file; - = stdout");
}

class PromptMaker {
 public:
  explicit PromptMaker(const LoadOptions& options) : options_(options), random_(options.seed) {}

  // The body of one request.
  std::string Body() {
    if (options_.same_prompt) random_.seed(options_.seed);
    boost::json::object body;
    if (options_.route == "tgi") {
      body["inputs"] = Words();
      body["parameters"] = {{"max_new_tokens", options_.output_tokens}, {"ignore_eos", true}};
      if (options_.temperature > 0) {
        body["parameters"].as_object()["temperature"] = options_.temperature;
      }
      return boost::json::serialize(body);
    }
    body["model"] = options_.model;
    body["max_tokens"] = options_.output_tokens;
    body["temperature"] = options_.temperature;
    body["ignore_eos"] = true;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    if (options_.route == "chat") {
      body["messages"] = {{{"role", "user"}, {"content", Words()}}};
    } else {
      boost::json::array ids;
      for (uint32_t i = 0; i < options_.prompt_tokens; ++i) ids.push_back(Id());
      body["prompt"] = std::move(ids);
    }
    return boost::json::serialize(body);
  }

 private:
  uint32_t Id() { return 100 + static_cast<uint32_t>(random_() % (options_.vocab - 100)); }

  std::string Words() {
    static constexpr const char* kWords[] = {"river",  "stone",  "paper",  "light",
                                             "garden", "market", "winter", "letter",
                                             "music",  "window", "bread",  "road"};
    std::vector<std::string> words;
    for (uint32_t i = 0; i < options_.prompt_tokens; ++i) {
      words.push_back(kWords[random_() % std::size(kWords)]);
    }
    return absl::StrJoin(words, " ");
  }

  const LoadOptions& options_;
  std::mt19937_64 random_;
};

// Sends the requests of one run: closed loop keeps `streams` under way; open loop sends at Poisson
// times whatever the server does.
class LoadGenerator {
 public:
  LoadGenerator(const LoadOptions& options, LoadTarget target)
      : options_(options),
        target_(std::move(target)),
        prompts_(options),
        random_(options.seed ^ 0x9e3779b97f4a7c15ull),
        timer_(io_) {}

  std::vector<StreamResult> Run() {
    // Bodies are made before the clock runs.
    for (uint32_t i = 0; i < options_.requests; ++i) bodies_.push_back(prompts_.Body());
    start_us_ = MonotonicClock().NowUs();
    if (options_.rate_per_s > 0) {
      SendNextAt(start_us_);
    } else {
      for (uint32_t i = 0; i < options_.streams && i < options_.requests; ++i) {
        Send(MonotonicClock().NowUs());
      }
    }
    io_.run();
    return std::move(results_);
  }

 private:
  void Send(int64_t due_us) {
    LoadStream::Start(io_, target_, std::move(bodies_[sent_++]), due_us,
                      int64_t{options_.timeout_s} * 1'000'000, [this](StreamResult result) {
                        results_.push_back(std::move(result));
                        if (options_.rate_per_s == 0 && sent_ < options_.requests) {
                          Send(MonotonicClock().NowUs());
                        }
                      });
  }

  void SendNextAt(int64_t due_us) {
    timer_.expires_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(due_us)));
    timer_.async_wait([this, due_us](const boost::system::error_code& error) {
      if (error) return;
      Send(due_us);
      if (sent_ == options_.requests) return;
      std::exponential_distribution<double> gap(options_.rate_per_s);
      SendNextAt(due_us + static_cast<int64_t>(gap(random_) * 1e6));
    });
  }

  const LoadOptions& options_;
  const LoadTarget target_;
  PromptMaker prompts_;
  std::mt19937_64 random_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer timer_;
  std::vector<std::string> bodies_;
  uint32_t sent_ = 0;
  int64_t start_us_ = 0;
  std::vector<StreamResult> results_;
};

absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeTls(const std::string& authorities) {
  auto context = std::make_shared<boost::asio::ssl::context>(boost::asio::ssl::context::tls_client);
  boost::system::error_code error;
  context->set_verify_mode(boost::asio::ssl::verify_peer, error);
  if (!error) context->add_certificate_authority(boost::asio::buffer(authorities), error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("--ca: ", error.message()));
  return context;
}

absl::StatusOr<LoadTarget> ResolveTarget(const LoadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const ServerAccess access, ResolveAccess(options.access));
  LoadTarget target;
  target.address = access.address;
  const size_t colon = access.address.rfind(':');
  target.host = std::string(WithoutBrackets(access.address.substr(0, colon)));
  target.port = access.address.substr(colon + 1);
  target.api_key = access.api_key;
  if (access.tls) {
    WEFT_ASSIGN_OR_RETURN(target.tls, MakeTls(access.authorities));
  }
  if (options.route == "completions") {
    target.path = "/v1/completions";
  } else if (options.route == "chat") {
    target.path = "/v1/chat/completions";
  } else if (options.route == "tgi") {
    target.path = "/generate_stream";
  } else {
    return absl::InvalidArgumentError("--route: expected completions, chat or tgi");
  }
  boost::asio::io_context io;
  boost::asio::ip::tcp::resolver resolver(io);
  boost::system::error_code error;
  const auto endpoints = resolver.resolve(target.host, target.port, error);
  if (error || endpoints.empty()) {
    return absl::UnavailableError(
        absl::StrCat("--connect: ", access.address, ": ", error.message(),
                     "; give the server's HTTP address as host:port, as in 127.0.0.1:8080"));
  }
  target.endpoint = endpoints.begin()->endpoint();
  return target;
}

// Not OK when no request found a server: then there is nothing to report.
absl::Status CheckConnected(const std::vector<StreamResult>& results, const std::string& address) {
  for (const StreamResult& result : results) {
    if (!absl::StartsWith(result.error, kConnectError)) return absl::OkStatus();
  }
  absl::string_view why = results.front().error;
  absl::ConsumePrefix(&why, kConnectError);
  return absl::UnavailableError(absl::StrCat(
      "no server answers at ", address, " (", why,
      "); start one with: weft serve --http-port 8080, or name its HTTP address with --connect"));
}

// The processes of --process, with their CPU time so far.
struct WatchedProcess {
  std::string name;
  std::string pid;
  double cpu_s = 0;
};

absl::StatusOr<std::vector<WatchedProcess>> WatchProcesses(const LoadOptions& options) {
  std::vector<WatchedProcess> watched;
  for (const std::string& entry : options.processes) {
    const std::vector<std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (parts.size() != 2) return absl::InvalidArgumentError("--process: expected name=pid");
    watched.push_back({parts[0], parts[1], ProcessCpuSeconds(parts[1])});
  }
  return watched;
}

absl::Status RunLoad(const LoadOptions& options) {
  if (options.requests == 0 || options.streams == 0 || options.vocab <= 100) {
    return absl::InvalidArgumentError(
        "--requests and --streams must be positive, --vocab above 100");
  }
  WEFT_ASSIGN_OR_RETURN(const LoadTarget target, ResolveTarget(options));
  WEFT_ASSIGN_OR_RETURN(const std::vector<WatchedProcess> watched, WatchProcesses(options));
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  double bandwidth = 0;
  if (options.bandwidth) bandwidth = MeasureReadBandwidth(threads, 1u << 30, 7);
  const std::vector<StreamResult> results = LoadGenerator(options, target).Run();
  WEFT_RETURN_IF_ERROR(CheckConnected(results, target.address));
  LoadReport report = MakeReport(results);
  for (const WatchedProcess& process : watched) {
    report.processes.push_back(
        {process.name, ProcessCpuSeconds(process.pid) - process.cpu_s, ProcessPssMib(process.pid)});
  }
  if (options.bandwidth) {
    report.read_gbytes_per_s = (bandwidth + MeasureReadBandwidth(threads, 1u << 30, 7)) / 2;
  }
  std::fputs(ReportTable(report).c_str(), stderr);
  if (options.json == "-") {
    std::fputs(ReportJson(report).c_str(), stdout);
  } else if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << ReportJson(report);
    if (!file) return absl::UnavailableError(absl::StrCat("--json: cannot write ", options.json));
  }
  if (report.failed > 0) {
    return absl::UnavailableError(
        absl::StrCat(report.failed, " requests failed, the first with: ", report.first_error));
  }
  return absl::OkStatus();
}

}  // namespace

int RunBenchLoad(int argc, char** argv) {
  LoadOptions options;
  Flags flags("weft bench load", "Sends streamed requests to a server and reports what came back.");
  Declare(flags, &options);
  return RunCommand(flags, argc, argv, [&options] { return RunLoad(options); });
}

}  // namespace weft::launcher
