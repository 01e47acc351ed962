#include "shard/device/cuda/gemm_tuner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "kernels/cuda/elementwise/random_fill.h"
#include "kernels/random_weight.h"
#include "shard/device/cuda/gemm.h"
#include "shard/device/cuda/graph_cache.h"
#include "shard/device/cuda/runtime/buffer.h"
#include "shard/device/cuda/runtime/status.h"
#include "shard/device/cuda/runtime/stream.h"
#include "shard/device/cuda/workspace.h"

namespace weft::shard {
namespace {

using kernels::cuda::BytesOf;
using kernels::cuda::DType;

constexpr int kSuggestions = 32;
// Weights read between two uses of the same: three times the L2 of an H200.
constexpr uint64_t kRotatedBytes = uint64_t{160} << 20;
// One matrix alone leaves something of itself in the L2.
constexpr uint64_t kCopiesMin = 2;
constexpr double kGraphUs = 2000;
constexpr uint64_t kLaunchesMax = 512;
constexpr int kRounds = 3;
// After the first round, of the best.
constexpr double kWorthMore = 1.5;
// A table that changes with noise is of no use: another kernel has to be this much faster.
constexpr double kClearlyFaster = 0.99;
// What an H200 reads and multiplies at best, and a launch costs in a graph: to guess how many
// launches take kGraphUs.
constexpr double kBytesPerUs = 4.5e6;
constexpr double kFlopsPerUs = 7e8;
constexpr double kLaunchUs = 2;
// Rows of a result that are compared.
constexpr uint32_t kSampledRows = 8;
// Every byte of the output before a checked product: a small number in both types.
constexpr int kOutByte = 0x3c;
// Largest part of 2-norms by which results may differ: sums in another order, rounded once.
constexpr double kDifference = 1e-4;
constexpr double kDifferenceRounded = 6e-3;
// Elements of a row of the memory that is filled at once.
constexpr uint32_t kFillColumns = 4096;

struct Candidate {
  GemmKernel kernel;
  PreparedGemm prepared;
  CudaGraphExec graph;
  double us = std::numeric_limits<double>::infinity();
};

uint64_t WeightBytes(const GemmShape& shape) {
  return (uint64_t{shape.n} * shape.k * BytesOf(shape.in) + 255) / 256 * 256;
}

uint64_t Copies(const GemmShape& shape) {
  const uint64_t bytes = WeightBytes(shape);
  return std::max(kCopiesMin, (kRotatedBytes + bytes - 1) / bytes);
}

// A multiple of the copies, so that graphs one after the other rotate on.
uint64_t Launches(const GemmShape& shape) {
  const double us = std::max(static_cast<double>(WeightBytes(shape)) / kBytesPerUs,
                             2.0 * shape.rows * shape.n * shape.k / kFlopsPerUs);
  const uint64_t copies = Copies(shape);
  const auto wanted = std::min(kLaunchesMax, static_cast<uint64_t>(kGraphUs / (us + kLaunchUs)));
  return std::max<uint64_t>(1, (wanted + copies - 1) / copies) * copies;
}

std::vector<GemmKernel> OwnKernels(const GemmShape& shape) {
  std::vector<GemmKernel> kernels = {GemvChoice{}};
  for (const uint32_t sharers : {1, 2}) {
    for (const uint32_t splits : {1, 2, 3, 4, 6, 8}) {
      kernels.push_back(SmallGemmChoice{splits, sharers});
    }
  }
  std::vector<GemmKernel> serving;
  for (const GemmKernel& kernel : kernels) {
    if (ServesGemm(kernel, shape)) serving.push_back(kernel);
  }
  return serving;
}

std::vector<float> Floats(const std::vector<uint8_t>& bytes, DType type) {
  std::vector<float> out(bytes.size() / BytesOf(type));
  if (type == DType::kFloat32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, &bytes[2 * i], sizeof(half));
    const uint32_t bits = uint32_t{half} << 16;
    std::memcpy(&out[i], &bits, sizeof(bits));
  }
  return out;
}

// ||a - b|| / ||b||; NaN where one of them has one.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - b[i];
    difference += d * d;
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

// `bytes`: a multiple of a filled row.
absl::Status Fill(const DeviceBuffer& buffer, uint32_t matrix, cudaStream_t stream) {
  kernels::cuda::RandomFillParams params;
  params.out = buffer.data();
  params.grid.columns = kFillColumns;
  params.grid.stride = kFillColumns;
  params.grid.column_group = kFillColumns;
  params.grid.column_group_stride = kFillColumns;
  params.grid.rows = static_cast<uint32_t>(buffer.bytes() / (kFillColumns * 2));
  params.key = kernels::RandomWeightKey(1, matrix);
  return CudaStatus(kernels::cuda::RandomFill(params, stream), "filling with random numbers");
}

class GemmTunerImpl : public GemmTuner {
 public:
  absl::Status Init(const std::vector<GemmShape>& largest);
  absl::StatusOr<TunedGemm> Tune(const GemmShape& shape) override;

 private:
  absl::StatusOr<std::vector<Candidate>> MakeCandidates(const GemmShape& shape);
  // Leaves out those with another result than the first's.
  absl::Status CheckResults(const GemmShape& shape, std::vector<Candidate>* candidates);
  absl::StatusOr<std::vector<float>> SampleResult(const GemmShape& shape,
                                                  const Candidate& candidate);
  absl::Status MakeGraph(const GemmShape& shape, Candidate* candidate);
  absl::Status Time(uint64_t launches, Candidate* candidate);
  absl::Status Launch(const GemmShape& shape, const Candidate& candidate, uint64_t copy);

  CudaStream stream_;
  CudaEvent begin_;
  CudaEvent end_;
  DeviceBuffer workspace_;
  DeviceBuffer weights_;
  DeviceBuffer in_;
  DeviceBuffer out_;
  std::unique_ptr<Gemm> gemm_;
};

absl::Status GemmTunerImpl::Init(const std::vector<GemmShape>& largest) {
  uint64_t weights = 0;
  uint64_t in = 0;
  uint64_t out = 0;
  for (const GemmShape& shape : largest) {
    WEFT_CHECK(shape.in == DType::kBfloat16);
    weights = std::max(weights, Copies(shape) * WeightBytes(shape));
    in = std::max(in, uint64_t{shape.rows} * shape.k * BytesOf(shape.in));
    out = std::max(out, uint64_t{shape.rows} * shape.n * BytesOf(shape.out));
  }
  const auto whole_rows = [](uint64_t bytes) {
    constexpr uint64_t kRow = kFillColumns * 2;
    return (bytes + kRow - 1) / kRow * kRow;
  };
  WEFT_ASSIGN_OR_RETURN(stream_, MakeStream());
  WEFT_ASSIGN_OR_RETURN(begin_, MakeEvent());
  WEFT_ASSIGN_OR_RETURN(end_, MakeEvent());
  WEFT_ASSIGN_OR_RETURN(workspace_, AllocateDevice(CudaWorkspace::kGemmBytes, "the workspace"));
  WEFT_ASSIGN_OR_RETURN(weights_, AllocateDevice(whole_rows(weights), "weights"));
  WEFT_ASSIGN_OR_RETURN(in_, AllocateDevice(whole_rows(in), "inputs"));
  WEFT_ASSIGN_OR_RETURN(out_, AllocateDevice(out, "results"));
  WEFT_RETURN_IF_ERROR(Fill(weights_, 0, stream_.get()));
  WEFT_RETURN_IF_ERROR(Fill(in_, 1, stream_.get()));
  WEFT_ASSIGN_OR_RETURN(
      gemm_, Gemm::Create(workspace_.data(), CudaWorkspace::kGemmBytes, GemmPlanTable()));
  return CudaStatus(cudaStreamSynchronize(stream_.get()), "filling with random numbers");
}

absl::Status GemmTunerImpl::Launch(const GemmShape& shape, const Candidate& candidate,
                                   uint64_t copy) {
  return gemm_->Launch(shape, candidate.prepared, in_.data(),
                       weights_.data() + copy * WeightBytes(shape), out_.data(), stream_.get());
}

absl::StatusOr<std::vector<Candidate>> GemmTunerImpl::MakeCandidates(const GemmShape& shape) {
  std::vector<Candidate> candidates;
  WEFT_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> algorithms,
                        gemm_->library().Suggest(shape, kSuggestions));
  std::vector<GemmKernel> kernels;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    WEFT_ASSIGN_OR_RETURN(CublasLtChoice choice, gemm_->library().Describe(shape, algorithm));
    if (std::find(kernels.begin(), kernels.end(), GemmKernel(choice)) == kernels.end()) {
      kernels.push_back(std::move(choice));
    }
  }
  for (GemmKernel& own : OwnKernels(shape)) kernels.push_back(std::move(own));
  for (GemmKernel& kernel : kernels) {
    // As a server will have it: made again of its description.
    absl::StatusOr<PreparedGemm> prepared = gemm_->Prepare(shape, kernel);
    if (prepared.ok()) {
      Candidate& candidate = candidates.emplace_back();
      candidate.kernel = std::move(kernel);
      candidate.prepared = *std::move(prepared);
    } else if (candidates.empty()) {
      return Annotate(prepared.status(), FormatGemmKernel(kernel));
    } else {
      WEFT_LOG_WARN("{}: left out: {}", FormatGemmKernel(kernel),
                    std::string(prepared.status().message()));
    }
  }
  return candidates;
}

absl::StatusOr<std::vector<float>> GemmTunerImpl::SampleResult(const GemmShape& shape,
                                                               const Candidate& candidate) {
  const uint64_t row_bytes = uint64_t{shape.n} * BytesOf(shape.out);
  WEFT_RETURN_IF_ERROR(CudaStatus(
      cudaMemsetAsync(out_.data(), kOutByte, shape.rows * row_bytes, stream_.get()), "a memset"));
  WEFT_RETURN_IF_ERROR(Launch(shape, candidate, 0));
  const uint32_t rows = std::min(shape.rows, kSampledRows);
  std::vector<uint8_t> bytes(rows * row_bytes);
  for (uint32_t i = 0; i < rows; ++i) {
    // From the first to the last.
    const uint64_t row = rows == 1 ? 0 : uint64_t{i} * (shape.rows - 1) / (rows - 1);
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(&bytes[i * row_bytes], out_.data() + row * row_bytes, row_bytes,
                                   cudaMemcpyDeviceToHost, stream_.get()),
                   "copy of a result"));
  }
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_.get()), "a product"));
  return Floats(bytes, shape.out);
}

absl::Status GemmTunerImpl::CheckResults(const GemmShape& shape,
                                         std::vector<Candidate>* candidates) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<float> expected,
                        SampleResult(shape, candidates->front()));
  const double allowed = shape.out == DType::kFloat32 ? kDifference : kDifferenceRounded;
  std::vector<Candidate> good;
  for (Candidate& candidate : *candidates) {
    const absl::StatusOr<std::vector<float>> got = SampleResult(shape, candidate);
    // A launch that was refused is this candidate's matter; a device that failed is everyone's.
    WEFT_RETURN_IF_ERROR(Annotate(CudaStatus(cudaStreamSynchronize(stream_.get()), "a product"),
                                  FormatGemmKernel(candidate.kernel)));
    const double difference =
        got.ok() ? Difference(*got, expected) : std::numeric_limits<double>::infinity();
    if (difference <= allowed) {
      good.push_back(std::move(candidate));
      continue;
    }
    // The runtime would report the refusal again after the next launch.
    cudaGetLastError();
    WEFT_LOG_WARN("n={} k={} rows={} {}: left out: {}", shape.n, shape.k, shape.rows,
                  FormatGemmKernel(candidate.kernel),
                  got.ok() ? absl::StrCat("its result differs by ", difference)
                           : std::string(got.status().message()));
    if (&candidate == &candidates->front()) {
      return absl::InternalError("cuBLASLt's first suggestion gives no result to compare with");
    }
  }
  *candidates = std::move(good);
  return absl::OkStatus();
}

absl::Status GemmTunerImpl::MakeGraph(const GemmShape& shape, Candidate* candidate) {
  const uint64_t launches = Launches(shape);
  const uint64_t copies = Copies(shape);
  WEFT_ASSIGN_OR_RETURN(candidate->graph, CaptureGraph(stream_.get(), [&]() -> absl::Status {
                          for (uint64_t i = 0; i < launches; ++i) {
                            WEFT_RETURN_IF_ERROR(Launch(shape, *candidate, i % copies));
                          }
                          return absl::OkStatus();
                        }));
  return CudaStatus(cudaGraphUpload(candidate->graph.get(), stream_.get()), "sending a graph");
}

absl::Status GemmTunerImpl::Time(uint64_t launches, Candidate* candidate) {
  cudaStream_t const stream = stream_.get();
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin_.get(), stream), "the begin"));
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGraphLaunch(candidate->graph.get(), stream), "a graph"));
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end_.get(), stream), "the end"));
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaEventSynchronize(end_.get()), FormatGemmKernel(candidate->kernel)));
  float ms = 0;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "the time"));
  candidate->us = std::min(candidate->us, ms * 1e3 / static_cast<double>(launches));
  return absl::OkStatus();
}

absl::StatusOr<TunedGemm> GemmTunerImpl::Tune(const GemmShape& shape) {
  WEFT_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, MakeCandidates(shape));
  TunedGemm tuned;
  tuned.candidates = static_cast<uint32_t>(candidates.size());
  WEFT_RETURN_IF_ERROR(CheckResults(shape, &candidates));
  tuned.wrong = tuned.candidates - static_cast<uint32_t>(candidates.size());
  const uint64_t launches = Launches(shape);
  double best_us = std::numeric_limits<double>::infinity();
  for (Candidate& candidate : candidates) {
    WEFT_RETURN_IF_ERROR(MakeGraph(shape, &candidate));
    WEFT_RETURN_IF_ERROR(Time(launches, &candidate));
    best_us = std::min(best_us, candidate.us);
  }
  std::vector<Candidate*> worth;
  for (Candidate& candidate : candidates) {
    if (&candidate != &candidates.front() && candidate.us > kWorthMore * best_us) continue;
    worth.push_back(&candidate);
    // The first round had what only first launches have.
    candidate.us = std::numeric_limits<double>::infinity();
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Candidate* const candidate : worth) WEFT_RETURN_IF_ERROR(Time(launches, candidate));
  }
  const Candidate* best = worth.front();
  tuned.first_us = best->us;
  for (const Candidate* const candidate : worth) {
    if (candidate->us < best->us) best = candidate;
  }
  if (best->us > kClearlyFaster * tuned.first_us) best = worth.front();
  tuned.best = best->kernel;
  tuned.best_us = best->us;
  return tuned;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GemmTuner>> GemmTuner::Create(
    const std::vector<GemmShape>& largest) {
  auto tuner = std::make_unique<GemmTunerImpl>();
  WEFT_RETURN_IF_ERROR(tuner->Init(largest));
  return tuner;
}

}  // namespace weft::shard
