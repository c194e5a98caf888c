// The Executor's calls: checks, chunks of a prefill, rows of a decode step.
#include "baton/unit/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <system_error>
#include <utility>

#include "baton/state/rows.h"
#include "baton/unit/options.h"

namespace baton::cpu {
namespace {

// Of weights, between passes: some tens of milliseconds.
constexpr int64_t kPackBytes = int64_t{64} << 20;

// Which tokens go into which pass. A seat that prefills is cut at multiples of kDeltaChunk of the step's tokens, so
// that the cuts do not show in the bits; passes are of about equal size, as a short last one would read all weights for
// little. Those that decode come behind, with the last of the others where there is room.
class StepPasses {
 public:
  // `whole`: no seat is cut; each has at most rows_max tokens.
  StepPasses(std::span<const Seat> seats, int64_t rows_max, bool whole)
      : seats_(seats), rows_max_(rows_max), whole_(whole) {
    for (; prefills_ < seats.size() && !seats[prefills_].decodes; ++prefills_)
      left_ += static_cast<int64_t>(seats[prefills_].tokens.size());
  }

  // Empty behind the last. The pass before it has moved the positions of its states on.
  std::span<const host::RunInput> next() {
    count_ = 0;
    if (left_ > 0) take_prefills();
    if (left_ > 0) return runs();
    for (; seat_ < seats_.size() && count_ < runs_.size(); ++seat_) add(1);
    return runs();
  }
  // Of the runs of next(): their seats, where they bring the last of its tokens, else SIZE_MAX.
  std::span<const size_t> ended() const { return std::span(ended_).first(count_); }

 private:
  void take_prefills() {
    if (whole_) return take_whole();
    const int64_t passes = (left_ + rows_max_ - 1) / rows_max_;
    int64_t room = std::min(rows_max_, host::round_up((left_ + passes - 1) / passes, host::kDeltaChunk));
    while (count_ < kPrefillSeatsMax && seat_ < prefills_) {
      const int64_t rest = static_cast<int64_t>(seats_[seat_].tokens.size()) - done_;
      const int64_t taken = rest <= room ? rest : room / host::kDeltaChunk * host::kDeltaChunk;
      if (taken == 0) break;
      add(taken);
      room -= taken;
      left_ -= taken;
      done_ += taken;
      if (taken < rest) break;
      done_ = 0;
      ++seat_;
    }
  }
  void take_whole() {
    for (int64_t room = rows_max_; count_ < kPrefillSeatsMax && seat_ < prefills_; ++seat_) {
      const auto tokens = static_cast<int64_t>(seats_[seat_].tokens.size());
      if (tokens > room) break;
      add(tokens);
      room -= tokens;
      left_ -= tokens;
    }
  }
  void add(int64_t count) {
    const Seat& seat = seats_[seat_];
    const int64_t behind = static_cast<int64_t>(seat.tokens.size()) - done_ - count;  // tokens left for later passes
    const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(seat.rows_out) - behind, 0, count);
    const int64_t kept = seat.keeps ? std::clamp<int64_t>(host::kKeptMax - behind, 0, count) : 0;
    ended_[count_] = behind == 0 ? seat_ : SIZE_MAX;
    host::RunInput& run = runs_[count_++];
    run = {static_cast<host::HostState*>(seat.state), seat.state->position(),
           seat.tokens.subspan(static_cast<size_t>(done_), static_cast<size_t>(count))};
    run.rows_out = static_cast<uint32_t>(wanted);
    run.decodes = seat.decodes;
    run.kept = static_cast<uint32_t>(kept);
  }
  std::span<const host::RunInput> runs() const { return std::span(runs_).first(count_); }

  const std::span<const Seat> seats_;
  const int64_t rows_max_;
  const bool whole_;
  size_t prefills_ = 0, seat_ = 0;  // that prefill; under way
  int64_t done_ = 0, left_ = 0;     // tokens of the one under way, and of all that prefill
  std::array<host::RunInput, host::kRunsMax> runs_;
  std::array<size_t, host::kRunsMax> ended_;
  size_t count_ = 0;
};

// Rows of a pass: what suits the kernels, and a whole text where it must not be cut.
int64_t pass_rows(const Model& model, int64_t chunk) {
  return model.program.whole_sequence ? std::max<int64_t>(chunk, model.spec.context_max) : chunk;
}

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Model> model, const host::Kernels& kernels, uint32_t threads,
                         std::vector<uint32_t> cores, DType kv)
    : model_(std::move(model)),
      kernels_(kernels),
      rows_max_(pass_rows(*model_, chunk_tokens(kernels))),
      kv_(kv),
      states_(model_->program, kv, "cpu", live_),
      pool_(threads, std::move(cores)) {}

CpuExecutor::Pinned::Pinned(CpuExecutor& executor) : PinnedThread(executor.pool_.cores()) {
  if (!holds()) executor.strayed_.store(true, std::memory_order_relaxed);
}

Result<std::unique_ptr<Executor>> CpuExecutor::load(std::shared_ptr<const Model> model, const host::Kernels& kernels,
                                                    uint32_t threads, std::vector<uint32_t> cores, DType kv,
                                                    host::ExpertRoom experts) {
  try {
    std::unique_ptr<CpuExecutor> executor(new CpuExecutor(std::move(model), kernels, threads, std::move(cores), kv));
    const Pinned pinned(*executor);
    const std::vector<bool> all(executor->model_->weights.size(), true);
    BATON_TRY(executor->weights_, host::Weights::load(executor->model_, kernels, all, "cpu", experts));
    BATON_TRY(executor->pass_, host::Pass::create(*executor->weights_, executor->pool_,
                                                  executor->rows_max_ + host::kRunsMax, host::RowBits::kFast, kv));
    return executor;
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "cpu: no memory for the model");
  } catch (const std::system_error& error) {
    return fail(Code::kDevice, fmt::format("cpu: cannot start {} threads: {}", threads, error.what()));
  }
}

Status CpuExecutor::step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) {
  BATON_OK(check_seats(*model_, seats, out));
  const Pinned pinned(*this);
  BATON_OK(host::make_room(seats));
  for (const Seat& seat : seats) {
    if (seat.keeps) BATON_OK(static_cast<host::HostState*>(seat.state)->keep());
  }
  const bool whole = model_->program.whole_sequence;
  for (const Seat& seat : seats) {
    if (!whole || static_cast<int64_t>(seat.tokens.size()) <= rows_max_) continue;
    return fail(Code::kInvalidInput,
                fmt::format("cpu: a text of {} tokens: the model takes {}; give less", seat.tokens.size(), rows_max_));
  }
  StepPasses passes(seats, rows_max_, whole);
  float* next_row = out.data();
  for (auto runs = passes.next(); !runs.empty(); runs = passes.next()) {
    BATON_OK(context.check());
    pack_some();
    pass_->start(runs, next_row);
    for (const host::RunInput& run : runs) next_row += int64_t{run.rows_out} * model_->program.output_width;
    BATON_OK(context.watch == nullptr ? run_all(context) : run_watched(runs, passes.ended(), context));
    pass_->finish();
  }
  return {};
}

// A pass over a large model may take a second: a cancel does not wait for its end.
Status CpuExecutor::run_all(const StepContext& context) {
  for (const host::Step& step : weights_->plan().steps) {
    BATON_OK(context.check());
    pass_->run(step);
  }
  return {};
}

Status CpuExecutor::run_watched(std::span<const host::RunInput> runs, std::span<const size_t> ended,
                                const StepContext& context) {
  const std::vector<host::Step>& steps = weights_->plan().steps;
  std::vector<const Op*> ops;
  for (const host::Step& step : steps) ops.push_back(&step.op);
  const std::vector<int32_t> layers = layers_done_behind(model_->program, ops);
  for (size_t r = 0; r < runs.size(); ++r) {
    if (ended[r] != SIZE_MAX) runs[r].state->show(runs[r].state->position() + runs[r].tokens.size());
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    BATON_OK(context.check());
    pass_->run(steps[i]);
    for (size_t r = 0; r < runs.size() && layers[i] >= 0; ++r) {
      if (ended[r] != SIZE_MAX) context.watch->layer_done(ended[r], layers[i]);
    }
  }
  return {};
}

Status CpuExecutor::step_on(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                            const StepContext& context) {
  const Pinned pinned(*this);
  return step_and_draw(seats, out, limits, context, [this](size_t count, const auto& draw) {
    pool_.parallel_for(static_cast<int64_t>(count), 1, [&](int64_t first, int64_t last, uint32_t) {
      for (; first < last; ++first) draw(static_cast<size_t>(first));
    });
  });
}

// Not before the first pass: the first answer does not wait for it.
void CpuExecutor::pack_some() {
  if (passes_++ > 0) weights_->pack_more(kPackBytes, pool_);
}

Status CpuExecutor::settle() {
  const Pinned pinned(*this);
  weights_->pack_more(INT64_MAX, pool_);
  return {};
}

Placement CpuExecutor::placement() const {
  Placement placement{.ran = "cpu",
                      .arithmetic = fmt::format("{} kernels", kernels_.description),
                      .kernels = kernels_.name,
                      .threads = pool_.size()};
  if (!pool_.cores().empty()) {
    placement.notes = " on " + cores_text(pool_.cores());
    if (pool_.strays() || strayed_.load(std::memory_order_relaxed)) {
      placement.notes = "";
      placement.warning =
          fmt::format("cpu: the system does not keep its threads on {}: they run anywhere", cores_text(pool_.cores()));
    }
  }
  if (weights_->expert_place() == host::ExpertPlace::kFile) placement.notes += ", experts in the file's pages";
  if (weights_->expert_place() == host::ExpertPlace::kUsed)
    placement.notes += ", experts in the file's pages until they are used";
  if (kv_ != DType::kF16) placement.notes += fmt::format(", keys and values in {}", to_string(kv_));
  if (weights_->decoded_count() > 0)
    placement.notes += fmt::format(", {} matrices decoded to F32 at load", weights_->decoded_count());
  return placement;
}

std::string CpuExecutor::arithmetic() const {
  return arithmetic_name(with_kv_word(fmt::format("cpu/{}", kernels_.name), kv_, DType::kF16));
}

}  // namespace baton::cpu
