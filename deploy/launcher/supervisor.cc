#include "deploy/launcher/supervisor.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/read_until.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/write.hpp"
#include "common/check.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/status.h"
#include "common/wait_status.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/last_words.h"

namespace weft::launcher {
namespace {

// Never 0.
uint64_t RandomLauncherId() {
  uint64_t id = 0;
  WEFT_CHECK_EQ(getrandom(&id, sizeof(id), 0), static_cast<ssize_t>(sizeof(id)));
  return std::max<uint64_t>(id, 1);
}

using boost::asio::local::stream_protocol;

// A client that does not read, or sends more than this without a newline, is dropped.
constexpr size_t kSocketBytesMax = 64 << 10;
constexpr size_t kClientsMax = 8;

std::chrono::nanoseconds ToChrono(absl::Duration duration) {
  return absl::ToChronoNanoseconds(duration);
}

}  // namespace

class Supervisor::Impl : public std::enable_shared_from_this<Supervisor::Impl> {
 public:
  Impl(boost::asio::io_context& io, SupervisorOptions options, Callbacks callbacks)
      : io_(io),
        options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        acceptor_(io),
        stop_timer_(io) {}

  absl::Status Start(std::vector<ChildSpec> shards, ChildSpec router) {
    WEFT_RETURN_IF_ERROR(Listen());
    for (ChildSpec& spec : shards) AddMember(std::move(spec));
    router_index_ = members_.size();
    AddMember(std::move(router));
    for (auto& member : members_) WEFT_RETURN_IF_ERROR(StartMember(member.get()));
    return absl::OkStatus();
  }

  void MarkHealthy() { healthy_ = true; }
  void SetRouterArgv(std::vector<std::string> argv) {
    members_[router_index_]->spec.argv = std::move(argv);
  }

  void SignalRouter(int signal_number) {
    Member& router = *members_[router_index_];
    if (router.child) router.child->Signal(signal_number);
  }

  void Stop() {
    ++stop_calls_;
    if (stop_calls_ == 1) {
      if (members_.empty() || !members_[router_index_]->child) {
        StopShards();
      } else {
        members_[router_index_]->child->Signal(SIGTERM);
        KillAfter(options_.router_stop_timeout);
      }
    } else {
      KillAll();
    }
  }

  pid_t ShardPid(size_t rank) const {
    if (rank >= router_index_ || !members_[rank]->child) return 0;
    return members_[rank]->child->pid();
  }

  bool Owns(pid_t pid) const {
    return std::any_of(members_.begin(), members_.end(), [pid](const auto& member) {
      return member->child && member->child->pid() == pid;
    });
  }

  void Shutdown() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    stop_timer_.cancel();
    for (auto& client : clients_) client->socket.close(ignored);
    members_.clear();
    callbacks_ = Callbacks();
    unlink(options_.socket_path.c_str());
  }

 private:
  struct Member {
    Member(boost::asio::io_context& io, ChildSpec child_spec, size_t member_index)
        : spec(std::move(child_spec)), index(member_index), restart_timer(io) {}
    ChildSpec spec;
    const size_t index;
    std::unique_ptr<Child> child;
    uint64_t starts = 0;
    absl::Time started;
    RestartHistory history;
    // What the process said last of what is wrong; empty while it has said nothing.
    std::string last_words;
    boost::asio::steady_timer restart_timer;
  };

  struct Client {
    explicit Client(stream_protocol::socket accepted) : socket(std::move(accepted)) {}
    stream_protocol::socket socket;
    std::string input;
    // Bytes being written, and bytes to be written after them.
    std::string writing;
    std::string waiting;
  };

  void AddMember(ChildSpec spec) {
    members_.push_back(std::make_unique<Member>(io_, std::move(spec), members_.size()));
  }

  // While the router drains, its streams still need all shards.
  bool IsWanted(const Member& member) const {
    if (stop_calls_ == 0) return true;
    return stop_calls_ == 1 && member.index < router_index_ &&
           members_[router_index_]->child != nullptr;
  }

  // -- Children ----------------------------------------------------------------------------------
  absl::Status StartMember(Member* member) {
    Child::Callbacks callbacks;
    member->last_words.clear();
    callbacks.on_line = [this, member](const std::string& line, bool is_stdout) {
      if (std::string words = is_stdout ? "" : LastWords(line); !words.empty()) {
        member->last_words = std::move(words);
      }
      if (callbacks_.on_line) callbacks_.on_line(member->spec.name, line, is_stdout);
    };
    // A handler of its own: OnExit destroys the Child that is calling.
    callbacks.on_exit = [weak = weak_from_this(), member](int wait_status) {
      if (auto self = weak.lock()) self->OnExit(member, wait_status);
    };
    std::vector<std::string> argv = member->spec.argv;
    if (member->spec.numbered) {
      argv.push_back(absl::StrCat("--launcher-id=", launcher_id_));
      argv.push_back(absl::StrCat("--launcher-generation=", ++member->starts));
    }
    auto child = Child::Spawn(io_, argv, member->spec.environment, std::move(callbacks));
    if (!child.ok()) return Annotate(child.status(), member->spec.name);
    member->child = std::move(*child);
    member->started = absl::Now();
    WEFT_LOG_DEBUG("started {} pid={}", member->spec.name, member->child->pid());
    return absl::OkStatus();
  }

  void OnExit(Member* member, int wait_status) {
    const pid_t pid = member->child->pid();
    const std::string how = DescribeWaitStatus(wait_status);
    member->child.reset();
    if (member->index < router_index_) {
      const bool startup = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitStartup;
      const bool told = startup && !member->last_words.empty();
      Broadcast(absl::StrCat("died ", member->index, " ", pid, told ? " " : "",
                             told ? member->last_words : "", "\n"));
    }
    if (!IsWanted(*member)) {
      if (member->index == router_index_) JudgeDrain(wait_status, how);
      ContinueStop(member);
      return;
    }
    const RestartDecision decision = DecideRestart(
        wait_status, healthy_, absl::Now() - member->started, options_.restart, &member->history);
    if (decision.give_up) {
      // Who was killed did not come to say why.
      GiveUp(*member, how, WIFEXITED(wait_status) ? member->last_words : "");
      return;
    }
    WEFT_LOG_WARN("{} (pid {}) ended with {}; starting it again in {} ms", member->spec.name, pid,
                  how, absl::ToInt64Milliseconds(decision.wait));
    RestartAfter(member, decision.wait);
  }

  void GiveUp(const Member& member, const std::string& how, const std::string& why) {
    if (auto on_hopeless = std::exchange(callbacks_.on_hopeless, nullptr)) {
      on_hopeless(member.spec.name, how, why);
    }
  }

  void RestartAfter(Member* member, absl::Duration wait) {
    member->restart_timer.expires_after(ToChrono(wait));
    member->restart_timer.async_wait(
        [weak = weak_from_this(), member](const boost::system::error_code& error) {
          auto self = weak.lock();
          if (!self || error || !self->IsWanted(*member)) return;
          const absl::Status status = self->StartMember(member);
          if (status.ok()) return;
          if (!self->healthy_) {
            self->GiveUp(*member, std::string(status.message()), /*why=*/"");
            return;
          }
          WEFT_LOG_ERROR("{}", std::string(status.message()));
          self->RestartAfter(member, self->options_.restart.backoff_max);
        });
  }

  // -- Stopping ----------------------------------------------------------------------------------
  // A router that SIGTERM itself ended had not begun to listen; before the first readiness there
  // are no requests either.
  void JudgeDrain(int wait_status, const std::string& how) {
    const bool ended_well = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitOk;
    const bool unborn = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM;
    if (ended_well || unborn || !healthy_) return;
    drained_ = false;
    WEFT_LOG_WARN("the router ended with {} before its requests had", how);
  }

  void StopShards() {
    bool any = false;
    for (auto& member : members_) {
      if (!member->child) continue;
      member->child->Signal(SIGTERM);
      any = true;
    }
    if (any) {
      KillAfter(options_.shard_stop_timeout);
    } else {
      Finish();
    }
  }

  void ContinueStop(Member* member) {
    const bool all_gone = std::none_of(members_.begin(), members_.end(),
                                       [](const auto& other) { return other->child != nullptr; });
    if (all_gone) {
      Finish();
    } else if (member->index == router_index_ && stop_calls_ == 1) {
      StopShards();
    }
  }

  void KillAfter(absl::Duration wait) {
    stop_timer_.expires_after(ToChrono(wait));
    stop_timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      auto self = weak.lock();
      if (self && !error) self->KillAll();
    });
  }

  void KillAll() {
    stop_calls_ = std::max(stop_calls_, 2);
    for (auto& member : members_) {
      if (member->child) member->child->Signal(SIGKILL);
    }
  }

  void Finish() {
    stop_timer_.cancel();
    if (auto on_stopped = std::exchange(callbacks_.on_stopped, nullptr)) {
      on_stopped(drained_);
    }
  }

  // -- Socket ------------------------------------------------------------------------------------
  absl::Status Listen() {
    boost::system::error_code error;
    unlink(options_.socket_path.c_str());
    acceptor_.open(stream_protocol(), error);
    if (!error) acceptor_.bind(stream_protocol::endpoint(options_.socket_path), error);
    if (!error) acceptor_.listen(static_cast<int>(kClientsMax), error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.socket_path, ": ", error.message()));
    }
    chmod(options_.socket_path.c_str(), 0600);
    Accept();
    return absl::OkStatus();
  }

  void Accept() {
    acceptor_.async_accept([weak = weak_from_this()](const boost::system::error_code& error,
                                                     stream_protocol::socket socket) {
      auto self = weak.lock();
      if (!self || error) return;
      if (self->clients_.size() < kClientsMax) {
        self->clients_.push_back(std::make_shared<Client>(std::move(socket)));
        self->Read(self->clients_.back());
      }
      self->Accept();
    });
  }

  void Read(const std::shared_ptr<Client>& client) {
    boost::asio::async_read_until(
        client->socket, boost::asio::dynamic_buffer(client->input, kSocketBytesMax), '\n',
        [weak = weak_from_this(), client](const boost::system::error_code& error, size_t bytes) {
          auto self = weak.lock();
          if (!self) return;
          if (error) {
            self->Drop(client);
            return;
          }
          const std::string line = client->input.substr(0, bytes - 1);
          client->input.erase(0, bytes);
          self->Send(client, self->Handle(line));
          self->Read(client);
        });
  }

  std::string Handle(const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    uint32_t rank = 0;
    int32_t pid = 0;
    if (words.size() < 3 || words[0] != "restart" || !absl::SimpleAtoi(words[1], &rank) ||
        !absl::SimpleAtoi(words[2], &pid)) {
      return "error expected: restart <rank> <pid> <reason>\n";
    }
    if (rank >= router_index_) return absl::StrCat("error no shard of rank ", rank, "\n");
    Member* member = members_[rank].get();
    // Gone, or replaced, since the router looked: what it asks for has happened.
    if (!member->child || member->child->pid() != pid) return "ok\n";
    const std::string why = words.size() > 3 ? words[3] : "no reason given";
    // A router notices a shard's end too, and may be quicker than the pipes to say so: a signal 9
    // that somebody else sent must not look like the launcher's.
    if (member->child->Ended()) {
      WEFT_LOG_INFO("shard-{} (pid {}) had ended already when the router gave it up: {}", rank, pid,
                    why);
      return "ok\n";
    }
    WEFT_LOG_WARN("shard-{} (pid {}) is killed on the router's word: {}", rank, pid, why);
    member->child->Signal(SIGKILL);
    return "ok\n";
  }

  void Broadcast(const std::string& line) {
    const auto clients = clients_;
    for (const auto& client : clients) Send(client, line);
  }

  void Send(const std::shared_ptr<Client>& client, const std::string& text) {
    if (client->waiting.size() + text.size() > kSocketBytesMax) {
      Drop(client);
      return;
    }
    client->waiting += text;
    if (client->writing.empty()) Write(client);
  }

  void Write(const std::shared_ptr<Client>& client) {
    client->writing.swap(client->waiting);
    boost::asio::async_write(
        client->socket, boost::asio::buffer(client->writing),
        [weak = weak_from_this(), client](const boost::system::error_code& error, size_t) {
          client->writing.clear();
          auto self = weak.lock();
          if (!self) return;
          if (error) {
            self->Drop(client);
          } else if (!client->waiting.empty()) {
            self->Write(client);
          }
        });
  }

  void Drop(const std::shared_ptr<Client>& client) {
    boost::system::error_code ignored;
    client->socket.close(ignored);
    clients_.erase(std::remove(clients_.begin(), clients_.end(), client), clients_.end());
  }

  boost::asio::io_context& io_;
  const SupervisorOptions options_;
  Callbacks callbacks_;
  stream_protocol::acceptor acceptor_;
  boost::asio::steady_timer stop_timer_;
  std::vector<std::shared_ptr<Client>> clients_;
  // Shards in rank order, then the router.
  std::vector<std::unique_ptr<Member>> members_;
  // Of this launcher alone, so that its routers know each other as one after the other.
  const uint64_t launcher_id_ = RandomLauncherId();
  size_t router_index_ = 0;
  bool healthy_ = false;
  bool drained_ = true;
  int stop_calls_ = 0;
};

Supervisor::Supervisor(boost::asio::io_context& io, SupervisorOptions options, Callbacks callbacks)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(callbacks))) {}
Supervisor::~Supervisor() { impl_->Shutdown(); }
absl::Status Supervisor::Start(std::vector<ChildSpec> shards, ChildSpec router) {
  return impl_->Start(std::move(shards), std::move(router));
}
void Supervisor::MarkHealthy() { impl_->MarkHealthy(); }
void Supervisor::SetRouterArgv(std::vector<std::string> argv) {
  impl_->SetRouterArgv(std::move(argv));
}
void Supervisor::SignalRouter(int signal_number) { impl_->SignalRouter(signal_number); }
void Supervisor::Stop() { impl_->Stop(); }
pid_t Supervisor::ShardPid(size_t rank) const { return impl_->ShardPid(rank); }
bool Supervisor::Owns(pid_t pid) const { return impl_->Owns(pid); }

}  // namespace weft::launcher
