// Moves what the seats of a step make to other units' states, beside the step: a layer goes when the step tells of it,
// by a thread of the lane's own, while later layers compute.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "baton/base/clock.h"
#include "baton/engine/work.h"
#include "baton/unit/unit.h"

namespace baton {

class Carrier;
class StepStreams;

// The thread. Owner: a lane, which sends and waits; what is sent is carried out in order, one at a time, and layers
// that come meanwhile go together: their copies lie one behind the other then, with nobody waiting between. To wake a
// thread takes the caller 45 us on a virtual machine, as long as a third of what a layer takes: so the first of a step
// wakes it, and then it looks for more by the clock. Throws std::system_error when the system refuses it.
class Porter {
 public:
  Porter() : thread_([this] { work(); }) {}
  ~Porter();
  void send(StepStreams& streams, size_t which, int32_t layer);
  // Until all that was sent is done; what the thread has not begun is done here.
  void wait();

 private:
  struct Load {
    StepStreams* streams;
    size_t which;
    std::vector<int32_t> layers;
  };
  void work();
  // The first of the loads; `lock` is open meanwhile.
  void carry_one(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable sent_, done_;
  std::deque<Load> loads_;  // not begun
  bool carrying_ = false;   // one is under way
  bool asleep_ = true;      // until it is woken
  bool stopping_ = false;
  std::thread thread_;
};

// Of one step of a lane. In order: add, the step with this as its watch, finish.
class StepStreams final : public LayerWatch {
 public:
  // `porter`: null where the step's own thread moves. Both are borrowed.
  StepStreams(Carrier& carrier, Porter* porter, const Clock& clock)
      : carrier_(carrier), porter_(porter), clock_(clock) {}
  ~StepStreams() override;
  // `seat`: the work's; `index`: which of the step's it is. Begins its stream where there is none. The seat has its
  // status in `moved`.
  void add(StepSeat& seat, size_t index);
  bool empty() const { return streams_.empty(); }
  void layer_done(size_t seat, int32_t layer) override;
  // The step has ended, well or not: what it did not tell of, and the end of a stream that has all.
  void finish(bool well);

 private:
  friend class Porter;
  struct Stream {
    StepSeat* seat;
    size_t index;
    uint64_t position;  // that the step brings
    int32_t last_layer;
  };
  // Of these layers; of none: all that is left.
  void move(size_t which, std::span<const int32_t> layers);
  // What the step's thread spends here is not hidden.
  template <class Act>
  void waiting(StepSeat& seat, Act act);

  Carrier& carrier_;
  Porter* const porter_;
  const Clock& clock_;
  std::vector<Stream> streams_;
};

}  // namespace baton
