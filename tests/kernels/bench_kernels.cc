// Speed of the CPU kernels on shapes of a 135M-parameter model, as microseconds, GB/s or GFLOP/s
// and as share of what the machine does in the same run: read bandwidth, and for products the peak
// of the dot-product instruction. Medians; run it on a quiet machine.
//
//   weft_kernels_bench [--isa NAME] [--threads N] [--only linear|attention|rows] [--types A,B,..]
//
// --types compares weight formats by their names, with inputs rounded up to 256 for all of them.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/support.h"

namespace weft::kernels::cpu::testing {
namespace {

// CPU seconds of this thread.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Runs work(thread) on all threads at once, after a common start; CPU seconds of the busiest.
class Team {
 public:
  explicit Team(int threads) : threads_(threads), seconds_(static_cast<size_t>(threads)) {
    for (int t = 1; t < threads; ++t) {
      helpers_.emplace_back([this, t] { Help(t); });
    }
  }
  ~Team() {
    stop_ = true;
    generation_.fetch_add(1);
    for (std::thread& helper : helpers_) helper.join();
  }
  int threads() const { return threads_; }

  double Run(const std::function<void(int)>& work) {
    work_ = &work;
    done_ = 0;
    generation_.fetch_add(1);
    Timed(0);
    while (done_.load() < threads_ - 1) {
    }
    return *std::max_element(seconds_.begin(), seconds_.end());
  }

  double Median(int repeats, const std::function<void(int)>& work) {
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) times.push_back(Run(work));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  void Timed(int thread) {
    const double start = Now();
    (*work_)(thread);
    seconds_[static_cast<size_t>(thread)] = Now() - start;
  }

  void Help(int thread) {
    for (uint64_t seen = 0;;) {
      while (generation_.load() == seen) {
      }
      ++seen;
      if (stop_) return;
      Timed(thread);
      done_.fetch_add(1);
    }
  }

  int threads_;
  std::vector<double> seconds_;
  std::vector<std::thread> helpers_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* work_ = nullptr;
};

// A part of [0, count) for each thread.
struct Part {
  int64_t begin;
  int64_t end;
};
Part PartOf(int64_t count, int thread, int threads) {
  return {count * thread / threads, count * (thread + 1) / threads};
}

// Reads `bytes` in order, prefetching 8 KiB ahead (faster here than without), one 64-bit word of
// each of the four quarters of a cache line; GB/s.
double ReadBandwidth(Team& team, const Aligned& memory, int64_t bytes) {
  std::atomic<uint64_t> sink{0};
  const double seconds = team.Median(15, [&](int thread) {
    const Part part = PartOf(bytes / 64, thread, team.threads());
    uint64_t sums[4] = {};
    for (int64_t i = part.begin; i < part.end; ++i) {
      const uint64_t* p = memory.as<uint64_t>() + 8 * i;
      __builtin_prefetch(p + 1024);
      for (int j = 0; j < 4; ++j) sums[j] += p[2 * j];
    }
    for (const uint64_t sum : sums) sink += sum;
  });
  return static_cast<double>(bytes) / seconds * 1e-9;
}

struct Shape {
  const char* name;
  int64_t outputs;
  int64_t inputs;
};

// The matrices of one layer.
const Shape kLayer[] = {{"q", 576, 576},     {"k", 192, 576},   {"v", 192, 576},    {"o", 576, 576},
                        {"gate", 1536, 576}, {"up", 1536, 576}, {"down", 576, 1536}};
constexpr int kLayers = 30;

// All matrices of a model in one piece of memory, beyond the caches.
struct Model {
  WeightType type;
  Aligned memory;
  std::vector<PackedMatrix> matrices;
  int64_t bytes = 0;
  int64_t weights = 0;
};

Model MakeModel(WeightType type, int64_t multiple) {
  int64_t total = 0;
  std::vector<Shape> shapes(std::begin(kLayer), std::end(kLayer));
  for (Shape& s : shapes) {
    s.inputs = (s.inputs + multiple - 1) / multiple * multiple;
    total += kLayers * PackedBytes(type, s.outputs, s.inputs);
  }
  Model model{type, Aligned(total), {}};
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Shape& s : shapes) {
      const TestMatrix one = RandomMatrix(type, s.outputs, s.inputs, 1);
      uint8_t* at = model.memory.bytes() + model.bytes;
      const int64_t bytes = PackedBytes(type, s.outputs, s.inputs);
      std::memcpy(at, one.packed.bytes(), static_cast<size_t>(bytes));
      model.matrices.push_back({type, s.outputs, s.inputs, at});
      model.bytes += bytes;
      model.weights += s.outputs * s.inputs;
    }
  }
  return model;
}

// One pass over all matrices; every thread takes its part of the tiles of each.
double LinearPass(Team& team, const Kernels& kernels, const std::vector<PackedMatrix>& matrices,
                  ActivationType wanted, int64_t rows, int repeats) {
  int64_t outputs_max = 0;
  std::vector<TestActivations> x;
  std::vector<size_t> x_of;
  for (const PackedMatrix& m : matrices) {
    outputs_max = std::max(outputs_max, m.outputs);
    size_t i = 0;
    while (i < x.size() && x[i].view.inputs != m.inputs) ++i;
    if (i == x.size()) {
      const std::vector<float> values = RandomFloats(rows * m.inputs, 2);
      x.push_back(Prepare(kernels, ActivationFor(m.type, wanted), values.data(), rows, m.inputs));
    }
    x_of.push_back(i);
  }
  std::vector<float> y(static_cast<size_t>(rows * outputs_max));
  return team.Median(repeats, [&](int thread) {
    for (size_t i = 0; i < matrices.size(); ++i) {
      const PackedMatrix& m = matrices[i];
      const Part part = PartOf(TileCount(m.outputs), thread, team.threads());
      kernels.linear(m, x[x_of[i]].view, part.begin, part.end, y.data(), m.outputs);
    }
  });
}

void BenchLinear(Team& team, const Kernels& kernels, WeightType type, ActivationType activation,
                 const std::vector<int64_t>& row_counts, int64_t multiple) {
  const Model model = MakeModel(type, multiple);
  const double read = ReadBandwidth(team, model.memory, model.bytes);
  std::printf("linear %-5s %s, %d layers, %.1f MB; read bandwidth of the same bytes %.1f GB/s\n",
              TypeName(type),
              ActivationFor(type, activation) == ActivationType::kBf16 ? "bf16" : "f32", kLayers,
              static_cast<double>(model.bytes) * 1e-6, read);
  for (const int64_t rows : row_counts) {
    const int repeats = rows > 100 ? 3 : 15;
    const double s = LinearPass(team, kernels, model.matrices, activation, rows, repeats);
    const double gb = static_cast<double>(model.bytes) / s * 1e-9;
    const double gflop = 2.0 * static_cast<double>(model.weights * rows) / s * 1e-9;
    std::printf("  rows %4ld  %9.0f us  %6.1f GB/s (%3.0f %% of read)  %7.1f GFLOP/s\n",
                static_cast<long>(rows), s * 1e6, gb, 100.0 * gb / read, gflop);
  }
}

void BenchHead(Team& team, const Kernels& kernels) {
  const TestMatrix head = RandomMatrix(WeightType::kQ8_0, 49152, 576, 1);
  const double read = ReadBandwidth(team, head.packed, head.packed.size());
  std::printf("head Q8_0 49152 x 576; read bandwidth of the same bytes %.1f GB/s\n", read);
  for (const int64_t rows : {1, 8, 32}) {
    const double s = LinearPass(team, kernels, {head.view()}, ActivationType::kBf16, rows, 9);
    const double gb = static_cast<double>(head.packed.size()) / s * 1e-9;
    std::printf("  rows %4ld  %9.0f us  %6.1f GB/s (%3.0f %% of read)  %7.1f GFLOP/s\n",
                static_cast<long>(rows), s * 1e6, gb, 100.0 * gb / read,
                2.0 * 49152 * 576 * static_cast<double>(rows) / s * 1e-9);
  }
}

// `rows` rows at the end of a context in every layer: 9 query heads on 3 KV heads of 64.
void BenchAttention(Team& team, const Kernels& kernels, int64_t context, int64_t rows) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kKvHeads = 3;
  const int64_t blocks = (context + 15) / 16;
  const int64_t block_bytes = kKvHeads * KvHeadBlockBytes(KvType::kBf16, kDim);
  const Aligned k_pool(kLayers * blocks * block_bytes);
  const Aligned v_pool(kLayers * blocks * block_bytes);
  std::vector<uint32_t> ids(static_cast<size_t>(blocks));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i);
  const std::vector<float> kv_rows = RandomFloats(context * kKvHeads * kDim, 5);
  const std::vector<float> q = RandomFloats(rows * 9 * kDim, 6);
  std::vector<float> out(q.size());
  const auto view = [&](int layer) {
    return KvBlocks{KvType::kBf16,
                    kDim,
                    kKvHeads,
                    k_pool.bytes() + layer * blocks * block_bytes,
                    v_pool.bytes() + layer * blocks * block_bytes,
                    block_bytes,
                    ids.data()};
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    kernels.kv_append(view(layer), 0, context, kv_rows.data(), kKvHeads * kDim, kv_rows.data(),
                      kKvHeads * kDim);
  }
  std::vector<Aligned> scratch;
  for (int t = 0; t < team.threads(); ++t) scratch.emplace_back(AttentionScratchBytes(kDim));
  const uint32_t heads[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const double s = team.Median(rows > 1 ? 3 : 9, [&](int thread) {
    const Part part = PartOf(kLayers * kKvHeads, thread, team.threads());
    for (int64_t item = part.begin; item < part.end; ++item) {
      const int64_t h = item % kKvHeads;
      AttentionWork work;
      work.kv = view(static_cast<int>(item / kKvHeads));
      work.kv_head = h;
      work.heads = heads + 3 * h;
      work.head_count = 3;
      work.query = q.data();
      work.query_stride = 9 * kDim;
      work.out = out.data();
      work.out_stride = 9 * kDim;
      work.rows = rows;
      work.start = context - rows;
      work.scale = 0.125f;
      kernels.attention(work, scratch[static_cast<size_t>(thread)].bytes());
    }
  });
  const double positions = static_cast<double>(rows) *
                           (static_cast<double>(context) - 0.5 * static_cast<double>(rows - 1));
  const double gflop = positions * kLayers * 9 * kDim * 4 / s * 1e-9;
  std::printf("attention context %5ld rows %4ld  %9.0f us  %6.3f us per position  %6.1f GFLOP/s",
              static_cast<long>(context), static_cast<long>(rows), s * 1e6, s * 1e6 / positions,
              gflop);
  if (rows == 1) std::printf("  %5.1f GB/s", positions * 23040 / s * 1e-9);
  std::printf("\n");
}

void Report(const char* name, double seconds, double bytes) {
  std::printf("%-34s %9.2f us  %6.1f GB/s\n", name, seconds * 1e6, bytes / seconds * 1e-9);
}

void BenchRows(const Kernels& kernels) {
  Team alone(1);
  const int64_t vocab = 49152;
  std::vector<float> x = RandomFloats(vocab, 3);
  std::vector<float> y(x.size());
  std::vector<TokenScore> top(64);
  const double bytes = static_cast<double>(vocab) * 4;
  volatile float keep = 0.0f;
  Report("arg_max 49152",
         alone.Median(21, [&](int) { keep = kernels.arg_max(x.data(), vocab, 0).score; }), bytes);
  Report("gumbel_arg_max 49152",
         alone.Median(
             21, [&](int) { keep = kernels.gumbel_arg_max(x.data(), vocab, 0, 0.8f, 1, 2).score; }),
         bytes);
  Report(
      "exp_sum 49152",
      alone.Median(21, [&](int) { keep = kernels.exp_sum(x.data(), vocab, 4.0f, 0.8f, y.data()); }),
      bytes);
  Report("top_n 49152, n = 50",
         alone.Median(21, [&](int) { kernels.top_n(x.data(), vocab, 0, 50, top.data()); }), bytes);
  Report("rms_norm 64 x 576",
         alone.Median(21,
                      [&](int) {
                        kernels.rms_norm(x.data(), 576, x.data(), 1e-5f, 576, 64, y.data(), 576);
                      }),
         64 * 576 * 4.0);
  Report("silu_multiply 32 x 1536",
         alone.Median(21, [&](int) { kernels.silu_multiply(x.data(), x.data(), vocab, y.data()); }),
         bytes * 2);
  const Aligned values(64 * ActivationRowBytes(576));
  const Aligned sums(64 * BlockSumCount(576) * 4);
  const Activations view{ActivationType::kBf16, 64, 576, values.bytes(), sums.as<float>()};
  Report("prepare_activations 64 x 576",
         alone.Median(21, [&](int) { kernels.prepare_activations(x.data(), 576, 0, 64, view); }),
         64 * 576 * 4.0);
  for (const WeightType type : AllWeightTypes()) {
    TestMatrix matrix = RandomMatrix(type, 1536, 576, 1);
    const std::string name = std::string("pack 1536 x 576 ") + TypeName(type);
    Report(name.c_str(), alone.Median(9, [&](int) { Pack(matrix); }),
           static_cast<double>(matrix.source.size()));
  }
  const Aligned pool(32 * 3 * KvHeadBlockBytes(KvType::kBf16, 64));
  uint32_t ids[32];
  for (uint32_t i = 0; i < 32; ++i) ids[i] = i;
  const KvBlocks kv{KvType::kBf16,
                    64,
                    3,
                    pool.bytes(),
                    pool.bytes(),
                    3 * KvHeadBlockBytes(KvType::kBf16, 64),
                    ids};
  Report(
      "kv_append 256 x 3 x 64",
      alone.Median(21, [&](int) { kernels.kv_append(kv, 0, 256, x.data(), 192, x.data(), 192); }),
      256 * 192 * 8.0);
}

int Main(int argc, char** argv) {
  Isa isa = BestIsa();
  int threads = 2;
  std::string only;
  std::string types;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--isa" && (!ParseIsa(argv[i + 1], &isa) || !IsSupported(isa))) return 2;
    if (flag == "--threads") threads = std::stoi(argv[i + 1]);
    if (flag == "--only") only = argv[i + 1];
    if (flag == "--types") types = std::string(argv[i + 1]) + ",";
  }
  const Kernels& kernels = KernelsFor(isa);
  Team team(threads);
  std::printf("%s, %d threads\n", IsaName(isa), threads);
  if (!types.empty()) {
    for (const WeightType type : AllWeightTypes()) {
      if (types.find(std::string(TypeName(type)) + ",") == std::string::npos) continue;
      BenchLinear(team, kernels, type, ActivationType::kBf16, {1, 4, 32, 512}, 256);
    }
    return 0;
  }
  if (only.empty() || only == "linear") {
    const std::vector<int64_t> rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 512};
    BenchLinear(team, kernels, WeightType::kQ4_1, ActivationType::kBf16, rows, 32);
    BenchHead(team, kernels);
    BenchLinear(team, kernels, WeightType::kBf16, ActivationType::kBf16, rows, 32);
    BenchLinear(team, kernels, WeightType::kQ4_1, ActivationType::kF32, rows, 32);
  }
  if (only.empty() || only == "attention") {
    BenchAttention(team, kernels, 2048, 1);
    BenchAttention(team, kernels, 8192, 1);
    BenchAttention(team, kernels, 512, 512);
    BenchAttention(team, kernels, 2048, 256);
  }
  if (only.empty() || only == "rows") BenchRows(kernels);
  return 0;
}

}  // namespace
}  // namespace weft::kernels::cpu::testing

int main(int argc, char** argv) { return weft::kernels::cpu::testing::Main(argc, argv); }
