// Layers from the step's thread to the porter, and back to the books.
#include "baton/engine/step_streams.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "baton/engine/lane.h"

namespace baton {
namespace {

// How often the porter looks for more, and how many times before it sleeps.
constexpr std::chrono::microseconds kBetweenLooks{300};
constexpr int kLooks = 50;

}  // namespace

Porter::~Porter() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  sent_.notify_all();
  thread_.join();
}

void Porter::send(StepStreams& streams, size_t which, int32_t layer) {
  {
    const std::scoped_lock lock(mutex_);
    if (loads_.empty() || loads_.back().streams != &streams || loads_.back().which != which)
      loads_.push_back({&streams, which, {}});
    loads_.back().layers.push_back(layer);
    if (!std::exchange(asleep_, false)) return;
  }
  sent_.notify_one();
}

void Porter::carry_one(std::unique_lock<std::mutex>& lock) {
  const Load load = std::move(loads_.front());
  loads_.pop_front();
  carrying_ = true;
  lock.unlock();
  load.streams->move(load.which, load.layers);
  lock.lock();
  carrying_ = false;
}

void Porter::wait() {
  std::unique_lock lock(mutex_);
  while (carrying_ || !loads_.empty()) {
    carrying_ ? done_.wait(lock) : carry_one(lock);
  }
}

void Porter::work() {
  std::unique_lock lock(mutex_);
  for (int idle = 0; !stopping_; ++idle) {
    if (!carrying_ && !loads_.empty()) {
      carry_one(lock);
      done_.notify_all();
      idle = 0;
    } else if (idle < kLooks) {
      sent_.wait_for(lock, kBetweenLooks);
    } else {
      asleep_ = true;
      sent_.wait(lock, [&] { return stopping_ || !asleep_; });
      idle = 0;
    }
  }
}

// What was sent is about states that the caller is about to touch.
StepStreams::~StepStreams() {
  if (porter_ != nullptr) porter_->wait();
}

void StepStreams::add(StepSeat& seat, size_t index) {
  int32_t last_layer = -1;
  for (const Segment& segment : seat.state.state->shape().segments) last_layer = std::max(last_layer, segment.layer);
  streams_.push_back({&seat, index, seat.state.state->position() + seat.tokens.size(), last_layer});
  if (seat.into.stream) return;
  auto begun = StateStream::begin(*seat.state.state, *seat.into.state, seat.into_tokens, seat.source, carrier_.crew());
  begun ? static_cast<void>(seat.into.stream = std::move(*begun))
        : static_cast<void>(seat.moved = fail(std::move(begun).error()));
}

void StepStreams::move(size_t which, std::span<const int32_t> layers) {
  const Stream& stream = streams_[which];
  StepSeat& seat = *stream.seat;
  if (!seat.moved) return;
  try {
    seat.moved = carrier_.stream(*seat.into.stream, *seat.state.state, stream.position, layers);
  } catch (const std::bad_alloc&) {
    seat.moved = fail(Code::kOutOfMemory, "out of memory while a state was moved");
  } catch (const std::exception& error) {
    seat.moved = fail(Code::kInternal, std::string("moving a state threw: ") + error.what());
  }
}

template <class Act>
void StepStreams::waiting(StepSeat& seat, Act act) {
  const int64_t start_ns = clock_.now_ns();
  act();
  seat.waited_ms += ms_between(start_ns, clock_.now_ns());
}

void StepStreams::layer_done(size_t seat, int32_t layer) {
  const auto found =
      std::find_if(streams_.begin(), streams_.end(), [&](const Stream& stream) { return stream.index == seat; });
  if (found == streams_.end()) return;
  const auto which = static_cast<size_t>(found - streams_.begin());
  waiting(*found->seat, [&] {
    if (porter_ == nullptr) return move(which, {&layer, 1});
    porter_->send(*this, which, layer);
    // Behind this call the state is the step's again.
    if (layer >= found->last_layer) porter_->wait();
  });
}

void StepStreams::finish(bool well) {
  if (porter_ != nullptr) porter_->wait();
  for (size_t which = 0; which < streams_.size() && well; ++which) {
    StepSeat& seat = *streams_[which].seat;
    waiting(seat, [&] {
      move(which, {});
      if (!seat.moved || streams_[which].position < seat.into_tokens) return;
      seat.moved = seat.into.stream->finish(*seat.state.state);
    });
    if (!seat.moved || streams_[which].position < seat.into_tokens) continue;
    seat.arrived = true;
    seat.report = seat.into.stream->report();
    seat.into.stream.reset();
    seat.into.provenance = seat.state.provenance;
    seat.into.kept = seat.state.kept;
    seat.into.exact = false;
  }
}

}  // namespace baton
