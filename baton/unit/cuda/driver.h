// The part of CUDA's driver that this unit calls, as a table of plain functions with types of our own: the host's code
// is built on machines that have no toolkit. Two tables: the installed driver's (libcuda.so.1, found at run time) and
// an emulated one (driver_emulated.h). card.h makes Status of the codes.
//
// Threads: any; which card a call is for is a property of the thread (context_set_current).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "baton/base/status.h"
#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

using DriverCode = int32_t;  // CUresult; 0: done
using DeviceNumber = int32_t;
using Handle = void*;  // of a context, stream, event, module, function or graph

// Codes that mean something here; messages have the driver's own names for all.
enum : DriverCode {
  kDone = 0,
  kInvalidValue = 1,
  kNoMemory = 2,
  kNotInitialized = 3,
  kStubLibrary = 34,  // cuInit of the library that toolkits have to link with
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForCard = 209,
  kEccError = 214,
  kNvlinkError = 220,
  kNoCompiler = 221,
  kNewerPtx = 222,
  kInvalidHandle = 400,
  kNoSuchName = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kPeerAlready = 704,
  kContextDestroyed = 709,
  kAssert = 710,
  kStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidProgramCounter = 718,
  kLaunchFailed = 719,
  kTogetherTooLarge = 720,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
  kUnknown = 999,
};

enum class DeviceAttribute : int32_t {
  kProcessors = 16,
  kCacheBytes = 38,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kTogetherLaunch = 95,
  kSharedBytesMax = 97,  // of a block
};
enum class FunctionAttribute : int32_t { kRegisters = 4, kDynamicSharedBytes = 8, kSharedShare = 9 };
inline constexpr int kMostShared = 100;  // of kSharedShare, in percent

inline constexpr unsigned kStreamApart = 1;     // does not wait for the default stream
inline constexpr unsigned kHostAllCards = 1;    // pinned for all contexts
inline constexpr unsigned kEventUntimed = 2;    // orders, and notes no time
inline constexpr unsigned kCaptureRelaxed = 2;  // calls on other things stay allowed

inline constexpr int32_t kOfHost = 1, kOfCard = 2;

// CUDA_MEMCPY2D_v2.
struct RowsCopy {
  size_t from_x = 0, from_y = 0;
  int32_t from_kind = 0;
  const void* from_host = nullptr;
  Address from = 0;
  Handle from_array = nullptr;
  size_t from_pitch = 0;
  size_t to_x = 0, to_y = 0;
  int32_t to_kind = 0;
  void* to_host = nullptr;
  Address to = 0;
  Handle to_array = nullptr;
  size_t to_pitch = 0;
  size_t row_bytes = 0, rows = 0;
};

// CUDA_MEMCPY3D_PEER, of one plane. Heights are of a plane: the rows, or more.
struct PeerCopy {
  size_t from_x = 0, from_y = 0, from_z = 0, from_level = 0;
  int32_t from_kind = kOfCard;
  const void* from_host = nullptr;
  Address from = 0;
  Handle from_array = nullptr, from_context = nullptr;
  size_t from_pitch = 0, from_height = 0;
  size_t to_x = 0, to_y = 0, to_z = 0, to_level = 0;
  int32_t to_kind = kOfCard;
  void* to_host = nullptr;
  Address to = 0;
  Handle to_array = nullptr, to_context = nullptr;
  size_t to_pitch = 0, to_height = 0;
  size_t row_bytes = 0, rows = 0, planes = 1;
};

// How a kernel is launched, with one trait beside the usual.
struct LaunchTrait {
  enum : int32_t { kAhead = 6 };  // it may begin before the kernel before it is over, for which it waits itself
  int32_t id = kAhead, unused = 0, value = 1;
  unsigned char more[60] = {};
};
struct LaunchPlan {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  Handle stream = nullptr;
  LaunchTrait* traits = nullptr;
  unsigned trait_count = 0;
};
static_assert(sizeof(LaunchTrait) == 72 && sizeof(LaunchPlan) == 56);

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion: what is used of them.
inline constexpr int32_t kMapOfBf16 = 9, kMapSwizzle64 = 2, kMapSwizzle128 = 3, kMapFetch256 = 3;

struct Driver {
  bool emulated = false;
  DriverCode (*init)(unsigned flags);
  DriverCode (*version)(int* version);  // 13000: 13.0
  DriverCode (*error_name)(DriverCode code, const char** name);
  DriverCode (*error_text)(DriverCode code, const char** text);

  DriverCode (*device_count)(int* count);
  DriverCode (*device_get)(DeviceNumber* device, int index);
  DriverCode (*device_name)(char* name, int size, DeviceNumber device);
  DriverCode (*device_attribute)(int* value, DeviceAttribute what, DeviceNumber device);
  DriverCode (*device_memory)(size_t* bytes, DeviceNumber device);
  DriverCode (*device_pci)(char* id, int size, DeviceNumber device);
  DriverCode (*device_can_reach)(int* can, DeviceNumber device, DeviceNumber other);

  DriverCode (*context_retain)(Handle* context, DeviceNumber device);  // the primary one
  DriverCode (*context_release)(DeviceNumber device);
  DriverCode (*context_set_current)(Handle context);
  DriverCode (*context_reach)(Handle other, unsigned flags);  // the current one's kernels may use the other's memory

  DriverCode (*memory_allocate)(Address* address, size_t bytes);
  DriverCode (*memory_free)(Address address);
  DriverCode (*memory_info)(size_t* free, size_t* all);
  DriverCode (*host_allocate)(void** at, size_t bytes, unsigned flags);
  DriverCode (*host_free)(void* at);
  DriverCode (*host_register)(void* at, size_t bytes, unsigned flags);  // pins memory that is there
  DriverCode (*host_unregister)(void* at);

  DriverCode (*copy_in)(Address to, const void* from, size_t bytes, Handle stream);
  DriverCode (*copy_out)(void* to, Address from, size_t bytes, Handle stream);
  DriverCode (*copy)(Address to, Address from, size_t bytes, Handle stream);
  DriverCode (*copy_rows)(const RowsCopy* copy, Handle stream);
  DriverCode (*copy_peer)(Address to, Handle to_context, Address from, Handle from_context, size_t bytes,
                          Handle stream);
  DriverCode (*copy_rows_peer)(const PeerCopy* copy, Handle stream);
  DriverCode (*set_bytes)(Address at, unsigned char value, size_t bytes, Handle stream);

  DriverCode (*stream_create)(Handle* stream, unsigned flags);
  DriverCode (*stream_destroy)(Handle stream);
  DriverCode (*stream_wait)(Handle stream);   // the host waits
  DriverCode (*stream_query)(Handle stream);  // kNotReady
  DriverCode (*stream_wait_event)(Handle stream, Handle event, unsigned flags);
  DriverCode (*event_create)(Handle* event, unsigned flags);
  DriverCode (*event_destroy)(Handle event);
  DriverCode (*event_record)(Handle event, Handle stream);
  DriverCode (*event_wait)(Handle event);
  DriverCode (*event_query)(Handle event);
  DriverCode (*event_elapsed)(float* milliseconds, Handle from, Handle to);

  DriverCode (*module_load)(Handle* module, const void* image);
  DriverCode (*module_unload)(Handle module);
  DriverCode (*module_function)(Handle* function, Handle module, const char* name);
  DriverCode (*function_attribute)(int* value, FunctionAttribute what, Handle function);
  DriverCode (*function_set_attribute)(Handle function, FunctionAttribute what, int value);
  // Blocks that one processor holds at once.
  DriverCode (*function_blocks)(int* blocks, Handle function, int threads, size_t shared_bytes);
  DriverCode (*launch)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream, void** arguments,
                       void** extra);
  // None before CUDA 11.8.
  DriverCode (*launch_plan)(const LaunchPlan* plan, Handle function, void** arguments, void** extra) = nullptr;
  // None before CUDA 12.0. Sizes and boxes in values, the innermost first; strides in bytes, of all but that.
  DriverCode (*describe_matrix)(TensorMap* map, int32_t type, uint32_t rank, void* at, const uint64_t* sizes,
                                const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int32_t interleave,
                                int32_t swizzle, int32_t fetch, int32_t outside) = nullptr;
  DriverCode (*launch_together)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream,
                                void** arguments);

  DriverCode (*capture_begin)(Handle stream, unsigned mode);
  DriverCode (*capture_end)(Handle stream, Handle* graph);
  DriverCode (*graph_instantiate)(Handle* runnable, Handle graph, unsigned long long flags);
  DriverCode (*graph_launch)(Handle runnable, Handle stream);
  DriverCode (*graph_destroy)(Handle graph);
  DriverCode (*runnable_destroy)(Handle runnable);
};

// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
std::string code_text(const Driver& driver, DriverCode code);
// What a driver says, for terminals: other than printable ASCII becomes '?'.
std::string printable(std::string_view said);

// The installed driver, started; it stays for the life of the process. kUnsupported with the reason: not installed, too
// old (the function that it lacks), or not starting (the driver's code).
Result<const Driver*> installed_driver();
// As the above, from another library: for tests.
Result<const Driver*> driver_of(const char* library);

}  // namespace baton::cuda
