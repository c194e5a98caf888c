// Each virtual function is one message (docs/ane.md, sequence), inside an autorelease pool; what must live longer is
// retained. Every result is checked for nil, every NO is read with its NSError.
#include "baton/unit/apple/driver_apple.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "baton/unit/apple/rule.h"
#include "baton/unit/apple/self_check.h"

namespace baton::apple {
namespace {

constexpr unsigned kQos = 21;
constexpr uint32_t kLockReadOnly = 1;       // kIOSurfaceLockReadOnly
using ObjcBool = unsigned char;             // BOOL, as bool or signed char
constexpr uint32_t kCountSuspicious = 100;  // of compiles or loads, from which a refusal may be the system's limit
constexpr unsigned long kPortsMax = 64;

constexpr const char* kFrameworks[] = {
    "/System/Library/Frameworks/Foundation.framework/Foundation",
    "/System/Library/Frameworks/IOSurface.framework/IOSurface",
    "/System/Library/PrivateFrameworks/AppleNeuralEngine.framework/AppleNeuralEngine",
};

}  // namespace

// Classes, functions and constants, all found before the driver exists; and what every call needs.
struct AppleDriver::Calls {
  ObjcApi objc;
  std::filesystem::path folder;
  std::mutex mutex;  // compiles, loads and unloads come one at a time

  ObjcId descriptor_class = nullptr, model_class = nullptr, request_class = nullptr, surface_class = nullptr;
  ObjcId string_class = nullptr, data_class = nullptr, number_class = nullptr, array_class = nullptr,
         dictionary_class = nullptr;

  void* (*surface_create)(ObjcId properties) = nullptr;
  int32_t (*surface_lock)(void* surface, uint32_t options, uint32_t* seed) = nullptr;
  int32_t (*surface_unlock)(void* surface, uint32_t options, uint32_t* seed) = nullptr;
  void* (*surface_base)(void* surface) = nullptr;
  size_t (*surface_size)(void* surface) = nullptr;
  void (*cf_release)(const void* object) = nullptr;
  // CFStrings: width, height, bytes per element, bytes per row, size, pixel format.
  ObjcId surface_keys[6] = {};

  Status find(const SymbolLookup& lookup);
  ObjcId string(std::string_view text) const {
    return objc.send<ObjcId>(string_class,
                             "stringWithUTF8String:", static_cast<const char*>(std::string(text).c_str()));
  }
  ObjcId data(std::span<const std::byte> bytes) const {
    return objc.send<ObjcId>(data_class, "dataWithBytes:length:", static_cast<const void*>(bytes.data()),
                             static_cast<unsigned long>(bytes.size()));
  }
  ObjcId number(unsigned long value) const { return objc.send<ObjcId>(number_class, "numberWithUnsignedLong:", value); }
  ObjcId array(const std::vector<ObjcId>& items) const {
    return objc.send<ObjcId>(array_class, "arrayWithObjects:count:", static_cast<const ObjcId*>(items.data()),
                             static_cast<unsigned long>(items.size()));
  }
  ObjcId dictionary(const std::vector<ObjcId>& keys, const std::vector<ObjcId>& values) const {
    return objc.send<ObjcId>(dictionary_class,
                             "dictionaryWithObjects:forKeys:count:", static_cast<const ObjcId*>(values.data()),
                             static_cast<const ObjcId*>(keys.data()), static_cast<unsigned long>(keys.size()));
  }
  std::string text_of(ObjcId string) const {
    const char* text = objc.send<const char*>(string, "UTF8String");
    return text != nullptr ? text : "";
  }
  // A NO: the words of the error when there is one, else `fault`.
  tl::unexpected<Error> refused(ObjcId error, Fault fault, std::string_view doing) const;
};

tl::unexpected<Error> AppleDriver::Calls::refused(ObjcId error, Fault fault, std::string_view doing) const {
  const std::string words = error != nullptr ? text_of(objc.send<ObjcId>(error, "description")) : "no error given";
  const Fault found = fault_in(words);
  return fail(device_error(found == Fault::kUnknown ? fault : found, fmt::format("{}: {}", doing, words)));
}

Status AppleDriver::Calls::find(const SymbolLookup& lookup) {
  BATON_TRY(objc, find_objc(lookup));
  const std::pair<const char*, ObjcId*> classes[] = {
      {"NSString", &string_class},
      {"NSData", &data_class},
      {"NSNumber", &number_class},
      {"NSArray", &array_class},
      {"NSDictionary", &dictionary_class},
      {"_ANEInMemoryModelDescriptor", &descriptor_class},
      {"_ANEInMemoryModel", &model_class},
      {"_ANERequest", &request_class},
      {"_ANEIOSurfaceObject", &surface_class},
  };
  for (const auto& [name, to] : classes) {
    *to = objc.get_class(name);
    if (*to == nullptr)
      return fail(Code::kUnsupported, fmt::format("this system has no class {}: no neural engine to use", name));
  }
  const std::pair<const char*, void**> functions[] = {
      {"IOSurfaceCreate", reinterpret_cast<void**>(&surface_create)},
      {"IOSurfaceLock", reinterpret_cast<void**>(&surface_lock)},
      {"IOSurfaceUnlock", reinterpret_cast<void**>(&surface_unlock)},
      {"IOSurfaceGetBaseAddress", reinterpret_cast<void**>(&surface_base)},
      {"IOSurfaceGetAllocSize", reinterpret_cast<void**>(&surface_size)},
      {"CFRelease", reinterpret_cast<void**>(&cf_release)},
  };
  for (const auto& [name, to] : functions) {
    *to = lookup(name);
    if (*to == nullptr) return fail(Code::kUnsupported, fmt::format("this system has no function {}", name));
  }
  constexpr const char* kKeys[] = {"kIOSurfaceWidth",       "kIOSurfaceHeight",    "kIOSurfaceBytesPerElement",
                                   "kIOSurfaceBytesPerRow", "kIOSurfaceAllocSize", "kIOSurfacePixelFormat"};
  for (size_t i = 0; i < std::size(kKeys); ++i) {
    const auto* key = static_cast<const ObjcId*>(lookup(kKeys[i]));
    if (key == nullptr || *key == nullptr)
      return fail(Code::kUnsupported, fmt::format("this system has no constant {}", kKeys[i]));
    surface_keys[i] = *key;
  }
  return {};
}

class AppleDriver::IoSurface final : public Surface {
 public:
  // Takes over `surface`.
  IoSurface(Calls& calls, void* surface, const SurfaceProperties& properties)
      : calls_(calls), surface_(surface), properties_(properties) {}
  ~IoSurface() override {
    object_ = {};
    calls_.cf_release(surface_);
  }
  Status prepare();

  const SurfaceProperties& properties() const override { return properties_; }
  Result<std::span<std::byte>> lock(LockMode mode) override {
    BATON_OK(call(calls_.surface_lock, mode, "lock"));
    auto* base = static_cast<std::byte*>(calls_.surface_base(surface_));
    if (base == nullptr) {
      static_cast<void>(unlock(mode));
      return fail(device_error(Fault::kNoMemory, "a locked surface has no address"));
    }
    return std::span<std::byte>(base, properties_.alloc_size);
  }
  Status unlock(LockMode mode) override { return call(calls_.surface_unlock, mode, "unlock"); }
  ObjcId object() const { return object_.get(); }

 private:
  Status call(int32_t (*function)(void*, uint32_t, uint32_t*), LockMode mode, const char* doing) {
    const int32_t code = function(surface_, mode == LockMode::kReadOnly ? kLockReadOnly : 0, nullptr);
    if (code == 0) return {};
    const std::string words = fmt::format("0x{:08x}", static_cast<uint32_t>(code));
    return fail(device_error(fault_in(words), fmt::format("cannot {} a surface: {}", doing, words)));
  }

  Calls& calls_;
  void* surface_;
  const SurfaceProperties properties_;
  ObjcRef object_;
};

// Zeros, and the object that requests hold.
Status AppleDriver::IoSurface::prepare() {
  if (calls_.surface_size(surface_) < properties_.alloc_size) {
    return fail(device_error(Fault::kNoMemory, fmt::format("a surface has {} bytes, {} were asked for",
                                                           calls_.surface_size(surface_), properties_.alloc_size)));
  }
  BATON_TRY(const std::span<std::byte> bytes, lock(LockMode::kReadWrite));
  std::memset(bytes.data(), 0, bytes.size());
  BATON_OK(unlock(LockMode::kReadWrite));
  object_ = ObjcRef(calls_.objc, calls_.objc.send<ObjcId>(calls_.surface_class, "objectWithIOSurface:", surface_));
  if (object_.get() == nullptr) return fail(device_error(Fault::kNoResources, "objectWithIOSurface: gave nil"));
  return {};
}

class AppleDriver::IoRequest final : public Request {
 public:
  explicit IoRequest(ObjcRef request) : request_(std::move(request)) {}
  ObjcId object() const { return request_.get(); }

 private:
  ObjcRef request_;
};

class AppleDriver::Model final : public DeviceModel {
 public:
  Model(Calls& calls, ObjcRef model, std::string identifier)
      : calls_(calls), model_(std::move(model)), identifier_(std::move(identifier)) {}
  ~Model() override {
    if (loaded_) static_cast<void>(unload());
  }

  const std::string& identifier() const override { return identifier_; }
  Status compile() override {
    BATON_OK(step("compileWithQoS:options:error:", Fault::kCompile, "compile"));
    ++process_counts().compiles;
    return {};
  }
  Status load() override {
    if (loaded_) return fail(rule_error(Rule::kLoadTwice, "load of a model that is loaded"));
    BATON_OK(step("loadWithQoS:options:error:", Fault::kRecompile, "load"));
    loaded_ = true;
    ++process_counts().loaded;
    return {};
  }
  Result<PortIndices> port_indices(int32_t procedure) override;
  Status evaluate(const Request& request) override;
  Status unload() override;

 private:
  Result<std::vector<int32_t>> indices(ObjcId model, const char* selector, int32_t procedure) const;
  Status step(const char* selector, Fault fault, const char* doing);

  Calls& calls_;
  ObjcRef model_;
  const std::string identifier_;
  std::mutex mutex_;  // one evaluation of a model at a time; those of other models may be under way
  bool loaded_ = false;
};

Status AppleDriver::Model::step(const char* selector, Fault fault, const char* doing) {
  const std::scoped_lock guard(calls_.mutex);
  const ObjcPool pool(calls_.objc);
  ObjcId error = nullptr;
  const auto done = calls_.objc.send<ObjcBool>(model_.get(), selector, kQos, calls_.dictionary({}, {}), &error);
  if (done != 0) return {};
  Error refused = calls_.refused(error, fault, doing).value();
  const ProcessCounts& counts = process_counts();
  if (std::max<uint32_t>(counts.compiles, counts.loaded) < kCountSuspicious) return fail(std::move(refused));
  refused.message += fmt::format(
      "; this process has compiled {} programs and has {} loaded, and systems refuse at about 119 of either: a new "
      "process "
      "finds what is compiled in the cache, and ane:kernels=N leaves the rest to the host",
      counts.compiles.load(), counts.loaded.load());
  return fail(std::move(refused));
}

// The indices of one function's ports, as the system numbers them.
Result<std::vector<int32_t>> AppleDriver::Model::indices(ObjcId model, const char* selector, int32_t procedure) const {
  const ObjcId set = calls_.objc.send<ObjcId>(model, selector, static_cast<unsigned>(procedure));
  if (set == nullptr) return fail(device_error(Fault::kBadArgument, fmt::format("{} gave nil", selector)));
  std::vector<int32_t> out;
  const auto count = calls_.objc.send<unsigned long>(set, "count");
  for (unsigned long i = 0, at = 0; i < count && i < kPortsMax; ++i) {
    at = i == 0 ? calls_.objc.send<unsigned long>(set, "firstIndex")
                : calls_.objc.send<unsigned long>(set, "indexGreaterThanIndex:", at);
    out.push_back(static_cast<int32_t>(at));
  }
  return out;
}

Result<PortIndices> AppleDriver::Model::port_indices(int32_t procedure) {
  if (!loaded_) return fail(rule_error(Rule::kCallOrder, "port indices of a model that is not loaded"));
  const ObjcPool pool(calls_.objc);
  const ObjcId inner = calls_.objc.send<ObjcId>(model_.get(), "model");
  if (inner == nullptr) return fail(device_error(Fault::kBadArgument, "the loaded model has no inner model"));
  PortIndices out;
  BATON_TRY(out.inputs, indices(inner, "inputSymbolIndicesForProcedureIndex:", procedure));
  BATON_TRY(out.outputs, indices(inner, "outputSymbolIndicesForProcedureIndex:", procedure));
  return out;
}

Status AppleDriver::Model::evaluate(const Request& request) {
  const std::scoped_lock guard(mutex_);
  // The system may answer YES and leave garbage: what is known to be wrong is refused here.
  if (!loaded_) return fail(rule_error(Rule::kEvaluateBeforeLoad, "evaluate of a model that is not loaded"));
  const auto* own = dynamic_cast<const IoRequest*>(&request);
  if (own == nullptr) return fail(device_error(Fault::kBadArgument, "the request is not of this driver"));
  const ObjcPool pool(calls_.objc);
  ObjcId error = nullptr;
  const auto done = calls_.objc.send<ObjcBool>(model_.get(), "evaluateWithQoS:options:request:error:", kQos,
                                               calls_.dictionary({}, {}), own->object(), &error);
  if (done == 0) return calls_.refused(error, Fault::kInference, "evaluate");
  return {};
}

Status AppleDriver::Model::unload() {
  const std::scoped_lock guard(calls_.mutex, mutex_);
  if (!loaded_) return fail(rule_error(Rule::kCallOrder, "unload of a model that is not loaded"));
  loaded_ = false;
  --process_counts().loaded;
  const ObjcPool pool(calls_.objc);
  ObjcId error = nullptr;
  if (calls_.objc.send<ObjcBool>(model_.get(), "unloadWithQoS:error:", kQos, &error) == 0) {
    return calls_.refused(error, Fault::kNotReady, "unload");
  }
  return {};
}

Result<std::unique_ptr<DeviceModel>> AppleDriver::create_model(std::string_view mil,
                                                               const std::vector<WeightEntry>* weights) {
  if (mil.empty()) return fail(rule_error(Rule::kTextMissing, "no MIL text"));
  if (weights == nullptr) return fail(rule_error(Rule::kWeightsMissing, "no weights dictionary"));
  const ObjcPool pool(calls_->objc);
  std::vector<ObjcId> keys, values;
  for (const WeightEntry& entry : *weights) {
    keys.push_back(calls_->string(entry.key));
    values.push_back(calls_->dictionary({calls_->string("offset"), calls_->string("data")},
                                        {calls_->number(entry.offset), calls_->data(entry.data)}));
  }
  const ObjcId text = calls_->data(std::as_bytes(std::span<const char>(mil)));
  const ObjcId descriptor =
      calls_->objc.send<ObjcId>(calls_->descriptor_class, "modelWithMILText:weights:optionsPlist:", text,
                                calls_->dictionary(keys, values), static_cast<ObjcId>(nullptr));
  if (descriptor == nullptr)
    return fail(device_error(Fault::kProgram, "modelWithMILText: gave nil; the text is not accepted"));
  ObjcRef model(calls_->objc,
                calls_->objc.send<ObjcId>(calls_->model_class, "inMemoryModelWithDescriptor:", descriptor));
  if (model.get() == nullptr) return fail(device_error(Fault::kNoResources, "inMemoryModelWithDescriptor: gave nil"));
  std::string identifier = calls_->text_of(calls_->objc.send<ObjcId>(model.get(), "hexStringIdentifier"));
  if (identifier.find_first_of("/\\") != std::string::npos || identifier == "." || identifier == "..") {
    return fail(device_error(Fault::kProgram, fmt::format("'{}' cannot be the name of a folder", identifier)));
  }
  if (identifier.empty()) identifier = fmt::format("baton-{:016x}", XXH3_64bits(mil.data(), mil.size()));
  return std::make_unique<Model>(*calls_, std::move(model), std::move(identifier));
}

Result<std::unique_ptr<Surface>> AppleDriver::create_surface(const SurfaceProperties& properties) {
  if (properties.alloc_size == 0) return fail(rule_error(Rule::kSurfaceNotFlat, "a surface of 0 bytes"));
  const ObjcPool pool(calls_->objc);
  const uint64_t numbers[] = {properties.width,         properties.height,     properties.bytes_per_element,
                              properties.bytes_per_row, properties.alloc_size, properties.pixel_format};
  std::vector<ObjcId> keys, values;
  for (size_t i = 0; i < std::size(numbers); ++i) {
    keys.push_back(calls_->surface_keys[i]);
    values.push_back(calls_->number(numbers[i]));
  }
  void* created = calls_->surface_create(calls_->dictionary(keys, values));
  if (created == nullptr) {
    return fail(device_error(Fault::kNoMemory,
                             fmt::format("IOSurfaceCreate gave nothing for {} bytes", properties.alloc_size)));
  }
  auto surface = std::make_unique<IoSurface>(*calls_, created, properties);
  BATON_OK(surface->prepare());
  return surface;
}

Result<std::unique_ptr<Request>> AppleDriver::create_request(const RequestSpec& spec) {
  // Both are known to fail or to do nothing.
  if (spec.weights_buffer != nullptr)
    return fail(rule_error(Rule::kWeightsBuffer, "weightsBuffer does not replace weights"));
  if (spec.perf_stats) return fail(rule_error(Rule::kPerfStats, "perfStats is not for programs like this one"));
  const ObjcPool pool(calls_->objc);
  const auto objects = [&](const std::vector<Surface*>& surfaces) -> Result<ObjcId> {
    std::vector<ObjcId> items;
    for (Surface* surface : surfaces) {
      const auto* own = dynamic_cast<const IoSurface*>(surface);
      if (own == nullptr) return fail(device_error(Fault::kBadArgument, "a surface is not of this driver"));
      items.push_back(own->object());
    }
    return calls_->array(items);
  };
  const auto indices = [&](const std::vector<int32_t>& values) {
    std::vector<ObjcId> items;
    for (const int32_t value : values) items.push_back(calls_->number(static_cast<unsigned long>(value)));
    return calls_->array(items);
  };
  BATON_TRY(const ObjcId inputs, objects(spec.inputs));
  BATON_TRY(const ObjcId outputs, objects(spec.outputs));
  ObjcRef request(
      calls_->objc,
      calls_->objc.send<ObjcId>(
          calls_->request_class,
          "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:", inputs,
          indices(spec.input_indices), outputs, indices(spec.output_indices), static_cast<ObjcId>(nullptr),
          static_cast<ObjcId>(nullptr), calls_->number(static_cast<unsigned long>(spec.procedure))));
  if (request.get() == nullptr) return fail(device_error(Fault::kBadArgument, "requestWithInputs: gave nil"));
  return std::make_unique<IoRequest>(std::move(request));
}

AppleDriver::AppleDriver(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
AppleDriver::~AppleDriver() = default;

std::string AppleDriver::evidence() const {
  return "evaluated by the system's _ANEInMemoryModel; that the neural engine did it shows only in its power";
}

std::filesystem::path AppleDriver::temporary_folder() const { return calls_->folder; }

Result<std::unique_ptr<AppleDriver>> AppleDriver::create(const SymbolLookup& lookup, const AppleOptions& options) {
  auto calls = std::make_unique<Calls>();
  BATON_OK(calls->find(lookup));
  calls->folder = options.temporary_folder;
  if (calls->folder.empty()) {
    const ObjcPool pool(calls->objc);
    const auto system_folder = reinterpret_cast<ObjcId (*)()>(lookup("NSTemporaryDirectory"));
    if (system_folder != nullptr) calls->folder = calls->text_of(system_folder());
  }
  if (calls->folder.empty()) {
    const char* variable = std::getenv("TMPDIR");
    calls->folder = variable != nullptr ? variable : "/tmp";
  }
  std::unique_ptr<AppleDriver> driver(new AppleDriver(std::move(calls)));
  if (options.self_check) BATON_OK(self_check(*driver));
  return driver;
}

Result<std::unique_ptr<AppleDriver>> AppleDriver::open(const AppleOptions& options) {
#if defined(__APPLE__)
  for (const char* path : kFrameworks) {
    // Most of them are in the system's shared cache only: there is no file to look for.
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      return fail(Code::kUnsupported, fmt::format("{} cannot be loaded: not Apple silicon, or too old a system", path));
    }
  }
  return create([](const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); }, options);
#else
  static_cast<void>(options);
  static_cast<void>(kFrameworks);
  return fail(Code::kUnsupported, "the neural engine needs macOS on Apple silicon; the emulator runs anywhere");
#endif
}

}  // namespace baton::apple
