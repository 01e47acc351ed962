#include "kernels/cuda/comm/all_reduce.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/check.h"
#include "kernels/cuda/elementwise/rows.h"
#include "tests/kernels/cuda/comm/peer_rig.h"
#include "tests/kernels/cuda/graph.h"
#include "tests/support/skip.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::PeerRank;
using testing::PeerRig;
using testing::WithoutMail;

// Before the first call of CUDA. A kernel loaded when it is first launched may wait for its device
// to be idle, which a device with a kernel that waits for this very launch never is.
const bool loads_eagerly = setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0;

// All kernels of ranks that share a GPU have to fit on it.
constexpr uint32_t kSharedRowsMax = 8;

// Says why this test cannot run with these ranks and rows; true when it can.
bool CanRun(uint32_t world, uint32_t rows) {
  WEFT_CHECK(loads_eagerly);
  const uint32_t gpus = testing::GpuCount();
  std::string reason = testing::NoPeers(std::clamp(gpus, 1u, world));
  if (reason.empty() && world > gpus * testing::kRanksOfGpuMax) {
    reason = std::to_string(testing::kRanksOfGpuMax) +
             " ranks at most run on a GPU at once, GPUs: " + std::to_string(gpus);
  }
  if (reason.empty() && gpus < world && rows > kSharedRowsMax) {
    reason = testing::NoPeers(world);
  }
  if (reason.empty()) return true;
  test::LeaveOut("peers",
                 std::to_string(world) + " ranks, " + std::to_string(rows) + " rows: " + reason);
  return false;
}

std::vector<float> Floats(const std::vector<__nv_bfloat16>& values) {
  std::vector<float> out;
  out.reserve(values.size());
  for (const __nv_bfloat16 value : values) out.push_back(__bfloat162float(value));
  return out;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
void Upload(DeviceArray<T>& to, const std::vector<T>& from) {
  REQUIRE(from.size() <= to.size());
  WEFT_CUDA_CHECK(
      cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}

struct Data {
  std::vector<std::vector<float>> partial;
  std::vector<float> residual;
  std::vector<float> weight;
};

Data RandomData(std::mt19937_64& random, uint32_t world, uint32_t rows, uint32_t hidden) {
  const size_t size = size_t{rows} * hidden;
  Data data;
  for (uint32_t p = 0; p < world; ++p) {
    data.partial.push_back(testing::Rounded(testing::RandomFloats(random, size), DType::kBfloat16));
  }
  data.residual = testing::RandomFloats(random, size, 3.0f);
  data.weight = testing::Rounded(testing::RandomFloats(random, hidden), DType::kBfloat16);
  return data;
}

void UploadData(PeerRig& rig, const Data& data, uint32_t call) {
  rig.ForEachRank([&](PeerRank& rank) {
    Upload(*rank.partial[call % 2], testing::Halves(data.partial[rank.rank]));
    Upload(*rank.residual, data.residual);
    Upload(*rank.weight, testing::Halves(data.weight));
    // Copies of pageable memory may end after the call; the ranks' streams do not wait for them.
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
  });
}

struct Result {
  std::vector<float> residual;
  std::vector<__nv_bfloat16> out;
};

// One call on all ranks.
std::vector<Result> Run(PeerRig& rig, const std::function<AllReduceParams(uint32_t)>& params) {
  rig.OnEachRank([&](PeerRank& rank) {
    WEFT_CUDA_CHECK(AllReduceAddNorm(params(rank.rank), rank.stream));
    WEFT_CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  });
  std::vector<Result> results;
  rig.ForEachRank([&](PeerRank& rank) {
    CHECK(rank.host.Status() == kAllReduceOk);
    results.push_back({rank.residual->Host(), rank.out->Host()});
  });
  return results;
}

void CheckAgainstReference(const Data& data, const Result& result, uint32_t rows, uint32_t hidden,
                           float epsilon, bool layer_norm) {
  std::vector<double> residual(data.residual.begin(), data.residual.end());
  std::vector<double> out(residual.size());
  for (const std::vector<float>& partial : data.partial) {
    for (size_t i = 0; i < residual.size(); ++i) residual[i] += partial[i];
  }
  for (size_t r = 0; r < rows; ++r) {
    const double* const row = residual.data() + r * hidden;
    double mean = 0;
    for (size_t i = 0; layer_norm && i < hidden; ++i) mean += row[i] / hidden;
    double squares = 0;
    for (size_t i = 0; i < hidden; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double scale = 1 / std::sqrt(squares / hidden + epsilon);
    for (size_t i = 0; i < hidden; ++i) {
      // The weights are the biases too.
      const double bias = layer_norm ? data.weight[i] : 0;
      out[r * hidden + i] = (row[i] - mean) * scale * data.weight[i] + bias;
    }
  }
  CHECK(testing::RelativeError(result.residual, residual) < 1e-6);
  CHECK(testing::RelativeError(Floats(result.out), out) < testing::Tolerance(DType::kBfloat16));
}

TEST_CASE("All-reduce with residual and norm agrees with double precision", "[cuda][all_reduce]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t world = GENERATE(1u, 2u, 3u, 4u, 8u);
  const bool layer_norm = GENERATE(false, true);
  const auto [rows, hidden] = GENERATE(table<uint32_t, uint32_t>({{1, 8},
                                                                  {1, 576},
                                                                  {2, 576},
                                                                  {7, 576},
                                                                  {1, 4096},
                                                                  {2, 4096},
                                                                  {7, 4096},
                                                                  {64, 4096},
                                                                  {128, 4096},
                                                                  {1, 8192},
                                                                  {2, 8192},
                                                                  {7, 8192},
                                                                  {64, 8192},
                                                                  {128, 8192},
                                                                  {300, 576},
                                                                  {3, 16384},
                                                                  {130, 16384}}));
  if (world == 8 && testing::GpuCount() < 8) {
    return test::LeaveOut("peers", "eight ranks, GPUs: " + std::to_string(testing::GpuCount()));
  }
  if (!CanRun(world, rows)) return;
  CAPTURE(world, rows, hidden, layer_norm);
  // A row more than is used: nothing may be written there.
  PeerRig rig(world, rows + 1, hidden);
  Data data = RandomData(random, world, rows, hidden);
  // A mean that is large beside what lies beyond it.
  for (float& x : data.residual) x += layer_norm ? 30.0f : 0.0f;
  const auto params_of = [&](uint32_t rank, uint32_t call) {
    AllReduceParams params = rig.Params(rank, call, rows);
    params.layer_norm = layer_norm;
    if (layer_norm) params.bias = params.weight;
    return params;
  };
  UploadData(rig, data, 0);
  std::vector<Result> results = Run(rig, [&](uint32_t rank) { return params_of(rank, 0); });
  UploadData(rig, data, 1);
  // Rows that the ranks load from each other.
  const Result pulled = Run(rig, [&](uint32_t rank) { return WithoutMail(params_of(rank, 1)); })[0];
  CHECK(SameBits(pulled.residual, results[0].residual));
  CHECK(SameBits(pulled.out, results[0].out));
  const size_t size = size_t{rows} * hidden;
  for (Result& result : results) {
    CHECK(std::all_of(result.residual.begin() + size, result.residual.end(),
                      [](float x) { return x == 0; }));
    CHECK(std::all_of(result.out.begin() + size, result.out.end(),
                      [](__nv_bfloat16 x) { return std::isnan(__bfloat162float(x)); }));
    result.residual.resize(size);
    result.out.resize(size);
    CHECK(SameBits(result.residual, results[0].residual));
    CHECK(SameBits(result.out, results[0].out));
  }
  CheckAgainstReference(data, results[0], rows, hidden, 1e-5f, layer_norm);
}

TEST_CASE("A row's bits depend neither on the grid nor on other rows", "[cuda][all_reduce]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t world = 2;
  const uint32_t hidden = GENERATE(576u, 4096u, 8192u, 16384u);
  const uint32_t rows = 5;
  if (!CanRun(world, rows)) return;
  PeerRig rig(world, rows, hidden);
  const Data data = RandomData(random, world, rows, hidden);
  uint32_t call = 0;
  const auto run = [&](uint32_t ctas, uint32_t run_rows, bool normed) {
    UploadData(rig, data, call);
    const std::vector<Result> results = Run(rig, [&](uint32_t rank) {
      AllReduceParams params = rig.Params(rank, call, run_rows);
      params.ctas_per_row = ctas;
      if (!normed) params.weight = params.out = nullptr;
      // Mail wants one grid.
      return ctas != 0 ? WithoutMail(params) : params;
    });
    ++call;
    return results[1];
  };
  const Result expected = run(0, rows, true);
  for (const uint32_t ctas : {1, 2, 4, 8}) {
    CAPTURE(hidden, ctas);
    const Result result = run(ctas, rows, true);
    CHECK(SameBits(result.residual, expected.residual));
    CHECK(SameBits(result.out, expected.out));
    CHECK(SameBits(run(ctas, rows, false).residual, expected.residual));
  }
  Result one = run(0, 1, true);
  one.out.resize(hidden);
  CHECK(SameBits(one.out, {expected.out.begin(), expected.out.begin() + hidden}));
}

// -- many calls ----------------------------------------------------------------------------------

constexpr uint32_t kSets = 6;
constexpr uint32_t kManyHidden = 4096;
constexpr uint32_t kManyRows = 7;
// Different grids from call to call, all in one chain.
constexpr uint32_t RowsOfCall(uint32_t call) { return call % 3 == 0 ? 1 : call % 3 == 1 ? 7 : 2; }
// Of five calls one goes without mail.
constexpr bool GoesByMail(uint32_t call) { return call % 5 != 3; }

// Partial sums that differ from set to set and rank to rank: small whole numbers, so that any sum
// of them is exact and one value of a wrong set shows.
class ManyCalls {
 public:
  ManyCalls(PeerRig& rig, std::mt19937_64& random) : rig_(rig), sets_(rig.world()) {
    const size_t size = size_t{kManyRows} * kManyHidden;
    std::uniform_int_distribution<int> number(-8, 8);
    totals_.assign(kSets, std::vector<float>(size, 0.0f));
    rig_.ForEachRank([&](PeerRank& rank) {
      for (uint32_t s = 0; s < kSets; ++s) {
        std::vector<float> values(size);
        for (float& value : values) value = static_cast<float>(number(random));
        for (size_t i = 0; i < size; ++i) totals_[s][i] += values[i];
        sets_[rank.rank].push_back(
            std::make_unique<DeviceArray<__nv_bfloat16>>(testing::Halves(values)));
      }
      delays_.push_back(std::make_unique<DeviceArray<uint8_t>>(2 * kDelayBytes));
      WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    });
  }

  // What a layer would: a kernel writes this rank's partial sums, the next one adds all ranks'. Now
  // and then a rank is late.
  void Launch(uint32_t rank, uint32_t call, bool dependent, cudaStream_t stream) {
    if ((call * 2654435761u + rank * 40503u) >> 16 & 1) {
      GatherRowsParams delay;
      delay.in = delays_[rank]->data();
      delay.in_stride_bytes = kDelayRow;
      delay.out = delays_[rank]->data() + kDelayBytes;
      delay.rows = kDelayBytes / kDelayRow;
      delay.row_bytes = kDelayRow;
      WEFT_CUDA_CHECK(GatherRows(delay, stream));
    }
    GatherRowsParams write;
    write.in = sets_[rank][call % kSets]->data();
    write.in_stride_bytes = kManyHidden * 2;
    write.out = rig_.rank(rank).partial[call % 2]->data();
    write.rows = kManyRows;
    write.row_bytes = kManyHidden * 2;
    WEFT_CUDA_CHECK(GatherRows(write, stream));
    AllReduceParams params = rig_.Params(rank, call, RowsOfCall(call));
    if (!GoesByMail(call)) params = WithoutMail(params);
    params.dependent = dependent;
    WEFT_CUDA_CHECK(AllReduceAddNorm(params, stream));
  }

  // After calls 0 .. calls - 1, `times` times over.
  void Check(uint32_t calls, uint32_t times) {
    std::vector<float> expected(size_t{kManyRows} * kManyHidden, 0.0f);
    for (uint32_t call = 0; call < calls; ++call) {
      const size_t size = size_t{RowsOfCall(call)} * kManyHidden;
      for (size_t i = 0; i < size; ++i) expected[i] += times * totals_[call % kSets][i];
    }
    rig_.ForEachRank([&](PeerRank& rank) {
      CHECK(rank.host.Status() == kAllReduceOk);
      const std::vector<float> residual = rank.residual->Host();
      size_t wrong = 0;
      for (size_t i = 0; i < expected.size(); ++i) wrong += residual[i] != expected[i];
      CAPTURE(rank.rank);
      CHECK(wrong == 0);
    });
  }

 private:
  static constexpr uint32_t kDelayRow = 16384;
  static constexpr uint32_t kDelayBytes = 4u << 20;
  PeerRig& rig_;
  std::vector<std::vector<std::unique_ptr<DeviceArray<__nv_bfloat16>>>> sets_;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> delays_;
  // Sums over the ranks.
  std::vector<std::vector<float>> totals_;
};

TEST_CASE("A thousand all-reduces back to back, data changing", "[cuda][all_reduce]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t world = GENERATE(2u, 3u, 4u);
  const bool dependent = GENERATE(false, true);
  if (!CanRun(world, kManyRows)) return;
  CAPTURE(world, dependent);
  PeerRig rig(world, kManyRows, kManyHidden);
  ManyCalls many(rig, random);
  constexpr uint32_t kCalls = 1000;
  rig.OnEachRank([&](PeerRank& rank) {
    for (uint32_t call = 0; call < kCalls; ++call) {
      many.Launch(rank.rank, call, dependent, rank.stream);
      // A full queue could hold up the launches that it waits for, where ranks share a GPU.
      if (call % 200 == 199) WEFT_CUDA_CHECK(cudaStreamSynchronize(rank.stream));
    }
    WEFT_CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  });
  many.Check(kCalls, 1);
}

TEST_CASE("All-reduces in a replayed graph", "[cuda][all_reduce]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t world = GENERATE(2u, 4u);
  const bool dependent = GENERATE(false, true);
  if (!CanRun(world, kManyRows)) return;
  CAPTURE(world, dependent);
  PeerRig rig(world, kManyRows, kManyHidden);
  ManyCalls many(rig, random);
  constexpr uint32_t kCalls = 60;
  constexpr uint32_t kReplays = 20;
  std::vector<std::unique_ptr<testing::Graph>> graphs;
  rig.ForEachRank([&](PeerRank& rank) {
    graphs.push_back(std::make_unique<testing::Graph>([&](cudaStream_t stream) {
      for (uint32_t call = 0; call < kCalls; ++call) {
        many.Launch(rank.rank, call, dependent, stream);
      }
    }));
  });
  rig.OnEachRank([&](PeerRank& rank) {
    for (uint32_t i = 0; i < kReplays; ++i) graphs[rank.rank]->Launch(rank.stream);
    WEFT_CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  });
  many.Check(kCalls, kReplays);
}

// -- a rank that never comes ---------------------------------------------------------------------

// The first word that rank 0 writes into the other rank's memory.
const uint32_t* FirstWordTo(PeerRank& other, bool mails) {
  return mails ? other.mail[0]->data() + 1 : other.flags->data();
}

TEST_CASE("A peer that never comes keeps no kernel for ever", "[cuda][all_reduce]") {
  using Clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  const bool aborts = GENERATE(true, false);
  const bool mails = GENERATE(true, false);
  const uint32_t rows = GENERATE(1u, 4u);
  if (!CanRun(2, rows)) return;
  CAPTURE(aborts, mails, rows);
  PeerRig rig(2, rows, 4096);
  PeerRank& rank = rig.rank(0);
  PeerRank& other = rig.rank(1);
  const auto params_of = [&](uint32_t call) {
    return mails ? rig.Params(0, call, rows) : WithoutMail(rig.Params(0, call, rows));
  };
  WEFT_CUDA_CHECK(cudaSetDevice(rank.device));
  AllReduceParams params = params_of(0);
  params.wait_max_ns = aborts ? 5'000'000'000 : 30'000'000;
  const auto begin = Clock::now();
  WEFT_CUDA_CHECK(AllReduceAddNorm(params, rank.stream));
  if (aborts) {
    // It has told the other rank, and waits.
    uint32_t word = 0;
    while (word == 0 && Clock::now() - begin < milliseconds(1000)) {
      WEFT_CUDA_CHECK(
          cudaMemcpy(&word, FirstWordTo(other, mails), sizeof(word), cudaMemcpyDeviceToHost));
    }
    CHECK(word == 1);
    CHECK(cudaStreamQuery(rank.stream) == cudaErrorNotReady);
    rank.host.Abort();
  }
  WEFT_CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  const auto took = Clock::now() - begin;
  if (!aborts) CHECK(took > milliseconds(25));
  CHECK(took < milliseconds(2000));
  CHECK(rank.host.Status() == (aborts ? kAllReduceAborted : kAllReduceTimedOut));

  // From now on nothing waits, and no other rank's memory is touched.
  rank.host.Clear();
  WEFT_CUDA_CHECK(cudaSetDevice(other.device));
  const std::vector<uint32_t> mail[] = {other.mail[0]->Host(), other.mail[1]->Host()};
  WEFT_CUDA_CHECK(cudaSetDevice(rank.device));
  const auto later = Clock::now();
  for (uint32_t call = 1; call <= 100; ++call) {
    WEFT_CUDA_CHECK(AllReduceAddNorm(params_of(call), rank.stream));
  }
  WEFT_CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  CHECK(Clock::now() - later < milliseconds(1000));
  WEFT_CUDA_CHECK(cudaSetDevice(other.device));
  for (const uint32_t flag : other.flags->Host()) REQUIRE(flag <= 1);
  for (const size_t i : {0, 1}) CHECK(SameBits(other.mail[i]->Host(), mail[i]));
}

TEST_CASE("What the header forbids is refused", "[cuda][all_reduce]") {
  if (!CanRun(2, 1)) return;
  PeerRig rig(1, 1, 64);
  const AllReduceParams good = rig.Params(0, 0, 1);
  const auto refused = [&](const std::function<void(AllReduceParams&)>& change) {
    AllReduceParams params = good;
    change(params);
    return AllReduceAddNorm(params, nullptr) == cudaErrorInvalidValue;
  };
  CHECK(refused([](AllReduceParams& params) { params.world = 0; }));
  CHECK(refused([](AllReduceParams& params) { params.world = 9; }));
  CHECK(refused([](AllReduceParams& params) { params.rank = 1; }));
  CHECK(refused([](AllReduceParams& params) { params.hidden = 12; }));
  CHECK(refused([](AllReduceParams& params) { params.hidden = 16392; }));
  CHECK(refused([](AllReduceParams& params) { params.ctas_per_row = 3; }));
  CHECK(refused([](AllReduceParams& params) { params.ctas_per_row = 16; }));
  CHECK(refused([](AllReduceParams& params) { params.partial[0] = nullptr; }));
  PeerRig two(2, 1, 64);
  AllReduceParams half = two.Params(0, 0, 1);
  half.mail[1] = nullptr;
  CHECK(AllReduceAddNorm(half, nullptr) == cudaErrorInvalidValue);
  CHECK(refused([](AllReduceParams& params) { params.out = nullptr; }));
  CHECK(refused([](AllReduceParams& params) { params.state = nullptr; }));
  AllReduceParams none = good;
  none.rows = 0;
  CHECK(AllReduceAddNorm(none, nullptr) == cudaSuccess);
}

}  // namespace
}  // namespace weft::kernels::cuda
