// Messages to Core ML. Objects made by alloc are owned; everything else belongs to the pool of the call.
#include "baton/unit/coreml/framework.h"

#include <fmt/format.h>

#include <cstring>

#include "baton/base/bytes.h"
#include "baton/unit/coreml/calls.h"
#include "baton/unit/coreml/compute_plan.h"
#include "baton/unit/coreml/objc_block.h"

#if defined(__APPLE__)
#include <dlfcn.h>
#endif

namespace baton::coreml {
namespace {

namespace fs = std::filesystem;
using apple::HalfArrays;
using apple::ObjcApi;
using apple::ObjcId;
using apple::ObjcPool;
using apple::ObjcRef;

constexpr Integer kFloat16 = 65552;  // MLMultiArrayDataTypeFloat16

constexpr BlockDescriptor kBytesBlock = {0, sizeof(Block), "v@?^vq"};          // const void* bytes, NSInteger size
constexpr BlockDescriptor kMutableBytesBlock = {0, sizeof(Block), "v@?^vq@"};  // void* bytes, NSInteger size, strides

// ---- Arrays in and out ----

struct WriteContext {
  const std::vector<uint16_t>* values;
  bool written = false;
};
// A fresh array is dense; its strides are checked before this is called.
void write_values(Block* block, void* bytes, Integer size, ObjcId) {
  auto* context = static_cast<WriteContext*>(block->context);
  const size_t wanted = 2 * context->values->size();
  if (bytes == nullptr || size < 0 || static_cast<size_t>(size) < wanted) return;
  std::memcpy(bytes, context->values->data(), wanted);
  context->written = true;
}

struct ReadContext {
  const std::vector<int64_t>* dims;
  const std::vector<int64_t>* strides;  // in elements
  std::vector<uint16_t>* values;
  bool done = false;
};
// Outputs of the engine may have padded rows.
void read_values(Block* block, const void* bytes, Integer size) {
  auto* context = static_cast<ReadContext*>(block->context);
  const std::vector<int64_t>&dims = *context->dims, &strides = *context->strides;
  uint64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (strides[i] < 0) return;
    last += static_cast<uint64_t>(dims[i] - 1) * static_cast<uint64_t>(strides[i]);
  }
  if (bytes == nullptr || size < 0 || 2 * (last + 1) > static_cast<uint64_t>(size)) return;
  std::vector<int64_t> index(dims.size(), 0);
  uint64_t at = 0;
  for (uint16_t& value : *context->values) {
    value = load_as<uint16_t>(static_cast<const std::byte*>(bytes) + 2 * at);
    for (size_t d = dims.size(); d-- > 0;) {
      at += static_cast<uint64_t>(strides[d]);
      if (++index[d] < dims[d]) break;
      at -= static_cast<uint64_t>(dims[d]) * static_cast<uint64_t>(strides[d]);
      index[d] = 0;
    }
  }
  context->done = true;
}

// ---- A loaded model ----

class FrameworkModel final : public LoadedPackage {
 public:
  FrameworkModel(const Calls& calls, ObjcRef model, apple::PackageSpec spec, DeviceShares shares)
      : calls_(calls), model_(std::move(model)), spec_(std::move(spec)), shares_(std::move(shares)) {}

  Result<HalfArrays> predict(const HalfArrays& inputs) override;
  const DeviceShares& shares() const override { return shares_; }

 private:
  Result<ObjcId> feature(const apple::PackageFeature& feature, const std::vector<uint16_t>& values,
                         std::vector<ObjcRef>* owned) const;
  Result<std::vector<uint16_t>> result(ObjcId provider, const apple::PackageFeature& feature) const;

  const Calls& calls_;
  ObjcRef model_;
  apple::PackageSpec spec_;
  DeviceShares shares_;
};

Result<ObjcId> FrameworkModel::feature(const apple::PackageFeature& feature, const std::vector<uint16_t>& values,
                                       std::vector<ObjcRef>* owned) const {
  ObjcId error = nullptr;
  const ObjcId fresh = calls_.objc.send<ObjcId>(calls_.array_value_class, "alloc");
  const ObjcId array = calls_.objc.send<ObjcId>(
      fresh, "initWithShape:dataType:error:", calls_.integers(feature.type.dims), kFloat16, &error);
  if (array == nullptr) return calls_.refused(error, fmt::format("an array for '{}'", feature.name));
  owned->push_back(calls_.adopt(array));
  WriteContext context{&values};
  Block block(calls_.block_isa, reinterpret_cast<void*>(write_values), kMutableBytesBlock, &context);
  int64_t dense = 1;
  const std::vector<int64_t> strides = calls_.values_of(calls_.objc.send<ObjcId>(array, "strides"));
  bool is_dense = strides.size() == feature.type.dims.size();
  for (size_t i = feature.type.dims.size(); is_dense && i-- > 0; dense *= feature.type.dims[i]) {
    is_dense = feature.type.dims[i] == 1 || strides[i] == dense;
  }
  if (is_dense) calls_.objc.send<void>(array, "getMutableBytesWithHandler:", &block);
  if (!context.written) {
    return fail(Code::kDevice, fmt::format("Core ML: the array for '{}' is not dense or has another size than {}",
                                           feature.name, to_string(feature.type)));
  }
  const ObjcId value = calls_.objc.send<ObjcId>(calls_.feature_class, "featureValueWithMultiArray:", array);
  if (value == nullptr) return calls_.refused(nullptr, fmt::format("a feature value for '{}'", feature.name));
  return value;
}

Result<std::vector<uint16_t>> FrameworkModel::result(ObjcId provider, const apple::PackageFeature& feature) const {
  const ObjcId value = calls_.objc.send<ObjcId>(provider, "featureValueForName:", calls_.string(feature.name));
  const ObjcId array = calls_.objc.send<ObjcId>(value, "multiArrayValue");
  if (array == nullptr) return calls_.refused(nullptr, fmt::format("output '{}' is missing or no array", feature.name));
  const auto type = calls_.objc.send<Integer>(array, "dataType");
  const std::vector<int64_t> dims = calls_.values_of(calls_.objc.send<ObjcId>(array, "shape"));
  const std::vector<int64_t> strides = calls_.values_of(calls_.objc.send<ObjcId>(array, "strides"));
  if (type != kFloat16 || dims != feature.type.dims || strides.size() != dims.size()) {
    return fail(Code::kDevice, fmt::format("Core ML: output '{}' is of type {} and rank {}, expected {}", feature.name,
                                           type, dims.size(), to_string(feature.type)));
  }
  std::vector<uint16_t> values(static_cast<size_t>(apple::element_count(dims).value_or(0)));
  ReadContext context{&dims, &strides, &values};
  Block block(calls_.block_isa, reinterpret_cast<void*>(read_values), kBytesBlock, &context);
  calls_.objc.send<void>(array, "getBytesWithHandler:", &block);
  if (!context.done) return fail(Code::kDevice, fmt::format("Core ML: output '{}' cannot be read", feature.name));
  return values;
}

Result<HalfArrays> FrameworkModel::predict(const HalfArrays& inputs) {
  const ObjcPool pool(calls_.objc);
  std::vector<ObjcRef> owned;
  std::vector<ObjcId> keys, values;
  for (const apple::PackageFeature& input : spec_.inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end() || found->second.size() != apple::element_count(input.type.dims)) {
      return fail(Code::kInvalidInput,
                  fmt::format("input '{}' is missing or does not hold {}", input.name, to_string(input.type)));
    }
    BATON_TRY(const ObjcId value, feature(input, found->second, &owned));
    keys.push_back(calls_.string(input.name));
    values.push_back(value);
  }
  const ObjcId dictionary = calls_.objc.send<ObjcId>(
      calls_.dictionary_class, "dictionaryWithObjects:forKeys:count:", static_cast<const ObjcId*>(values.data()),
      static_cast<const ObjcId*>(keys.data()), static_cast<Unsigned>(keys.size()));
  ObjcId error = nullptr;
  const ObjcId fresh = calls_.objc.send<ObjcId>(calls_.provider_class, "alloc");
  const ObjcId provider = calls_.objc.send<ObjcId>(fresh, "initWithDictionary:error:", dictionary, &error);
  if (provider == nullptr) return calls_.refused(error, "the inputs");
  owned.push_back(calls_.adopt(provider));
  const ObjcId answer = calls_.objc.send<ObjcId>(model_.get(), "predictionFromFeatures:error:", provider, &error);
  if (answer == nullptr) return calls_.refused(error, "prediction");
  HalfArrays outputs;
  for (const apple::PackageFeature& output : spec_.outputs) {
    BATON_TRY(outputs[output.name], result(answer, output));
  }
  return outputs;
}

// ---- The engine ----

class Framework final : public PackageEngine {
 public:
  Framework(std::unique_ptr<Calls> calls, const FrameworkOptions& options)
      : calls_(std::move(calls)), options_(options) {}

  std::string_view name() const override { return "Core ML"; }
  bool emulated() const override { return false; }
  std::string system_version() const override;
  bool has_neural_engine() const override;
  Status compile(const fs::path& package, const fs::path& compiled) override;
  Result<std::unique_ptr<LoadedPackage>> load(const fs::path& compiled, const apple::PackageSpec& spec) override;

 private:
  Result<ObjcRef> configuration() const;
  DeviceShares plan(ObjcId url, ObjcId configuration) const;

  std::unique_ptr<Calls> calls_;
  const FrameworkOptions options_;
};

std::string Framework::system_version() const {
  const ObjcPool pool(calls_->objc);
  const ObjcId process = calls_->objc.send<ObjcId>(calls_->process_class, "processInfo");
  return calls_->text_of(calls_->objc.send<ObjcId>(process, "operatingSystemVersionString"));
}

bool Framework::has_neural_engine() const {
  if (calls_->ane_class == nullptr) return true;  // before macOS 14 the system does not tell
  const ObjcPool pool(calls_->objc);
  const ObjcId devices = calls_->objc.send<ObjcId>(calls_->model_class, "availableComputeDevices");
  const auto count = calls_->objc.send<Unsigned>(devices, "count");
  for (Unsigned i = 0; i < count; ++i) {
    if (device_of(*calls_, calls_->objc.send<ObjcId>(devices, "objectAtIndex:", i)) == Device::kNeuralEngine)
      return true;
  }
  return false;
}

Status Framework::compile(const fs::path& package, const fs::path& compiled) {
  const ObjcPool pool(calls_->objc);
  ObjcId error = nullptr;
  const ObjcId url =
      calls_->objc.send<ObjcId>(calls_->model_class, "compileModelAtURL:error:", calls_->url(package), &error);
  if (url == nullptr) return calls_->refused(error, fmt::format("compile {}", package.filename().string()));
  // The system puts it into a temporary folder, maybe on another volume.
  const fs::path made = calls_->text_of(calls_->objc.send<ObjcId>(url, "path"));
  std::error_code failure, ignored;
  if (made.empty() || !fs::is_directory(made, failure)) {
    return fail(Code::kDevice,
                fmt::format("Core ML: compiled {}, but '{}' is no folder", package.filename().string(), made.string()));
  }
  fs::rename(made, compiled, failure);
  if (!failure) return {};
  failure.clear();
  fs::copy(made, compiled, fs::copy_options::recursive, failure);
  fs::remove_all(made, ignored);
  if (!failure) return {};
  return fail(Code::kDevice,
              fmt::format("{}: cannot keep the compiled program: {}", compiled.string(), failure.message()));
}

Result<ObjcRef> Framework::configuration() const {
  const ObjcId fresh = calls_->objc.send<ObjcId>(calls_->configuration_class, "alloc");
  const ObjcId made = calls_->objc.send<ObjcId>(fresh, "init");
  if (made == nullptr) return calls_->refused(nullptr, "MLModelConfiguration");
  ObjcRef owner = calls_->adopt(made);
  calls_->objc.send<void>(made, "setComputeUnits:", static_cast<Integer>(options_.units));
  return owner;
}

DeviceShares Framework::plan(ObjcId url, ObjcId configuration) const {
  DeviceShares none;
  if (calls_->plan_class == nullptr) {
    none.unknown = "this system has no MLComputePlan (macOS 14.4)";
    return none;
  }
  const auto loaded =
      load_contents(*calls_, calls_->plan_class, "the compute plan", url, configuration, options_.plan_timeout);
  if (loaded) return shares_of(*calls_, loaded->get());
  none.unknown = loaded.error().message;
  return none;
}

Result<std::unique_ptr<LoadedPackage>> Framework::load(const fs::path& compiled, const apple::PackageSpec& spec) {
  const ObjcPool pool(calls_->objc);
  BATON_TRY(const ObjcRef configured, configuration());
  const ObjcId url = calls_->url(compiled);
  auto model = load_contents(*calls_, calls_->model_class, fmt::format("load {}", compiled.filename().string()), url,
                             configured.get(), options_.load_timeout);
  if (!model) {
    const std::string other = options_.units == ComputeUnits::kCpuOnly
                                  ? std::string("prefill on another unit")
                                  : fmt::format("try coreml:units=cpu{}, or a longer coreml:timeout (seconds)",
                                                options_.units == ComputeUnits::kCpuAndGpu ? "" : " or gpu");
    return fail(Code::kDevice,
                fmt::format("{} (asked for {}); {}", model.error().message, to_string(options_.units), other));
  }
  return std::make_unique<FrameworkModel>(*calls_, std::move(*model), spec, plan(url, configured.get()));
}

}  // namespace

Result<std::unique_ptr<PackageEngine>> create_framework(const apple::SymbolLookup& lookup,
                                                        const FrameworkOptions& options) {
  auto calls = std::make_unique<Calls>();
  BATON_OK(calls->find(lookup));
  return std::make_unique<Framework>(std::move(calls), options);
}

Result<std::unique_ptr<PackageEngine>> open_framework(const FrameworkOptions& options) {
#if defined(__APPLE__)
  for (const char* path : {"/System/Library/Frameworks/Foundation.framework/Foundation",
                           "/System/Library/Frameworks/CoreML.framework/CoreML"}) {
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == nullptr)
      return fail(Code::kUnsupported, fmt::format("{} cannot be loaded: too old a system", path));
  }
  return create_framework([](const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); }, options);
#else
  static_cast<void>(options);
  return fail(
      Code::kUnsupported,
      "Core ML needs macOS; coreml:device=emulator runs the same packages in the interpreter, anywhere and slowly");
#endif
}

}  // namespace baton::coreml
