// Steps that tell of their layers: behind the last kernel that touches a layer's slots is an event. Reads go on another
// stream: what they see is what the host has waited for, and the card goes on with later layers meanwhile.
#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/launch.h"

namespace baton::cuda {
namespace {

// What was asked for is done before a step that fails, or is left by an exception, is over.
class DoneAtLast {
 public:
  explicit DoneAtLast(Stream& stream) : stream_(stream) {}
  ~DoneAtLast() {
    if (!well_) static_cast<void>(stream_.wait());
  }
  DoneAtLast(const DoneAtLast&) = delete;
  DoneAtLast& operator=(const DoneAtLast&) = delete;
  void well() { well_ = true; }

 private:
  Stream& stream_;
  bool well_ = false;
};

}  // namespace

// All is launched before the first wait: the card has something to do whatever the watch does.
Status CudaExecutor::run_telling(const Lists& lists, const Seat& seat, size_t index, const StepContext& context) {
  DoneAtLast done(stream_);
  size_t marked = 0;
  for (size_t i = 0; i < lists.body.size(); ++i) {
    BATON_OK(launch(stream_, card_->facts(), lists.body[i], work_->pass(), work_->pass_on_card()));
    if (marked < lists.layers.size() && lists.layers[marked].behind == i) BATON_OK(stream_.record(events_[marked++]));
  }
  auto& state = static_cast<CudaState&>(*seat.state);
  state.show(state.position() + static_cast<uint64_t>(work_->pass().rows));
  for (size_t i = 0; i < marked; ++i) {
    BATON_OK(context.check());
    BATON_OK(events_[i].wait());
    context.watch->layer_done(index, lists.layers[i].layer);
  }
  done.well();
  return {};
}

// One launch has made all of their layers.
void CudaExecutor::tell_decoded(const Seat& seat, size_t index, uint64_t tokens, const StepContext& context) const {
  auto& state = static_cast<CudaState&>(*seat.state);
  state.show(state.position() + tokens);
  for (const LayerEnd& end : work_->few().layers) context.watch->layer_done(index, end.layer);
}

}  // namespace baton::cuda
