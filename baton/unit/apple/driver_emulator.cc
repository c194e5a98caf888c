// Models of the emulated engine and their life: new, compiled, loaded, unloaded.
#include "baton/unit/apple/driver_emulator.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <mutex>

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
  explicit Shared(const EmulatorOptions& given)
      : options(given),
        diagnostics(given.mode),
        pool(given.threads),
        limited(given.counts != nullptr ? *given.counts : own_limited) {}

  const EmulatorOptions options;
  std::mutex mutex;
  Diagnostics diagnostics;
  ThreadPool pool;
  EmulatorReport counts;
  ProcessCounts own_limited;
  ProcessCounts& limited;
  std::vector<float> scratch;
  bool poisoned = false;  // by an evaluation of tile
};

class EmulatorDriver::EmulatedRequest final : public Request {
 public:
  explicit EmulatedRequest(const RequestSpec& given) : spec(given) {}
  const RequestSpec spec;
  mutable const DeviceModel* used_by = nullptr;  // under the driver's mutex
};

class EmulatorDriver::Model final : public DeviceModel {
 public:
  Model(Shared& shared, std::string_view mil, const std::vector<WeightEntry>& weights);
  ~Model() override { static_cast<void>(unload()); }

  const std::string& identifier() const override { return identifier_; }
  Status compile() override;
  Status load() override;
  Result<PortIndices> port_indices(int32_t procedure) override;
  Status evaluate(const Request& request) override;
  Status unload() override;

 private:
  // A function of the program.
  struct Procedure {
    explicit Procedure(Graph given, const Numerics& numerics) : graph(std::move(given)), runner(graph, numerics) {}
    Graph graph;
    Runner runner;
  };
  enum class Step : uint8_t { kNew, kCompiled, kLoaded, kUnloaded };
  struct Entry {
    std::string key;
    uint64_t bytes, hash;
  };

  std::filesystem::path folder() const { return shared_.options.temporary_folder / identifier_; }
  Status read_files(std::string* mil, std::vector<MappedFile>* files, WeightFiles* weights) const;
  Status check_request(const RequestSpec& spec) const;
  PortIndices indices_of(size_t procedure) const;
  Status check_surfaces(const Graph& graph, std::span<Surface* const> surfaces, std::span<const int32_t> ports,
                        const char* kind, std::vector<EmulatedSurface*>* out) const;
  void count_evaluation(const Procedure& procedure);

  Shared& shared_;
  const std::string mil_;
  std::vector<Entry> entries_;
  std::string identifier_;
  Step step_ = Step::kNew;
  bool compiled_here_ = false;
  EmulatedNet net_;
  std::vector<std::unique_ptr<Procedure>> procedures_;
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
  if (const uint32_t compiles = shared_.limited.compiles; compiles >= shared_.options.compiles_max) {
    return fail(rule_error(Rule::kCompileLimit,
                           fmt::format("{} compiles in this process; use the cache or a new process", compiles)));
  }
  std::string mil;
  std::vector<MappedFile> files;
  WeightFiles weights;
  BATON_OK(read_files(&mil, &files, &weights));
  BATON_TRY(const MilProgram program, parse_mil(mil));
  uint64_t weight_bytes = 0;
  for (size_t i = 0; i < program.functions.size(); ++i) {
    BATON_TRY(const Graph graph, check_mil(program, weights, shared_.diagnostics, i));
    weight_bytes += graph.weight_bytes;
  }
  if (weight_bytes > shared_.options.program_bytes_max) {
    return fail(rule_error(Rule::kProgramWindow, fmt::format("{} bytes of weights in one program", weight_bytes)));
  }
  BATON_OK(write_net(folder(), mil, weights));
  ++shared_.counts.compiles;
  ++shared_.limited.compiles;
  if (const ChipPreset* chip = shared_.options.chip)
    shared_.counts.emulated_compile_ms += compile_ms(*chip, weight_bytes);
  step_ = Step::kCompiled;
  compiled_here_ = true;
  return {};
}

Status EmulatorDriver::Model::load() {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ == Step::kLoaded) return fail(rule_error(Rule::kLoadTwice, "load of a model that is loaded"));
  if (const uint32_t loaded = shared_.limited.loaded; loaded >= shared_.options.loaded_max) {
    return fail(rule_error(Rule::kLoadLimit, fmt::format("{} models are loaded in this process; unload some or use "
                                                         "fewer, larger kernels",
                                                         loaded)));
  }
  BATON_TRY(net_, read_net(folder()));
  BATON_TRY(const MilProgram program, parse_mil(net_.mil));
  // What compile has told is not told again.
  Diagnostics quiet(shared_.options.mode);
  std::vector<std::unique_ptr<Procedure>> procedures;
  for (size_t i = 0; i < program.functions.size(); ++i) {
    BATON_TRY(Graph graph, check_mil(program, net_.weights(), compiled_here_ ? quiet : shared_.diagnostics, i));
    procedures.push_back(std::make_unique<Procedure>(std::move(graph), shared_.options.numerics));
    shared_.scratch.resize(std::max(shared_.scratch.size(), procedures.back()->runner.scratch_floats()));
  }
  procedures_ = std::move(procedures);
  ++shared_.counts.loads;
  ++shared_.counts.loaded;
  ++shared_.limited.loaded;
  if (!compiled_here_) ++shared_.counts.loads_without_compile;
  if (const ChipPreset* chip = shared_.options.chip) shared_.counts.emulated_compile_ms += chip->load_ms;
  step_ = Step::kLoaded;
  return {};
}

Status EmulatorDriver::Model::unload() {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ != Step::kLoaded) return fail(rule_error(Rule::kCallOrder, "unload of a model that is not loaded"));
  --shared_.counts.loaded;
  --shared_.limited.loaded;
  step_ = Step::kUnloaded;
  procedures_.clear();
  net_ = {};
  return {};
}

// Ports are numbered through the whole program, so that a caller who does not ask is found.
PortIndices EmulatorDriver::Model::indices_of(size_t procedure) const {
  PortIndices out;
  int32_t input = 0, output = 0;
  for (size_t i = 0; i <= procedure; ++i) {
    const Graph& graph = procedures_[i]->graph;
    for (size_t port = 0; port < graph.inputs.size(); ++port, ++input)
      if (i == procedure) out.inputs.push_back(input);
    for (size_t port = 0; port < graph.outputs.size(); ++port, ++output)
      if (i == procedure) out.outputs.push_back(output);
  }
  return out;
}

Result<PortIndices> EmulatorDriver::Model::port_indices(int32_t procedure) {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ != Step::kLoaded) return fail(rule_error(Rule::kCallOrder, "port indices of a model that is not loaded"));
  if (procedure < 0 || static_cast<size_t>(procedure) >= procedures_.size()) {
    return fail(rule_error(Rule::kProcedure, fmt::format("procedure {} of {}", procedure, procedures_.size())));
  }
  return indices_of(static_cast<size_t>(procedure));
}

Status EmulatorDriver::Model::check_request(const RequestSpec& spec) const {
  if (spec.procedure < 0 || static_cast<size_t>(spec.procedure) >= procedures_.size()) {
    return fail(rule_error(Rule::kProcedure, fmt::format("procedure {} of {}", spec.procedure, procedures_.size())));
  }
  const PortIndices expected = indices_of(static_cast<size_t>(spec.procedure));
  if (spec.inputs.size() != expected.inputs.size() || spec.outputs.size() != expected.outputs.size()) {
    return fail(rule_error(Rule::kPortCount,
                           fmt::format("{} inputs and {} outputs; the program has {} and {}", spec.inputs.size(),
                                       spec.outputs.size(), expected.inputs.size(), expected.outputs.size())));
  }
  if (spec.input_indices != expected.inputs || spec.output_indices != expected.outputs) {
    return fail(rule_error(Rule::kPortIndices,
                           "indices are those of the function's ports: 0 to n - 1 in a program of "
                           "one function, else ask port_indices()"));
  }
  if (spec.weights_buffer != nullptr)
    return fail(rule_error(Rule::kWeightsBuffer, "weightsBuffer does not replace weights"));
  if (spec.perf_stats) return fail(rule_error(Rule::kPerfStats, "perfStats is not for programs like this one"));
  return {};
}

Status EmulatorDriver::Model::check_surfaces(const Graph& graph, std::span<Surface* const> surfaces,
                                             std::span<const int32_t> ports, const char* kind,
                                             std::vector<EmulatedSurface*>* out) const {
  for (size_t i = 0; i < surfaces.size(); ++i) {
    auto* surface = dynamic_cast<EmulatedSurface*>(surfaces[i]);
    if (surface == nullptr)
      return fail(device_error(Fault::kBadArgument, fmt::format("{} {} is not a surface of this driver", kind, i)));
    const uint64_t needed = std::max(port_bytes(graph.type(ports[i])), shared_.options.surface_bytes_min);
    if (surface->properties().alloc_size < needed) {
      return fail(rule_error(Rule::kSurfaceSmall,
                             fmt::format("{} {} has {} bytes, '{}' takes {}", kind, i, surface->properties().alloc_size,
                                         graph.values[static_cast<size_t>(ports[i])].name, needed)));
    }
    out->push_back(surface);
  }
  return {};
}

void EmulatorDriver::Model::count_evaluation(const Procedure& procedure) {
  EmulatorReport& counts = shared_.counts;
  const Graph& graph = procedure.graph;
  ++counts.evaluations;
  counts.flops += graph.flops;
  counts.weight_bytes_read += graph.weight_bytes;
  counts.abs_max = std::max(counts.abs_max, procedure.runner.abs_max());
  if (procedure.runner.uses_tile()) shared_.poisoned = true;
  if (const ChipPreset* chip = shared_.options.chip) {
    const double ms = evaluate_ms(*chip, graph.weight_bytes, graph.flops);
    counts.emulated_ms += ms;
    if (chip->active_watts >= 0) counts.emulated_joules += chip->active_watts * ms * 1e-3;
  }
}

namespace {

bool narrow(const Graph& graph, int64_t columns_min) {
  const auto shorter = [&](int32_t port) { return graph.type(port).dims.back() < columns_min; };
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), shorter) ||
         std::any_of(graph.outputs.begin(), graph.outputs.end(), shorter);
}

}  // namespace

Status EmulatorDriver::Model::evaluate(const Request& request) {
  const std::scoped_lock guard(shared_.mutex);
  if (step_ == Step::kUnloaded)
    return fail(rule_error(Rule::kEvaluateAfterUnload, "evaluate of a model that was unloaded"));
  if (step_ != Step::kLoaded)
    return fail(rule_error(Rule::kEvaluateBeforeLoad, "evaluate of a model that is not loaded"));
  const auto* own = dynamic_cast<const EmulatedRequest*>(&request);
  if (own == nullptr) return fail(device_error(Fault::kBadArgument, "the request is not of this driver"));
  if (shared_.poisoned) return fail(rule_error(Rule::kPoisoned, "a program with tile was evaluated in this process"));
  if (own->used_by != nullptr && own->used_by != this) {
    BATON_OK(shared_.diagnostics.report(Rule::kRequestShared, "a request is used with two models; make one for each"));
  }
  own->used_by = this;
  BATON_OK(check_request(own->spec));
  Procedure& procedure = *procedures_[static_cast<size_t>(own->spec.procedure)];
  std::vector<EmulatedSurface*> inputs, outputs;
  BATON_OK(check_surfaces(procedure.graph, own->spec.inputs, procedure.graph.inputs, "input", &inputs));
  BATON_OK(check_surfaces(procedure.graph, own->spec.outputs, procedure.graph.outputs, "output", &outputs));
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
  procedure.runner.run(from, to, shared_.scratch, shared_.pool, shared_.diagnostics);
  if (narrow(procedure.graph, shared_.options.columns_min)) {
    for (const auto bytes : to) std::fill(bytes.begin(), bytes.end(), std::byte{0});
    shared_.diagnostics.warn(Rule::kNarrowRows, "rows of less than 32 values give zeros, and no error");
  }
  for (EmulatedSurface* output : outputs) output->after_device();
  count_evaluation(procedure);
  return {};
}

ProcessCounts& process_counts() {
  static constinit ProcessCounts counts;
  return counts;
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
                     options.mode == Mode::kStrict ? "strict" : "lenient", to_string(options.numerics.profile),
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
