// States, pieces and placement of prefill through packages.
#include "baton/unit/coreml/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "baton/unit/apple/mlpackage/prefill_feed.h"
#include "baton/unit/coreml/output_head.h"

namespace baton::coreml {
namespace {

constexpr int32_t kPastMin = 64;  // pasts are powers of two from here: few shapes for any length
constexpr int32_t kPastMax = 1 << 17;

std::vector<apple::SlotMemory> memories_of(const host::HostState& state) {
  std::vector<apple::SlotMemory> memories;
  const auto count = static_cast<SlotId>(state.shape().segments.size());
  for (SlotId slot = 0; slot < count; ++slot) {
    const Segment& segment = state.shape().segments[static_cast<size_t>(slot)];
    memories.push_back({segment.dtype, dims_at(segment, state.tokens_max()),
                        [&state, slot](uint64_t a, uint64_t b) { return state.row(slot, a, b); }});
  }
  return memories;
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

}  // namespace

CoreMlExecutor::CoreMlExecutor(std::shared_ptr<const Model> model, PackageEngine& engine, ExecutorOptions options,
                               std::vector<apple::LayerRange> chunks)
    : model_(std::move(model)),
      engine_(engine),
      options_(std::move(options)),
      chunks_(std::move(chunks)),
      states_(model_->program, DType::kF16, "coreml", live_),
      cache_(options_.cache, engine) {}

Result<std::unique_ptr<CoreMlExecutor>> CoreMlExecutor::load(std::shared_ptr<const Model> model, PackageEngine& engine,
                                                             const ExecutorOptions& options) {
  BATON_CHECK(!options.seqs.empty() && std::is_sorted(options.seqs.begin(), options.seqs.end()));
  BATON_OK(apple::check_lowerable(*model));
  BATON_TRY(std::vector<apple::LayerRange> chunks, apple::plan_chunks(*model, options.chunks));
  std::unique_ptr<CoreMlExecutor> executor(new CoreMlExecutor(std::move(model), engine, options, std::move(chunks)));
  auto loaded = executor->packages_for({options.seqs.front(), 0});
  if (!loaded) return fail(std::move(loaded).error());
  return executor;
}

// The shortest length that takes all, else the longest; after a state, the next power of two that holds it.
apple::PrefillShape CoreMlExecutor::shape_for(uint64_t position, size_t tokens) const {
  const auto fits = std::find_if(options_.seqs.begin(), options_.seqs.end(),
                                 [&](int32_t seq) { return static_cast<size_t>(seq) >= tokens; });
  const int32_t seq = fits != options_.seqs.end() ? *fits : options_.seqs.back();
  if (position == 0) return {seq, 0};
  return {seq, std::max(kPastMin, static_cast<int32_t>(std::bit_ceil(position)))};
}

Result<CoreMlExecutor::Packages*> CoreMlExecutor::packages_for(const apple::PrefillShape& shape) {
  Packages& packages = packages_[{shape.seq, shape.past}];
  for (size_t chunk = packages.size(); chunk < chunks_.size(); ++chunk) {
    auto loaded = cache_.open(*model_, shape, chunks_, chunk);
    if (!loaded) {
      // Shorter lengths take less of everything: a prompt is then read in more pieces.
      Error error = std::move(loaded).error().in(engine_.emulated() ? "coreml (emulated)" : "coreml");
      if (shape.seq > options_.seqs.front()) {
        error.message += fmt::format("; coreml:lengths={} reads prompts in pieces of {} tokens", options_.seqs.front(),
                                     options_.seqs.front());
      }
      return fail(std::move(error));
    }
    packages.push_back(std::move(*loaded));
  }
  return &packages;
}

Status CoreMlExecutor::piece(host::HostState& state, std::span<const int32_t> tokens, std::span<float> hidden) {
  if (state.position() > kPastMax) {
    return fail(Code::kUnsupported,
                fmt::format("coreml: a state of {} tokens is longer than {}; prefill on another unit", state.position(),
                            kPastMax));
  }
  const apple::PrefillShape shape = shape_for(state.position(), tokens.size());
  BATON_TRY(Packages * packages, packages_for(shape));
  const apple::PackageCall call = [&](size_t chunk, const apple::HalfArrays& inputs) {
    return (*packages)[chunk]->predict(inputs);
  };
  BATON_OK(apple::run_chunks(*model_, shape, chunks_, call, state.position(), tokens, memories_of(state), hidden));
  state.advance(tokens.size());
  return {};
}

Status CoreMlExecutor::step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) {
  BATON_OK(check_seats(*model_, seats, out));
  BATON_OK(host::make_room(seats));
  if (!seats.empty() && seats.back().decodes) {
    return fail(Code::kUnsupported, "coreml: this unit prefills only; decode on another one");
  }
  for (const Seat& seat : seats) {
    const size_t values = seat.rows_out * static_cast<size_t>(model_->program.output_width);
    BATON_OK(run(seat, out.first(values), context));
    out = out.subspan(values);
  }
  return {};
}

Status CoreMlExecutor::run(const Seat& seat, std::span<float> out, const StepContext& context) {
  const size_t count = seat.tokens.size(), rows = seat.rows_out, width = static_cast<size_t>(model_->program.hidden);
  const auto longest = static_cast<size_t>(options_.seqs.back());
  try {
    std::vector<float> hidden(rows > 0 ? count * width : 0);
    for (size_t done = 0; done < count; done += longest) {
      BATON_OK(context.check());
      const size_t taken = std::min(longest, count - done);
      const std::span<float> part =
          rows > 0 ? std::span(hidden).subspan(done * width, taken * width) : std::span<float>();
      BATON_OK(piece(static_cast<host::HostState&>(*seat.state), seat.tokens.subspan(done, taken), part));
    }
    if (rows > 0) output_head(*model_, std::span(hidden).last(rows * width), out);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, fmt::format("coreml: out of memory in a step of {} tokens", count));
  } catch (const std::exception& exception) {
    return fail(Code::kOutOfMemory, fmt::format("coreml: a step of {} tokens: {}", count, exception.what()));
  }
  return {};
}

DeviceShares CoreMlExecutor::shares() const {
  DeviceShares sum;
  for (const auto& [shape, packages] : packages_) {
    for (const auto& package : packages) add_shares(package->shares(), &sum);
  }
  return sum;
}

// What this process has put into the cache: it stays there.
std::string CoreMlExecutor::cache_note() const {
  const CacheEvents& events = cache_.events();
  if (events.compiled == 0) return "";
  return fmt::format("; {} compiled program{}, {:.0f} MB, new in {}", events.compiled, events.compiled == 1 ? "" : "s",
                     static_cast<double>(events.bytes_added) * 1e-6, options_.cache.string());
}

Placement CoreMlExecutor::placement() const {
  if (engine_.emulated()) {
    return {.ran = "coreml",
            .arithmetic = "emulated: Core ML packages run by the interpreter on this host, in fp16",
            .emulated = true,
            .notes = cache_note()};
  }
  const DeviceShares shares = this->shares();
  const std::string asked = fmt::format("asked for {}", to_string(options_.units));
  Placement out{.ran = "coreml", .arithmetic = fmt::format("Core ML, {}", asked)};
  if (shares.operations == 0) {
    out.notes = fmt::format("; devices unknown: {}{}", shares.unknown, cache_note());
    if (asks_for_neural_engine(options_.units))
      out.warning =
          fmt::format("coreml {}, and nothing tells whether the Neural Engine runs it: {}", asked, shares.unknown);
    return out;
  }
  const std::string plan =
      fmt::format("plan by {}: {} Neural Engine, {} GPU, {} CPU of {} operations", shares.by_cost ? "cost" : "count",
                  percent(shares.neural_engine), percent(shares.gpu), percent(shares.cpu), shares.operations);
  out.notes = fmt::format("; {} (a prediction, not a measurement){}", plan, cache_note());
  if (asks_for_neural_engine(options_.units) && shares.neural_engine < kNeuralEngineShareMin) {
    out.warning = fmt::format("coreml {}, but {}{}", asked, plan,
                              engine_.has_neural_engine() ? "" : "; this machine has no Neural Engine");
    out.arithmetic = "MISMATCH: " + out.arithmetic;
  }
  return out;
}

// The lengths decide where a prompt is cut, and what is added up where.
std::string CoreMlExecutor::arithmetic() const {
  const std::string where =
      engine_.emulated() ? "emulated" : fmt::format("{}-{}", system_arithmetic(), to_string(options_.units));
  uint64_t lengths = chunks_.size();
  for (const int32_t seq : options_.seqs) lengths = lengths * 0x100000001b3u + static_cast<uint64_t>(seq);
  return arithmetic_name(fmt::format("coreml/{}/lengths-{:x}", where, lengths & 0xffffffu));
}

}  // namespace baton::coreml
