// Steps that tell of their layers: behind the last kernel that touches a layer's slots is an event. Reads go on another
// stream: what they see is what the host has waited for, and the card goes on with later layers meanwhile.
#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/launch.h"

namespace baton::cuda {

// All is launched before the first wait: the card has something to do whatever the watch does.
Status CudaExecutor::run_telling(const Lists& lists, std::span<const Seat> seats, std::span<const PassPart> parts,
                                 const StepContext& context) {
  size_t marked = 0;
  for (size_t i = 0; i < lists.body.size(); ++i) {
    BATON_OK(launch(stream_, card_->facts(), lists.body[i], work_->pass(), work_->pass_on_card()));
    if (marked < lists.layers.size() && lists.layers[marked].behind == i) BATON_OK(stream_.record(events_[marked++]));
  }
  std::vector<PassPart> told;  // those that end here
  for (const PassPart& part : parts) {
    if (part.begin + part.count == seats[part.seat].tokens.size()) told.push_back(part);
  }
  for (const PassPart& part : told) {
    auto& state = static_cast<CudaState&>(*seats[part.seat].state);
    state.show(state.position() + part.count);
  }
  for (size_t i = 0; i < marked; ++i) {
    BATON_OK(context.check());
    BATON_OK(events_[i].wait());
    for (const PassPart& part : told) context.watch->layer_done(part.seat, lists.layers[i].layer);
  }
  return {};
}

// One launch has made all of their layers.
void CudaExecutor::tell_decoded(const Seat& seat, size_t index, uint64_t tokens, const StepContext& context) const {
  auto& state = static_cast<CudaState&>(*seat.state);
  state.show(state.position() + tokens);
  for (const LayerEnd& end : work_->few().layers) context.watch->layer_done(index, end.layer);
}

}  // namespace baton::cuda
