// The emulated driver: streams, events, modules, kernels and graphs.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "baton/base/status.h"
#include "baton/unit/cuda/emulated_state.h"
#include "baton/unit/cuda/kernels.h"
#include "baton/unit/cuda/reference.h"

namespace baton::cuda::emulated {

namespace {

// Until `stream` has done its first `count` tasks: by this thread, or by one that is at it.
DriverCode catch_up(std::unique_lock<std::mutex>& lock, StreamState& stream, uint64_t count) {
  State& all = state();
  while (stream.done < count) {
    if (stream.running) {
      all.changed.wait(lock);
      continue;
    }
    const Task task = std::move(stream.tasks.front());
    stream.tasks.pop_front();
    stream.running = true;
    lock.unlock();
    const DriverCode code = task();
    lock.lock();
    stream.running = false;
    ++stream.done;
    if (stream.failed == kDone) stream.failed = code;
    all.changed.notify_all();
  }
  return stream.failed;
}

}  // namespace

Pace pace_of(Handle handle) {
  const std::lock_guard lock(state().mutex);
  if (state().streams.count(handle) == 0) return Pace::kBusy;
  const auto* stream = static_cast<const StreamState*>(handle);
  return stream->capture ? Pace::kRecorded : stream->left() > 0 ? Pace::kBusy : Pace::kIdle;
}

DriverCode submit(Handle handle, Task task) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.streams.count(handle) == 0) return all.misused(kInvalidHandle, "work for a stream that is not there");
  auto* stream = static_cast<StreamState*>(handle);
  if (stream->device != t_device)
    return all.misused(kInvalidContext, "work for a stream of a card that is not current");
  if (stream->capture) {
    stream->capture->tasks.push_back(std::move(task));
  } else {
    stream->tasks.push_back(std::move(task));
    ++stream->asked;
  }
  return kDone;
}

void catch_up_all() {
  std::unique_lock lock(state().mutex);
  for (const Handle handle : std::set<Handle>(state().streams)) {
    auto* stream = static_cast<StreamState*>(handle);
    if (state().streams.count(handle) != 0) static_cast<void>(catch_up(lock, *stream, stream->asked));
  }
}

namespace {

DriverCode stream_create(Handle* stream, unsigned) {
  BATON_BEGIN_IN_CONTEXT("stream_create");
  return make(state().streams, stream, StreamState{t_device});
}
DriverCode waited(Handle handle) {
  State& all = state();
  std::unique_lock lock(all.mutex);
  if (all.streams.count(handle) == 0) return all.misused(kInvalidHandle, "a stream is waited for that is not there");
  auto* stream = static_cast<StreamState*>(handle);
  if (stream->capture) return all.misused(kCaptureUnsupported, "a stream is waited for while it is recorded");
  return catch_up(lock, *stream, stream->asked);
}
DriverCode stream_destroy(Handle handle) {
  const DriverCode code = begin("stream_destroy");
  {
    State& all = state();
    std::unique_lock lock(all.mutex);
    auto* stream = static_cast<StreamState*>(handle);
    if (all.streams.count(handle) != 0) static_cast<void>(catch_up(lock, *stream, stream->asked));
    for (const Handle event : all.events) {
      if (auto* of = static_cast<EventState*>(event); of->stream == stream) of->stream = nullptr;
    }
  }
  return destroy<StreamState>(state().streams, handle, code);
}
DriverCode stream_wait(Handle stream) {
  BATON_BEGIN_IN_CONTEXT("stream_wait");
  return waited(stream);
}
// It has always come so far: nobody asks for ever.
DriverCode stream_query(Handle stream) {
  BATON_BEGIN_IN_CONTEXT("stream_query");
  return waited(stream);
}

DriverCode event_create(Handle* event, unsigned flags) {
  BATON_BEGIN_IN_CONTEXT("event_create");
  return make(state().events, event, EventState{.timed = (flags & kEventUntimed) == 0});
}
DriverCode event_destroy(Handle event) { return destroy<EventState>(state().events, event, begin("event_destroy")); }
// Until what was asked before it was recorded last is done.
DriverCode event_waited(Handle handle) {
  State& all = state();
  std::unique_lock lock(all.mutex);
  if (all.events.count(handle) == 0) return all.misused(kInvalidHandle, "an event that is not there");
  const auto* event = static_cast<const EventState*>(handle);
  return event->stream == nullptr ? DriverCode{kDone} : catch_up(lock, *event->stream, event->behind);
}
DriverCode stream_wait_event(Handle stream, Handle handle, unsigned) {
  BATON_BEGIN_IN_CONTEXT("stream_wait_event");
  EventState event;
  {
    const std::lock_guard lock(state().mutex);
    if (state().events.count(handle) == 0) return state().misused(kInvalidHandle, "an event that is not there");
    event = *static_cast<const EventState*>(handle);
  }
  return submit(stream, [from = event.stream, behind = event.behind] {
    std::unique_lock lock(state().mutex);
    return state().streams.count(from) == 0 ? DriverCode{kDone} : catch_up(lock, *from, behind);
  });
}
DriverCode event_record(Handle handle, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("event_record");
  const DriverCode code = submit(stream, [=] {
    const std::lock_guard lock(state().mutex);
    if (state().events.count(handle) == 0) return state().misused(kInvalidHandle, "an event that is not there");
    static_cast<EventState*>(handle)->time = std::chrono::steady_clock::now();
    return DriverCode{kDone};
  });
  const std::lock_guard lock(state().mutex);
  if (code != kDone || state().events.count(handle) == 0) return code;
  auto* event = static_cast<EventState*>(handle);
  event->recorded = true;
  event->stream = static_cast<StreamState*>(stream);
  event->behind = event->stream->asked;
  return kDone;
}
DriverCode event_wait(Handle event) {
  BATON_BEGIN_IN_CONTEXT("event_wait");
  return event_waited(event);
}
DriverCode event_query(Handle event) {
  BATON_BEGIN_IN_CONTEXT("event_query");
  return event_waited(event);
}
DriverCode event_elapsed(float* milliseconds, Handle from, Handle to) {
  BATON_BEGIN_IN_CONTEXT("event_elapsed");
  const std::lock_guard lock(state().mutex);
  if (state().events.count(from) == 0 || state().events.count(to) == 0)
    return state().misused(kInvalidHandle, "an event that is not there");
  const auto *a = static_cast<const EventState*>(from), *b = static_cast<const EventState*>(to);
  if (!a->recorded || !b->recorded || !a->timed || !b->timed) return kInvalidHandle;
  for (const EventState* event : {a, b}) {
    if (event->stream != nullptr && event->stream->done < event->behind) return kNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(b->time - a->time).count();
  return kDone;
}

void run_work(const void* argument) {
  const auto* work = static_cast<const Work*>(argument);
  reference(work->instruction, *static_cast<const Pass*>(pointer(work->pass)));
}
void run_list(const void* argument) {
  const auto* work = static_cast<const ListWork*>(argument);
  const auto* list = static_cast<const Instruction*>(pointer(work->list));
  const auto* pass = static_cast<const Pass*>(pointer(work->pass));
  if (pass->stopped != 0) return;
  uint32_t* const counts = static_cast<uint32_t*>(pointer(work->barrier));
  const uint64_t second = (counts[2] & 1) != 0 ? work->words_bytes : 0;
  if (work->words_bytes != 0) {
    // A word that is there before it has been written a card's kernels would take for this launch's.
    const auto* const own = static_cast<const uint32_t*>(pointer(work->words + second));
    BATON_CHECK(
        std::all_of(own, own + work->words_bytes / sizeof(uint32_t), [](uint32_t word) { return word == kNoWord; }));
    std::memset(pointer(work->words + work->words_bytes - second), 0xff, work->words_bytes);
  }
  for (int32_t i = 0; i < work->count; ++i) {
    Instruction own = list[i];
    move_words(own, second);
    reference_worded(own, *pass);
    if (work->times != 0)
      static_cast<uint64_t*>(pointer(work->times))[i] =
          static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  ++counts[1];
  if (work->words_bytes != 0) ++counts[2];
}
DriverCode module_load(Handle* module, const void* image) {
  BATON_BEGIN_IN_CONTEXT("module_load");
  if (image == nullptr) return kInvalidImage;
  return make(state().modules, module, Module{});
}
DriverCode module_unload(Handle module) { return destroy<Module>(state().modules, module, begin("module_unload")); }
DriverCode module_function(Handle* function, Handle module, const char* name) {
  BATON_BEGIN_IN_CONTEXT("module_function");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.modules.count(module) == 0) return all.misused(kInvalidHandle, "a module that is not there");
  Kernel kernel = {sizeof(Work), run_work};
  if (const auto found = all.kernels.find(name); found != all.kernels.end()) {
    kernel = found->second;
  } else if (std::string_view(name).starts_with("baton_list")) {
    kernel = {sizeof(ListWork), run_list};
  } else if (std::none_of(std::begin(kKinds), std::end(kKinds), [&](Do kind) { return kernel_name(kind) == name; })) {
    return kNoSuchName;
  }
  auto& functions = static_cast<Module*>(module)->functions;
  *function = &functions.insert_or_assign(name, Function{name, kernel}).first->second;
  return kDone;
}
DriverCode function_attribute(int* value, FunctionAttribute what, Handle function) {
  BATON_BEGIN_IN_CONTEXT("function_attribute");
  *value = what == FunctionAttribute::kRegisters ? 128 : static_cast<Function*>(function)->shared_max;
  return kDone;
}
DriverCode function_set_attribute(Handle function, FunctionAttribute what, int value) {
  BATON_BEGIN_IN_CONTEXT("function_set_attribute");
  if (what == FunctionAttribute::kSharedShare) return value >= -1 && value <= kMostShared ? kDone : kInvalidValue;
  if (what != FunctionAttribute::kDynamicSharedBytes || value < 0 || value > kSharedMax) return kInvalidValue;
  static_cast<Function*>(function)->shared_max = value;
  return kDone;
}
DriverCode function_blocks(int* blocks, Handle, int threads, size_t shared_bytes) {
  BATON_BEGIN_IN_CONTEXT("function_blocks");
  *blocks = threads > kThreadsMax || shared_bytes > static_cast<size_t>(kSharedMax) ? 0 : 1;
  return kDone;
}
DriverCode launch_any(Handle handle, uint64_t blocks, uint64_t threads, unsigned shared_bytes, Handle stream,
                      void** arguments) {
  const auto* function = static_cast<const Function*>(handle);
  if (blocks == 0 || threads == 0 || threads > kThreadsMax ||
      shared_bytes > static_cast<unsigned>(function->shared_max))
    return kInvalidValue;
  const auto* bytes = static_cast<const std::byte*>(arguments[0]);
  const Kernel kernel = function->kernel;
  // Of the instruction, the kernel must be its own.
  if (kernel.body == run_work &&
      kernel_name(reinterpret_cast<const Work*>(bytes)->instruction.what) != function->name) {
    const std::lock_guard lock(state().mutex);
    return state().misused(kInvalidValue, fmt::format("{} is launched for another kind", function->name));
  }
  // A copy, aligned for any argument.
  std::vector<std::max_align_t> argument((kernel.argument_bytes + sizeof(std::max_align_t) - 1) /
                                         sizeof(std::max_align_t));
  std::memcpy(argument.data(), bytes, kernel.argument_bytes);
  return submit(stream, [kernel, argument = std::move(argument)] {
    kernel.body(argument.data());
    return DriverCode{kDone};
  });
}
DriverCode launch(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                  unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream, void** arguments, void**) {
  BATON_BEGIN_IN_CONTEXT("launch");
  return launch_any(function, uint64_t{grid_x} * grid_y * grid_z, uint64_t{block_x} * block_y * block_z, shared_bytes,
                    stream, arguments);
}
DriverCode launch_plan(const LaunchPlan* plan, Handle function, void** arguments, void**) {
  BATON_BEGIN_IN_CONTEXT("launch");
  const bool ahead = plan->trait_count == 1 && plan->traits->id == LaunchTrait::kAhead && plan->traits->value == 1;
  if (!ahead) return kInvalidValue;
  return launch_any(function, uint64_t{plan->grid_x} * plan->grid_y * plan->grid_z,
                    uint64_t{plan->block_x} * plan->block_y * plan->block_z, plan->shared_bytes, plan->stream,
                    arguments);
}
// As plain numbers: where, columns, rows, pitch, columns and rows of a box. Refuses what CUDA does.
DriverCode describe_matrix(TensorMap* map, int32_t type, uint32_t rank, void* at, const uint64_t* sizes,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int32_t interleave,
                           int32_t swizzle, int32_t fetch, int32_t outside) {
  BATON_BEGIN_IN_CONTEXT("describe_matrix");
  const auto address = reinterpret_cast<uintptr_t>(at);
  const uint32_t across = swizzle == kMapSwizzle128 ? 128 : swizzle == kMapSwizzle64 ? 64 : 0;
  const bool known = type == kMapOfBf16 && rank == 2 && interleave == 0 && outside == 0 && across > 0 &&
                     fetch == kMapFetch256 && steps[0] == 1 && steps[1] == 1;
  const bool placed = address != 0 && address % 16 == 0 && strides[0] % 16 == 0 && strides[0] >= 2 * sizes[0];
  const bool sized = sizes[0] > 0 && sizes[1] > 0 && box[1] > 0 && box[1] <= 256 && box[0] > 0 && 2 * box[0] <= across;
  if (!known || !placed || !sized || reinterpret_cast<uintptr_t>(map) % 64 != 0) return kInvalidValue;
  *map = {{address, sizes[0], sizes[1], strides[0], box[0], box[1]}};
  return kDone;
}
DriverCode launch_together(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_bytes, Handle stream, void** arguments) {
  BATON_BEGIN_IN_CONTEXT("launch_together");
  const uint64_t blocks = uint64_t{grid_x} * grid_y * grid_z;
  if (blocks > kProcessors) return kTogetherTooLarge;
  return launch_any(function, blocks, uint64_t{block_x} * block_y * block_z, shared_bytes, stream, arguments);
}

DriverCode capture_begin(Handle handle, unsigned) {
  BATON_BEGIN_IN_CONTEXT("capture_begin");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.streams.count(handle) == 0) return all.misused(kInvalidHandle, "a stream that is not there");
  auto* stream = static_cast<StreamState*>(handle);
  if (stream->capture) return all.misused(kInvalidValue, "a stream is recorded twice at once");
  stream->capture.emplace();
  return kDone;
}
DriverCode capture_end(Handle handle, Handle* graph) {
  const DriverCode code = begin_in_context("capture_end");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.streams.count(handle) == 0) return all.misused(kInvalidHandle, "a stream that is not there");
  auto* stream = static_cast<StreamState*>(handle);
  if (!stream->capture) return all.misused(kCaptureUnmatched, "a stream's recording ends that never began");
  Graph made = *std::exchange(stream->capture, std::nullopt);
  if (code != kDone) return code;
  *graph = new Graph(std::move(made));
  all.graphs.insert(*graph);
  return kDone;
}
DriverCode graph_instantiate(Handle* runnable, Handle graph, unsigned long long) {
  BATON_BEGIN_IN_CONTEXT("graph_instantiate");
  return make(state().graphs, runnable, Graph(*static_cast<Graph*>(graph)));
}
DriverCode graph_launch(Handle runnable, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("graph_launch");
  return submit(stream, [runnable] {
    Graph graph;
    {
      const std::lock_guard lock(state().mutex);
      if (state().graphs.count(runnable) == 0)
        return state().misused(kInvalidHandle, "a graph is launched that is not there");
      graph = *static_cast<Graph*>(runnable);
    }
    for (const Task& task : graph.tasks) {
      if (const DriverCode code = task(); code != kDone) return code;
    }
    return DriverCode{kDone};
  });
}
DriverCode graph_destroy(Handle graph) { return destroy<Graph>(state().graphs, graph, begin("graph_destroy")); }
DriverCode runnable_destroy(Handle runnable) {
  return destroy<Graph>(state().graphs, runnable, begin("runnable_destroy"));
}

}  // namespace

void fill_work(Driver& driver) {
  driver.stream_create = stream_create;
  driver.stream_destroy = stream_destroy;
  driver.stream_wait = stream_wait;
  driver.stream_query = stream_query;
  driver.stream_wait_event = stream_wait_event;
  driver.event_create = event_create;
  driver.event_destroy = event_destroy;
  driver.event_record = event_record;
  driver.event_wait = event_wait;
  driver.event_query = event_query;
  driver.event_elapsed = event_elapsed;
  driver.module_load = module_load;
  driver.module_unload = module_unload;
  driver.module_function = module_function;
  driver.function_attribute = function_attribute;
  driver.function_set_attribute = function_set_attribute;
  driver.function_blocks = function_blocks;
  driver.launch = launch;
  driver.launch_plan = launch_plan;
  driver.describe_matrix = describe_matrix;
  driver.launch_together = launch_together;
  driver.capture_begin = capture_begin;
  driver.capture_end = capture_end;
  driver.graph_instantiate = graph_instantiate;
  driver.graph_launch = graph_launch;
  driver.graph_destroy = graph_destroy;
  driver.runnable_destroy = runnable_destroy;
}

}  // namespace baton::cuda::emulated
