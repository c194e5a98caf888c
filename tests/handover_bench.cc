// A state handed over in this process (move_state), or restored from a checkpoint, against a plain copy of as many
// bytes, in pairs, one after the other: states of the shape of Qwen3.5-0.8B in the memory of host units, keys and
// values in F16.
//   x copy        median of the pairs' ratios; low, high: the smallest and largest
//   move, copy    GB/s, medians, of the state's bytes
//   threads       that move
// Both sides' memory has been touched before; the copy is one memcpy of one thread.
//
// And between a card and the memory of host units: `card` where there is one, else `emulated`. The copy is that of the
// link there, 4 MiB of pinned memory at a time, as far as the state's bytes.
//   first         ms of the first hand-over
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
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/state.h"
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

struct Times {
  std::vector<double> moves, copies;  // ns, in pairs
  void report(benchmark::State& bench, uint64_t state_bytes) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < moves.size(); ++i) ratios.push_back(moves[i] / copies[i]);
    const auto bytes = static_cast<double>(state_bytes);
    bench.counters["MB"] = bytes / 1e6;
    bench.counters["x_copy"] = median(ratios);
    bench.counters["low"] = *std::min_element(ratios.begin(), ratios.end());
    bench.counters["high"] = *std::max_element(ratios.begin(), ratios.end());
    bench.counters["move"] = bytes / median(moves);
    bench.counters["copy"] = bytes / median(copies);
    bench.counters["move_ms"] = median(moves) / 1e6;
    bench.counters["copy_ms"] = median(copies) / 1e6;
  }
};

enum class Way : uint8_t { kMove, kCrew, kRestore };

void hand_over(benchmark::State& bench, Way way) {
  const auto tokens = static_cast<uint64_t>(bench.range(0));
  const Program program = qwen35_08b();
  const SteadyClock clock;
  LiveStates live;
  Crew crew;
  Crew* const help = way == Way::kCrew ? &crew : nullptr;
  host::StatePool from_pool(program, DType::kF16, "sender", live), to_pool(program, DType::kF16, "receiver", live);
  const auto from = from_pool.make(tokens).value();
  fill(*from, tokens);
  const uint64_t bytes = section_bytes(from->shape(), tokens);
  const std::vector<std::byte> source(bytes, std::byte{1});
  std::vector<std::byte> copied(bytes);
  CheckpointMemory memory;
  const auto kept = memory.keep(*from, nullptr).value();
  BATON_CHECK(move_state(*from, *to_pool.make(tokens).value(), help));  // the pool keeps its memory for the next
  Times times;
  for (auto _ : bench) {
    const auto to = to_pool.make(tokens).value();
    const int64_t start = clock.now_ns();
    std::memcpy(copied.data(), source.data(), bytes);
    benchmark::ClobberMemory();
    const int64_t between = clock.now_ns();
    BATON_CHECK(way == Way::kRestore ? restore_state(*kept, *to) : move_state(*from, *to, help));
    const int64_t end = clock.now_ns();
    times.copies.push_back(static_cast<double>(between - start));
    times.moves.push_back(static_cast<double>(end - between));
  }
  times.report(bench, bytes);
  bench.counters["threads"] = help == nullptr ? 1 : crew.threads();
}
BENCHMARK_CAPTURE(hand_over, move, Way::kMove)->Arg(512)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hand_over, crew, Way::kCrew)->Arg(512)->Arg(4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hand_over, restore, Way::kRestore)->Arg(512)->Arg(4096)->Unit(benchmark::kMillisecond);

constexpr uint64_t kLinkBytes = uint64_t{4} << 20;

// All of `bytes` over the link, nothing looked at.
Status cross(cuda::Stream& stream, const cuda::DeviceMemory& card, const cuda::PinnedMemory& host, uint64_t bytes,
             bool to_card) {
  for (uint64_t done = 0; done < bytes; done += kLinkBytes) {
    const uint64_t size = std::min(bytes - done, kLinkBytes);
    BATON_OK(to_card ? stream.copy_in(card.address(), host.data(), size)
                     : stream.copy_out(host.data(), card.address(), size));
  }
  return stream.wait();
}

enum class Across : uint8_t { kFromCard, kToCard };

void across(benchmark::State& bench, Across way, bool helped) {
  const auto tokens = static_cast<uint64_t>(bench.range(0));
  const Program program = qwen35_08b();
  const SteadyClock clock;
  const auto installed = cuda::installed_driver();
  const bool real = installed.has_value();
  const auto card = cuda::Card::open(real ? **installed : cuda::emulated_driver(), 0).value();
  bench.SetLabel(real ? card->facts().name : "emulated");
  LiveStates live;
  Crew crew;
  Crew* const help = helped ? &crew : nullptr;
  const auto card_pool = cuda::StatePool::make(*card, program, DType::kF16, "card", live).value();
  host::StatePool host_pool(program, DType::kF16, "host", live);
  const auto make = [&](bool on_card) {
    return on_card ? card_pool->state(tokens).value() : host_pool.make(tokens).value();
  };
  const auto from = make(way == Across::kFromCard);
  fill(*from, tokens);
  const uint64_t bytes = section_bytes(from->shape(), tokens);
  auto stream = card->stream().value();
  const auto there = card->allocate(kLinkBytes, "a copy").value();
  const auto here = card->allocate_pinned(kLinkBytes).value();
  const auto first = move_state(*from, *make(way == Across::kToCard), help);
  BATON_CHECK(first);
  bench.counters["first"] = first->ms;
  Times times;
  for (auto _ : bench) {
    const auto to = make(way == Across::kToCard);
    const int64_t start = clock.now_ns();
    BATON_CHECK(cross(stream, there, here, bytes, way == Across::kToCard));
    const int64_t between = clock.now_ns();
    BATON_CHECK(move_state(*from, *to, help));
    times.copies.push_back(static_cast<double>(between - start));
    times.moves.push_back(static_cast<double>(clock.now_ns() - between));
  }
  times.report(bench, bytes);
  bench.counters["threads"] = help == nullptr ? 1 : crew.threads();
}
BENCHMARK_CAPTURE(across, from_card, Across::kFromCard, true)
    ->Arg(1902)
    ->Arg(2048)
    ->Arg(8192)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(across, to_card, Across::kToCard, true)
    ->Arg(1902)
    ->Arg(2048)
    ->Arg(8192)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(across, from_card_alone, Across::kFromCard, false)->Arg(1902)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(across, to_card_alone, Across::kToCard, false)->Arg(1902)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton
