#include "deploy/launcher/hub/download.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "deploy/launcher/hub/cache_store.h"
#include "deploy/launcher/hub/pieces.h"
#include "deploy/launcher/hub/urls.h"

namespace weft::hub {
namespace {

constexpr absl::Duration kTurn = absl::Milliseconds(200);
constexpr absl::Duration kLookAtLocks = absl::Seconds(1);
// What an earlier pull left is read between the turns of what comes now.
constexpr uint64_t kReadBackBytesATurn = uint64_t{64} << 20;

uint64_t SumOfBytes(const std::vector<HubFile>& files) {
  uint64_t sum = 0;
  for (const HubFile& file : files) sum += file.bytes.value_or(0);
  return sum;
}

uint64_t SumOfIncomplete(const CacheLayout& layout, const std::vector<HubFile>& files) {
  uint64_t sum = 0;
  for (const HubFile& file : files) sum += IncompleteBytes(layout, file);
  return sum;
}

}  // namespace

// A file that is fetched now.
struct Download::FileJob {
  FileJob(const HubFile& wanted, std::unique_ptr<GrowingBlob> growing)
      : file(wanted),
        blob(std::move(growing)),
        had(blob->bytes()),
        pieces(*file.bytes, blob->bytes(), kPieceBytes) {}

  const HubFile file;
  std::unique_ptr<GrowingBlob> blob;
  // Bytes that an earlier pull had left; 0 after they turned out to be wrong.
  uint64_t had;
  FilePieces pieces;
  bool read_back = false;
  // Where the hub led to, so that not each piece asks it; empty = not known, or it failed.
  std::string source;
  // Its ETag there.
  std::string source_etag;
  bool ranges = true;
  // Something was learnt that the running calls do not know.
  bool rearrange = false;
  bool restart = false;
  uint32_t failures = 0;
  absl::Time not_before = absl::InfinitePast();
  absl::Status fatal;
};

// One request for one piece of a file.
class Download::PieceCall : public CallSink {
 public:
  PieceCall(PullContext& context, FileJob* job, FilePieces::Taken taken, std::string commit)
      : job_(*job),
        taken_(taken),
        commit_(std::move(commit)),
        call_(context.loop, context.settings, *this) {}

  void Start(const Asked& asked, const std::string& hub_url) {
    from_source_ = !job_.source.empty();
    HttpRequest request;
    request.url = from_source_ ? job_.source : hub_url;
    const bool whole = taken_.range.from == 0 && taken_.range.to == job_.pieces.bytes();
    if (!whole && job_.ranges) {
      request.range = taken_.range;
      if (from_source_) request.if_range = job_.source_etag;
    }
    call_.Start(asked, request);
  }

  bool running() const { return call_.running(); }
  bool brought_bytes() const { return brought_bytes_; }
  bool from_source() const { return from_source_; }
  FileJob& job() { return job_; }
  uint64_t piece() const { return taken_.piece; }
  const HubCall& call() const { return call_; }

 private:
  // True; or notes why not.
  bool Refuse(const std::string& why) {
    job_.fatal = absl::FailedPreconditionError(absl::StrCat(job_.file.path, ": ", why));
    return false;
  }

  bool CheckHubHeaders() {
    const Headers& headers = call_.hub_headers();
    const absl::string_view commit = HeaderOr(headers, "x-repo-commit");
    if (!commit.empty() && commit != commit_) {
      return Refuse("the hub answers with a file of another commit");
    }
    const auto linked = ParseBlobName(HeaderOr(headers, "x-linked-etag"));
    if (linked.ok() && linked->kind == job_.file.blob.kind && linked->text != job_.file.blob.text) {
      return Refuse("the hub's list and its answer name different digests");
    }
    return true;
  }

  bool OnStart(const HttpHead& head, const std::string& url) override {
    if (!CheckHubHeaders()) return false;
    const std::string etag(HeaderOr(head.headers, "etag"));
    // A weak one does not say that bytes are the same.
    const std::string strong = absl::StartsWith(etag, "\"") ? etag : "";
    if (from_source_ && !job_.source_etag.empty() && strong != job_.source_etag) {
      job_.rearrange = job_.restart = true;
      return false;
    }
    job_.source = url;
    job_.source_etag = strong;
    return head.status == 206 ? OnPart(head) : OnWhole(head);
  }

  bool OnPart(const HttpHead& head) {
    const auto range = ParseContentRange(HeaderOr(head.headers, "content-range"));
    if (!range.has_value() || range->from != taken_.range.from || range->to > taken_.range.to ||
        (range->all != 0 && range->all != job_.pieces.bytes())) {
      return Refuse(absl::StrCat("the answer to a request for bytes ", taken_.range.from, " .. ",
                                 taken_.range.to, " of ", job_.pieces.bytes(), " is another part"));
    }
    return true;
  }

  bool OnWhole(const HttpHead& head) {
    uint64_t bytes = 0;
    if (absl::SimpleAtoi(HeaderOr(head.headers, "content-length"), &bytes) &&
        bytes != job_.pieces.bytes()) {
      return Refuse(
          absl::StrCat("it has ", bytes, " bytes, by the hub's list ", job_.pieces.bytes()));
    }
    if (taken_.range.from == 0 && taken_.range.to == job_.pieces.bytes()) return true;
    if (!job_.ranges) {
      skip_ = taken_.range.from;
      return true;
    }
    // It was asked for a part: this server knows none.
    job_.rearrange = true;
    job_.ranges = false;
    return false;
  }

  bool OnBytes(absl::string_view bytes) override {
    const uint64_t skipped = std::min<uint64_t>(skip_, bytes.size());
    skip_ -= skipped;
    bytes.remove_prefix(skipped);
    if (bytes.empty()) return true;
    brought_bytes_ = true;
    const absl::Status status =
        job_.pieces.Add(taken_.piece, bytes,
                        [this](absl::string_view in_order) { return job_.blob->Append(in_order); });
    if (!status.ok()) job_.fatal = Annotate(status, job_.file.path);
    return status.ok();
  }

  FileJob& job_;
  const FilePieces::Taken taken_;
  const std::string commit_;
  // Bytes that were there before, of a server that knows no ranges.
  uint64_t skip_ = 0;
  bool from_source_ = false;
  bool brought_bytes_ = false;
  HubCall call_;
};

absl::Status CheckInterrupt(PullContext& context) {
  if (!context.signals.Wait(absl::ZeroDuration()).has_value()) return absl::OkStatus();
  return absl::CancelledError("interrupted; what came is kept, the same command goes on there");
}

Download::Download(PullContext& context, const CacheLayout& layout, const ModelId& id,
                   const std::string& commit, std::vector<HubFile> files)
    : context_(context),
      layout_(layout),
      id_(id),
      commit_(commit),
      waiting_(files.begin(), files.end()),
      progress_(static_cast<uint32_t>(files.size()), SumOfBytes(files),
                SumOfIncomplete(layout, files)) {}

// Calls end before the files that they write to.
Download::~Download() { calls_.clear(); }

absl::Status Download::Run() {
  while (Works()) {
    WEFT_RETURN_IF_ERROR(CheckInterrupt(context_));
    WEFT_RETURN_IF_ERROR(BeginFiles());
    WEFT_RETURN_IF_ERROR(ReadBack());
    BeginCalls();
    const bool reads =
        std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->read_back; });
    context_.loop.Run(reads ? absl::ZeroDuration() : kTurn, context_.signals.fd());
    WEFT_RETURN_IF_ERROR(Sweep());
    ReportProgress();
  }
  return absl::OkStatus();
}

absl::Status Download::BeginFiles() {
  const absl::Time now = absl::Now();
  if (now < try_locks_at_) return absl::OkStatus();
  // Each once: those that other processes have go to the end.
  size_t busy_files = 0;
  for (size_t left = waiting_.size(); left > 0 && jobs_.size() < context_.options.connections;
       --left) {
    const HubFile file = waiting_.front();
    waiting_.pop_front();
    bool busy = false;
    WEFT_RETURN_IF_ERROR(BeginFile(file, &busy));
    if (!busy) continue;
    waiting_.push_back(file);
    ++busy_files;
  }
  if (busy_files > 0) try_locks_at_ = now + kLookAtLocks;
  if (!jobs_.empty() || waiting_.empty()) {
    busy_since_ = absl::InfiniteFuture();
    return absl::OkStatus();
  }
  busy_since_ = std::min(busy_since_, now);
  if (!said_busy_) {
    context_.reporter.Say(absl::StrCat(waiting_.front().path,
                                       " is being fetched by another program; waiting for it"));
    said_busy_ = true;
  }
  if (now - busy_since_ < absl::Seconds(context_.options.lock_timeout_s)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      waiting_.front().path, " has been fetched by another program for ",
      context_.options.lock_timeout_s, " s (", layout_.BlobLock(""), "); wait for it, or end it"));
}

absl::Status Download::BeginFile(const HubFile& file, bool* busy) {
  if (HasBlob(layout_, file)) {
    // By another program, meanwhile.
    bytes_finished_ += *file.bytes;
    progress_.OnFileDone();
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(auto blob, GrowingBlob::Open(layout_, file));
  *busy = blob == nullptr;
  if (blob == nullptr) return absl::OkStatus();
  if (HasBlob(layout_, file)) return BeginFile(file, busy);
  jobs_.push_back(std::make_unique<FileJob>(file, std::move(blob)));
  return absl::OkStatus();
}

absl::Status Download::ReadBack() {
  uint64_t left = kReadBackBytesATurn;
  for (const auto& job : jobs_) {
    if (job->read_back || left == 0) continue;
    WEFT_ASSIGN_OR_RETURN(job->read_back, job->blob->ReadBack(left));
    left -= std::min(left, job->blob->bytes());
  }
  return absl::OkStatus();
}

Download::FileJob* Download::LeastBusyFile(absl::Time now) {
  uint32_t ahead = 0;
  for (const auto& job : jobs_) ahead += job->pieces.ahead();
  FileJob* best = nullptr;
  for (const auto& job : jobs_) {
    if (!job->read_back || job->rearrange || now < job->not_before) continue;
    // A trial for this file's first answer: what it says of ranges decides about the others.
    if (job->pieces.in_flight() > 0 && job->source.empty()) continue;
    if (!job->pieces.CanTake()) continue;
    // Memory is bounded in what runs ahead; what is in turn, or has broken off, needs none more.
    const bool in_turn = job->pieces.ahead() == 0 && job->pieces.in_flight() == 0;
    if (!in_turn && !job->pieces.HasBroken() && ahead >= kPiecesAheadMax - 1) continue;
    if (best == nullptr || job->pieces.in_flight() < best->pieces.in_flight()) best = job.get();
  }
  return best;
}

void Download::BeginCalls() {
  const absl::Time now = absl::Now();
  if (now < paused_until_) return;
  while (calls_.size() < context_.options.connections) {
    FileJob* const job = LeastBusyFile(now);
    if (job == nullptr) return;
    BeginCall(job);
  }
}

void Download::BeginCall(FileJob* job) {
  const auto taken = job->pieces.Take();
  const Asked asked{id_, job->file.path, context_.settings.endpoint, "", false};
  calls_.push_back(std::make_unique<PieceCall>(context_, job, *taken, commit_));
  calls_.back()->Start(asked, FileUrl(context_.settings.endpoint, id_, commit_, job->file.path));
}

void Download::OnFailure(FileJob* job, absl::Duration asked_wait, absl::string_view why) {
  const absl::Time now = absl::Now();
  if (asked_wait > absl::ZeroDuration()) paused_until_ = std::max(paused_until_, now + asked_wait);
  // Calls that fail together have failed once.
  if (now < job->not_before) return;
  ++job->failures;
  const double random = std::uniform_real_distribution<double>(0.5, 1)(random_);
  const absl::Duration wait = std::max(asked_wait, BackOff(job->failures, random));
  job->not_before = now + wait;
  if (job->failures > context_.options.retries) return;
  context_.reporter.Say(
      absl::StrCat(why, "; trying again in ", FormatSeconds(absl::ToDoubleSeconds(wait))));
}

absl::Status Download::OnCallEnd(PieceCall* call) {
  FileJob& job = call->job();
  job.pieces.Release(call->piece());
  WEFT_RETURN_IF_ERROR(job.fatal);
  absl::Status status = call->call().status();
  if (call->brought_bytes()) job.failures = 0;
  if (absl::IsCancelled(status)) return absl::OkStatus();
  if (status.ok()) {
    if (call->brought_bytes()) return absl::OkStatus();
    status = absl::UnavailableError("the answer was empty");
  }
  // An address that the hub led to is good for a while: then the hub is asked again.
  const bool stale = call->from_source() && !absl::IsUnavailable(status);
  job.source.clear();
  job.source_etag.clear();
  if (!stale && !absl::IsUnavailable(status)) return status;
  OnFailure(&job, call->call().asked_wait().value_or(absl::ZeroDuration()), status.message());
  if (job.failures <= context_.options.retries) return absl::OkStatus();
  return Annotate(status, absl::StrCat(job.file.path, ": given up after ", job.failures,
                                       " tries that brought nothing; the same command goes on"));
}

absl::Status Download::Rearrange(FileJob* job) {
  for (auto call = calls_.begin(); call != calls_.end();) {
    if (&(*call)->job() != job) {
      ++call;
      continue;
    }
    job->pieces.Release((*call)->piece());
    call = calls_.erase(call);
  }
  if (job->restart) {
    WEFT_RETURN_IF_ERROR(job->blob->Clear());
    job->pieces = FilePieces(*job->file.bytes, 0, kPieceBytes);
    job->source.clear();
    job->source_etag.clear();
    job->had = 0;
    OnFailure(job, absl::ZeroDuration(), absl::StrCat(job->file.path, " changed on its way"));
    if (job->failures > context_.options.retries) {
      return absl::UnavailableError(
          absl::StrCat(job->file.path, " changes while it is fetched; try again later"));
    }
  }
  if (!job->ranges) job->pieces.TakeAsOne();
  job->rearrange = job->restart = false;
  return absl::OkStatus();
}

absl::Status Download::Sweep() {
  for (size_t i = 0; i < calls_.size();) {
    if (calls_[i]->running()) {
      ++i;
      continue;
    }
    const std::unique_ptr<PieceCall> call = std::move(calls_[i]);
    calls_.erase(calls_.begin() + static_cast<ptrdiff_t>(i));
    WEFT_RETURN_IF_ERROR(OnCallEnd(call.get()));
  }
  for (const auto& job : jobs_) {
    if (job->rearrange) WEFT_RETURN_IF_ERROR(Rearrange(job.get()));
  }
  for (size_t i = 0; i < jobs_.size();) {
    FileJob* const job = jobs_[i].get();
    if (!job->read_back || !job->pieces.done() || job->pieces.in_flight() > 0) {
      ++i;
      continue;
    }
    WEFT_RETURN_IF_ERROR(FinishFile(job));
    // It stays when it begins anew.
    if (job->pieces.done()) jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(i));
  }
  return absl::OkStatus();
}

absl::Status Download::FinishFile(FileJob* job) {
  const absl::Status status = job->blob->Finish();
  if (absl::IsDataLoss(status) && job->had > 0) {
    context_.reporter.Say(absl::StrCat(job->file.path,
                                       ": what an earlier pull had left was wrong; fetching it "
                                       "from its beginning"));
    const HubFile file = job->file;
    // Its lock goes before it is taken again.
    job->blob.reset();
    WEFT_ASSIGN_OR_RETURN(job->blob, GrowingBlob::Open(layout_, file));
    if (job->blob == nullptr) return status;
    job->pieces = FilePieces(*file.bytes, 0, kPieceBytes);
    if (!job->ranges) job->pieces.TakeAsOne();
    job->had = 0;
    return absl::OkStatus();
  }
  if (absl::IsDataLoss(status)) {
    return Annotate(status,
                    absl::StrCat("from ", HostOf(job->source.empty() ? context_.settings.endpoint
                                                                     : job->source)));
  }
  WEFT_RETURN_IF_ERROR(status);
  if (job->file.blob.kind == BlobName::Kind::kOpaque) {
    context_.reporter.Say(
        absl::StrCat(job->file.path, ": the hub names no digest of it; only its size is checked"));
  }
  bytes_finished_ += *job->file.bytes;
  progress_.OnFileDone();
  return absl::OkStatus();
}

void Download::ReportProgress() {
  uint64_t bytes = bytes_finished_;
  for (const auto& job : jobs_) bytes += job->pieces.arrived();
  for (const HubFile& file : waiting_) bytes += IncompleteBytes(layout_, file);
  progress_.OnArrived(bytes, absl::Now());
  context_.reporter.ShowProgress(progress_.Line());
}

}  // namespace weft::hub
