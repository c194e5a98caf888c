// The classes and functions behind the doubles. Method types are those of docs/ane.md.
#include "baton/unit/apple/objc_double_test.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include "baton/base/bytes.h"

// For the leak sanitizer, where there is one: the runtime never frees the names of classes, selectors and methods.
extern "C" const char* __lsan_default_suppressions() { return "leak:libobjc.so"; }

namespace baton::apple {
namespace {

using Id = ObjcId;
using Sel = ObjcSelector;

struct Object {
  std::string kind;
  int retains = 1;
  std::string text;
  std::vector<std::byte> bytes;
  unsigned long number = 0;
  std::vector<Id> keys, items;
  std::vector<unsigned long> indices;
  Id outer = nullptr;
  std::unique_ptr<DeviceModel> model;
  std::unique_ptr<Request> request;
  Surface* surface = nullptr;
};

struct SurfaceHandle {
  std::unique_ptr<Surface> surface;
  std::byte* base = nullptr;
};

// The functions of the runtime that make classes.
struct Runtime {
  Id (*allocate_class)(Id parent, const char* name, size_t extra) = nullptr;
  void (*register_class)(Id type) = nullptr;
  unsigned char (*add_method)(Id type, Sel name, void* function, const char* types) = nullptr;
  Id (*create_instance)(Id type, size_t extra) = nullptr;
  Id (*dispose)(Id object) = nullptr;
  Id (*get_class)(const char* name) = nullptr;
  Sel (*register_name)(const char* name) = nullptr;
  void* library = nullptr;
};

}  // namespace

struct ObjcDouble::State {
  Runtime runtime;
  std::unique_ptr<EmulatorDriver> emulator;
  std::unordered_map<Id, Object> objects;
  std::vector<std::vector<Id>> pools;
  std::set<void*> surfaces;
  std::vector<std::string> log, complaints;
  std::string failing, failing_words;
  std::set<std::string> hidden;
  bool spoilt = false, no_identifier = false;
  Id keys[6] = {};
  std::string temporary_folder;

  void complain(std::string what) { complaints.push_back(std::move(what)); }
  bool fails(const char* call) {
    log.emplace_back(call);
    return failing == call;
  }

  // Autoreleased.
  Id make(const char* kind) {
    const Id object = runtime.create_instance(runtime.get_class(kind), 0);
    Object& added = objects[object];
    added.kind = kind;
    if (pools.empty()) {
      complain(fmt::format("a {} is made without a pool", kind));
    } else {
      pools.back().push_back(object);
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
    const std::vector<Id> keys_held = found->second.keys, items_held = found->second.items;
    objects.erase(found);
    runtime.dispose(object);
    for (const Id held : keys_held) release(held);
    for (const Id held : items_held) release(held);
  }
  Id string(std::string text) {
    const Id object = make("NSString");
    objects[object].text = std::move(text);
    return object;
  }
  // A NO, with an NSError when there are words.
  unsigned char no(Id* error, const std::string& words) {
    if (error == nullptr) {
      complain("no place for the error");
    } else if (!words.empty()) {
      *error = make("NSError");
      objects[*error].text = words;
    }
    return 0;
  }
  unsigned char answer(const Status& status, Id* error) { return status ? 1 : no(error, status.error().message); }
  void check_call(unsigned qos, Id options, const char* call) {
    if (qos != 21) complain(fmt::format("{}: QoS {}", call, qos));
    const Object* dictionary = find(options, "NSDictionary", call);
    if (dictionary != nullptr && !dictionary->items.empty()) complain(fmt::format("{}: options are not empty", call));
  }
};

namespace {

using State = ObjcDouble::State;
State* current = nullptr;  // of the one double that lives

// ---- Foundation ----

Id retain(Id self, Sel) {
  current->retain(self);
  return self;
}
void release(Id self, Sel) { current->release(self); }
Id string_with(Id, Sel, const char* text) { return current->string(text); }
const char* utf8_string(Id self, Sel) {
  const Object* object = current->find(self, "NSString", "UTF8String");
  return object != nullptr ? object->text.c_str() : nullptr;
}
Id description(Id self, Sel) {
  const Object* object = current->find(self, "NSError", "description");
  return object != nullptr ? current->string(object->text) : nullptr;
}
Id data_with(Id, Sel, const void* bytes, unsigned long length) {
  const Id object = current->make("NSData");
  const auto* from = static_cast<const std::byte*>(bytes);
  current->objects[object].bytes.assign(from, from + length);
  return object;
}
Id number_with(Id, Sel, unsigned long value) {
  const Id object = current->make("NSNumber");
  current->objects[object].number = value;
  return object;
}
void hold(std::vector<Id>* to, const Id* items, unsigned long count) {
  for (unsigned long i = 0; i < count; ++i) {
    current->retain(items[i]);
    to->push_back(items[i]);
  }
}
Id array_with(Id, Sel, const Id* items, unsigned long count) {
  const Id object = current->make("NSArray");
  hold(&current->objects[object].items, items, count);
  return object;
}
Id dictionary_with(Id, Sel, const Id* items, const Id* keys, unsigned long count) {
  const Id object = current->make("NSDictionary");
  hold(&current->objects[object].items, items, count);
  hold(&current->objects[object].keys, keys, count);
  return object;
}
// Value of a text key; null when it is not there.
Id value_of(const Object& dictionary, std::string_view key) {
  for (size_t i = 0; i < dictionary.keys.size(); ++i) {
    if (current->objects[dictionary.keys[i]].text == key) return dictionary.items[i];
  }
  return nullptr;
}

// ---- The engine ----

Id descriptor_with(Id, Sel, Id text, Id weights, Id plist) {
  constexpr const char* kCall = "modelWithMILText:weights:optionsPlist:";
  if (current->fails(kCall)) return nullptr;
  const Object *data = current->find(text, "NSData", kCall),
               *dictionary = current->find(weights, "NSDictionary", kCall);
  if (plist != nullptr) current->complain("optionsPlist is not nil");
  if (data == nullptr || dictionary == nullptr) return nullptr;
  std::vector<WeightEntry> entries;
  for (size_t i = 0; i < dictionary->keys.size(); ++i) {
    const Object *key = current->find(dictionary->keys[i], "NSString", kCall),
                 *entry = current->find(dictionary->items[i], "NSDictionary", kCall);
    if (key == nullptr || entry == nullptr) return nullptr;
    const Object *offset = current->find(value_of(*entry, "offset"), "NSNumber", kCall),
                 *bytes = current->find(value_of(*entry, "data"), "NSData", kCall);
    if (offset == nullptr || bytes == nullptr) return nullptr;
    entries.push_back({key->text, offset->number, bytes->bytes});
  }
  auto model = current->emulator->create_model(as_text(data->bytes), &entries);
  if (!model) return nullptr;
  const Id object = current->make("_ANEInMemoryModelDescriptor");
  current->objects[object].model = std::move(*model);
  return object;
}
Id model_with(Id, Sel, Id descriptor) {
  constexpr const char* kCall = "inMemoryModelWithDescriptor:";
  if (current->fails(kCall)) return nullptr;
  Object* from = current->find(descriptor, "_ANEInMemoryModelDescriptor", kCall);
  if (from == nullptr || from->model == nullptr) return nullptr;
  std::unique_ptr<DeviceModel> model = std::move(from->model);
  const Id object = current->make("_ANEInMemoryModel");
  current->objects[object].model = std::move(model);
  return object;
}
DeviceModel* model_of(Id self, const char* call) {
  Object* object = current->find(self, "_ANEInMemoryModel", call);
  return object != nullptr ? object->model.get() : nullptr;
}
Id hex_identifier(Id self, Sel) {
  DeviceModel* model = model_of(self, "hexStringIdentifier");
  if (current->fails("hexStringIdentifier") || model == nullptr) return nullptr;
  return current->string(current->no_identifier ? "" : model->identifier());
}
unsigned char compile(Id self, Sel, unsigned qos, Id options, Id* error) {
  constexpr const char* kCall = "compileWithQoS:options:error:";
  current->check_call(qos, options, kCall);
  if (current->fails(kCall)) return current->no(error, current->failing_words);
  DeviceModel* model = model_of(self, kCall);
  return model != nullptr ? current->answer(model->compile(), error) : 0;
}
unsigned char load(Id self, Sel, unsigned qos, Id options, Id* error) {
  constexpr const char* kCall = "loadWithQoS:options:error:";
  current->check_call(qos, options, kCall);
  if (current->fails(kCall)) return current->no(error, current->failing_words);
  DeviceModel* model = model_of(self, kCall);
  return model != nullptr ? current->answer(model->load(), error) : 0;
}
unsigned char unload(Id self, Sel, unsigned qos, Id* error) {
  constexpr const char* kCall = "unloadWithQoS:error:";
  if (qos != 21) current->complain("unload: QoS");
  if (current->fails(kCall)) return current->no(error, current->failing_words);
  DeviceModel* model = model_of(self, kCall);
  return model != nullptr ? current->answer(model->unload(), error) : 0;
}
unsigned char evaluate(Id self, Sel, unsigned qos, Id options, Id request, Id* error) {
  constexpr const char* kCall = "evaluateWithQoS:options:request:error:";
  current->check_call(qos, options, kCall);
  if (current->fails(kCall)) return current->no(error, current->failing_words);
  DeviceModel* model = model_of(self, kCall);
  const Object* object = current->find(request, "_ANERequest", kCall);
  if (model == nullptr || object == nullptr) return 0;
  const Status status = model->evaluate(*object->request);
  if (status && current->spoilt) {
    auto bytes = *object->surface->lock(LockMode::kReadWrite);
    bytes[0] ^= std::byte{1};
    static_cast<void>(object->surface->unlock(LockMode::kReadWrite));
  }
  return current->answer(status, error);
}
// The engine numbers the ports of all functions of a program; here as the emulator does.
Id inner_model(Id self, Sel) {
  DeviceModel* model = model_of(self, "model");
  if (model == nullptr) return nullptr;
  const Id object = current->make("_ANEModel");
  current->objects[object].outer = self;
  return object;
}
Id index_set(Id self, unsigned procedure, bool inputs, const char* call) {
  const Object* inner = current->find(self, "_ANEModel", call);
  DeviceModel* model = inner != nullptr ? model_of(inner->outer, call) : nullptr;
  if (model == nullptr) return nullptr;
  const auto indices = model->port_indices(static_cast<int32_t>(procedure));
  if (!indices) return nullptr;
  const Id object = current->make("NSIndexSet");
  for (const int32_t index : inputs ? indices->inputs : indices->outputs)
    current->objects[object].indices.push_back(static_cast<unsigned long>(index));
  return object;
}
Id input_indices_for(Id self, Sel, unsigned procedure) {
  return index_set(self, procedure, true, "inputSymbolIndicesForProcedureIndex:");
}
Id output_indices_for(Id self, Sel, unsigned procedure) {
  return index_set(self, procedure, false, "outputSymbolIndicesForProcedureIndex:");
}
unsigned long index_count(Id self, Sel) { return current->find(self, "NSIndexSet", "count")->indices.size(); }
unsigned long first_index(Id self, Sel) { return current->find(self, "NSIndexSet", "firstIndex")->indices.at(0); }
unsigned long next_index(Id self, Sel, unsigned long after) {
  const Object* set = current->find(self, "NSIndexSet", "indexGreaterThanIndex:");
  const auto found = std::upper_bound(set->indices.begin(), set->indices.end(), after);
  return found != set->indices.end() ? *found : ~0ul;
}
Id surface_object(Id, Sel, void* surface) {
  constexpr const char* kCall = "objectWithIOSurface:";
  if (current->fails(kCall)) return nullptr;
  if (!current->surfaces.contains(surface)) {
    current->complain("objectWithIOSurface: not a surface");
    return nullptr;
  }
  const Id object = current->make("_ANEIOSurfaceObject");
  current->objects[object].surface = static_cast<SurfaceHandle*>(surface)->surface.get();
  return object;
}
Id request_with(Id, Sel, Id inputs, Id input_indices, Id outputs, Id output_indices, Id weights, Id stats,
                Id procedure) {
  constexpr const char* kCall =
      "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:";
  if (current->fails(kCall)) return nullptr;
  if (weights != nullptr || stats != nullptr) current->complain("weightsBuffer or perfStats is not nil");
  RequestSpec spec;
  const auto surfaces = [&](Id array, std::vector<Surface*>* to) {
    const Object* object = current->find(array, "NSArray", kCall);
    for (const Id item : object != nullptr ? object->items : std::vector<Id>{}) {
      const Object* surface = current->find(item, "_ANEIOSurfaceObject", kCall);
      if (surface != nullptr) to->push_back(surface->surface);
    }
  };
  const auto numbers = [&](Id array, std::vector<int32_t>* to) {
    const Object* object = current->find(array, "NSArray", kCall);
    for (const Id item : object != nullptr ? object->items : std::vector<Id>{}) {
      const Object* number = current->find(item, "NSNumber", kCall);
      if (number != nullptr) to->push_back(static_cast<int32_t>(number->number));
    }
  };
  surfaces(inputs, &spec.inputs);
  numbers(input_indices, &spec.input_indices);
  surfaces(outputs, &spec.outputs);
  numbers(output_indices, &spec.output_indices);
  const Object* number = current->find(procedure, "NSNumber", kCall);
  if (number != nullptr) spec.procedure = static_cast<int32_t>(number->number);
  const Id object = current->make("_ANERequest");
  Object& made = current->objects[object];
  made.request = std::move(*current->emulator->create_request(spec));
  made.surface = spec.outputs.empty() ? nullptr : spec.outputs[0];
  // A request holds its surfaces' objects.
  for (const Id array : {inputs, outputs}) {
    current->retain(array);
    current->objects[object].items.push_back(array);
  }
  return object;
}

// ---- IOSurface, CoreFoundation, pools ----

void* surface_create(Id properties) {
  if (current->fails("IOSurfaceCreate")) return nullptr;
  const Object* dictionary = current->find(properties, "NSDictionary", "IOSurfaceCreate");
  if (dictionary == nullptr) return nullptr;
  uint64_t values[6] = {};
  for (size_t i = 0; i < 6; ++i) {
    for (size_t k = 0; k < dictionary->keys.size(); ++k) {
      if (dictionary->keys[k] == current->keys[i]) values[i] = current->objects[dictionary->items[k]].number;
    }
  }
  auto surface = current->emulator->create_surface(
      {values[0], values[1], values[2], values[3], values[4], static_cast<uint32_t>(values[5])});
  if (!surface) return nullptr;
  auto* handle = new SurfaceHandle{std::move(*surface), nullptr};
  current->surfaces.insert(handle);
  return handle;
}
int32_t surface_lock(void* surface, uint32_t options, uint32_t*) {
  if (current->fails("IOSurfaceLock")) return static_cast<int32_t>(0xe00002bd);
  auto* handle = static_cast<SurfaceHandle*>(surface);
  handle->base = handle->surface->lock(options == 1 ? LockMode::kReadOnly : LockMode::kReadWrite)->data();
  return 0;
}
int32_t surface_unlock(void* surface, uint32_t options, uint32_t*) {
  if (current->fails("IOSurfaceUnlock")) return static_cast<int32_t>(0xe00002c2);
  const Status status =
      static_cast<SurfaceHandle*>(surface)->surface->unlock(options == 1 ? LockMode::kReadOnly : LockMode::kReadWrite);
  return status ? 0 : static_cast<int32_t>(0xe00002c2);
}
void* surface_base(void* surface) { return static_cast<SurfaceHandle*>(surface)->base; }
size_t surface_size(void* surface) {
  if (current->failing == "IOSurfaceGetAllocSize") return 0;
  // Rounded up to a page, as on the system.
  return (static_cast<SurfaceHandle*>(surface)->surface->properties().alloc_size + 16383) / 16384 * 16384;
}
void cf_release(const void* object) {
  if (current->surfaces.erase(const_cast<void*>(object)) == 0) return current->complain("CFRelease of something else");
  delete static_cast<const SurfaceHandle*>(object);
}
void* pool_push() {
  current->pools.emplace_back();
  return reinterpret_cast<void*>(current->pools.size());
}
void pool_pop(void* pool) {
  if (reinterpret_cast<size_t>(pool) != current->pools.size())
    return current->complain("pools are popped out of order");
  const std::vector<Id> objects = std::move(current->pools.back());
  current->pools.pop_back();
  for (const Id object : objects) current->release(object);
}
Id system_temporary_folder() { return current->string(current->temporary_folder); }

struct Method {
  const char* type;  // class the method is of
  bool of_class;
  const char* selector;
  void* function;
  const char* types;
};

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

void register_classes(const Runtime& runtime) {
  const Method methods[] = {
      {"NSString", true, "stringWithUTF8String:", address_of(string_with), "@@:*"},
      {"NSString", false, "UTF8String", address_of(utf8_string), "*@:"},
      {"NSError", false, "description", address_of(description), "@@:"},
      {"NSData", true, "dataWithBytes:length:", address_of(data_with), "@@:^vL"},
      {"NSNumber", true, "numberWithUnsignedLong:", address_of(number_with), "@@:L"},
      {"NSArray", true, "arrayWithObjects:count:", address_of(array_with), "@@:^@L"},
      {"NSDictionary", true, "dictionaryWithObjects:forKeys:count:", address_of(dictionary_with), "@@:^@^@L"},
      {"_ANEInMemoryModelDescriptor", true, "modelWithMILText:weights:optionsPlist:", address_of(descriptor_with),
       "@@:@@@"},
      {"_ANEInMemoryModel", true, "inMemoryModelWithDescriptor:", address_of(model_with), "@@:@"},
      {"_ANEInMemoryModel", false, "hexStringIdentifier", address_of(hex_identifier), "@@:"},
      {"_ANEInMemoryModel", false, "compileWithQoS:options:error:", address_of(compile), "C@:I@^@"},
      {"_ANEInMemoryModel", false, "loadWithQoS:options:error:", address_of(load), "C@:I@^@"},
      {"_ANEInMemoryModel", false, "evaluateWithQoS:options:request:error:", address_of(evaluate), "C@:I@@^@"},
      {"_ANEInMemoryModel", false, "unloadWithQoS:error:", address_of(unload), "C@:I^@"},
      {"_ANEInMemoryModel", false, "model", address_of(inner_model), "@@:"},
      {"_ANEModel", false, "inputSymbolIndicesForProcedureIndex:", address_of(input_indices_for), "@@:I"},
      {"_ANEModel", false, "outputSymbolIndicesForProcedureIndex:", address_of(output_indices_for), "@@:I"},
      {"NSIndexSet", false, "count", address_of(index_count), "L@:"},
      {"NSIndexSet", false, "firstIndex", address_of(first_index), "L@:"},
      {"NSIndexSet", false, "indexGreaterThanIndex:", address_of(next_index), "L@:L"},
      {"_ANEIOSurfaceObject", true, "objectWithIOSurface:", address_of(surface_object), "@@:^v"},
      {"_ANERequest", true,
       "requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:",
       address_of(request_with), "@@:@@@@@@@"},
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
    runtime.add_method(type, runtime.register_name("retain"), address_of(retain), "@@:");
    runtime.add_method(type, runtime.register_name("release"), address_of(release), "v@:");
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
  runtime.register_name = reinterpret_cast<decltype(runtime.register_name)>(find("sel_registerName"));
  return runtime;
}

}  // namespace

std::unique_ptr<ObjcDouble> ObjcDouble::open(const EmulatorOptions& options) {
  auto state = std::make_unique<State>();
  state->runtime = open_runtime();
  if (state->runtime.library == nullptr) return nullptr;
  register_classes(state->runtime);
  state->emulator = std::move(*EmulatorDriver::create(options));
  state->temporary_folder = options.temporary_folder.string();
  return std::unique_ptr<ObjcDouble>(new ObjcDouble(std::move(state)));
}

ObjcDouble::ObjcDouble(std::unique_ptr<State> state) : state_(std::move(state)) {
  current = state_.get();
  // The keys of surfaces live as long as the double.
  pool_push();
  for (Id& key : state_->keys) {
    key = state_->string("key");
    state_->retain(key);
  }
  pool_pop(reinterpret_cast<void*>(size_t{1}));
}

ObjcDouble::~ObjcDouble() {
  state_->log.clear();
  for (const Id key : state_->keys) state_->release(key);
  current = nullptr;
}

SymbolLookup ObjcDouble::lookup() const {
  State* state = state_.get();
  return [state](const char* symbol) -> void* {
    constexpr const char* kKeys[] = {"kIOSurfaceWidth",       "kIOSurfaceHeight",    "kIOSurfaceBytesPerElement",
                                     "kIOSurfaceBytesPerRow", "kIOSurfaceAllocSize", "kIOSurfacePixelFormat"};
    const std::pair<const char*, void*> doubles[] = {
        {"IOSurfaceCreate", address_of(surface_create)},
        {"IOSurfaceLock", address_of(surface_lock)},
        {"IOSurfaceUnlock", address_of(surface_unlock)},
        {"IOSurfaceGetBaseAddress", address_of(surface_base)},
        {"IOSurfaceGetAllocSize", address_of(surface_size)},
        {"CFRelease", address_of(cf_release)},
        {"objc_autoreleasePoolPush", address_of(pool_push)},
        {"objc_autoreleasePoolPop", address_of(pool_pop)},
        {"NSTemporaryDirectory", address_of(system_temporary_folder)},
    };
    if (state->hidden.contains(symbol)) return nullptr;
    for (const auto& [name, function] : doubles) {
      if (std::string_view(name) == symbol) return function;
    }
    for (size_t i = 0; i < 6; ++i) {
      if (std::string_view(kKeys[i]) == symbol) return &state->keys[i];
    }
    return dlsym(state->runtime.library, symbol);
  };
}

EmulatorDriver& ObjcDouble::emulator() { return *state_->emulator; }
std::vector<std::string>& ObjcDouble::log() { return state_->log; }
const std::vector<std::string>& ObjcDouble::complaints() const { return state_->complaints; }
size_t ObjcDouble::live_objects() const { return state_->objects.size() - 6; }
size_t ObjcDouble::live_surfaces() const { return state_->surfaces.size(); }
void ObjcDouble::hide(std::string symbol) { state_->hidden.insert(std::move(symbol)); }
void ObjcDouble::spoil_answers(bool yes) { state_->spoilt = yes; }
void ObjcDouble::empty_identifiers(bool yes) { state_->no_identifier = yes; }
void ObjcDouble::fail_at(std::string call, std::string words) {
  state_->failing = std::move(call);
  state_->failing_words = std::move(words);
}

}  // namespace baton::apple
