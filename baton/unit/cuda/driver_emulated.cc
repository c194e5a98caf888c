// The emulated driver: devices, contexts and memory, and the faults that tests ask for.
#include "baton/unit/cuda/driver_emulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "baton/unit/cuda/emulated_state.h"

namespace baton::cuda {
namespace emulated {

State& state() {
  static auto* all = [] {
    auto* made = new State;  // outlives who frees at exit
    for (uint32_t i = 0; i < kEmulatedCards; ++i) made->devices[i].number = static_cast<int>(i);
    return made;
  }();
  return *all;
}
thread_local Device* t_device = nullptr;
thread_local bool t_damages = false;

DriverCode begin(std::string_view function) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.calls;
  Device& device = t_device != nullptr ? *t_device : all.devices[0];
  if (device.lost != kDone) return device.lost;
  if (device.pending != kDone) return std::exchange(device.pending, kDone);
  if (!all.fault || (!all.fault_function.empty() && all.fault_function != function) || --all.fault->nth > 0)
    return kDone;
  const EmulatedFault fault = *std::exchange(all.fault, std::nullopt);
  if ((t_damages = fault.damages)) return kDone;
  if (fault.later) {
    (fault.lost ? device.lost : device.pending) = fault.code;
    return kDone;
  }
  if (fault.lost) device.lost = fault.code;
  return fault.code;
}
DriverCode begin_in_context(std::string_view function) {
  if (const DriverCode code = begin(function); code != kDone) return code;
  return t_device != nullptr ? kDone : kInvalidContext;
}

namespace {

DriverCode init(unsigned) { return begin("init"); }
DriverCode version(int* value) {
  BATON_BEGIN("version");
  *value = 13000;
  return kDone;
}
DriverCode error_name(DriverCode code, const char** name) {
  static const std::map<DriverCode, const char*> names = {{kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
                                                          {kNoMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                          {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
                                                          {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
                                                          {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
                                                          {kEccError, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                                                          {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
                                                          {kNoSuchName, "CUDA_ERROR_NOT_FOUND"},
                                                          {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                          {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
                                                          {kUnknown, "CUDA_ERROR_UNKNOWN"}};
  const auto found = names.find(code);
  if (found == names.end()) return kInvalidValue;
  *name = found->second;
  return kDone;
}
DriverCode error_text(DriverCode, const char** text) {
  *text = "emulated";
  return kDone;
}

DriverCode device_count(int* count) {
  BATON_BEGIN("device_count");
  *count = kEmulatedCards;
  return kDone;
}
DriverCode device_get(DeviceNumber* device, int index) {
  BATON_BEGIN("device_get");
  if (index < 0 || index >= static_cast<int>(kEmulatedCards)) return kInvalidDevice;
  *device = index;
  return kDone;
}
DriverCode device_name(char* name, int size, DeviceNumber) {
  BATON_BEGIN("device_name");
  *fmt::format_to_n(name, size - 1, "emulated card").out = '\0';
  return kDone;
}
DriverCode device_attribute(int* value, DeviceAttribute what, DeviceNumber) {
  BATON_BEGIN("device_attribute");
  switch (what) {
    case DeviceAttribute::kProcessors:
      *value = kProcessors;
      break;
    case DeviceAttribute::kCacheBytes:
      *value = 32 << 20;
      break;
    case DeviceAttribute::kCapabilityMajor:
      *value = 9;
      break;
    case DeviceAttribute::kCapabilityMinor:
      *value = 0;
      break;
    case DeviceAttribute::kTogetherLaunch:
      *value = 1;
      break;
    case DeviceAttribute::kSharedBytesMax:
      *value = kSharedMax;
      break;
  }
  return kDone;
}
DriverCode device_memory(size_t* bytes, DeviceNumber) {
  BATON_BEGIN("device_memory");
  *bytes = state().bytes_max;
  return kDone;
}
DriverCode device_pci(char* id, int size, DeviceNumber device) {
  BATON_BEGIN("device_pci");
  *fmt::format_to_n(id, size - 1, "0000:{:02x}:00.0", device + 1).out = '\0';
  return kDone;
}
DriverCode device_can_reach(int* can, DeviceNumber device, DeviceNumber other) {
  BATON_BEGIN("device_can_reach");
  const std::lock_guard lock(state().mutex);
  *can = device != other && state().peers;
  return kDone;
}

DriverCode context_retain(Handle* context, DeviceNumber device) {
  BATON_BEGIN("context_retain");
  const std::lock_guard lock(state().mutex);
  Device& of = state().devices[static_cast<size_t>(device)];
  ++of.contexts;
  *context = &of;
  return kDone;
}
DriverCode context_release(DeviceNumber device) {
  const DriverCode code = begin("context_release");
  const std::lock_guard lock(state().mutex);
  Device& of = state().devices[static_cast<size_t>(device)];
  if (of.contexts == 0) return state().misused(kInvalidContext, "a context is given back too often");
  if (--of.contexts == 0) {
    of.reaches = {};
    for (Device& device_of : state().devices) device_of.reaches[static_cast<size_t>(device)] = false;
  }
  return code;
}
DriverCode context_set_current(Handle context) {
  t_device = static_cast<Device*>(context);
  return begin("context_set_current");
}
DriverCode context_reach(Handle context, unsigned) {
  BATON_BEGIN_IN_CONTEXT("context_reach");
  const std::lock_guard lock(state().mutex);
  if (!state().peers) return state().misused(kNotSupported, "a card is to reach one that it cannot");
  bool& reaches = t_device->reaches[static_cast<size_t>(static_cast<const Device*>(context)->number)];
  return std::exchange(reaches, true) ? kPeerAlready : kDone;
}

DriverCode memory_allocate(Address* address, size_t bytes) {
  BATON_BEGIN_IN_CONTEXT("memory_allocate");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (bytes == 0) return kInvalidValue;
  if (bytes > all.bytes_max || t_device->bytes > all.bytes_max - bytes) return kNoMemory;
  void* at = ::operator new(bytes, std::align_val_t(kAlignment), std::nothrow);
  if (at == nullptr) return kNoMemory;
  std::memset(at, 0xff, bytes);
  *address = reinterpret_cast<Address>(at);
  all.memory[*address] = {bytes, t_device};
  t_device->bytes += bytes;
  return kDone;
}
DriverCode memory_free(Address address) {
  const DriverCode code = begin("memory_free");
  catch_up_all();
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto block = all.memory.find(address);
  if (block == all.memory.end()) return all.misused(kInvalidValue, "memory is freed that is not allocated");
  std::memset(pointer(address), 0xff, block->second.bytes);
  ::operator delete(pointer(address), std::align_val_t(kAlignment));
  block->second.device->bytes -= block->second.bytes;
  all.memory.erase(block);
  return code;
}
DriverCode memory_info(size_t* free, size_t* bytes) {
  BATON_BEGIN_IN_CONTEXT("memory_info");
  const std::lock_guard lock(state().mutex);
  *bytes = state().bytes_max;
  *free = *bytes - std::min<uint64_t>(*bytes, t_device->bytes);
  return kDone;
}
DriverCode host_allocate(void** at, size_t bytes, unsigned) {
  BATON_BEGIN_IN_CONTEXT("host_allocate");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  *at = ::operator new(bytes, std::align_val_t(kAlignment), std::nothrow);
  if (*at == nullptr) return kNoMemory;
  std::memset(*at, 0xff, bytes);
  all.pinned[static_cast<std::byte*>(*at)] = bytes;
  return kDone;
}
DriverCode host_free(void* at) {
  const DriverCode code = begin("host_free");
  catch_up_all();
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.pinned.erase(static_cast<std::byte*>(at)) == 0)
    return all.misused(kInvalidValue, "pinned memory is freed that is not allocated");
  ::operator delete(at, std::align_val_t(kAlignment));
  return code;
}
DriverCode host_register(void* at, size_t bytes, unsigned) {
  BATON_BEGIN_IN_CONTEXT("host_register");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::memset(at, 0xff, bytes);
  all.pinned[static_cast<std::byte*>(at)] = bytes;
  return kDone;
}
DriverCode host_unregister(void* at) {
  const DriverCode code = begin("host_unregister");
  catch_up_all();
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.pinned.erase(static_cast<std::byte*>(at)) == 0)
    return all.misused(kInvalidValue, "memory is let go that was not pinned");
  return code;
}

Driver table() {
  Driver driver{};
  driver.emulated = true;
  driver.init = init;
  driver.version = version;
  driver.error_name = error_name;
  driver.error_text = error_text;
  driver.device_count = device_count;
  driver.device_get = device_get;
  driver.device_name = device_name;
  driver.device_attribute = device_attribute;
  driver.device_memory = device_memory;
  driver.device_pci = device_pci;
  driver.device_can_reach = device_can_reach;
  driver.context_retain = context_retain;
  driver.context_release = context_release;
  driver.context_set_current = context_set_current;
  driver.context_reach = context_reach;
  driver.memory_allocate = memory_allocate;
  driver.memory_free = memory_free;
  driver.memory_info = memory_info;
  driver.host_allocate = host_allocate;
  driver.host_free = host_free;
  driver.host_register = host_register;
  driver.host_unregister = host_unregister;
  fill_copies(driver);
  fill_work(driver);
  return driver;
}

}  // namespace
}  // namespace emulated

const Driver& emulated_driver() {
  static const Driver driver = emulated::table();
  return driver;
}

void emulate_kernel(std::string_view name, size_t argument_bytes, void (*body)(const void* argument)) {
  emulated::State& all = emulated::state();
  const std::lock_guard lock(all.mutex);
  all.kernels[std::string(name)] = {argument_bytes, body};
}

void emulated_fail(const EmulatedFault& fault) {
  emulated::State& all = emulated::state();
  const std::lock_guard lock(all.mutex);
  all.fault = fault;
  all.fault_function = fault.function;
}

uint64_t emulated_calls() {
  const std::lock_guard lock(emulated::state().mutex);
  return emulated::state().calls;
}

void emulated_reset() {
  emulated::State& all = emulated::state();
  const std::lock_guard lock(all.mutex);
  for (emulated::Device& device : all.devices) device.lost = device.pending = kDone;
  all.bytes_max = kEmulatedBytes;
  all.calls = all.peer_bytes = 0;
  all.peers = true;
  all.fault.reset();
  all.misuse.clear();
}

void emulated_set_memory(uint64_t bytes) {
  const std::lock_guard lock(emulated::state().mutex);
  emulated::state().bytes_max = bytes;
}

void emulated_set_peers(bool reach) {
  const std::lock_guard lock(emulated::state().mutex);
  emulated::state().peers = reach;
}

uint64_t emulated_peer_bytes() {
  const std::lock_guard lock(emulated::state().mutex);
  return emulated::state().peer_bytes;
}

EmulatedUse emulated_use() {
  emulated::State& all = emulated::state();
  const std::lock_guard lock(all.mutex);
  EmulatedUse use;
  for (const emulated::Device& device : all.devices) use.contexts += device.contexts;
  for (const auto& [address, block] : all.memory) use.device_bytes += block.bytes;
  for (const auto& [at, bytes] : all.pinned) use.host_bytes += bytes;
  use.allocations = all.memory.size() + all.pinned.size();
  use.streams = all.streams.size();
  use.events = all.events.size();
  use.modules = all.modules.size();
  use.graphs = all.graphs.size();
  return use;
}

uint64_t emulated_waiting() {
  emulated::State& all = emulated::state();
  const std::lock_guard lock(all.mutex);
  uint64_t waiting = 0;
  for (const Handle stream : all.streams) waiting += static_cast<const emulated::StreamState*>(stream)->left();
  return waiting;
}

std::string emulated_misuse() {
  const std::lock_guard lock(emulated::state().mutex);
  return emulated::state().misuse;
}

}  // namespace baton::cuda
