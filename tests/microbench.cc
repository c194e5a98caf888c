// Speed of the host kernels one by one, against the limits of this machine measured at the start: matrix products of
// every packing at decode (weights from memory) and prefill, attention, delta rule, quantisation.
// baton_microbench [--threads=N] [--set=avx512] [Google Benchmark's flags]. Rates are of wall time and all threads.
//   GB/s    bytes of weights, keys and values, or state that must be read (state: and written)
//   GOP/s   multiplies and adds of the formula; a kernel may need more to do them
// A row's "% of read" is of reading a buffer of the same size, "% of peak" of the arithmetic its kernel set uses.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "baton/base/thread_pool.h"
#include "baton/bench/limits.h"
#include "baton/quant/format.h"
#include "baton/quant/samples_test.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/memory.h"
#include "baton/unit/host/operands.h"
#include "baton/unit/host/pack.h"

namespace baton::host {
namespace {

// What all benchmarks share. Memory is kept, so that pages are cleared once.
struct Bench {
  Bench(const Kernels& set, uint32_t threads) : kernels(set), pool(threads), limits(threads) {}
  const Kernels& kernels;
  ThreadPool pool;
  Limits limits;
  Memory weights, scratch;
};

bool grow(benchmark::State& state, Memory& memory, size_t bytes) {
  if (memory.bytes() >= bytes) return true;
  memory = {};
  auto allocated = Memory::allocate(bytes, "a benchmark", "microbench");
  if (!allocated) {
    state.SkipWithError(allocated.error().message.c_str());
    return false;
  }
  memory = *std::move(allocated);
  return true;
}

std::vector<float> normal_values(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

// Runs `body` as often as the library asks; then counts bytes and operations of one iteration, 0: not counted. Rates
// are plain numbers of our own clock: the library writes "/s" behind its own, percentages too.
template <class Body>
void measure(benchmark::State& state, Bench& bench, double bytes, double operations, Packing packing, Body body) {
  const SteadyClock clock;
  int64_t start_ns = 0;
  for (auto iteration : state) {
    static_cast<void>(iteration);
    if (start_ns == 0) start_ns = clock.now_ns();
    body();
    benchmark::ClobberMemory();
  }
  const double seconds = ms_between(start_ns, clock.now_ns()) / 1e3 / static_cast<double>(state.iterations());
  if (bytes > 0) {
    state.counters["GB/s"] = bytes / seconds * 1e-9;
    if (const auto limit = bench.limits.read(static_cast<uint64_t>(bytes)))
      state.counters["% of read"] = 100 * bytes / seconds / limit->median;
  }
  if (operations > 0) {
    state.counters["GOP/s"] = operations / seconds * 1e-9;
    if (const auto limit = bench.limits.arithmetic(arithmetic_of(bench.kernels, packing)))
      state.counters["% of peak"] = 100 * operations / seconds / limit->median;
  }
}

// A packed matrix: a few panels of encoded random values, repeated.
bool fill_matrix(benchmark::State& state, Bench& bench, const Format& format, Matrix& matrix) {
  const int64_t panels = std::min<int64_t>(4, matrix.panels);
  const auto columns = static_cast<size_t>(matrix.columns);
  Random random(3);
  const std::vector<float> values = normal_values(static_cast<size_t>(panels * kLanes) * columns, 3);
  const std::vector<std::byte> encoded = blocks_like(format, values, random);
  if (!grow(state, bench.weights, static_cast<size_t>(matrix_bytes(matrix)))) return false;
  unsigned char* const data = bench.weights.data();
  std::vector<float> scratch(columns);
  pack_panels(matrix, format.dtype, encoded.data(), 0, panels, data, scratch.data());
  bench.pool.parallel_for(matrix.panels, 64, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t panel = std::max(first, panels); panel < last; ++panel) {
      std::memcpy(data + panel * matrix.panel_bytes, data + panel % panels * matrix.panel_bytes,
                  static_cast<size_t>(matrix.panel_bytes));
    }
  });
  matrix.data = data;
  return true;
}

void matmul(benchmark::State& state, Bench& bench, const Format& format, int64_t tokens, int64_t rows,
            int64_t columns) {
  Matrix matrix = matrix_shape(format.dtype, rows, columns);
  const int64_t scratch_bytes = round_up(matmul_scratch_bytes(columns), 4096);
  if (!fill_matrix(state, bench, format, matrix) ||
      !grow(state, bench.scratch, static_cast<size_t>(scratch_bytes) * bench.pool.size()))
    return;
  const std::vector<float> x = normal_values(static_cast<size_t>(tokens * columns), 5);
  Result<Operands> operands = Operands::create(bench.kernels, tokens, columns, "bench");
  if (!operands) {
    state.SkipWithError(operands.error().message.c_str());
    return;
  }
  Activations a = Operands::floats(x.data(), columns);
  if (is_integer(matrix.packing)) {
    for (int64_t t = 0; t < tokens; ++t) {
      operands->make({.integers = true}, t, 0, x.data() + t * columns, columns, false);
    }
    a = operands->integers(0, tokens, columns, bench.pool);
  }
  std::vector<float> out(static_cast<size_t>(tokens * rows));
  const MultiplyFunction function = function_of(bench.kernels, matrix.packing, a.form);
  const int64_t tile = bench.kernels.panels_per_tile;
  const int64_t grain = std::max<int64_t>(1, matrix.panels / tile / (8 * bench.pool.size())) * tile;
  const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(columns * tokens);
  measure(state, bench, tokens == 1 ? static_cast<double>(matrix_bytes(matrix)) : 0, operations, matrix.packing, [&] {
    bench.pool.parallel_for(matrix.panels, grain, [&](int64_t first, int64_t last, uint32_t thread) {
      function({&matrix, first, last, a, tokens, out.data(), rows, false,
                bench.scratch.data() + static_cast<int64_t>(thread) * scratch_bytes});
    });
  });
}

void quantize(benchmark::State& state, Bench& bench, int64_t tokens, int64_t columns) {
  const std::vector<float> x = normal_values(static_cast<size_t>(tokens * columns), 5);
  Result<Operands> operands = Operands::create(bench.kernels, tokens, columns, "bench");
  if (!operands) {
    state.SkipWithError(operands.error().message.c_str());
    return;
  }
  measure(state, bench, static_cast<double>(tokens * columns) * sizeof(float), 0, Packing::kF32, [&] {
    bench.pool.parallel_for(tokens, 16, [&](int64_t first, int64_t last, uint32_t) {
      for (int64_t t = first; t < last; ++t) {
        operands->make({.integers = true}, t, 0, x.data() + t * columns, columns, false);
      }
    });
  });
}

// Heads of one layer, 16 of 128 x 128 as in Qwen3.5-0.8B; `layers` states so that they come from where a pass finds
// them.
void delta(benchmark::State& state, Bench& bench, int64_t tokens, int64_t layers) {
  constexpr int64_t kHeads = 16, kDim = 128;
  const int64_t width = kHeads * kDim, states = kHeads * layers;
  const int64_t scratch_bytes = round_up(delta_scratch_floats(kDim, kDim) * 4, 4096);
  if (!grow(state, bench.weights, static_cast<size_t>(states * kDim * kDim) * sizeof(float)) ||
      !grow(state, bench.scratch, static_cast<size_t>(scratch_bytes) * bench.pool.size()))
    return;
  const auto size = static_cast<size_t>(tokens * width);
  const std::vector<float> q = normal_values(size, 1), k = normal_values(size, 2), v = normal_values(size, 3);
  const std::vector<float> decay(static_cast<size_t>(tokens), -0.1f), beta(static_cast<size_t>(tokens), 0.5f);
  std::vector<float> out(size);
  std::fill_n(bench.weights.floats(), states * kDim * kDim, 0.0f);
  const auto function = tokens == 1 ? bench.kernels.delta_recurrent : bench.kernels.delta_chunked;
  // S^T k, its rank-one change, and S^T q: 6 operations for each element of the state and token, and the decay.
  const auto elements = static_cast<double>(states * kDim * kDim);
  measure(state, bench, tokens == 1 ? 8 * elements : 0, 7 * elements * static_cast<double>(tokens), Packing::kF32, [&] {
    bench.pool.parallel_for(states, 1, [&](int64_t item, int64_t, uint32_t thread) {
      const int64_t head = item % kHeads;
      DeltaHead h{};
      h.q = q.data() + head * kDim;
      h.k = k.data() + head * kDim;
      h.v = v.data() + head * kDim;
      h.x_stride = width;
      h.log_decay = decay.data();
      h.beta = beta.data();
      h.gate_stride = 1;
      h.tokens = tokens;
      h.key_dim = h.value_dim = kDim;
      h.eps = 1e-6f;
      h.state = bench.weights.floats() + item * kDim * kDim;
      h.out = out.data() + head * kDim;
      h.out_stride = width;
      h.scratch = reinterpret_cast<float*>(bench.scratch.data() + static_cast<int64_t>(thread) * scratch_bytes);
      function(h);
    });
  });
}

// 8 query heads on 2 kv heads of 256, six layers, as in Qwen3.5-0.8B.
constexpr int64_t kKvHeads = 2, kGroups = 4, kHeadDim = 256, kLayers = 6;

constexpr uint64_t kStripe = uint64_t{kPageTokens} * kHeadDim * sizeof(uint16_t);

// Pages of keys and values of `heads` heads, small f16 numbers. Empty: no memory.
std::vector<const unsigned char*> make_pages(benchmark::State& state, Bench& bench, int64_t heads, int64_t tokens) {
  const auto count = static_cast<uint64_t>((tokens + kPageTokens - 1) / kPageTokens);
  const uint64_t stripes = 2 * static_cast<uint64_t>(heads);
  if (!grow(state, bench.weights, count * stripes * kStripe)) return {};
  const std::vector<float> values = normal_values(kPageTokens * kHeadDim, 7);
  std::vector<const unsigned char*> pages;
  for (uint64_t i = 0; i < count * stripes; ++i) {
    unsigned char* const at = bench.weights.data() + i * kStripe;
    bench.kernels.to_f16(values.data(), kPageTokens * kHeadDim, reinterpret_cast<uint16_t*>(at));
    if (i % stripes == 0) pages.push_back(at);
  }
  return pages;
}
KeyPages pages_of(const std::vector<const unsigned char*>& pages, int64_t head) {
  const auto stripe = 2 * static_cast<uint64_t>(head);
  return {pages.data(), stripe * kStripe, (stripe + 1) * kStripe, kHeadDim};
}

void attend_decode(benchmark::State& state, Bench& bench, int64_t tokens) {
  constexpr int64_t kHeads = kKvHeads * kLayers, kPiece = 256;
  const auto pages = make_pages(state, bench, kHeads, tokens);
  if (pages.empty()) return;
  const std::vector<float> q = normal_values(kGroups * kHeadDim, 1);
  const int64_t pieces = (tokens + kPiece - 1) / kPiece;
  std::vector<float> out(static_cast<size_t>(kHeads * pieces * kGroups * (kHeadDim + 2)));
  const auto pairs = static_cast<double>(kHeads * tokens);
  measure(state, bench, pairs * kHeadDim * 4, pairs * kGroups * kHeadDim * 4, Packing::kF32, [&] {
    bench.pool.parallel_for(kHeads * pieces, 1, [&](int64_t item, int64_t, uint32_t) {
      const int64_t head = item / pieces, first = item % pieces * kPiece;
      AttendDecode a{};
      a.q = q.data();
      a.q_stride = kHeadDim;
      a.keys = pages_of(pages, head);
      a.first = first;
      a.tokens = std::min(kPiece, tokens - first);
      a.groups = kGroups;
      a.scale = 1.0f / 16;
      a.out = out.data() + item * kGroups * (kHeadDim + 2);
      a.highest = a.out + kGroups * kHeadDim;
      a.sum = a.highest + kGroups;
      bench.kernels.attend_decode(a);
    });
  });
}

void attend_prefill(benchmark::State& state, Bench& bench, int64_t start, int64_t queries) {
  constexpr int64_t kQueries = 16;  // per call
  const int64_t tokens = start + queries, width = kKvHeads * kGroups * kHeadDim;
  const int64_t scratch_bytes = round_up(attend_scratch_floats(kQueries * kGroups, kHeadDim) * 4, 4096);
  const auto pages = make_pages(state, bench, kKvHeads, tokens);
  if (pages.empty() || !grow(state, bench.scratch, static_cast<size_t>(scratch_bytes) * bench.pool.size())) return;
  const std::vector<float> q = normal_values(static_cast<size_t>(queries * width), 1);
  std::vector<float> out(static_cast<size_t>(queries * width));
  const int64_t blocks = (queries + kQueries - 1) / kQueries;
  // Query t sees start + t + 1 keys: a product with each, and one with each value.
  const double seen =
      static_cast<double>(queries) * (static_cast<double>(start) + (static_cast<double>(queries) + 1) / 2);
  measure(state, bench, 0, seen * kKvHeads * kGroups * kHeadDim * 4, Packing::kF32, [&] {
    bench.pool.parallel_for(blocks * kKvHeads, 1, [&](int64_t item, int64_t, uint32_t thread) {
      const int64_t head = item % kKvHeads, first = (blocks - 1 - item / kKvHeads) * kQueries;
      AttendPrefill a{};
      a.q = q.data() + first * width + head * kGroups * kHeadDim;
      a.q_stride = width;
      a.keys = pages_of(pages, head);
      a.start = start + first;
      a.queries = std::min(kQueries, queries - first);
      a.groups = kGroups;
      a.scale = 1.0f / 16;
      a.out = out.data() + first * width + head * kGroups * kHeadDim;
      a.out_stride = width;
      a.scratch = reinterpret_cast<float*>(bench.scratch.data() + static_cast<int64_t>(thread) * scratch_bytes);
      bench.kernels.attend_prefill(a);
    });
  });
}

void norm(benchmark::State& state, Bench& bench, int64_t tokens, int64_t columns) {
  const std::vector<float> x = normal_values(static_cast<size_t>(tokens * columns), 5);
  const std::vector<float> w = normal_values(static_cast<size_t>(columns), 6);
  std::vector<float> out(x.size());
  measure(state, bench, static_cast<double>(tokens * columns) * sizeof(float), 0, Packing::kF32, [&] {
    bench.pool.parallel_for(tokens, 16, [&](int64_t first, int64_t last, uint32_t) {
      for (int64_t t = first; t < last; ++t)
        bench.kernels.rms_norm(x.data() + t * columns, w.data(), 1e-6f, columns, out.data() + t * columns);
    });
  });
}

template <class Function>
void add(const std::string& name, Function function) {
  benchmark::RegisterBenchmark(name.c_str(), function)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

// Stored types, one for each packing: a type that shares another's packing is the same kernel.
std::vector<const Format*> formats_by_packing() {
  std::vector<const Format*> found;
  std::vector<bool> seen(kPackings);
  for (const Format& format : formats()) {
    const auto packing = static_cast<size_t>(packing_of(format.dtype));
    if (!is_native(format.dtype) || seen[packing]) continue;
    seen[packing] = true;
    found.push_back(&format);
  }
  return found;
}

void add_all(Bench& bench) {
  constexpr int64_t kHidden = 2048, kTokens = 512;
  const std::vector<const Format*> formats = formats_by_packing();
  for (const Format* format : formats) {  // as many rows as take the weights out of every cache
    const Matrix panel = matrix_shape(format->dtype, kLanes, kHidden);
    const int64_t rows = static_cast<int64_t>(Limits::memory_bytes()) / panel.panel_bytes * kLanes;
    add(fmt::format("decode/{}/memory", format->name),
        [&bench, format, rows](benchmark::State& s) { matmul(s, bench, *format, 1, rows, kHidden); });
  }
  for (const Format* format : formats) {  // in the first two caches of each thread's core
    add(fmt::format("decode/{}/cache", format->name), [&bench, format](benchmark::State& s) {
      matmul(s, bench, *format, 1, 32 * kLanes * bench.pool.size(), kHidden / 4);
    });
  }
  // Steps of several sequences, weights from memory.
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const Matrix panel = matrix_shape(dtype, kLanes, kHidden / 2);
    const int64_t rows = static_cast<int64_t>(Limits::memory_bytes()) / panel.panel_bytes * kLanes;
    for (const int64_t tokens : {2, 4, 8, 12, 16, 32, 64}) {
      add(fmt::format("step/{}/{}", format_of(dtype).name, tokens), [&bench, dtype, rows, tokens](benchmark::State& s) {
        matmul(s, bench, format_of(dtype), tokens, rows, kHidden / 2);
      });
    }
  }
  for (const Format* format : formats) {
    add(fmt::format("prefill/{}/{}", format->name, kTokens),
        [&bench, format](benchmark::State& s) { matmul(s, bench, *format, kTokens, kHidden, kHidden); });
  }
  add("quantize/512x2048", [&bench](benchmark::State& s) { quantize(s, bench, kTokens, kHidden); });
  add("quantize/1x2048", [&bench](benchmark::State& s) { quantize(s, bench, 1, kHidden); });
  add("rms_norm/512x2048", [&bench](benchmark::State& s) { norm(s, bench, kTokens, kHidden); });
  add("delta/decode", [&bench](benchmark::State& s) { delta(s, bench, 1, 18); });
  add("delta/prefill", [&bench](benchmark::State& s) { delta(s, bench, kTokens, 1); });
  add("attend/decode/1024", [&bench](benchmark::State& s) { attend_decode(s, bench, 1024); });
  add("attend/decode/8192", [&bench](benchmark::State& s) { attend_decode(s, bench, 8192); });
  add("attend/prefill/512", [&bench](benchmark::State& s) { attend_prefill(s, bench, 0, kTokens); });
  add("attend/prefill/512@8192", [&bench](benchmark::State& s) { attend_prefill(s, bench, 8192, kTokens); });
}

// The value of --name=, taken out of the arguments; empty when it is not there.
std::string take_flag(int& argc, char** argv, std::string_view name) {
  std::string value;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(name)) {
      value = argument.substr(name.size());
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return value;
}

std::string rate_text(const Rate& rate) {
  return fmt::format("{:.1f} G/s ({:.1f} to {:.1f})", rate.median * 1e-9, rate.low * 1e-9, rate.high * 1e-9);
}

void add_limits(Limits& limits, const Kernels& kernels) {
  if (const auto rate = limits.read(Limits::memory_bytes()))
    benchmark::AddCustomContext(rate->what + ", bytes", rate_text(*rate));
  for (const Packing packing : {Packing::kF32, Packing::kQ8_0}) {
    if (const auto rate = limits.arithmetic(arithmetic_of(kernels, packing)))
      benchmark::AddCustomContext(rate->what + ", operations", rate_text(*rate));
  }
}

int run(int argc, char** argv) {
  const std::string threads_text = take_flag(argc, argv, "--threads="), set_name = take_flag(argc, argv, "--set=");
  uint32_t threads = physical_cores();
  if (!threads_text.empty()) {
    const auto [end, error] = std::from_chars(threads_text.data(), threads_text.data() + threads_text.size(), threads);
    if (error != std::errc() || *end != '\0' || threads == 0 || threads > 1024) {
      fmt::print(stderr, "baton_microbench: --threads={}: a number from 1 to 1024\n", threads_text);
      return 2;
    }
  }
  const auto chosen = kernels_or_best(set_name);
  if (!chosen) {
    fmt::print(stderr, "baton_microbench: {}\n", chosen.error().message);
    return 2;
  }
  const Kernels* kernels = *chosen;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Bench bench(*kernels, threads);
  benchmark::AddCustomContext("kernels", kernels->description);
  benchmark::AddCustomContext("threads", std::to_string(threads));
  add_limits(bench.limits, *kernels);
  add_all(bench);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace baton::host

int main(int argc, char** argv) { return baton::host::run(argc, argv); }
