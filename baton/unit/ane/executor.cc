// Loading, stages of chunks, two chunks in flight, estimates.
#include "baton/unit/ane/executor.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <set>
#include <system_error>

#include "baton/base/clock.h"
#include "baton/unit/apple/driver_apple.h"
#include "baton/unit/host/kernel_sets.h"

namespace baton::ane {
namespace {

double ms_since(int64_t start_ns) { return ms_between(start_ns, SteadyClock().now_ns()); }

}  // namespace

Result<ScratchFolder> ScratchFolder::make() {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  std::string pattern = (base / "baton-ane-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return fail(
        Code::kDevice,
        fmt::format("ane: no temporary folder can be made as {}; set TMPDIR to a folder that can be written", pattern));
  }
  return ScratchFolder(pattern);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

AneExecutor::AneExecutor(std::shared_ptr<const Model> model, const AneOptions& options, bool hardware, uint32_t threads)
    : model_(std::move(model)),
      options_(options),
      hardware_(hardware),
      states_(model_->program, DType::kF16, "ane", live_),
      // The emulator has the cores: more threads here would wait for them.
      host_pool_(hardware ? threads : 1),
      pair_pool_(options.pipeline ? 2 : 1) {}

AneExecutor::~AneExecutor() = default;

Status AneExecutor::open_driver(uint32_t threads, std::unique_ptr<apple::Driver>* driver) {
  if (hardware_) {
    // The unit has run the start-up check.
    BATON_TRY(*driver, apple::AppleDriver::open({.temporary_folder = {}, .self_check = false}));
    return {};
  }
  apple::EmulatorOptions emulator;
  if (options_.cache_folder.empty()) {
    BATON_TRY(scratch_folder_, ScratchFolder::make());
    emulator.temporary_folder = scratch_folder_.path();
  } else {
    // Cached loads need the artefacts of the last process.
    emulator.temporary_folder = options_.cache_folder / "emulated_device";
    std::error_code error;
    std::filesystem::create_directories(emulator.temporary_folder, error);
    if (error) {
      return fail(Code::kInvalidInput, fmt::format("ane: cache folder {} cannot be made: {}",
                                                   emulator.temporary_folder.string(), error.message()));
    }
  }
  emulator.mode = options_.mode;
  emulator.numerics = options_.numerics;
  emulator.loaded_max = options_.kernels_max;
  emulator.compiles_max = options_.compiles_max > 0 ? options_.compiles_max : UINT32_MAX;
  emulator.counts = &apple::process_counts();
  if (options_.mode == apple::Mode::kStrict) {
    emulator.surface_bytes_min = 16384;
    emulator.columns_min = 32;
  }
  emulator.threads = threads;
  emulator.chip = options_.chip;
  BATON_TRY(auto made, apple::EmulatorDriver::create(emulator));
  emulator_ = made.get();
  *driver = std::move(made);
  return {};
}

// Before minutes of compiling: the limit of loaded kernels is one of the process.
Status AneExecutor::check_process_limit() const {
  uint32_t own = 0;
  for (const DeviceLayer& layer : lowering_.layers) {
    if (!layer.is_head || !options_.lazy_head) own += static_cast<uint32_t>(layer.kernels.size());
  }
  const uint32_t loaded = apple::process_counts().loaded;
  if (loaded == 0 || loaded + own <= options_.kernels_max) return {};
  return fail(Code::kDevice,
              fmt::format("ane: this model needs {} kernels and other executors of this process have {} loaded; the "
                          "limit of a process is {} (ane:kernels=N): close the other model first",
                          own, loaded, options_.kernels_max));
}

Result<std::unique_ptr<AneExecutor>> AneExecutor::load(std::shared_ptr<const Model> model, const AneOptions& options,
                                                       bool hardware, uint32_t threads) {
  try {
    std::unique_ptr<AneExecutor> out(new AneExecutor(std::move(model), options, hardware, threads));
    AneExecutor& self = *out;
    const Program& program = self.model_->program;
    BATON_TRY(self.split_, split_program(program, self.model_->weights, options));
    BATON_TRY(const host::Kernels* kernels, host::kernels_or_best(options.host_kernels));
    BATON_TRY(auto weights, host::Weights::load(self.model_, *kernels, self.split_.on_host, "ane"));
    weights->pack_more(INT64_MAX, self.host_pool_);
    self.weights_ = std::move(weights);
    BATON_TRY(self.lowering_,
              lower(self.model_->weights, self.weights_->plan(), self.split_.on_host, self.split_.limits));
    BATON_OK(self.check_process_limit());
    std::unique_ptr<apple::Driver> driver;
    BATON_OK(self.open_driver(threads, &driver));
    BATON_TRY(self.device_, AneDevice::load(std::move(driver), self.lowering_.layers, options));
    const int64_t whole = program.whole_sequence ? self.model_->spec.context_max : 0;
    const int64_t rows_max = std::max({options.columns, int64_t{kSeatsMax}, whole});
    for (Lane& lane : self.lanes_) {
      BATON_TRY(lane.pass, host::Pass::create(*self.weights_, self.host_pool_, rows_max, host::RowBits::kIndependent));
    }
    return out;
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "ane: no memory for the model; use a smaller one");
  } catch (const std::system_error& error) {
    return fail(Code::kDevice, fmt::format("ane: cannot start {} threads: {}", threads, error.what()));
  }
}

Status AneExecutor::run_segment(Lane& lane, bool device) {
  const int64_t start_ns = SteadyClock().now_ns();
  const std::vector<Stage>& stages = lowering_.stages;
  for (; lane.stage < stages.size() && stages[lane.stage].on_device == device; ++lane.stage) {
    const Stage& stage = stages[lane.stage];
    if (device) {
      BATON_OK(device_->run(stage.index, *lane.pass, lane.io));
    } else {
      lane.pass->run(weights_->plan().steps[stage.index]);
    }
  }
  (device ? device_ms_ : host_ms_) += ms_since(start_ns);
  return {};
}

Status AneExecutor::run_through(Lane& lane) {
  for (bool device = false; lane.stage < lowering_.stages.size(); device = !device) {
    BATON_OK(run_segment(lane, device));
  }
  return {};
}

// `count` tokens of the seat, from `begin` of the step's on; `start`: where the state was before the step.
void AneExecutor::start_chunk(Lane& lane, const Seat& seat, uint64_t start, int64_t begin, int64_t count,
                              std::span<float> out) const {
  const int64_t total = static_cast<int64_t>(seat.tokens.size()), first_wanted = total - seat.rows_out;
  const int64_t wanted = std::clamp<int64_t>(begin + count - first_wanted, 0, count);
  const int64_t skip = std::max<int64_t>(0, begin - first_wanted);
  const host::RunInput run{static_cast<host::HostState*>(seat.state), start + static_cast<uint64_t>(begin),
                           seat.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                           static_cast<uint32_t>(wanted)};
  lane.pass->start({&run, 1}, out.data() + skip * model_->program.output_width);
  lane.stage = 0;
  lane.busy = true;
}

// Two chunks in flight: while one is on the device, the other is on the host, one turn ahead of it or behind. A chunk
// enters a layer's host work only after the chunk before has left it, so each op sees the state that it would see
// without the other chunk; and no two threads ever work on one lane.
Status AneExecutor::run_pipelined(const Seat& seat, std::span<float> out, const StepContext& context) {
  const auto total = static_cast<int64_t>(seat.tokens.size());
  const uint64_t start = seat.state->position();
  int64_t given = 0;
  for (Lane& lane : lanes_) lane.busy = false;
  // Turns are counted so that a lane's host turns are even or odd for good: lane 0 begins on even turns, lane 1 on odd.
  for (int64_t turn = 0;; ++turn) {
    Lane* on_host = &lanes_[turn % 2];
    Lane* on_device = &lanes_[1 - turn % 2];
    if (!on_host->busy && given < total) {
      const int64_t count = std::min(chunk_tokens(), total - given);
      BATON_OK(context.check());
      start_chunk(*on_host, seat, start, given, count, out);
      given += count;
    }
    if (!on_host->busy) on_host = nullptr;
    if (!on_device->busy) on_device = nullptr;
    if (on_host == nullptr && on_device == nullptr) break;
    ++turns_;
    Status host_status, device_status;
    if (on_host != nullptr && on_device != nullptr) {
      ++shared_turns_;
      const double before = host_ms_ + device_ms_;
      const int64_t start_ns = SteadyClock().now_ns();
      pair_pool_.run([&](uint32_t thread) {
        if (thread == 0) host_status = run_segment(*on_host, false);
        if (thread == 1) device_status = run_segment(*on_device, true);
      });
      overlapped_ms_ += std::max(0.0, host_ms_ + device_ms_ - before - ms_since(start_ns));
    } else if (on_host != nullptr) {
      host_status = run_segment(*on_host, false);
    } else {
      device_status = run_segment(*on_device, true);
    }
    BATON_OK(host_status);
    BATON_OK(device_status);
    for (Lane& lane : lanes_) {
      if (!lane.busy || lane.stage < lowering_.stages.size()) continue;
      lane.pass->finish();
      lane.busy = false;
    }
  }
  return {};
}

Status AneExecutor::run_chunks(const Seat& seat, std::span<float> out, const StepContext& context) {
  const auto total = static_cast<int64_t>(seat.tokens.size());
  if (model_->program.whole_sequence) {
    // The device takes its columns of the rows one after the other; what looks along them is the host's.
    if (total > model_->spec.context_max) {
      return fail(Code::kInvalidInput, fmt::format("ane: a text of {} tokens: the model takes {}; give less", total,
                                                   model_->spec.context_max));
    }
    start_chunk(lanes_[0], seat, 0, 0, total, out);
    BATON_OK(run_through(lanes_[0]));
    lanes_[0].pass->finish();
    return {};
  }
  if (options_.pipeline && total > chunk_tokens()) return run_pipelined(seat, out, context);
  const uint64_t start = seat.state->position();
  for (int64_t done = 0; done < total; done += chunk_tokens()) {
    BATON_OK(context.check());
    start_chunk(lanes_[0], seat, start, done, std::min(chunk_tokens(), total - done), out);
    BATON_OK(run_through(lanes_[0]));
    lanes_[0].pass->finish();
  }
  return {};
}

// Seats that decode, together.
Status AneExecutor::run_singles(std::span<const Seat> seats, std::span<float> out) {
  std::array<host::RunInput, kSeatsMax> runs;
  for (size_t i = 0; i < seats.size(); ++i) {
    runs[i] = {static_cast<host::HostState*>(seats[i].state), seats[i].state->position(), seats[i].tokens,
               seats[i].rows_out, true};
  }
  Lane& lane = lanes_[0];
  lane.pass->start(std::span(runs).first(seats.size()), out.data());
  lane.stage = 0;
  BATON_OK(run_through(lane));
  lane.pass->finish();
  return {};
}

Status AneExecutor::step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) {
  BATON_OK(check_seats(*model_, seats, out));
  BATON_OK(host::make_room(seats));
  while (!seats.empty()) {
    const bool single = seats.front().decodes;
    const auto now = seats.first(single ? std::min<size_t>(seats.size(), kSeatsMax) : 1);
    size_t values = 0;
    for (const Seat& seat : now) values += seat.rows_out * static_cast<size_t>(model_->program.output_width);
    BATON_OK(single ? run_singles(now, out.first(values)) : run_chunks(now.front(), out.first(values), context));
    out = out.subspan(values);
    seats = seats.subspan(now.size());
  }
  return {};
}

Placement AneExecutor::placement() const {
  Placement placement{.ran = "ane", .arithmetic = device_->driver().evidence(), .emulated = !hardware_};
  std::string& notes = placement.notes;
  notes = fmt::format("; {} kernels, {}; host work on {} kernels", lowering_.kernel_count(),
                      options_.dispatch == Dispatch::kSequential ? std::string("one token a call")
                                                                 : fmt::format("{} tokens a call", options_.columns),
                      weights_->kernels().description);
  if (!split_.host_layers.empty()) {
    notes += fmt::format(
        ", {} layers of matrices with it ({:.0f} % of the weights): the limit is {} kernels", split_.host_layers.size(),
        100.0 * static_cast<double>(split_.host_bytes) / static_cast<double>(split_.host_bytes + split_.device_bytes),
        options_.kernels_max);
  }
  if (!device_->noteworthy().empty()) {
    notes += fmt::format("; weights of {} kernels do not sit well in fp16 (an inspection names them)",
                         device_->noteworthy().size());
  }
  notes += "; not yet run on Apple hardware";
  return placement;
}

// What of the options does not change bits: pipeline, donors, lazy head, caches, the chip of estimates.
std::string AneExecutor::arithmetic() const {
  const apple::Numerics& numerics = options_.numerics;
  const std::string device =
      hardware_ ? system_arithmetic()
                : fmt::format("emulated-{}{}{}", numerics.profile == apple::Profile::kM1 ? "m1" : "modern",
                              numerics.perturbed_tables ? "-perturbed" : "", numerics.grouped_adders ? "-grouped" : "");
  return arithmetic_name(
      fmt::format("ane/{}/{}{}-{}-k{}-b{}{}/{}", device, options_.dispatch == Dispatch::kSequential ? "seq" : "batch",
                  options_.columns, options_.mode == apple::Mode::kStrict ? "strict" : "lenient", options_.kernels_max,
                  options_.weight_bytes_max, options_.out_of_range == apple::OutOfRange::kClamp ? "-clamp" : "",
                  weights_->kernels().name));
}

AneReport AneExecutor::report() const {
  AneReport report;
  std::set<std::string> shapes;
  for (const DeviceLayer& layer : lowering_.layers) {
    for (const apple::KernelPlan& kernel : layer.kernels) shapes.insert(kernel.shape());
  }
  report.kernels = lowering_.kernel_count();
  report.shapes = static_cast<uint32_t>(shapes.size());
  report.host_layers = split_.host_layers;
  report.weight_range = device_->weight_range();
  report.noteworthy = device_->noteworthy();
  report.activation_max = device_->activation_max();
  report.device = device_->counts();
  report.loads = device_->loader_counts();
  report.host_ms = host_ms_;
  report.device_ms = device_ms_;
  report.overlapped_ms = overlapped_ms_;
  report.turns = turns_;
  report.shared_turns = shared_turns_;
  if (emulator_ != nullptr) report.emulator = emulator_->report();
  return report;
}

}  // namespace baton::ane
