// Load and steps: seats become runs of passes.
#include "baton/unit/cuda/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "baton/base/clock.h"
#include "baton/state/checksum.h"
#include "baton/unit/cuda/embedded.h"
#include "baton/unit/cuda/launch.h"
#include "baton/unit/cuda/staging.h"
#include "baton/unit/options.h"

namespace baton::cuda {

CudaExecutor::CudaExecutor(std::shared_ptr<Card> card, std::shared_ptr<const Model> model,
                           const ExecutorOptions& options)
    : card_(std::move(card)), model_(std::move(model)), options_(options) {}

Result<std::unique_ptr<Executor>> CudaExecutor::load(std::shared_ptr<Card> card, std::shared_ptr<const Model> model,
                                                     const ExecutorOptions& given) try {
  std::unique_ptr<CudaExecutor> made(new CudaExecutor(std::move(card), std::move(model), given));
  const Model& of = *made->model_;
  BATON_TRY(made->states_, StatePool::make(*made->card_, of.program, given.kv, "cuda", made->live_));
  WeightOptions options;
  options.threads = given.threads;
  options.on_progress = given.on_progress;
  BATON_TRY(made->weights_, Weights::load(*made->card_, made->model_, options));
  const uint32_t most = made->card_->facts().emulated ? kEmulatedRows : kRowsOfPass;
  const auto context = static_cast<uint32_t>(std::max(of.spec.context_max, 1));
  const uint32_t rows = of.program.whole_sequence
                            ? std::max(most, context)
                            : std::min(most, (context + kPageTokens - 1) / kPageTokens * kPageTokens);
  BATON_TRY(made->work_, Workspace::create(made->card_, *made->weights_, *made->states_, given.products,
                                           static_cast<int32_t>(rows), given.together, given.times));
  BATON_TRY(made->stream_, made->card_->stream());
  for (size_t i = 0; i < std::max<size_t>(4, made->work_->many().layers.size()); ++i) {
    BATON_TRY(Event event, made->card_->event());
    made->events_.push_back(std::move(event));
  }
  return made;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "cuda: no memory on the host for the model");
}

// What a pass is for but its counts.
void CudaExecutor::set_run(size_t index, const Seat& seat, size_t first_token, size_t count, int32_t first_row) {
  Pass& pass = work_->pass();
  pass.run[index] =
      static_cast<const CudaState*>(seat.state)->run(first_row, static_cast<int32_t>(count), seat.decodes);
  std::copy_n(seat.tokens.data() + first_token, count, work_->tokens() + first_row);
  std::fill_n(work_->run_of_row() + first_row, count, static_cast<int32_t>(index));
}

Status CudaExecutor::step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) {
  return settled([&] { return step_seats(seats, out, context); });
}

Status CudaExecutor::step_seats(std::span<const Seat> seats, std::span<float> out, const StepContext& context) {
  BATON_OK(check_seats(*model_, seats, out));
  for (size_t i = 0; i < seats.size(); ++i) {
    const Seat& seat = seats[i];
    const bool whole = model_->program.whole_sequence;
    if (whole && static_cast<int64_t>(seat.tokens.size()) > work_->rows_max())
      return fail(Code::kInvalidInput, fmt::format("cuda: a text of {} tokens: the model takes {}; give less",
                                                   seat.tokens.size(), work_->rows_max()));
    auto& state = static_cast<CudaState&>(*seat.state);
    Status room = state.make_room(state.position() + seat.tokens.size());
    if (room && seat.keeps) room = state.keep();
    if (!room) return seats.size() == 1 ? room : fail(std::move(room).error().in(fmt::format("sequence {}", i)));
  }
  float* next = out.data();
  size_t done = 0;
  while (done < seats.size() && !seats[done].decodes) ++done;
  BATON_OK(prefill_seats(seats.first(done), next, context));
  while (done < seats.size()) {
    BATON_OK(context.check());
    const auto part = seats.subspan(done, std::min<size_t>(kRunsMax, seats.size() - done));
    BATON_OK(decode_seats(part, done, next, context));
    for (const Seat& seat : part)
      next += static_cast<size_t>(seat.rows_out) * static_cast<size_t>(model_->program.output_width);
    done += part.size();
  }
  return {};
}

// A pass has one prompt after the other, as far as there is room. Prompts are cut at multiples of 64 positions, so that
// cuts do not show; those of a seat that keeps, whose last rows are a step of their own, end a pass.
Status CudaExecutor::prefill_seats(std::span<const Seat> seats, float*& out, const StepContext& context) {
  const bool whole = model_->program.whole_sequence;
  const auto kept_of = [&](const Seat& seat) {
    return seat.keeps && !whole ? std::min<size_t>(seat.tokens.size(), kKeptMax) : 0;
  };
  std::vector<PassPart> parts;
  for (size_t next = 0, begin = 0; next < seats.size();) {  // `begin`: of the tokens of the next seat
    BATON_OK(context.check());
    parts.clear();
    size_t rows = 0, kept = 0, chunks = 0;
    while (next < seats.size() && parts.size() < kPrefillSeats && kept == 0) {
      const Seat& seat = seats[next];
      const size_t total = seat.tokens.size() - kept_of(seat), room = static_cast<size_t>(work_->rows_max()) - rows;
      const size_t past = seat.state->position() % kPageTokens;
      size_t count = total - begin;
      if (count > room)
        count = whole || past + room < kPageTokens ? 0 : (past + room) / kPageTokens * kPageTokens - past;
      // What is held between kernels is of as many pieces of 64 positions as one prompt has.
      chunks += (past + count + kPageTokens - 1) / kPageTokens;
      const bool fits = parts.empty() || chunks <= static_cast<size_t>(work_->rows_max() / kPageTokens) + 2;
      if (begin < total && (count == 0 || !fits)) break;
      if (count > 0) parts.push_back({next, begin, count, rows});
      rows += count;
      begin += count;
      if (begin < total) break;
      kept = kept_of(seat);
      ++next, begin = 0;
    }
    if (!parts.empty()) BATON_OK(run_pass(seats, parts, out, context));
    if (kept > 0) {
      const Seat& seat = seats[next - 1];
      BATON_OK(keep_rows(seat, next - 1, kept, out, context));
      out += std::min<size_t>(kept, seat.rows_out) * static_cast<size_t>(model_->program.output_width);
    }
  }
  return {};
}

Status CudaExecutor::run_pass(std::span<const Seat> seats, std::span<const PassPart> parts, float*& out,
                              const StepContext& context) {
  Pass& pass = work_->pass();
  pass.rows = static_cast<int32_t>(parts.back().row + parts.back().count);
  pass.runs = static_cast<int32_t>(parts.size());
  pass.rows_out = 0;
  pass.stopped = 0;
  bool ends = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [of, begin, count, row] = parts[i];
    set_run(i, seats[of], begin, count, static_cast<int32_t>(row));
    ends = ends || begin + count == seats[of].tokens.size();
  }
  const std::vector<Outputs> all = outputs_of(seats, parts, out);
  if (!all.empty()) want(all.front());
  BATON_OK(work_->send(stream_));
  BATON_OK(context.watch != nullptr && ends ? run_telling(work_->many(), seats, parts, context)
                                            : run_body(work_->many()));
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) {
      want(all[i]);
      BATON_OK(work_->send_counts(stream_));
    }
    BATON_OK(make_outputs(all[i]));
  }
  if (all.empty()) BATON_OK(stream_.wait());
  for (const auto& [of, begin, count, row] : parts)
    static_cast<CudaState*>(seats[of].state)->advance(count, 0, begin + count < seats[of].tokens.size());
  return {};
}

// A seat that asks for few has them as rows that decode have theirs, whatever the others ask for: several such rows
// take several times as long, where tiles take no longer, so those of batches on tensor cores go by tiles, too. Of
// these some rows at a time, as rows of outputs are long.
std::vector<CudaExecutor::Outputs> CudaExecutor::outputs_of(std::span<const Seat> seats,
                                                            std::span<const PassPart> parts, float*& out) const {
  Outputs few = {{}, true};
  const bool lists = work_->has_list_of_tail() && !options_.together;
  std::vector<Wanted> many;
  static_assert(kPrefillSeats * kFewOut <= kTailRows);
  for (const auto& [of, begin, count, row] : parts) {
    const Seat& seat = seats[of];
    std::vector<Wanted>& to = seat.rows_out <= kFewOut && lists ? few.rows : many;
    for (size_t token = std::max(seat.tokens.size() - seat.rows_out, begin); token < begin + count; ++token) {
      to.push_back({static_cast<int32_t>(row + token - begin), out});
      out += model_->program.output_width;
    }
  }
  std::vector<Outputs> all;
  if (!few.rows.empty()) all.push_back(std::move(few));
  for (size_t done = 0; done < many.size(); done += kTailRows) {
    const auto first = many.begin() + static_cast<std::ptrdiff_t>(done);
    all.push_back({{first, first + static_cast<std::ptrdiff_t>(std::min<size_t>(kTailRows, many.size() - done))}});
  }
  return all;
}

Status CudaExecutor::decode_seats(std::span<const Seat> seats, size_t first, float* out, const StepContext& context) {
  const bool either = may_go_alone(seats.size()), alone = either && steps_.alone(seats.size());
  const SteadyClock clock;
  const int64_t begin_ns = clock.now_ns();
  for (size_t i = 0; i < seats.size(); ++i) {
    const Seat& seat = seats[i];
    if (i == 0 || alone) start_few();
    if (seat.keeps) BATON_OK(static_cast<CudaState*>(seat.state)->keep_parts(stream_));
    add_few(seat, 0, 0, seat.rows_out > 0);
    if (!alone && i + 1 < seats.size()) continue;
    BATON_OK(run_few(out, goes_together(alone ? 1 : seats.size())));
    if (seat.rows_out > 0) out += model_->program.output_width;
  }
  if (either) steps_.took(seats.size(), alone, clock.now_ns() - begin_ns);
  for (size_t i = 0; context.watch != nullptr && i < seats.size(); ++i) tell_decoded(seats[i], first + i, 1, context);
  for (const Seat& seat : seats) static_cast<CudaState*>(seat.state)->advance(1, seat.keeps ? 1 : 0);
  return {};
}

void CudaExecutor::start_few() {
  Pass& pass = work_->pass();
  pass.rows = pass.runs = pass.rows_out = 0;
  pass.stopped = 0;
}

void CudaExecutor::add_few(const Seat& seat, size_t token, uint64_t ahead, bool wanted) {
  Pass& pass = work_->pass();
  const int32_t row = pass.rows++;
  pass.run[pass.runs++] = static_cast<const CudaState*>(seat.state)->run(row, 1, true, ahead);
  work_->tokens()[row] = seat.tokens[token];
  work_->run_of_row()[row] = row;
  if (wanted) work_->out_rows()[pass.rows_out++] = row;
}

Status CudaExecutor::run_few(float* out, bool together) {
  BATON_OK(work_->send(stream_));
  const Lists& lists = work_->few();
  const Pass& pass = work_->pass();
  if (work_->has_list()) {
    const ListWork list = work_->list(Drawing::kNone, together);
    BATON_OK(launch_list(stream_, card_->facts(), list));
    BATON_OK(add_times(list));
  } else {
    for (const auto* part : {&lists.body, &lists.tail}) {
      for (const Instruction& instruction : *part)
        BATON_OK(launch(stream_, card_->facts(), instruction, pass, work_->pass_on_card()));
    }
  }
  BATON_OK(take_outputs(lists, pass.rows_out, out));
  return stream_.wait();
}

bool CudaExecutor::goes_together(size_t seats) const {
  return options_.together && work_->has_list_together() && seats > static_cast<size_t>(kTile);
}

bool CudaExecutor::may_go_alone(size_t seats) const { return work_->has_list_of_one() && !goes_together(seats); }

Status CudaExecutor::run_body(const Lists& lists) {
  for (const Instruction& instruction : lists.body)
    BATON_OK(launch(stream_, card_->facts(), instruction, work_->pass(), work_->pass_on_card()));
  return {};
}

// What was sent last has arrived.
void CudaExecutor::want(const Outputs& outputs) {
  work_->pass().rows_out = static_cast<int32_t>(outputs.rows.size());
  for (size_t i = 0; i < outputs.rows.size(); ++i) work_->out_rows()[i] = outputs.rows[i].row;
}

Status CudaExecutor::make_outputs(const Outputs& outputs) {
  const Lists& lists = work_->many();
  if (outputs.few) {
    BATON_OK(launch_list(stream_, card_->facts(), work_->list_of_tail()));
  } else {
    for (const Instruction& instruction : lists.tail)
      BATON_OK(launch(stream_, card_->facts(), instruction, work_->pass(), work_->pass_on_card()));
  }
  BATON_OK(bring_outputs(lists, static_cast<int32_t>(outputs.rows.size())));
  const auto pitch = static_cast<size_t>(pitch_of(lists.outputs_width)),
             width = static_cast<size_t>(lists.outputs_width);
  for (size_t i = 0; i < outputs.rows.size(); ++i)
    std::memcpy(outputs.rows[i].out, work_->outputs() + i * pitch, width * sizeof(float));
  return {};
}

// Waits.
Status CudaExecutor::bring_outputs(const Lists& lists, int32_t rows) {
  const auto pitch = static_cast<size_t>(pitch_of(lists.outputs_width));
  BATON_OK(stream_.copy_out(work_->outputs(), lists.outputs, static_cast<uint64_t>(rows) * pitch * sizeof(float)));
  return stream_.wait();
}

Status CudaExecutor::take_outputs(const Lists& lists, int32_t rows, float* out) {
  if (rows == 0) return {};
  BATON_OK(bring_outputs(lists, rows));
  const auto pitch = static_cast<size_t>(pitch_of(lists.outputs_width)),
             width = static_cast<size_t>(lists.outputs_width);
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i)
    std::memcpy(out + i * width, work_->outputs() + i * pitch, width * sizeof(float));
  return {};
}

Placement CudaExecutor::placement() const {
  const CardFacts& facts = card_->facts();
  Placement placement{.ran = "cuda", .arithmetic = fmt::format("sm_{} kernels", facts.capability)};
  placement.notes = fmt::format(" on {} {}", facts.name, facts.index);
  if (facts.emulated) placement.arithmetic = "plain f32 loops in place of kernels";
  placement.emulated = facts.emulated;
  if (options_.kv != DType::kF16) placement.notes += fmt::format(", keys and values in {}", to_string(options_.kv));
  if (options_.products == Products::kF32) placement.notes += ", prompts in f32";
  if (options_.together)
    placement.notes += work_->has_list_together()
                           ? ", batches on tensor cores"
                           : ", batches as exact (weights of this model do not go on tensor cores together)";
  if (!facts.emulated) {
    placement.load = weights_->loaded();
    placement.notes += ", " + load_text(placement.load);
  }
  placement.notes += times_text();
  for (const std::string& note : weights_->plan().notes) placement.notes += ", " + note;
  return placement;
}

std::string CudaExecutor::arithmetic() const {
  const CardFacts& facts = card_->facts();
  std::string what = "cuda/emulated";
  if (!facts.emulated) {
    // Another compiler fuses and orders otherwise.
    what = fmt::format("cuda/sm_{}/{:08x}", facts.capability,
                       static_cast<uint32_t>(checksum(std::as_bytes(std::span(kernel_build())))));
    if (facts.capability == 90 && !facts.maps) what += "-mma";  // tile_geometry.h
  }
  if (options_.products == Products::kF32) what += "-f32";
  if (options_.together) what += "-together";
  return arithmetic_name(with_kv_word(what, options_.kv, DType::kF16));
}

}  // namespace baton::cuda
