// The Executor's calls: checks, chunks of a prefill, rows of a decode step.
#include "baton/unit/cpu/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <system_error>

namespace baton::cpu {
namespace {

// Of weights, between passes: some tens of milliseconds.
constexpr int64_t kPackBytes = int64_t{64} << 20;

// Which tokens go into which pass. A sequence is cut at multiples of kDeltaChunk of the call's tokens, so that the cuts
// do not show in the bits; passes are of about equal size, as a short last one would read all weights for little.
class PrefillPasses {
 public:
  PrefillPasses(std::span<const PrefillSlot> slots, int64_t vocab, int64_t rows_max)
      : slots_(slots), vocab_(vocab), rows_max_(rows_max) {
    for (const PrefillSlot& slot : slots) left_ += static_cast<int64_t>(slot.tokens.size());
  }

  // Empty behind the last. The pass before it has moved the positions of its states on.
  std::span<const host::RunInput> next() {
    if (left_ == 0) return {};
    const int64_t passes = (left_ + rows_max_ - 1) / rows_max_;
    int64_t room = std::min(rows_max_, host::round_up((left_ + passes - 1) / passes, host::kDeltaChunk));
    size_t count = 0;
    while (count < runs_.size() && slot_ < slots_.size()) {
      const int64_t rest = static_cast<int64_t>(slots_[slot_].tokens.size()) - done_;
      const int64_t taken = rest <= room ? rest : room / host::kDeltaChunk * host::kDeltaChunk;
      if (taken == 0) break;
      runs_[count++] = piece(slots_[slot_], taken);
      room -= taken;
      left_ -= taken;
      done_ += taken;
      if (taken < rest) break;
      done_ = 0;
      ++slot_;
    }
    return std::span(runs_).first(count);
  }

 private:
  host::RunInput piece(const PrefillSlot& slot, int64_t count) const {
    const auto total = static_cast<int64_t>(slot.tokens.size());
    const int64_t first_wanted = total - static_cast<int64_t>(slot.logits.size()) / vocab_;
    const int64_t from = std::max(done_, first_wanted), to = std::max(done_ + count, from);
    return {static_cast<host::HostState*>(slot.state), slot.state->position(),
            slot.tokens.subspan(static_cast<size_t>(done_), static_cast<size_t>(count)),
            slot.logits.subspan(static_cast<size_t>((from - first_wanted) * vocab_),
                                static_cast<size_t>((to - from) * vocab_))};
  }

  const std::span<const PrefillSlot> slots_;
  const int64_t vocab_, rows_max_;
  size_t slot_ = 0;              // under way
  int64_t done_ = 0, left_ = 0;  // tokens of it, and of all
  std::array<host::RunInput, host::kRunsMax> runs_;
};

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Model> model, const host::Kernels& kernels, uint32_t threads)
    : model_(std::move(model)),
      kernels_(kernels),
      states_(model_->program, DType::kF16, "cpu", live_),
      pool_(threads) {}

Result<std::unique_ptr<Executor>> CpuExecutor::load(std::shared_ptr<const Model> model, const host::Kernels& kernels,
                                                    uint32_t threads) {
  try {
    std::unique_ptr<CpuExecutor> executor(new CpuExecutor(std::move(model), kernels, threads));
    const std::vector<bool> all(executor->model_->weights.size(), true);
    BATON_TRY(executor->weights_, host::Weights::load(executor->model_, kernels, all, "cpu"));
    BATON_TRY(executor->pass_,
              host::Pass::create(*executor->weights_, executor->pool_, chunk_tokens(kernels), host::RowBits::kFast));
    return executor;
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "cpu: no memory for the model");
  } catch (const std::system_error& error) {
    return fail(Code::kDevice, fmt::format("cpu: cannot start {} threads: {}", threads, error.what()));
  }
}

Status CpuExecutor::prefill(SequenceState& state, std::span<const int32_t> tokens, std::span<float> logits) {
  const PrefillSlot slot{&state, tokens, logits};
  return prefill_batch({&slot, 1});
}

Status CpuExecutor::prefill_batch(std::span<const PrefillSlot> slots) {
  BATON_OK(check_slots(*model_, slots));
  PrefillPasses passes(slots, model_->program.vocab, chunk_tokens(kernels_));
  for (auto runs = passes.next(); !runs.empty(); runs = passes.next()) {
    pack_some();
    pass_->start(runs, host::PassForm::kPrefill);
    pass_->run_all();
    pass_->finish();
  }
  return {};
}

// Not before the first pass: the first answer does not wait for it.
void CpuExecutor::pack_some() {
  if (passes_++ > 0) weights_->pack_more(kPackBytes, pool_);
}

Status CpuExecutor::settle() {
  weights_->pack_more(INT64_MAX, pool_);
  return {};
}

Status CpuExecutor::decode(std::span<const DecodeSlot> slots) {
  if (slots.size() > kDecodeSlotsMax) {
    return fail(Code::kInvalidInput,
                fmt::format("cpu: {} sequences in one decode step; at most {}", slots.size(), kDecodeSlotsMax));
  }
  if (slots.empty()) return {};
  const int64_t vocab = model_->program.vocab;
  for (const DecodeSlot& slot : slots) {
    BATON_OK(check_tokens(*model_, *slot.state, {&slot.token, 1}));
    BATON_CHECK(slot.logits.empty() || static_cast<int64_t>(slot.logits.size()) >= vocab);
  }
  pack_some();
  pass_->start_decode(slots);
  pass_->run_all();
  pass_->finish();
  return {};
}

Placement CpuExecutor::placement() const {
  Placement placement{.ran = "cpu",
                      .arithmetic = fmt::format("{} kernels", kernels_.description),
                      .kernels = kernels_.name,
                      .threads = pool_.size()};
  if (weights_->decoded_count() > 0)
    placement.notes = fmt::format(", {} matrices decoded to F32 at load", weights_->decoded_count());
  return placement;
}

std::string CpuExecutor::arithmetic() const { return arithmetic_name(fmt::format("cpu/{}", kernels_.name)); }

}  // namespace baton::cpu
