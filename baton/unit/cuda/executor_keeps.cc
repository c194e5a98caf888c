// The last tokens of seats that keep: each is a row that decodes, and all share the products of one pass. Keys and
// values of all are there before the first attends. Recurrent parts are what the token before left: what moves them is
// launched token by token, and a copy of its slots goes before.
#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/launch.h"

namespace baton::cuda {
namespace {

bool moves_parts(Do what) {
  return what == Do::kConv || what == Do::kDelta || what == Do::kConvDelta || what == Do::kShortConv;
}

}  // namespace

// One token is a step of the list.
Status CudaExecutor::keep_rows(const Seat& seat, size_t index, size_t count, float* out, const StepContext& context) {
  BATON_OK(context.check());
  auto& state = static_cast<CudaState&>(*seat.state);
  const size_t first = seat.tokens.size() - count, first_wanted = seat.tokens.size() - seat.rows_out;
  start_few();
  for (size_t i = 0; i < count; ++i) add_few(seat, first + i, i, first + i >= first_wanted);
  if (state.has_parts() && count > 1) {
    BATON_OK(run_in_turn(state, out));
  } else {
    BATON_OK(state.keep_parts(stream_));
    BATON_OK(run_few(out));
  }
  if (context.watch != nullptr) tell_decoded(seat, index, count, context);
  state.advance(count, count);
  return {};
}

Status CudaExecutor::run_in_turn(CudaState& state, float* out) {
  const Pass& pass = work_->pass();
  for (int32_t i = 0; i < pass.rows; ++i) {
    Pass& one = work_->one(i);
    one = pass;
    one.runs = 1;
    one.run[0] = pass.run[i];
  }
  BATON_OK(work_->send(stream_));
  BATON_OK(work_->send_ones(stream_, pass.rows));
  const Lists& lists = work_->few();
  for (const auto* part : {&lists.body, &lists.tail}) {
    for (const Instruction& instruction : *part) {
      if (!moves_parts(instruction.what)) {
        BATON_OK(launch(stream_, card_->facts(), instruction, pass, work_->pass_on_card()));
        continue;
      }
      for (int32_t i = 0; i < pass.rows; ++i) {
        BATON_OK(state.keep_part(stream_, instruction.slot, static_cast<uint64_t>(i)));
        if (instruction.what == Do::kConvDelta)
          BATON_OK(state.keep_part(stream_, instruction.slot2, static_cast<uint64_t>(i)));
        BATON_OK(launch(stream_, card_->facts(), instruction, work_->one(i), work_->one_on_card(i)));
      }
    }
  }
  BATON_OK(take_outputs(lists, pass.rows_out, out));
  return stream_.wait();
}

}  // namespace baton::cuda
