// A state handed over in this process (move_state), or restored from a checkpoint, against a plain copy of as many
// bytes, in pairs, one after the other: states of the shape of Qwen3.5-0.8B in the memory of host units, keys and
// values in F16.
//   x copy        median of the pairs' ratios; low, high: the smallest and largest
//   move, copy    GB/s, medians, of the state's bytes
// Both sides' memory has been touched before; the copy is one memcpy of one thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/clock.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/bridge/bridge.h"
#include "baton/bridge/checkpoint.h"
#include "baton/unit/host/host_state.h"

namespace baton {
namespace {

Program qwen35_08b() {
  Program program;
  for (int32_t layer = 0; layer < 24; ++layer) {
    if (layer % 4 == 3) {
      program.slots.push_back({SlotKind::kKeys, layer, 2, 0, 256});
      program.slots.push_back({SlotKind::kValues, layer, 2, 0, 256});
    } else {
      program.slots.push_back({SlotKind::kConv, layer, 0, 3, 6144});
      program.slots.push_back({SlotKind::kRecurrent, layer, 16, 128, 128});
    }
  }
  return program;
}

void fill(SequenceState& state, uint64_t tokens) {
  Random random(3);
  state.begin_write(tokens);
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    const Segment& segment = state.shape().segments[i];
    const Dims dims = dims_at(segment, tokens);
    const uint64_t size = value_bytes(segment.dtype);
    std::vector<std::byte> values(dims[0] * dims[1] * dims[2] * size);
    for (size_t at = 0; at < values.size(); at += size) {
      const float value = random.normal();
      size == 4 ? store_as<float>(&values[at], value) : store_as<uint16_t>(&values[at], f32_to_f16(value));
    }
    BATON_CHECK(state.write(i, {0, dims[0] * dims[1]}, values.data()));
  }
  BATON_CHECK(state.finish_write());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

enum class Way : uint8_t { kMove, kRestore };

void hand_over(benchmark::State& bench, Way way) {
  const auto tokens = static_cast<uint64_t>(bench.range(0));
  const Program program = qwen35_08b();
  const SteadyClock clock;
  LiveStates live;
  host::StatePool from_pool(program, DType::kF16, "sender", live), to_pool(program, DType::kF16, "receiver", live);
  const auto from = from_pool.make(tokens).value();
  fill(*from, tokens);
  const uint64_t bytes = section_bytes(from->shape(), tokens);
  const std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> copied(bytes);
  CheckpointMemory memory;
  const auto kept = memory.keep(*from, nullptr).value();
  BATON_CHECK(move_state(*from, *to_pool.make(tokens).value()));  // the pool keeps its memory for the next
  std::vector<double> ratios, moves, copies;
  for (auto _ : bench) {
    const auto to = to_pool.make(tokens).value();
    const int64_t start = clock.now_ns();
    std::memcpy(copied.data(), source.data(), bytes);
    benchmark::ClobberMemory();
    const int64_t between = clock.now_ns();
    BATON_CHECK(way == Way::kMove ? move_state(*from, *to) : restore_state(*kept, *to));
    const int64_t end = clock.now_ns();
    copies.push_back(static_cast<double>(between - start));
    moves.push_back(static_cast<double>(end - between));
    ratios.push_back(moves.back() / copies.back());
  }
  const auto gigabytes = static_cast<double>(bytes);
  bench.counters["MB"] = gigabytes / 1e6;
  bench.counters["x_copy"] = median(ratios);
  bench.counters["low"] = *std::min_element(ratios.begin(), ratios.end());
  bench.counters["high"] = *std::max_element(ratios.begin(), ratios.end());
  bench.counters["move"] = gigabytes / median(moves);
  bench.counters["copy"] = gigabytes / median(copies);
}
BENCHMARK_CAPTURE(hand_over, move, Way::kMove)->Arg(512)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hand_over, restore, Way::kRestore)->Arg(512)->Arg(4096)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton
