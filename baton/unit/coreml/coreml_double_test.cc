// The classes behind the doubles. Method types are those of docs/coreml.md.
#include "baton/unit/coreml/coreml_double_test.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "baton/base/bytes.h"
#include "baton/unit/apple/mlpackage/interpreter.h"
#include "baton/unit/coreml/objc_block.h"

// For the leak sanitizer, where there is one: the runtime never frees the names of classes, selectors and methods.
extern "C" const char* __lsan_default_suppressions() { return "leak:libobjc.so"; }

namespace baton::coreml {
namespace {

namespace fs = std::filesystem;
using Id = apple::ObjcId;
using Sel = apple::ObjcSelector;

constexpr long kFloat16 = 65552;
constexpr int64_t kRowPadding = 32;  // outputs' rows are multiples of this many values

struct Object {
  std::string kind;
  int retains = 1;
  std::string text;
  long number = 0;
  double real = 0;
  std::vector<Id> keys, items;  // retained
  std::vector<int64_t> dims, strides;
  std::vector<uint16_t> values;
  std::unique_ptr<apple::PackageInterpreter> interpreter;
};

struct Runtime {
  Id (*allocate_class)(Id parent, const char* name, size_t extra) = nullptr;
  void (*register_class)(Id type) = nullptr;
  unsigned char (*add_method)(Id type, Sel name, void* function, const char* types) = nullptr;
  Id (*create_instance)(Id type, size_t extra) = nullptr;
  Id (*dispose)(Id object) = nullptr;
  Id (*get_class)(const char* name) = nullptr;
  const char* (*class_name)(Id type) = nullptr;
  Sel (*register_name)(const char* name) = nullptr;
  void* library = nullptr;
};

}  // namespace

struct CoreMlDouble::State {
  Runtime runtime;
  std::recursive_mutex mutex;  // the plan is answered from another thread
  std::unordered_map<Id, Object> objects;
  std::map<std::thread::id, std::vector<std::vector<Id>>> pools;
  std::vector<std::string> log, complaints;
  std::string failing, failing_words;
  std::set<std::string> hidden;
  fs::path temporary_folder;
  std::string system = "Version 15.0 (Build 24A335)";
  double plan_share = 1;
  std::string plan_rest = "cpu", spoilt;
  bool plan_costs = true, neural_engine = true;
  PlanAnswers answers = PlanAnswers::kAtOnce, load_answers = PlanAnswers::kAtOnce;
  std::vector<std::thread> threads;
  long compute_units = -1;
  int block_class = 0;
  int compiled = 0;

  void complain(std::string what) { complaints.push_back(std::move(what)); }
  bool fails(const char* call) {
    log.emplace_back(call);
    return failing == call;
  }
  Id create(const std::string& kind) {
    const Id object = runtime.create_instance(runtime.get_class(kind.c_str()), 0);
    objects[object].kind = kind;
    return object;
  }
  // Autoreleased.
  Id make(const char* kind) {
    const Id object = create(kind);
    auto& own = pools[std::this_thread::get_id()];
    if (own.empty()) {
      complain(fmt::format("a {} is made without a pool", kind));
    } else {
      own.back().push_back(object);
    }
    return object;
  }
  Object* find(Id object, const char* kind, const char* call) {
    const auto found = objects.find(object);
    if (found != objects.end() && found->second.kind == kind) return &found->second;
    complain(fmt::format("{}: expected a {}", call, kind));
    return nullptr;
  }
  void retain(Id object) {
    const auto found = objects.find(object);
    if (found == objects.end()) return complain("retain of an object that is gone");
    ++found->second.retains;
  }
  void release(Id object) {
    const auto found = objects.find(object);
    if (found == objects.end()) return complain("release of an object that is gone");
    if (--found->second.retains > 0) return;
    std::vector<Id> held = found->second.keys;
    held.insert(held.end(), found->second.items.begin(), found->second.items.end());
    objects.erase(found);
    runtime.dispose(object);
    for (const Id item : held) release(item);
  }
  void hold(Id owner, std::vector<Id> Object::*list, Id item) {
    retain(item);
    (objects[owner].*list).push_back(item);
  }
  Id string(std::string text) {
    const Id object = make("NSString");
    objects[object].text = std::move(text);
    return object;
  }
  Id array(const std::vector<Id>& items) {
    const Id object = make("NSArray");
    for (const Id item : items) hold(object, &Object::items, item);
    return object;
  }
  Id numbers(const std::vector<int64_t>& values) {
    std::vector<Id> items;
    for (const int64_t value : values) {
      items.push_back(make("NSNumber"));
      objects[items.back()].number = static_cast<long>(value);
    }
    return array(items);
  }
  Id refuse(Id* error, const std::string& words) {
    if (error == nullptr) {
      complain("no place for the error");
    } else if (!words.empty()) {
      *error = make("NSError");
      objects[*error].text = words;
    }
    return nullptr;
  }
};

namespace {

using State = CoreMlDouble::State;
using Lock = std::scoped_lock<std::recursive_mutex>;
State* current = nullptr;  // of the one double that lives

// ---- Foundation ----

Id retain(Id self, Sel) {
  const Lock lock(current->mutex);
  current->retain(self);
  return self;
}
void release(Id self, Sel) {
  const Lock lock(current->mutex);
  current->release(self);
}
Id alloc(Id self, Sel) {
  const Lock lock(current->mutex);
  return current->create(current->runtime.class_name(self));
}
unsigned char is_kind_of(Id self, Sel, Id type) {
  const Lock lock(current->mutex);
  return current->objects[self].kind == current->runtime.class_name(type) ? 1 : 0;
}
Id string_with(Id, Sel, const char* text) {
  const Lock lock(current->mutex);
  return current->string(text);
}
const char* utf8_string(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "NSString", "UTF8String");
  return object != nullptr ? object->text.c_str() : nullptr;
}
Id description(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "NSError", "localizedDescription");
  return object != nullptr ? current->string(object->text) : nullptr;
}
Id url_with(Id, Sel, Id path, unsigned char is_folder) {
  const Lock lock(current->mutex);
  const Object* text = current->find(path, "NSString", "fileURLWithPath:isDirectory:");
  if (is_folder != 1) current->complain("fileURLWithPath:isDirectory: packages are folders");
  const Id object = current->make("NSURL");
  current->objects[object].text = text != nullptr ? text->text : "";
  return object;
}
Id url_path(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "NSURL", "path");
  return object != nullptr ? current->string(object->text) : nullptr;
}
Id number_with(Id, Sel, long value) {
  const Lock lock(current->mutex);
  const Id object = current->make("NSNumber");
  current->objects[object].number = value;
  return object;
}
long integer_value(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "NSNumber", "integerValue");
  return object != nullptr ? object->number : 0;
}
Id array_with(Id, Sel, const Id* items, unsigned long count) {
  const Lock lock(current->mutex);
  return current->array({items, items + count});
}
unsigned long count_of(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "NSArray", "count");
  return object != nullptr ? object->items.size() : 0;
}
Id object_at(Id self, Sel, unsigned long index) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "NSArray", "objectAtIndex:");
  if (object != nullptr && index < object->items.size()) return object->items[index];
  current->complain("objectAtIndex: beyond the end");
  return nullptr;
}
Id dictionary_with(Id, Sel, const Id* items, const Id* keys, unsigned long count) {
  const Lock lock(current->mutex);
  const Id object = current->make("NSDictionary");
  for (unsigned long i = 0; i < count; ++i) {
    current->hold(object, &Object::items, items[i]);
    current->hold(object, &Object::keys, keys[i]);
  }
  return object;
}
Id value_for(const Object& dictionary, std::string_view key) {
  for (size_t i = 0; i < dictionary.keys.size(); ++i) {
    if (current->objects[dictionary.keys[i]].text == key) return dictionary.items[i];
  }
  return nullptr;
}
Id object_for(Id self, Sel, Id key) {
  const Lock lock(current->mutex);
  const Object *object = current->find(self, "NSDictionary", "objectForKey:"),
               *text = current->find(key, "NSString", "objectForKey:");
  return object != nullptr && text != nullptr ? value_for(*object, text->text) : nullptr;
}
Id process_info(Id, Sel) {
  const Lock lock(current->mutex);
  return current->make("NSProcessInfo");
}
Id system_version(Id, Sel) {
  const Lock lock(current->mutex);
  return current->string(current->system);
}

// ---- Arrays and features ----

Id array_init(Id self, Sel, Id shape, long type, Id* error) {
  constexpr const char* kCall = "initWithShape:dataType:error:";
  const Lock lock(current->mutex);
  const Object* dims = current->find(shape, "NSArray", kCall);
  if (current->fails(kCall) || dims == nullptr) {
    current->release(self);  // a failed init gives back what alloc made
    return current->refuse(error, current->failing_words);
  }
  if (type != kFloat16) current->complain(fmt::format("{}: type {}", kCall, type));
  Object& made = current->objects[self];
  int64_t count = 1;
  for (const Id item : dims->items) made.dims.push_back(current->objects[item].number);
  for (const int64_t dim : made.dims) count *= dim;
  made.strides.assign(made.dims.size(), 1);
  for (size_t i = made.dims.size(); i-- > 1;) made.strides[i - 1] = made.strides[i] * made.dims[i];
  made.values.assign(static_cast<size_t>(count), 0x7e00);  // NaN until written
  return self;
}
Id array_shape(Id self, Sel) {
  const Lock lock(current->mutex);
  const std::vector<int64_t> dims = current->objects[self].dims;
  return current->numbers(dims);
}
Id array_strides(Id self, Sel) {
  const Lock lock(current->mutex);
  const std::vector<int64_t> strides = current->objects[self].strides;
  return current->numbers(strides);
}
long array_type(Id self, Sel) {
  const Lock lock(current->mutex);
  return current->objects[self].number != 0 ? current->objects[self].number : kFloat16;
}
// What the system relies on in a block.
void check_block(const Block* block, const char* signature) {
  if (block->isa != &current->block_class) current->complain("a block without its class");
  if ((block->flags & kBlockIsGlobal) == 0 || (block->flags & kBlockHasSignature) == 0)
    current->complain("flags of a block");
  if (block->descriptor == nullptr || block->descriptor->size != sizeof(Block) ||
      std::string_view(block->descriptor->signature) != signature) {
    current->complain("descriptor of a block");
  }
}
void mutable_bytes(Id self, Sel, Block* block) {
  const Lock lock(current->mutex);
  if (current->fails("getMutableBytesWithHandler:")) return;
  check_block(block, "v@?^vq@");
  Object& object = current->objects[self];
  reinterpret_cast<void (*)(Block*, void*, long, Id)>(block->invoke)(
      block, object.values.data(), static_cast<long>(2 * object.values.size()), current->numbers(object.strides));
}
void bytes(Id self, Sel, Block* block) {
  const Lock lock(current->mutex);
  if (current->fails("getBytesWithHandler:")) return;
  check_block(block, "v@?^vq");
  const Object& object = current->objects[self];
  reinterpret_cast<void (*)(Block*, const void*, long)>(block->invoke)(block, object.values.data(),
                                                                       static_cast<long>(2 * object.values.size()));
}
Id feature_with(Id, Sel, Id array) {
  constexpr const char* kCall = "featureValueWithMultiArray:";
  const Lock lock(current->mutex);
  if (current->fails(kCall) || current->find(array, "MLMultiArray", kCall) == nullptr) return nullptr;
  const Id object = current->make("MLFeatureValue");
  current->hold(object, &Object::items, array);
  return object;
}
Id feature_array(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "MLFeatureValue", "multiArrayValue");
  return current->fails("multiArrayValue") || object == nullptr ? nullptr : object->items[0];
}
Id provider_init(Id self, Sel, Id dictionary, Id* error) {
  constexpr const char* kCall = "initWithDictionary:error:";
  const Lock lock(current->mutex);
  if (current->fails(kCall) || current->find(dictionary, "NSDictionary", kCall) == nullptr) {
    current->release(self);
    return current->refuse(error, current->failing_words);
  }
  current->hold(self, &Object::items, dictionary);
  return self;
}
Id provider_value(Id self, Sel, Id name) {
  constexpr const char* kCall = "featureValueForName:";
  const Lock lock(current->mutex);
  const Object *object = current->find(self, "MLDictionaryFeatureProvider", kCall),
               *text = current->find(name, "NSString", kCall);
  if (current->fails(kCall) || object == nullptr || text == nullptr) return nullptr;
  return value_for(current->objects[object->items[0]], text->text);
}

// ---- Models ----

Id configuration_init(Id self, Sel) {
  const Lock lock(current->mutex);
  if (!current->fails("init")) return self;
  current->release(self);
  return nullptr;
}
void set_compute_units(Id self, Sel, long units) {
  const Lock lock(current->mutex);
  current->fails("setComputeUnits:");
  current->find(self, "MLModelConfiguration", "setComputeUnits:");
  current->compute_units = units;
}
Id compile(Id, Sel, Id url, Id* error) {
  constexpr const char* kCall = "compileModelAtURL:error:";
  const Lock lock(current->mutex);
  const Object* place = current->find(url, "NSURL", kCall);
  if (current->fails(kCall) || place == nullptr) return current->refuse(error, current->failing_words);
  const auto package = apple::open_package(place->text);
  if (!package) return current->refuse(error, package.error().message);
  const fs::path made = current->temporary_folder / fmt::format("m{}.mlmodelc", current->compiled++);
  fs::copy(place->text, made, fs::copy_options::recursive);
  const Id object = current->make("NSURL");
  current->objects[object].text = made.string();
  return object;
}
Id make_model(const std::string& place, Id* error) {
  auto interpreter = apple::PackageInterpreter::open(place, 1);
  if (!interpreter) return current->refuse(error, interpreter.error().message);
  const Id object = current->make("MLModel");
  current->objects[object].interpreter = std::move(*interpreter);
  current->objects[object].text = place;
  return object;
}
// An output with rows at multiples of kRowPadding values.
Id padded_array(const apple::PackageFeature& feature, const std::vector<uint16_t>& values) {
  const Id object = current->make("MLMultiArray");
  Object& made = current->objects[object];
  made.dims = feature.type.dims;
  const int64_t width = made.dims.back(), pitch = (width + kRowPadding - 1) / kRowPadding * kRowPadding;
  made.strides.assign(made.dims.size(), 1);
  int64_t stride = pitch;
  for (size_t i = made.dims.size() - 1; i-- > 0; stride *= made.dims[i]) made.strides[i] = stride;
  made.values.assign(static_cast<size_t>(stride), 0x7e00);
  for (size_t row = 0; row * static_cast<size_t>(width) < values.size(); ++row) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row) * width, width,
                made.values.begin() + static_cast<std::ptrdiff_t>(row) * pitch);
  }
  if (current->spoilt == "shape") made.dims[1] += 1;
  if (current->spoilt == "type") made.number = 65568;
  if (current->spoilt == "nan") std::fill(made.values.begin(), made.values.end(), 0x7e00);
  if (current->spoilt == "short") made.values.resize(made.values.size() / 2);
  return object;
}
Id predict(Id self, Sel, Id provider, Id* error) {
  constexpr const char* kCall = "predictionFromFeatures:error:";
  const Lock lock(current->mutex);
  const Object* features = current->find(provider, "MLDictionaryFeatureProvider", kCall);
  Object* model = current->find(self, "MLModel", kCall);
  if (current->fails(kCall) || features == nullptr || model == nullptr)
    return current->refuse(error, current->failing_words);
  apple::HalfArrays inputs;
  const Object& dictionary = current->objects[features->items[0]];
  for (size_t i = 0; i < dictionary.keys.size(); ++i) {
    const Id array = current->objects[dictionary.items[i]].items.at(0);
    inputs[current->objects[dictionary.keys[i]].text] = current->objects[array].values;
  }
  apple::PackageInterpreter& interpreter = *model->interpreter;
  if (inputs.size() != interpreter.spec().inputs.size()) current->complain("inputs that the model does not have");
  const auto outputs = interpreter.predict(inputs);
  if (!outputs) return current->refuse(error, outputs.error().message);
  const Id results = current->make("NSDictionary"), answer = current->make("MLDictionaryFeatureProvider");
  for (const apple::PackageFeature& output : interpreter.spec().outputs) {
    const Id value = current->make("MLFeatureValue");
    current->hold(value, &Object::items, padded_array(output, outputs->at(output.name)));
    current->hold(results, &Object::items, value);
    current->hold(results, &Object::keys, current->string(output.name));
  }
  current->hold(answer, &Object::items, results);
  return answer;
}
Id available_devices(Id, Sel) {
  const Lock lock(current->mutex);
  std::vector<Id> devices = {current->make("MLCPUComputeDevice"), current->make("MLGPUComputeDevice")};
  if (current->neural_engine) devices.push_back(current->make("MLNeuralEngineComputeDevice"));
  return current->array(devices);
}

// ---- Compute plan ----

void push_pool();
void pop_pool();

// A plan of the program at `place`: constants without a device, then a share of the operations on the engine.
Id make_plan(const std::string& place) {
  const auto package = apple::open_package(place);
  const Id plan = current->make("MLComputePlan");
  std::vector<Id> operations;
  size_t computed = 0, seen = 0;
  for (const apple::MilStatement& statement : package->spec.main.statements)
    computed += statement.op != "const" ? 1 : 0;
  for (const apple::MilStatement& statement : package->spec.main.statements) {
    const Id operation = current->make("MLModelStructureProgramOperation");
    current->objects[operation].text = statement.op;
    const bool engine = static_cast<double>(seen) < current->plan_share * static_cast<double>(computed);
    current->objects[operation].number = statement.op == "const" ? 0 : engine ? 1 : current->plan_rest == "gpu" ? 2 : 3;
    current->objects[operation].real = engine ? 1.0 : 3.0;  // what is not on the engine is dear here
    seen += statement.op != "const" ? 1 : 0;
    operations.push_back(operation);
  }
  const Id list = current->array(operations);
  const auto inside = [&](const char* kind, Id item) {
    const Id object = current->make(kind);
    current->hold(object, &Object::items, item);
    return object;
  };
  const Id block = inside("MLModelStructureProgramBlock", list);
  const Id main = inside("MLModelStructureProgramFunction", block);
  const Id functions = current->make("NSDictionary");
  current->hold(functions, &Object::items, main);
  current->hold(functions, &Object::keys, current->string("main"));
  const Id program = inside("MLModelStructureProgram", functions);
  current->hold(plan, &Object::items, inside("MLModelStructure", program));
  return plan;
}
// Calls the block with `make(error)` as `answers` says, from here or from another thread.
void answer_block(Block* block, PlanAnswers answers, const std::function<Id(Id*)>& make) {
  if (answers == PlanAnswers::kNever) return;
  const auto answer = [block, make] {
    const Lock guard(current->mutex);
    push_pool();
    Id error = nullptr;
    const Id made = make(&error);
    reinterpret_cast<void (*)(Block*, Id, Id)>(block->invoke)(block, made, error);
    pop_pool();
  };
  if (answers != PlanAnswers::kLater && answers != PlanAnswers::kTooLate) return answer();
  const int wait_ms = answers == PlanAnswers::kLater ? 5 : 200;
  current->threads.emplace_back([answer, wait_ms] {
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    answer();
  });
}
void load_plan(Id, Sel, Id url, Id configuration, Block* block) {
  constexpr const char* kCall = "loadContentsOfURL:configuration:completionHandler:";
  const Lock lock(current->mutex);
  current->fails(kCall);
  const Object* place = current->find(url, "NSURL", kCall);
  current->find(configuration, "MLModelConfiguration", kCall);
  check_block(block, "v@?@@");
  if (place == nullptr) return;
  answer_block(block, current->answers, [path = place->text](Id* error) {
    if (current->answers != PlanAnswers::kError) return make_plan(path);
    return current->refuse(error, "the plan is refused");
  });
}
void load_model(Id, Sel, Id url, Id configuration, Block* block) {
  constexpr const char* kCall = "MLModel loadContentsOfURL:configuration:completionHandler:";
  const Lock lock(current->mutex);
  const bool fails = current->fails(kCall);
  const Object* place = current->find(url, "NSURL", kCall);
  current->find(configuration, "MLModelConfiguration", kCall);
  check_block(block, "v@?@@");
  if (place == nullptr) return;
  answer_block(block, current->load_answers, [path = place->text, fails](Id* error) {
    return fails ? current->refuse(error, current->failing_words) : make_model(path, error);
  });
}
Id only_item(Id self, Sel) {
  const Lock lock(current->mutex);
  return current->objects[self].items.at(0);
}
Id usage_of(Id self, Sel, Id operation) {
  constexpr const char* kCall = "computeDeviceUsageForMLProgramOperation:";
  const Lock lock(current->mutex);
  current->find(self, "MLComputePlan", kCall);
  const Object* object = current->find(operation, "MLModelStructureProgramOperation", kCall);
  if (object == nullptr || object->number == 0) return nullptr;
  constexpr const char* kDevices[] = {"", "MLNeuralEngineComputeDevice", "MLGPUComputeDevice", "MLCPUComputeDevice"};
  const char* kind = kDevices[object->number];
  const Id usage = current->make("MLComputePlanDeviceUsage");
  current->hold(usage, &Object::items, current->make(kind));
  return usage;
}
Id cost_of(Id self, Sel, Id operation) {
  constexpr const char* kCall = "estimatedCostOfMLProgramOperation:";
  const Lock lock(current->mutex);
  current->find(self, "MLComputePlan", kCall);
  const Object* object = current->find(operation, "MLModelStructureProgramOperation", kCall);
  if (object == nullptr || !current->plan_costs) return nullptr;
  const double real = object->real;
  const Id cost = current->make("MLComputePlanCost");
  current->objects[cost].real = real;
  return cost;
}
double weight_of(Id self, Sel) {
  const Lock lock(current->mutex);
  const Object* object = current->find(self, "MLComputePlanCost", "weight");
  return object != nullptr ? object->real : 0;
}

// ---- Pools, classes ----

void push_pool() { current->pools[std::this_thread::get_id()].emplace_back(); }
void pop_pool() {
  auto& own = current->pools[std::this_thread::get_id()];
  const std::vector<Id> objects = std::move(own.back());
  own.pop_back();
  for (const Id object : objects) current->release(object);
}
void* pool_push() {
  const Lock lock(current->mutex);
  push_pool();
  return reinterpret_cast<void*>(current->pools[std::this_thread::get_id()].size());
}
void pool_pop(void* pool) {
  const Lock lock(current->mutex);
  if (reinterpret_cast<size_t>(pool) != current->pools[std::this_thread::get_id()].size())
    return current->complain("pools are popped out of order");
  pop_pool();
}
Id class_named(const char* name) { return current->hidden.contains(name) ? nullptr : current->runtime.get_class(name); }

struct Method {
  const char* type;  // class the method is of
  bool of_class;
  const char* selector;
  void* function;
  const char* types;
};

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

void register_classes(const Runtime& runtime) {
  const Method methods[] = {
      {"NSString", true, "stringWithUTF8String:", address(string_with), "@@:*"},
      {"NSString", false, "UTF8String", address(utf8_string), "*@:"},
      {"NSError", false, "localizedDescription", address(description), "@@:"},
      {"NSURL", true, "fileURLWithPath:isDirectory:", address(url_with), "@@:@C"},
      {"NSURL", false, "path", address(url_path), "@@:"},
      {"NSNumber", true, "numberWithInteger:", address(number_with), "@@:q"},
      {"NSNumber", false, "integerValue", address(integer_value), "q@:"},
      {"NSArray", true, "arrayWithObjects:count:", address(array_with), "@@:^@Q"},
      {"NSArray", false, "count", address(count_of), "Q@:"},
      {"NSArray", false, "objectAtIndex:", address(object_at), "@@:Q"},
      {"NSDictionary", true, "dictionaryWithObjects:forKeys:count:", address(dictionary_with), "@@:^@^@Q"},
      {"NSDictionary", false, "objectForKey:", address(object_for), "@@:@"},
      {"NSProcessInfo", true, "processInfo", address(process_info), "@@:"},
      {"NSProcessInfo", false, "operatingSystemVersionString", address(system_version), "@@:"},
      {"MLModel", true, "compileModelAtURL:error:", address(compile), "@@:@^@"},
      {"MLModel", true, "loadContentsOfURL:configuration:completionHandler:", address(load_model), "v@:@@@?"},
      {"MLModel", true, "availableComputeDevices", address(available_devices), "@@:"},
      {"MLModel", false, "predictionFromFeatures:error:", address(predict), "@@:@^@"},
      {"MLModelConfiguration", false, "init", address(configuration_init), "@@:"},
      {"MLModelConfiguration", false, "setComputeUnits:", address(set_compute_units), "v@:q"},
      {"MLMultiArray", false, "initWithShape:dataType:error:", address(array_init), "@@:@q^@"},
      {"MLMultiArray", false, "shape", address(array_shape), "@@:"},
      {"MLMultiArray", false, "strides", address(array_strides), "@@:"},
      {"MLMultiArray", false, "dataType", address(array_type), "q@:"},
      {"MLMultiArray", false, "getMutableBytesWithHandler:", address(mutable_bytes), "v@:@?"},
      {"MLMultiArray", false, "getBytesWithHandler:", address(bytes), "v@:@?"},
      {"MLFeatureValue", true, "featureValueWithMultiArray:", address(feature_with), "@@:@"},
      {"MLFeatureValue", false, "multiArrayValue", address(feature_array), "@@:"},
      {"MLDictionaryFeatureProvider", false, "initWithDictionary:error:", address(provider_init), "@@:@^@"},
      {"MLDictionaryFeatureProvider", false, "featureValueForName:", address(provider_value), "@@:@"},
      {"MLComputePlan", true, "loadContentsOfURL:configuration:completionHandler:", address(load_plan), "v@:@@@?"},
      {"MLComputePlan", false, "modelStructure", address(only_item), "@@:"},
      {"MLComputePlan", false, "computeDeviceUsageForMLProgramOperation:", address(usage_of), "@@:@"},
      {"MLComputePlan", false, "estimatedCostOfMLProgramOperation:", address(cost_of), "@@:@"},
      {"MLModelStructure", false, "program", address(only_item), "@@:"},
      {"MLModelStructureProgram", false, "functions", address(only_item), "@@:"},
      {"MLModelStructureProgramFunction", false, "block", address(only_item), "@@:"},
      {"MLModelStructureProgramBlock", false, "operations", address(only_item), "@@:"},
      {"MLModelStructureProgramOperation", false, "operatorName", address(only_item), "@@:"},
      {"MLComputePlanDeviceUsage", false, "preferredComputeDevice", address(only_item), "@@:"},
      {"MLComputePlanCost", false, "weight", address(weight_of), "d@:"},
      {"MLCPUComputeDevice", false, "isKindOfClass:", address(is_kind_of), "C@:#"},
      {"MLGPUComputeDevice", false, "isKindOfClass:", address(is_kind_of), "C@:#"},
      {"MLNeuralEngineComputeDevice", false, "isKindOfClass:", address(is_kind_of), "C@:#"},
  };
  for (const Method& first : methods) {
    if (runtime.get_class(first.type) != nullptr) continue;
    const Id type = runtime.allocate_class(nullptr, first.type, 0);
    // The metaclass is the class's class: its first word.
    const Id metaclass = load_as<Id>(type);
    for (const Method& method : methods) {
      if (std::string_view(method.type) != first.type) continue;
      runtime.add_method(method.of_class ? metaclass : type, runtime.register_name(method.selector), method.function,
                         method.types);
    }
    runtime.add_method(metaclass, runtime.register_name("alloc"), address(alloc), "@@:");
    runtime.add_method(type, runtime.register_name("retain"), address(retain), "@@:");
    runtime.add_method(type, runtime.register_name("release"), address(release), "v@:");
    runtime.register_class(type);
  }
}

Runtime open_runtime() {
  Runtime runtime;
  runtime.library = dlopen("libobjc.so.4", RTLD_NOW);
  if (runtime.library == nullptr) return runtime;
  const auto find = [&](const char* name) { return dlsym(runtime.library, name); };
  runtime.allocate_class = reinterpret_cast<decltype(runtime.allocate_class)>(find("objc_allocateClassPair"));
  runtime.register_class = reinterpret_cast<decltype(runtime.register_class)>(find("objc_registerClassPair"));
  runtime.add_method = reinterpret_cast<decltype(runtime.add_method)>(find("class_addMethod"));
  runtime.create_instance = reinterpret_cast<decltype(runtime.create_instance)>(find("class_createInstance"));
  runtime.dispose = reinterpret_cast<decltype(runtime.dispose)>(find("object_dispose"));
  runtime.get_class = reinterpret_cast<decltype(runtime.get_class)>(find("objc_getClass"));
  runtime.class_name = reinterpret_cast<decltype(runtime.class_name)>(find("class_getName"));
  runtime.register_name = reinterpret_cast<decltype(runtime.register_name)>(find("sel_registerName"));
  return runtime;
}

}  // namespace

std::unique_ptr<CoreMlDouble> CoreMlDouble::open(const fs::path& temporary_folder) {
  auto state = std::make_unique<State>();
  state->runtime = open_runtime();
  if (state->runtime.library == nullptr) return nullptr;
  register_classes(state->runtime);
  state->temporary_folder = temporary_folder;
  return std::unique_ptr<CoreMlDouble>(new CoreMlDouble(std::move(state)));
}

CoreMlDouble::CoreMlDouble(std::unique_ptr<State> state) : state_(std::move(state)) { current = state_.get(); }
CoreMlDouble::~CoreMlDouble() {
  join();
  current = nullptr;
}

apple::SymbolLookup CoreMlDouble::lookup() const {
  State* state = state_.get();
  return [state](const char* symbol) -> void* {
    const std::pair<const char*, void*> doubles[] = {
        {"objc_getClass", address(class_named)},
        {"objc_autoreleasePoolPush", address(pool_push)},
        {"objc_autoreleasePoolPop", address(pool_pop)},
        {"_NSConcreteGlobalBlock", &state->block_class},
    };
    if (state->hidden.contains(symbol)) return nullptr;
    for (const auto& [name, function] : doubles) {
      if (std::string_view(name) == symbol) return function;
    }
    return dlsym(state->runtime.library, symbol);
  };
}

std::vector<std::string>& CoreMlDouble::log() { return state_->log; }
const std::vector<std::string>& CoreMlDouble::complaints() const { return state_->complaints; }
size_t CoreMlDouble::live_objects() const { return state_->objects.size(); }
void CoreMlDouble::fail_at(std::string call, std::string words) {
  state_->failing = std::move(call);
  state_->failing_words = std::move(words);
}
void CoreMlDouble::hide(std::string name) { state_->hidden.insert(std::move(name)); }
void CoreMlDouble::set_system(std::string version) { state_->system = std::move(version); }
void CoreMlDouble::set_plan(double neural_engine, std::string rest, bool costs) {
  state_->plan_share = neural_engine;
  state_->plan_rest = std::move(rest);
  state_->plan_costs = costs;
}
void CoreMlDouble::set_plan_answers(PlanAnswers how) { state_->answers = how; }
void CoreMlDouble::set_load_answers(PlanAnswers how) { state_->load_answers = how; }
void CoreMlDouble::join() {
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
}
void CoreMlDouble::set_neural_engine(bool present) { state_->neural_engine = present; }
long CoreMlDouble::compute_units() const { return state_->compute_units; }
void CoreMlDouble::spoil_output(std::string how) { state_->spoilt = std::move(how); }

}  // namespace baton::coreml
