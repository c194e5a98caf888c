// The installed driver: functions by name from libcuda.so.1, in the version whose signature driver.h has.
#include "baton/unit/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace baton::cuda {
namespace {

// Fills a table's entries, and remembers the first that is missing.
struct Finder {
  void* library;
  const char* missing = nullptr;

  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  }
  // That older drivers have not.
  template <class Function>
  void find_newer(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
  }
};

void find_devices(Finder& in, Driver& driver) {
  in.find(driver.init, "cuInit");
  in.find(driver.version, "cuDriverGetVersion");
  in.find(driver.error_name, "cuGetErrorName");
  in.find(driver.error_text, "cuGetErrorString");
  in.find(driver.device_count, "cuDeviceGetCount");
  in.find(driver.device_get, "cuDeviceGet");
  in.find(driver.device_name, "cuDeviceGetName");
  in.find(driver.device_attribute, "cuDeviceGetAttribute");
  in.find(driver.device_memory, "cuDeviceTotalMem_v2");
  in.find(driver.device_pci, "cuDeviceGetPCIBusId");
  in.find(driver.device_can_reach, "cuDeviceCanAccessPeer");
  in.find(driver.context_retain, "cuDevicePrimaryCtxRetain");
  in.find(driver.context_release, "cuDevicePrimaryCtxRelease_v2");
  in.find(driver.context_set_current, "cuCtxSetCurrent");
  in.find(driver.context_reach, "cuCtxEnablePeerAccess");
}

void find_memory(Finder& in, Driver& driver) {
  in.find(driver.memory_allocate, "cuMemAlloc_v2");
  in.find(driver.memory_free, "cuMemFree_v2");
  in.find(driver.memory_info, "cuMemGetInfo_v2");
  in.find(driver.host_allocate, "cuMemHostAlloc");
  in.find(driver.host_free, "cuMemFreeHost");
  in.find(driver.host_register, "cuMemHostRegister_v2");
  in.find(driver.host_unregister, "cuMemHostUnregister");
  in.find(driver.copy_in, "cuMemcpyHtoDAsync_v2");
  in.find(driver.copy_out, "cuMemcpyDtoHAsync_v2");
  in.find(driver.copy, "cuMemcpyDtoDAsync_v2");
  in.find(driver.copy_rows, "cuMemcpy2DAsync_v2");
  in.find(driver.copy_peer, "cuMemcpyPeerAsync");
  in.find(driver.copy_rows_peer, "cuMemcpy3DPeerAsync");
  in.find(driver.set_bytes, "cuMemsetD8Async");
}

void find_work(Finder& in, Driver& driver) {
  in.find(driver.stream_create, "cuStreamCreate");
  in.find(driver.stream_destroy, "cuStreamDestroy_v2");
  in.find(driver.stream_wait, "cuStreamSynchronize");
  in.find(driver.stream_query, "cuStreamQuery");
  in.find(driver.stream_wait_event, "cuStreamWaitEvent");
  in.find(driver.event_create, "cuEventCreate");
  in.find(driver.event_destroy, "cuEventDestroy_v2");
  in.find(driver.event_record, "cuEventRecord");
  in.find(driver.event_wait, "cuEventSynchronize");
  in.find(driver.event_query, "cuEventQuery");
  in.find(driver.event_elapsed, "cuEventElapsedTime");
  in.find(driver.module_load, "cuModuleLoadFatBinary");
  in.find(driver.module_unload, "cuModuleUnload");
  in.find(driver.module_function, "cuModuleGetFunction");
  in.find(driver.function_attribute, "cuFuncGetAttribute");
  in.find(driver.function_set_attribute, "cuFuncSetAttribute");
  in.find(driver.function_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  in.find(driver.launch, "cuLaunchKernel");
  in.find_newer(driver.launch_plan, "cuLaunchKernelEx");
  in.find_newer(driver.describe_matrix, "cuTensorMapEncodeTiled");
  in.find(driver.launch_together, "cuLaunchCooperativeKernel");
  in.find(driver.capture_begin, "cuStreamBeginCapture_v2");
  in.find(driver.capture_end, "cuStreamEndCapture");
  in.find(driver.graph_instantiate, "cuGraphInstantiateWithFlags");
  in.find(driver.graph_launch, "cuGraphLaunch");
  in.find(driver.graph_destroy, "cuGraphDestroy");
  in.find(driver.runnable_destroy, "cuGraphExecDestroy");
}

}  // namespace

std::string printable(std::string_view said) {
  std::string text(said);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string code_text(const Driver& driver, DriverCode code) {
  const char *name = nullptr, *text = nullptr;
  if (driver.error_name(code, &name) != kDone || name == nullptr) return fmt::format("code {}", code);
  if (driver.error_text(code, &text) != kDone || text == nullptr) return fmt::format("{} ({})", printable(name), code);
  return fmt::format("{} ({}): {}", printable(name), code, printable(text));
}

Result<const Driver*> driver_of(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // for good: it has threads of its own
  if (handle == nullptr) {
    const char* error = dlerror();
    return fail(
        Code::kUnsupported,
        fmt::format("no NVIDIA driver: {}; install the driver of the card, or choose another unit ('baton units')",
                    error != nullptr ? error : library));
  }
  auto driver = std::make_unique<Driver>();
  Finder in{handle};
  find_devices(in, *driver);
  find_memory(in, *driver);
  find_work(in, *driver);
  if (in.missing != nullptr) {
    return fail(Code::kUnsupported,
                fmt::format("the NVIDIA driver ({}) has no {}: it is too old, or something else; install a newer one",
                            library, in.missing));
  }
  if (const DriverCode code = driver->init(0); code != kDone) {
    if (code == kStubLibrary)
      return fail(Code::kUnsupported,
                  fmt::format("no NVIDIA driver: the {} that was found is a toolkit's stub, to link with: take its "
                              "folder out of LD_LIBRARY_PATH, and install the driver of the card",
                              library));
    return fail(Code::kUnsupported,
                code == kNoDevice
                    ? fmt::format("no NVIDIA card: {}; choose another unit ('baton units')", code_text(*driver, code))
                    : fmt::format("the NVIDIA driver ({}) does not start: {}; install it anew, or choose "
                                  "another unit ('baton units')",
                                  library, code_text(*driver, code)));
  }
  return driver.release();
}

Result<const Driver*> installed_driver() {
  static const Result<const Driver*> driver = driver_of("libcuda.so.1");
  return driver;
}

}  // namespace baton::cuda
