// Steps that draw on the card: the host asks for them ahead, and reads ids as they come.
#include <algorithm>

#include "baton/base/clock.h"
#include "baton/sample/draw_weight.h"
#include "baton/sample/sampler.h"
#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/launch.h"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kAhead = 2;  // steps asked for before the host has read what the one before them drew

bool takes_draws(const Sampler& sampler) {
  const SamplerParams& params = sampler.params();
  const bool in_window = !sampler.has_penalties() || (params.repeat_last_n > 0 && params.repeat_last_n <= kWindowMax);
  const bool plain = in_window && params.logit_bias.empty() && params.constraint == nullptr && !params.logprobs;
  if (!plain || params.temperature == 0) return plain;
  return params.top_k > 0 ? params.top_k <= kDrawTopMax : params.top_p < 1 || params.min_p > 0;
}

bool ended(std::span<const Seat> seats) {
  return std::any_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.draws->ended(); });
}

}  // namespace

bool CudaExecutor::draws_here(std::span<const Seat> seats) const {
  if (!work_->has_list() || seats.size() > static_cast<size_t>(kRunsMax)) return false;
  return std::all_of(seats.begin(), seats.end(), [](const Seat& seat) {
    return seat.decodes && !seat.keeps && seat.draws != nullptr && takes_draws(*seat.draws->sampler) &&
           seat.draws->stop_ids.size() <= static_cast<size_t>(kStopsMax);
  });
}

Status CudaExecutor::step_on(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                             const StepContext& context) {
  if (seats.empty() || context.watch != nullptr || !draws_here(seats))
    return Executor::step_on(seats, out, limits, context);
  std::vector<Seat> next(seats.begin(), seats.end());
  StepLimits rest = limits;
  while (rest.steps_max > 0) {
    uint64_t steps = std::min<uint32_t>(rest.steps_max, kStepsAhead);
    for (const Seat& seat : next) steps = std::min(steps, seat.state->tokens_max() - seat.state->position());
    // A seat that has no room says so there.
    if (steps == 0) return Executor::step_on(next, out, rest, context);
    const bool either = may_go_alone(next.size()), alone = either && draws_.alone(next.size());
    // Of one row after the other each step waits for the host; so do those that are timed.
    const bool timed = either && draws_.tries(next.size());
    if (alone || timed) steps = 1;
    const SteadyClock clock;
    const int64_t begin_ns = clock.now_ns();
    BATON_TRY(const Drawn done, settled([&] {
                return alone ? draw_alone(next, out, rest, context)
                             : draw_steps(next, static_cast<uint32_t>(steps), out, rest, context);
              }));
    if (timed) draws_.took(next.size(), alone, clock.now_ns() - begin_ns);
    if (!done.more || ended(next)) return {};
    rest.steps_max -= done.steps;
    // Rows are those of the first step.
    out = {};
    for (Seat& seat : next) {
      seat.tokens = {&seat.draws->ids.back().id, 1};
      seat.rows_out = 0;
    }
  }
  return {};
}

// Nothing ends between two seats: all have as many.
Result<CudaExecutor::Drawn> CudaExecutor::draw_alone(std::span<Seat> seats, std::span<float> out,
                                                     const StepLimits& limits, const StepContext& context) {
  BATON_OK(check_seats(*model_, seats, out));
  BATON_OK(context.check());
  Drawn all{1, true};
  for (Seat& seat : seats) {
    const size_t wanted = out.empty() ? 0 : seat.rows_out * static_cast<size_t>(model_->program.output_width);
    BATON_TRY(const Drawn done, draw_steps({&seat, 1}, 1, out.first(wanted), limits, {}));
    out = out.subspan(wanted);
    all.more = all.more && done.more;
  }
  BATON_OK(context.check());
  return all;
}

Result<Drawing> CudaExecutor::send_rules(std::span<const Seat> seats, uint32_t steps) {
  bool numbers = false;
  size_t windows = 0;
  for (size_t i = 0; i < seats.size(); ++i) {
    const Sampler& sampler = *seats[i].draws->sampler;
    const SamplerParams& params = sampler.params();
    DrawRule& rule = work_->rules()[i] = {};
    BATON_TRY(rule.banned, work_->send_banned(stream_, i, params.banned_ids));
    if (sampler.has_penalties()) {
      rule.repeat = params.repeat_penalty;
      rule.presence = params.presence_penalty;
      rule.frequency = params.frequency_penalty;
      rule.window = params.repeat_last_n;
      const std::vector<int32_t> ids = sampler.window();
      work_->windows()[i].drawn = static_cast<int32_t>(ids.size());
      std::copy(ids.begin(), ids.end(), work_->windows()[i].ids);
      windows = i + 1;
    }
    if (params.temperature == 0) continue;
    numbers = true;
    rule.scale = draw_scale(params.temperature);
    rule.min_weight = least_weight(params.min_p);
    rule.top_p = params.top_p;
    rule.top_k = params.top_k;
    uint64_t next[kStepsAhead];
    sampler.show_numbers({next, steps});
    for (uint32_t step = 0; step < steps; ++step) work_->numbers()[step * seats.size() + i] = next[step];
  }
  BATON_OK(work_->send_rules(stream_, seats.size(), windows, numbers ? steps * seats.size() : 0));
  return numbers || windows > 0 ? Drawing::kRules : Drawing::kLargest;
}

Result<CudaExecutor::Drawn> CudaExecutor::draw_steps(std::span<Seat> seats, uint32_t steps, std::span<float> out,
                                                     const StepLimits& limits, const StepContext& context) {
  BATON_OK(check_seats(*model_, seats, out));
  BATON_OK(context.check());
  const SteadyClock steady;
  const Clock& clock = limits.clock != nullptr ? *limits.clock : steady;
  for (const Seat& seat : seats)
    BATON_OK(static_cast<CudaState*>(seat.state)->make_room(seat.state->position() + steps));
  Pass& pass = work_->pass();
  pass.rows = pass.runs = pass.rows_out = static_cast<int32_t>(seats.size());
  pass.step = pass.stopped = 0;
  pass.stop_count = kStopsMax;
  for (size_t i = 0; i < seats.size(); ++i) {
    set_run(i, seats[i], 0, 1, static_cast<int32_t>(i));
    work_->out_rows()[i] = static_cast<int32_t>(i);
    int32_t* const stops = work_->stops() + i * static_cast<size_t>(kStopsMax);
    std::fill_n(stops, kStopsMax, -1);
    std::copy(seats[i].draws->stop_ids.begin(), seats[i].draws->stop_ids.end(), stops);
  }
  BATON_OK(work_->send(stream_));
  BATON_TRY(const Drawing drawing, send_rules(seats, steps));
  const ListWork list = work_->list(drawing, goes_together(seats.size()));
  const size_t row_bytes = seats.size() * sizeof(int32_t);
  const auto width = static_cast<size_t>(model_->program.output_width);
  uint32_t asked = 0, taken = 0;
  bool more = true, runs_on = true;  // as far as limits go; on the card
  while (taken < asked || (more && asked < steps)) {
    if (more && asked < steps && asked < taken + kAhead) {
      BATON_OK(launch_list(stream_, card_->facts(), list));
      const size_t at = static_cast<size_t>(asked) * seats.size();
      BATON_OK(stream_.copy_out(work_->drawn() + at, work_->drawn_on_card() + at * sizeof(int32_t), row_bytes));
      if (asked == 0 && !out.empty()) {
        for (size_t i = 0, row = 0; i < seats.size(); ++i) {
          if (seats[i].rows_out == 0) continue;
          BATON_OK(read_row(i));
          std::copy_n(work_->outputs(), width, out.data() + width * row++);
        }
      }
      BATON_OK(stream_.record(events_[asked % events_.size()]));
      ++asked;
      continue;
    }
    BATON_OK(events_[taken % events_.size()].wait());
    BATON_TRY(runs_on, take_drawn(seats, taken, clock));
    ++taken;
    if (!runs_on && ended(seats)) break;  // the steps behind it do nothing
    if (more && !context.check()) more = false;
    more = more && clock.now_ns() < limits.until_ns;
    if (!runs_on) break;
  }
  BATON_OK(stream_.wait());
  BATON_OK(add_times(list));  // of the last that ran
  for (const Seat& seat : seats) static_cast<CudaState*>(seat.state)->advance(taken);
  work_->banned_arrived();
  BATON_OK(context.check());
  return Drawn{taken, more};
}

// Row `row` of the outputs of the last step, to the host. Waits.
Status CudaExecutor::read_row(size_t row) {
  const Lists& lists = work_->few();
  const auto pitch = static_cast<size_t>(pitch_of(lists.outputs_width));
  BATON_OK(stream_.copy_out(work_->outputs(), lists.outputs + row * pitch * sizeof(float), pitch * sizeof(float)));
  return stream_.wait();
}

Result<bool> CudaExecutor::take_drawn(std::span<Seat> seats, uint32_t step, const Clock& clock) {
  bool runs_on = true;
  for (size_t i = 0; i < seats.size(); ++i) {
    Draws& draws = *seats[i].draws;
    const int32_t id = work_->drawn()[static_cast<size_t>(step) * seats.size() + i];
    if (id >= 0) {
      draws.ids.push_back({id, clock.now_ns(), {}});
      draws.sampler->drew(id);
    } else {
      // Undecided; or a logit is no number, and the sampler has the words for it.
      BATON_OK(read_row(i));
      const std::span<const float> row(work_->outputs(), static_cast<size_t>(model_->program.output_width));
      const Result<int32_t> own = draws.sampler->sample(row);
      if (!own) {
        draws.status = fail(own.error());
      } else if (id == kUndecided) {
        draws.ids.push_back({*own, clock.now_ns(), {}});
      } else {
        draws.status = fail(Code::kDevice, "cuda: a draw of no logit");
      }
    }
    runs_on = runs_on && id >= 0 && !draws.ended();
  }
  return runs_on;
}

}  // namespace baton::cuda
