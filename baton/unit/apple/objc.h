// Calls into an Objective-C runtime from C++, found at run time: no SDK, no compiler support. Apple's runtime has
// objc_msgSend; GCC's, which the tests use on Linux, has objc_msg_lookup: one wrapper covers both.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "baton/base/status.h"

namespace baton::apple {

using ObjcId = void*;  // any object or class
using ObjcSelector = void*;

// Address of a C symbol, or null.
using SymbolLookup = std::function<void*(const char* symbol)>;

// The functions of a runtime. Plain data, thread-safe like the runtime.
struct ObjcApi {
  ObjcId (*get_class)(const char* name) = nullptr;
  ObjcSelector (*register_name)(const char* name) = nullptr;
  void* msg_send = nullptr;                                             // Apple
  void* (*msg_lookup)(ObjcId object, ObjcSelector selector) = nullptr;  // GCC
  void* (*pool_push)() = nullptr;  // both null where there are no autorelease pools
  void (*pool_pop)(void* pool) = nullptr;

  // [object selector:arguments...]; the types must be those of the method. A null object gives a zero result.
  template <class Value, class... Arguments>
  Value send(ObjcId object, const char* selector, Arguments... arguments) const {
    if (object == nullptr) return Value();
    const ObjcSelector name = register_name(selector);
    void* function = msg_send != nullptr ? msg_send : msg_lookup(object, name);
    return reinterpret_cast<Value (*)(ObjcId, ObjcSelector, Arguments...)>(function)(object, name, arguments...);
  }
};

// kUnsupported with the missing symbol's name.
Result<ObjcApi> find_objc(const SymbolLookup& lookup);

// Owns one retain. Move-only.
class ObjcRef {
 public:
  ObjcRef() = default;
  // Retains; null stays null.
  ObjcRef(const ObjcApi& api, ObjcId object) : api_(&api), object_(api.send<ObjcId>(object, "retain")) {}
  ObjcRef(ObjcRef&& other) noexcept : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
  ObjcRef& operator=(ObjcRef&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjcRef() {
    if (object_ != nullptr) api_->send<void>(object_, "release");
  }
  ObjcId get() const { return object_; }

 private:
  const ObjcApi* api_ = nullptr;
  ObjcId object_ = nullptr;
};

// An autorelease pool for a scope, where the runtime has them.
class ObjcPool {
 public:
  explicit ObjcPool(const ObjcApi& api) : api_(api), pool_(api.pool_push != nullptr ? api.pool_push() : nullptr) {}
  ObjcPool(const ObjcPool&) = delete;
  ObjcPool& operator=(const ObjcPool&) = delete;
  ~ObjcPool() {
    if (api_.pool_pop != nullptr) api_.pool_pop(pool_);
  }

 private:
  const ObjcApi& api_;
  void* pool_;
};

}  // namespace baton::apple
