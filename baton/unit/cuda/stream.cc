// Work of a card: copies, launches, events and graphs.
#include <fmt/format.h>

#include <utility>

#include "baton/unit/cuda/card_parts.h"

namespace baton::cuda {

Stream::Stream(Stream&& other) noexcept { *this = std::move(other); }
Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(card_, other.card_);
  std::swap(handle_, other.handle_);
  return *this;
}
Stream::~Stream() {
  if (card_ == nullptr) return;
  // What it still does may be on memory that goes next.
  card_->parts_->drop([&](const Driver& d) { return d.stream_wait(handle_); });
  card_->parts_->drop([&](const Driver& d) { return d.stream_destroy(handle_); });
  --card_counts().streams;
}

Status Stream::copy_in(Address to, const void* from, uint64_t bytes) {
  if (bytes == 0) return {};
  return card_->parts_->run("copying to the card:", bytes,
                            [&](const Driver& d) { return d.copy_in(to, from, bytes, handle_); });
}

Status Stream::copy_out(void* to, Address from, uint64_t bytes) {
  if (bytes == 0) return {};
  return card_->parts_->run("copying from the card:", bytes,
                            [&](const Driver& d) { return d.copy_out(to, from, bytes, handle_); });
}

Status Stream::copy(Address to, Address from, uint64_t bytes) {
  if (bytes == 0) return {};
  return card_->parts_->run("copying on the card:", bytes,
                            [&](const Driver& d) { return d.copy(to, from, bytes, handle_); });
}

Status Stream::copy_rows_out(void* to, uint64_t to_pitch, Address from, uint64_t from_pitch, uint64_t row_bytes,
                             uint64_t rows) {
  if (row_bytes == 0 || rows == 0) return {};
  const RowsCopy copy = {.from_kind = kOfCard,
                         .from = from,
                         .from_pitch = from_pitch,
                         .to_kind = kOfHost,
                         .to_host = to,
                         .to_pitch = to_pitch,
                         .row_bytes = row_bytes,
                         .rows = rows};
  return card_->parts_->run("copying rows from the card:", row_bytes * rows,
                            [&](const Driver& d) { return d.copy_rows(&copy, handle_); });
}

Status Stream::copy_rows_in(Address to, uint64_t to_pitch, const void* from, uint64_t from_pitch, uint64_t row_bytes,
                            uint64_t rows) {
  if (row_bytes == 0 || rows == 0) return {};
  const RowsCopy copy = {.from_kind = kOfHost,
                         .from_host = from,
                         .from_pitch = from_pitch,
                         .to_kind = kOfCard,
                         .to = to,
                         .to_pitch = to_pitch,
                         .row_bytes = row_bytes,
                         .rows = rows};
  return card_->parts_->run("copying rows to the card:", row_bytes * rows,
                            [&](const Driver& d) { return d.copy_rows(&copy, handle_); });
}

Status Stream::copy_rows_from(const Card& other, Address to, uint64_t to_pitch, Address from, uint64_t from_pitch,
                              uint64_t row_bytes, uint64_t rows) {
  if (row_bytes == 0 || rows == 0) return {};
  Card::Parts &own = *card_->parts_, &its = *other.parts_;
  if (to_pitch == row_bytes && from_pitch == row_bytes) row_bytes *= std::exchange(rows, 1);
  const PeerCopy copy = {.from = from,
                         .from_context = its.context,
                         .from_pitch = from_pitch,
                         .from_height = rows,
                         .to = to,
                         .to_context = own.context,
                         .to_pitch = to_pitch,
                         .to_height = rows,
                         .row_bytes = row_bytes,
                         .rows = rows};
  const std::string what = fmt::format("copying rows from card {}:", other.facts().index);
  DriverCode code = kDone;
  BATON_OK(own.run(what, row_bytes * rows, [&](const Driver& d) {
    code = rows == 1 ? d.copy_peer(to, own.context, from, its.context, row_bytes, handle_)
                     : d.copy_rows_peer(&copy, handle_);
    return Card::Parts::is_loss(code) ? DriverCode{kDone} : code;
  }));
  if (code == kDone) return {};
  // One of the two: this one, if it says so of another call, too.
  size_t free = 0, all = 0;
  BATON_OK(own.run(what, row_bytes * rows, [&](const Driver& d) { return d.memory_info(&free, &all); }));
  return its.failed(fmt::format("copying rows to card {}:", card_->facts().index), row_bytes * rows, code);
}

Status Stream::fill(Address at, uint8_t value, uint64_t bytes) {
  if (bytes == 0) return {};
  return card_->parts_->run("filling", bytes, [&](const Driver& d) { return d.set_bytes(at, value, bytes, handle_); });
}

Status Stream::launch(std::string_view kernel, uint32_t grid, uint32_t threads, uint32_t shared_bytes,
                      const void* argument) {
  BATON_TRY(const Handle function, card_->parts_->function(kernel, shared_bytes));
  void* arguments[] = {const_cast<void*>(argument)};
  return card_->parts_->run(kernel, 0, [&](const Driver& d) {
    return d.launch(function, grid, 1, 1, threads, 1, 1, shared_bytes, handle_, arguments, nullptr);
  });
}

Status Stream::launch_ahead(std::string_view kernel, uint32_t grid, uint32_t threads, uint32_t shared_bytes,
                            const void* argument) {
  constexpr uint32_t kCan = 90;  // compute capability
  BATON_TRY(const Handle function, card_->parts_->function(kernel, shared_bytes));
  void* arguments[] = {const_cast<void*>(argument)};
  LaunchTrait ahead;
  const LaunchPlan plan = {.grid_x = grid,
                           .block_x = threads,
                           .shared_bytes = shared_bytes,
                           .stream = handle_,
                           .traits = &ahead,
                           .trait_count = 1};
  return card_->parts_->run(kernel, 0, [&](const Driver& d) {
    if (d.launch_plan == nullptr || card_->facts_.capability < kCan)
      return d.launch(function, grid, 1, 1, threads, 1, 1, shared_bytes, handle_, arguments, nullptr);
    return d.launch_plan(&plan, function, arguments, nullptr);
  });
}

Result<TensorMap> Stream::map_of(const Bf16Rows& matrix, uint32_t box_rows, uint32_t box_columns) const {
  TensorMap map;
  const uint64_t sizes[] = {matrix.columns, matrix.rows}, pitch = 2 * matrix.columns;
  const uint32_t box[] = {box_columns, box_rows}, steps[] = {1, 1};
  const int32_t swizzle = box_columns == 64 ? kMapSwizzle128 : kMapSwizzle64;
  BATON_OK(card_->parts_->run("describing a matrix", 0, [&](const Driver& d) {
    return d.describe_matrix(&map, kMapOfBf16, 2, reinterpret_cast<void*>(matrix.at), sizes, &pitch, box, steps, 0,
                             swizzle, kMapFetch256, 0);
  }));
  return map;
}

Status Stream::launch_together(std::string_view kernel, uint32_t threads, uint32_t shared_bytes, const void* argument) {
  BATON_TRY(const Handle function, card_->parts_->function(kernel, shared_bytes));
  void* arguments[] = {const_cast<void*>(argument)};
  return card_->parts_->run(kernel, 0, [&](const Driver& d) {
    return d.launch_together(function, card_->facts_.processors, 1, 1, threads, 1, 1, shared_bytes, handle_, arguments);
  });
}

Status Stream::wait() {
  return card_->parts_->run("waiting for its work", 0, [&](const Driver& d) { return d.stream_wait(handle_); });
}

Status Stream::record(Event& event) {
  return card_->parts_->run("recording an event", 0,
                            [&](const Driver& d) { return d.event_record(event.handle_, handle_); });
}

Status Stream::wait_for(const Event& event) {
  return card_->parts_->run("waiting for an event", 0,
                            [&](const Driver& d) { return d.stream_wait_event(handle_, event.handle_, 0); });
}

Status Stream::begin_capture() {
  return card_->parts_->run("recording a graph", 0,
                            [&](const Driver& d) { return d.capture_begin(handle_, kCaptureRelaxed); });
}

Result<Graph> Stream::end_capture() {
  Handle recorded = nullptr;
  BATON_OK(
      card_->parts_->run("recording a graph", 0, [&](const Driver& d) { return d.capture_end(handle_, &recorded); }));
  Graph graph;
  const Status made = card_->parts_->run(
      "making a graph", 0, [&](const Driver& d) { return d.graph_instantiate(&graph.handle_, recorded, 0); });
  card_->parts_->drop([&](const Driver& d) { return d.graph_destroy(recorded); });
  BATON_OK(made);
  graph.card_ = card_;
  ++card_counts().graphs;
  return graph;
}

Result<Graph> Stream::record_graph(const std::function<Status()>& work) {
  BATON_OK(begin_capture());
  const Status done = work();
  Result<Graph> graph = end_capture();
  BATON_OK(done);
  return graph;
}

Status Stream::launch(const Graph& graph) {
  return card_->parts_->run("launching a graph", 0,
                            [&](const Driver& d) { return d.graph_launch(graph.handle_, handle_); });
}

Event::Event(Event&& other) noexcept { *this = std::move(other); }
Event& Event::operator=(Event&& other) noexcept {
  std::swap(card_, other.card_);
  std::swap(handle_, other.handle_);
  return *this;
}
Event::~Event() {
  if (card_ == nullptr) return;
  card_->parts_->drop([&](const Driver& d) { return d.event_destroy(handle_); });
  --card_counts().events;
}

Status Event::wait() const {
  return card_->parts_->run("waiting for an event", 0, [&](const Driver& d) { return d.event_wait(handle_); });
}

Result<bool> Event::done() const {
  bool done = true;
  BATON_OK(card_->parts_->run("asking for an event", 0, [&](const Driver& d) {
    const DriverCode code = d.event_query(handle_);
    done = code != kNotReady;
    return done ? code : DriverCode{kDone};
  }));
  return done;
}

Result<float> Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  BATON_OK(card_->parts_->run(
      "timing", 0, [&](const Driver& d) { return d.event_elapsed(&milliseconds, earlier.handle_, handle_); }));
  return milliseconds;
}

Graph::Graph(Graph&& other) noexcept { *this = std::move(other); }
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(card_, other.card_);
  std::swap(handle_, other.handle_);
  return *this;
}
Graph::~Graph() {
  if (card_ == nullptr) return;
  card_->parts_->drop([&](const Driver& d) { return d.runnable_destroy(handle_); });
  --card_counts().graphs;
}

}  // namespace baton::cuda
