// Finds Core ML's classes, and waits for what it loads.
#include "baton/unit/coreml/calls.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "baton/unit/coreml/objc_block.h"

namespace baton::coreml {
namespace {

using apple::ObjcId;
using apple::ObjcPool;
using apple::ObjcRef;

constexpr BlockDescriptor kCompletionBlock = {0, sizeof(Block), "v@?@@"};  // id result, NSError* error

// The block and what it writes to, in one place that outlives both sides: when the answer did not come in time, whoever
// is called later frees it.
struct LoadRequest {
  LoadRequest(const Calls& calls_used, std::string what);

  const Calls& calls;
  const std::string doing;
  Block block;
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false, abandoned = false;  // guarded by mutex
  ObjcRef object;
  std::string error;
};

// On a queue of the system.
void object_loaded(Block* block, ObjcId object, ObjcId error) {
  auto* request = static_cast<LoadRequest*>(block->context);
  std::unique_lock lock(request->mutex);
  if (request->abandoned) {
    lock.unlock();
    delete request;
    return;
  }
  const ObjcPool pool(request->calls.objc);
  if (object != nullptr) {
    request->object = ObjcRef(request->calls.objc, object);
  } else {
    request->error = request->calls.refused(error, request->doing).value().message;
  }
  request->done = true;
  request->ready.notify_one();
}

LoadRequest::LoadRequest(const Calls& calls_used, std::string what)
    : calls(calls_used),
      doing(std::move(what)),
      block(calls.block_isa, reinterpret_cast<void*>(object_loaded), kCompletionBlock, this) {}

}  // namespace

Status Calls::find(const apple::SymbolLookup& lookup) {
  BATON_TRY(objc, apple::find_objc(lookup));
  const std::pair<const char*, ObjcId*> needed[] = {
      {"NSString", &string_class},
      {"NSURL", &url_class},
      {"NSNumber", &number_class},
      {"NSArray", &array_class},
      {"NSDictionary", &dictionary_class},
      {"NSProcessInfo", &process_class},
      {"MLModel", &model_class},
      {"MLModelConfiguration", &configuration_class},
      {"MLMultiArray", &array_value_class},
      {"MLFeatureValue", &feature_class},
      {"MLDictionaryFeatureProvider", &provider_class},
  };
  for (const auto& [name, to] : needed) {
    *to = objc.get_class(name);
    if (*to == nullptr)
      return fail(Code::kUnsupported, fmt::format("this system has no class {}: no Core ML to use", name));
  }
  block_isa = lookup("_NSConcreteGlobalBlock");
  if (block_isa == nullptr) return fail(Code::kUnsupported, "this system has no _NSConcreteGlobalBlock: no blocks");
  plan_class = objc.get_class("MLComputePlan");
  ane_class = objc.get_class("MLNeuralEngineComputeDevice");
  gpu_class = objc.get_class("MLGPUComputeDevice");
  cpu_class = objc.get_class("MLCPUComputeDevice");
  return {};
}

Result<ObjcRef> load_contents(const Calls& calls, ObjcId type, const std::string& doing, ObjcId url,
                              ObjcId configuration, std::chrono::milliseconds timeout) {
  auto request = std::make_unique<LoadRequest>(calls, doing);
  calls.objc.send<void>(type, "loadContentsOfURL:configuration:completionHandler:", url, configuration,
                        &request->block);
  std::unique_lock lock(request->mutex);
  if (!request->ready.wait_for(lock, timeout, [&] { return request->done; })) {
    request->abandoned = true;
    lock.unlock();
    static_cast<void>(request.release());
    return fail(Code::kDevice, fmt::format("Core ML: {} did not come in {} ms", doing, timeout.count()));
  }
  ObjcRef loaded = std::move(request->object);
  Error error{Code::kDevice, request->error};
  lock.unlock();
  if (loaded.get() == nullptr) return fail(std::move(error));
  return loaded;
}

}  // namespace baton::coreml
