// What the emulated driver's functions share. For driver_emulated*.cc alone.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/unit/cuda/driver_emulated.h"

namespace baton::cuda::emulated {

inline constexpr int kProcessors = 4;
inline constexpr int kSharedMax = 227 * 1024, kSharedUnasked = 48 * 1024;
inline constexpr size_t kAlignment = 256;
inline constexpr int kThreadsMax = 1024;

using Body = void (*)(const void* argument);
using Task = std::function<DriverCode()>;

struct Device {
  int number = 0;
  uint64_t contexts = 0;
  uint64_t bytes = 0;
  DriverCode lost = kDone;                        // of all calls to come
  DriverCode pending = kDone;                     // of the next one
  std::array<bool, kEmulatedCards> reaches = {};  // by number
};
struct Block {
  uint64_t bytes = 0;
  Device* device = nullptr;
};
struct Kernel {
  size_t argument_bytes = 0;
  Body body = nullptr;
};
struct Function {
  std::string name;
  Kernel kernel;
  int shared_max = kSharedUnasked;
};
struct Module {
  std::map<std::string, Function, std::less<>> functions;
};
struct Graph {
  std::vector<Task> tasks;
};
// What is asked of a stream is done when something waits for it, and no further than to there, by the thread that
// waits: who does not wait sees what was there before.
struct StreamState {
  Device* device = nullptr;
  std::optional<Graph> capture = {};
  std::deque<Task> tasks = {};  // not begun
  uint64_t asked = 0, done = 0;
  bool running = false;       // a thread is at one
  DriverCode failed = kDone;  // of the first that did

  uint64_t left() const { return asked - done; }
};
struct EventState {
  StreamState* stream = nullptr;  // null: never recorded, or all that it had to do is done
  uint64_t behind = 0;            // so many tasks of it
  std::chrono::steady_clock::time_point time = {};
  bool recorded = false, timed = true;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // a stream has done one more
  std::array<Device, kEmulatedCards> devices;
  std::map<Address, Block> memory;
  std::map<std::byte*, uint64_t> pinned;
  std::map<std::string, Kernel, std::less<>> kernels;
  std::set<Handle> streams, events, modules, functions, graphs;
  uint64_t bytes_max = kEmulatedBytes;
  uint64_t calls = 0;
  bool peers = true;
  uint64_t peer_bytes = 0;
  std::optional<EmulatedFault> fault;
  std::string fault_function;
  std::string misuse;

  DriverCode misused(DriverCode code, std::string text) {
    if (misuse.empty()) misuse = std::move(text);
    return code;
  }
};
State& state();
extern thread_local Device* t_device;  // whose context is current
extern thread_local bool t_damages;    // the copy that is asked for

// Of each call first: counts it, and says how it fails.
DriverCode begin(std::string_view function);
// The same, of what needs a context.
DriverCode begin_in_context(std::string_view function);
inline void* pointer(Address at) { return reinterpret_cast<void*>(at); }

#define BATON_BEGIN(function) \
  if (const DriverCode code = begin(function); code != kDone) return code
#define BATON_BEGIN_IN_CONTEXT(function) \
  if (const DriverCode code = begin_in_context(function); code != kDone) return code

template <class T>
DriverCode make(std::set<Handle>& live, Handle* out, T made) {
  const std::lock_guard lock(state().mutex);
  *out = new T(std::move(made));
  live.insert(*out);
  return kDone;
}
template <class T>
DriverCode destroy(std::set<Handle>& live, Handle handle, DriverCode code) {
  const std::lock_guard lock(state().mutex);
  if (live.erase(handle) == 0) return state().misused(kInvalidHandle, "something is given back that is not there");
  delete static_cast<T*>(handle);
  return code;
}

// The entries for copies and fills; for streams, events, modules, kernels and graphs.
void fill_copies(Driver& driver);
void fill_work(Driver& driver);

// How soon a stream could begin with what is asked of it next: at once, behind other work, when its graph is launched.
enum class Pace : uint8_t { kIdle, kBusy, kRecorded };
Pace pace_of(Handle stream);
// In the order of the stream, or of its graph.
DriverCode submit(Handle stream, Task task);
// All that was asked of any stream is done: memory may go.
void catch_up_all();

}  // namespace baton::cuda::emulated
