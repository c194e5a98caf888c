// Models of the emulated engine and their life: new, compiled, loaded, unloaded.
#include "baton/unit/apple/driver_emulator.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/unit/apple/emulator_net.h"
#include "baton/unit/apple/emulator_surface.h"
#include "baton/unit/apple/runner.h"

namespace baton::apple {
namespace {

constexpr std::string_view kModelPath = "@model_path/";
constexpr uint64_t kSurfaceBytesMax = 1ull << 30;

// The path of a key below the model's folder; empty when it would leave the folder.
std::filesystem::path relative_path(std::string_view key) {
  if (!key.starts_with(kModelPath)) return {};
  std::filesystem::path path(key.substr(kModelPath.size()));
  const bool stays =
      path.is_relative() && std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  return stays ? path : std::filesystem::path{};
}

std::string hex(XXH128_hash_t hash) { return fmt::format("{:016X}{:016X}", hash.high64, hash.low64); }

}  // namespace

// What the driver and everything it made share, under one mutex.
struct EmulatorDriver::Shared {
  explicit Shared(const EmulatorOptions& given) : options(given), diagnostics(given.mode), pool(given.threads) {}

  const EmulatorOptions options;
  std::mutex mutex;
  Diagnostics diagnostics;
  ThreadPool pool;
  EmulatorReport counts;
  std::vector<float> scratch;
  bool poisoned = false;  // by an evaluation of tile
};

class EmulatorDriver::EmulatedRequest final : public Request {
 public:
  explicit EmulatedRequest(const RequestSpec& given) : spec(given) {}
  const RequestSpec spec;
};

class EmulatorDriver::Model final : public DeviceModel {
 public:
  Model(Shared& shared, std::string_view mil, const std::vector<WeightEntry>& weights);
  ~Model() override { static_cast<void>(unload()); }

  const std::string& identifier() const override { return identifier_; }
  Status compile() override;
  Status load() override;
  Status evaluate(const Request& request) override;
  Status unload() override;

 private:
  enum class Step : uint8_t { kNew, kCompiled, kLoaded, kUnloaded };
  struct Entry {
    std::string key;
    uint64_t bytes, hash;
  };

  std::filesystem::path folder() const { return shared_.options.temporary_folder / identifier_; }
  Status read_files(std::string* mil, std::vector<MappedFile>* files, WeightFiles* weights) const;
  Status check_request(const RequestSpec& spec);
  Status check_surfaces(std::span<Surface* const> surfaces, std::span<const int32_t> ports, const char* kind,
                        std::vector<EmulatedSurface*>* out);
  void count_evaluation();

  Shared& shared_;
  const std::string mil_;
  std::vector<Entry> entries_;
  std::string identifier_;
  Step step_ = Step::kNew;
  bool compiled_here_ = false;
  EmulatedNet net_;
  Graph graph_;
  std::optional<Runner> runner_;
};

EmulatorDriver::Model::Model(Shared& shared, std::string_view mil, const std::vector<WeightEntry>& weights)
    : shared_(shared), mil_(mil) {
  for (const WeightEntry& entry : weights) {
    entries_.push_back({entry.key, entry.data.size(), XXH3_64bits(entry.data.data(), entry.data.size())});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
  std::string all = mil_;
  for (const Entry& entry : entries_) {
    const bool content = shared.options.identifier == IdentifierMode::kContent;
    all += fmt::format("\n{} {:x}", entry.key, content ? entry.hash : 0);
  }
  identifier_ = hex(XXH3_128bits(all.data(), all.size()));
}

// The files the caller wrote, compared with what was given in memory.
Status EmulatorDriver::Model::read_files(std::string* mil, std::vector<MappedFile>* files, WeightFiles* weights) const {
  const std::filesystem::path mil_path = folder() / "model.mil";
  auto text = read_file(mil_path, kMilTextBytesMax);
  if (!text) {
    return fail(rule_error(Rule::kFileMissing,
                           fmt::format("{}; write model.mil and the weights before compile", text.error().message)));
  }
  *mil = std::move(*text);
  if (*mil != mil_)
    return fail(rule_error(Rule::kFileDiffers, fmt::format("{} differs from the text given", mil_path.string())));
  files->reserve(entries_.size());
  for (const Entry& entry : entries_) {
    const std::filesystem::path relative = relative_path(entry.key);
    if (relative.empty()) {
      return fail(device_error(Fault::kBadArgument,
                               fmt::format("the weights key '{}' is not a path below {}", entry.key, kModelPath)));
    }
    auto file = MappedFile::open(folder() / relative);
    if (!file) return fail(rule_error(Rule::kFileMissing, file.error().message));
    const auto bytes = file->bytes();
    if (bytes.size() != entry.bytes || XXH3_64bits(bytes.data(), bytes.size()) != entry.hash) {
      return fail(
          rule_error(Rule::kFileDiffers, fmt::format("{} differs from the weights given", file->path().string())));
    }
    files->push_back(std::move(*file));
    weights->emplace(entry.key, files->back().bytes());
  }
  return {};
}

Status EmulatorDriver::Model::compile() {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ == Step::kLoaded || step_ == Step::kCompiled) {
    return fail(rule_error(Rule::kCallOrder, "compile of a model that is already compiled"));
  }
  if (shared_.counts.compiles >= shared_.options.compiles_max) {
    return fail(rule_error(
        Rule::kCompileLimit,
        fmt::format("{} compiles in this process; use the cache or a new process", shared_.counts.compiles)));
  }
  std::string mil;
  std::vector<MappedFile> files;
  WeightFiles weights;
  BATON_OK(read_files(&mil, &files, &weights));
  BATON_TRY(const MilProgram program, parse_mil(mil));
  BATON_TRY(const Graph graph, check_mil(program, weights, shared_.diagnostics));
  BATON_OK(write_net(folder(), mil, weights));
  ++shared_.counts.compiles;
  if (const ChipPreset* chip = shared_.options.chip)
    shared_.counts.emulated_compile_ms += compile_ms(*chip, graph.weight_bytes);
  step_ = Step::kCompiled;
  compiled_here_ = true;
  return {};
}

Status EmulatorDriver::Model::load() {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ == Step::kLoaded) return fail(rule_error(Rule::kLoadTwice, "load of a model that is loaded"));
  if (shared_.counts.loaded >= shared_.options.loaded_max) {
    return fail(rule_error(
        Rule::kLoadLimit,
        fmt::format("{} models are loaded; unload some or use fewer, larger kernels", shared_.counts.loaded)));
  }
  BATON_TRY(net_, read_net(folder()));
  BATON_TRY(const MilProgram program, parse_mil(net_.mil));
  // What compile has told is not told again.
  Diagnostics quiet(shared_.options.mode);
  BATON_TRY(graph_, check_mil(program, net_.weights(), compiled_here_ ? quiet : shared_.diagnostics));
  runner_.emplace(graph_, shared_.options.numerics);
  shared_.scratch.resize(std::max(shared_.scratch.size(), runner_->scratch_floats()));
  ++shared_.counts.loads;
  ++shared_.counts.loaded;
  if (!compiled_here_) ++shared_.counts.loads_without_compile;
  if (const ChipPreset* chip = shared_.options.chip) shared_.counts.emulated_compile_ms += chip->load_ms;
  step_ = Step::kLoaded;
  return {};
}

Status EmulatorDriver::Model::unload() {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ != Step::kLoaded) return fail(rule_error(Rule::kCallOrder, "unload of a model that is not loaded"));
  --shared_.counts.loaded;
  step_ = Step::kUnloaded;
  runner_.reset();
  graph_ = {};
  net_ = {};
  return {};
}

Status EmulatorDriver::Model::check_request(const RequestSpec& spec) {
  if (spec.inputs.size() != graph_.inputs.size() || spec.outputs.size() != graph_.outputs.size()) {
    return fail(rule_error(Rule::kPortCount,
                           fmt::format("{} inputs and {} outputs; the program has {} and {}", spec.inputs.size(),
                                       spec.outputs.size(), graph_.inputs.size(), graph_.outputs.size())));
  }
  const auto counts_up = [](std::span<const int32_t> indices, size_t count) {
    if (indices.size() != count) return false;
    for (size_t i = 0; i < count; ++i) {
      if (indices[i] != static_cast<int32_t>(i)) return false;
    }
    return true;
  };
  if (!counts_up(spec.input_indices, spec.inputs.size()) || !counts_up(spec.output_indices, spec.outputs.size())) {
    return fail(rule_error(Rule::kPortIndices, "indices must be 0 to n - 1"));
  }
  if (spec.procedure != 0)
    return fail(rule_error(Rule::kProcedure, fmt::format("procedure {}; there is only 0", spec.procedure)));
  if (spec.weights_buffer != nullptr)
    return fail(rule_error(Rule::kWeightsBuffer, "weightsBuffer does not replace weights"));
  if (spec.perf_stats) return fail(rule_error(Rule::kPerfStats, "perfStats is not for programs like this one"));
  return {};
}

Status EmulatorDriver::Model::check_surfaces(std::span<Surface* const> surfaces, std::span<const int32_t> ports,
                                             const char* kind, std::vector<EmulatedSurface*>* out) {
  for (size_t i = 0; i < surfaces.size(); ++i) {
    auto* surface = dynamic_cast<EmulatedSurface*>(surfaces[i]);
    if (surface == nullptr)
      return fail(device_error(Fault::kBadArgument, fmt::format("{} {} is not a surface of this driver", kind, i)));
    const uint64_t needed = port_bytes(graph_.type(ports[i]));
    if (surface->properties().alloc_size < needed) {
      return fail(rule_error(Rule::kSurfaceSmall,
                             fmt::format("{} {} has {} bytes, '{}' takes {}", kind, i, surface->properties().alloc_size,
                                         graph_.values[static_cast<size_t>(ports[i])].name, needed)));
    }
    out->push_back(surface);
  }
  return {};
}

void EmulatorDriver::Model::count_evaluation() {
  EmulatorReport& counts = shared_.counts;
  ++counts.evaluations;
  counts.flops += graph_.flops;
  counts.weight_bytes_read += graph_.weight_bytes;
  counts.abs_max = std::max(counts.abs_max, runner_->abs_max());
  if (runner_->uses_tile()) shared_.poisoned = true;
  if (const ChipPreset* chip = shared_.options.chip) {
    const double ms = evaluate_ms(*chip, graph_.weight_bytes, graph_.flops);
    counts.emulated_ms += ms;
    if (chip->active_watts >= 0) counts.emulated_joules += chip->active_watts * ms * 1e-3;
  }
}

Status EmulatorDriver::Model::evaluate(const Request& request) {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ == Step::kUnloaded)
    return fail(rule_error(Rule::kEvaluateAfterUnload, "evaluate of a model that was unloaded"));
  if (step_ != Step::kLoaded)
    return fail(rule_error(Rule::kEvaluateBeforeLoad, "evaluate of a model that is not loaded"));
  const auto* own = dynamic_cast<const EmulatedRequest*>(&request);
  if (own == nullptr) return fail(device_error(Fault::kBadArgument, "the request is not of this driver"));
  if (shared_.poisoned) return fail(rule_error(Rule::kPoisoned, "a program with tile was evaluated in this process"));
  BATON_OK(check_request(own->spec));
  std::vector<EmulatedSurface*> inputs, outputs;
  BATON_OK(check_surfaces(own->spec.inputs, graph_.inputs, "input", &inputs));
  BATON_OK(check_surfaces(own->spec.outputs, graph_.outputs, "output", &outputs));
  std::vector<std::span<const std::byte>> from;
  std::vector<std::span<std::byte>> to;
  for (EmulatedSurface* output : outputs) {
    const bool twice = std::count(outputs.begin(), outputs.end(), output) > 1;
    if (twice || std::find(inputs.begin(), inputs.end(), output) != inputs.end()) {
      return fail(
          rule_error(Rule::kSurfaceShared, "one surface is used for two ports of a request, one of them an output"));
    }
    output->before_device();
    to.push_back(output->bytes());
  }
  for (EmulatedSurface* input : inputs) {
    input->before_device();
    from.push_back(input->bytes());
  }
  runner_->run(from, to, shared_.scratch, shared_.pool, shared_.diagnostics);
  for (EmulatedSurface* output : outputs) output->after_device();
  count_evaluation();
  return {};
}

Result<std::unique_ptr<EmulatorDriver>> EmulatorDriver::create(const EmulatorOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.temporary_folder, error)) {
    return fail(Code::kNotFound,
                fmt::format("the emulator's temporary folder '{}' does not exist", options.temporary_folder.string()));
  }
  return std::unique_ptr<EmulatorDriver>(new EmulatorDriver(options));
}

EmulatorDriver::EmulatorDriver(const EmulatorOptions& options) : shared_(std::make_unique<Shared>(options)) {
  if (options.chip == nullptr) return;
  shared_->counts.emulated_ms = shared_->counts.emulated_compile_ms = 0;
  if (options.chip->active_watts >= 0) shared_->counts.emulated_joules = 0;
}

EmulatorDriver::~EmulatorDriver() = default;

std::string EmulatorDriver::evidence() const {
  const EmulatorOptions& options = shared_->options;
  return fmt::format("emulated neural engine, not hardware: {} rules, {} numerics, {} tables{}",
                     options.mode == Mode::kStrict ? "strict" : "lenient",
                     options.numerics.profile == Profile::kM1 ? "m1" : "modern",
                     options.numerics.perturbed_tables ? "perturbed" : "exact",
                     options.chip != nullptr ? fmt::format(", times emulated as {}", options.chip->name) : "");
}

std::filesystem::path EmulatorDriver::temporary_folder() const { return shared_->options.temporary_folder; }

Result<std::unique_ptr<DeviceModel>> EmulatorDriver::create_model(std::string_view mil,
                                                                  const std::vector<WeightEntry>* weights) {
  if (mil.empty()) return fail(rule_error(Rule::kTextMissing, "no MIL text"));
  if (weights == nullptr) {
    return fail(
        rule_error(Rule::kWeightsMissing, "no weights dictionary; give an empty one for programs without weights"));
  }
  for (size_t i = 0; i < weights->size(); ++i) {
    const WeightEntry& entry = (*weights)[i];
    if (entry.offset != 0)
      return fail(device_error(Fault::kBadArgument, fmt::format("'{}': the offset must be 0", entry.key)));
    for (size_t j = 0; j < i; ++j) {
      if ((*weights)[j].key == entry.key)
        return fail(rule_error(Rule::kWeightKeyTwice, fmt::format("'{}'", entry.key)));
    }
  }
  return std::make_unique<Model>(*shared_, mil, *weights);
}

Result<std::unique_ptr<Surface>> EmulatorDriver::create_surface(const SurfaceProperties& given) {
  const SurfaceProperties flat = SurfaceProperties::flat(given.alloc_size);
  const bool is_flat = given.width == flat.width && given.height == 1 && given.bytes_per_element == 1 &&
                       given.bytes_per_row == flat.bytes_per_row && given.pixel_format == 0;
  if (!is_flat || given.alloc_size == 0) {
    return fail(
        rule_error(Rule::kSurfaceNotFlat, "surfaces have height 1, elements of 1 byte, and width = row = size"));
  }
  if (given.alloc_size > kSurfaceBytesMax) {
    return fail(device_error(Fault::kNoMemory, fmt::format("a surface of {} bytes", given.alloc_size)));
  }
  return std::make_unique<EmulatedSurface>(given, shared_->options.poison_surfaces, shared_->options.watch_surfaces,
                                           shared_->mutex, shared_->diagnostics);
}

Result<std::unique_ptr<Request>> EmulatorDriver::create_request(const RequestSpec& spec) {
  return std::make_unique<EmulatedRequest>(spec);
}

EmulatorReport EmulatorDriver::report() const {
  const std::scoped_lock guard(shared_->mutex);
  EmulatorReport report = shared_->counts;
  report.warnings.assign(shared_->diagnostics.warnings().begin(), shared_->diagnostics.warnings().end());
  report.warnings_dropped = shared_->diagnostics.dropped();
  return report;
}

}  // namespace baton::apple
