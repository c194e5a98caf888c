// The executor of the `ref` unit: its states, and a pass for each step.
#include "baton/unit/ref/ref.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "baton/unit/ref/pass.h"

namespace baton::ref {
namespace {

class RefExecutor final : public Executor {
 public:
  RefExecutor(std::shared_ptr<const Model> model, Product product, std::string arithmetic, DType kv)
      : model_(std::move(model)),
        product_(std::move(product)),
        arithmetic_(std::move(arithmetic)),
        kv_(kv),
        states_(model_->program, kv, "ref", live_) {
    std::vector<const Op*> ops;
    for (const Op& op : model_->program.ops) ops.push_back(&op);
    layers_done_ = layers_done_behind(model_->program, ops);
  }

  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return states_.shape(); }
  uint64_t state_bytes(uint64_t tokens) const override { return states_.bytes_for(tokens); }
  std::optional<StateMemory> state_memory() const override { return states_.memory(); }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override { return states_.make(tokens_max); }

  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override {
    BATON_OK(check_seats(*model_, seats, out));
    BATON_OK(host::make_room(seats));
    for (size_t i = 0; i < seats.size(); ++i) {
      const size_t values = seats[i].rows_out * static_cast<size_t>(model_->program.output_width);
      BATON_OK(run(seats[i], i, out.first(values), context));
      out = out.subspan(values);
    }
    return {};
  }

  Result<std::unique_ptr<SequenceState>> fork(const SequenceState& from, uint64_t position) override {
    return static_cast<const host::HostState&>(from).fork(position);
  }
  Status rewind(SequenceState& state, uint64_t position) override {
    return static_cast<host::HostState&>(state).rewind(position);
  }
  std::vector<ExpertLoad> expert_loads() const override { return loads_.all(); }
  Placement placement() const override {
    Placement placement{.ran = "ref", .arithmetic = "plain f32 loops", .threads = 1};
    if (kv_ != DType::kF32) placement.notes = fmt::format(", keys and values in {}", to_string(kv_));
    return placement;
  }
  std::string arithmetic() const override { return arithmetic_name(arithmetic_); }

 private:
  Status run(const Seat& seat, size_t index, std::span<float> out, const StepContext& context) {
    const auto total = static_cast<int64_t>(seat.tokens.size()), width = int64_t{model_->program.output_width};
    const int64_t first_row = total - seat.rows_out;  // first token whose outputs are wanted
    auto& state = static_cast<host::HostState&>(*seat.state);
    if (seat.keeps) BATON_OK(state.keep());
    try {
      const int64_t most = model_->program.whole_sequence ? total : kTokensPerPass;
      for (int64_t done = 0; done < total; done += most) {
        BATON_OK(context.check());
        const int64_t count = std::min(most, total - done);
        const int64_t behind = total - done - count;
        const int64_t kept = seat.keeps ? std::clamp<int64_t>(host::kKeptMax - behind, 0, count) : 0;
        Pass pass(*model_, product_, state, seat.tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
                  kept, loads_);
        const int64_t wanted = std::clamp<int64_t>(done + count - first_row, 0, count);
        const int64_t skip = std::max<int64_t>(0, done - first_row);
        const auto tell = [&](size_t op) {
          if (layers_done_[op] >= 0) context.watch->layer_done(index, layers_done_[op]);
        };
        const bool tells = context.watch != nullptr && behind == 0;
        if (tells) state.show(state.position() + static_cast<uint64_t>(count));
        pass.run(wanted > 0 ? out.data() + skip * width : nullptr, wanted,
                 tells ? std::function<void(size_t)>(tell) : nullptr);
        state.advance(static_cast<uint64_t>(count), static_cast<uint64_t>(kept));
      }
    } catch (const std::bad_alloc&) {
      return fail(Code::kOutOfMemory, fmt::format("ref: out of memory in a step of {} tokens", total));
    } catch (const std::exception& exception) {
      return fail(Code::kOutOfMemory, fmt::format("ref: a step of {} tokens: {}", total, exception.what()));
    }
    return {};
  }

  std::shared_ptr<const Model> model_;
  Product product_;
  const std::string arithmetic_;
  const DType kv_;
  std::vector<int32_t> layers_done_;  // by op
  host::StatePool states_;
  LoadCounter loads_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(std::shared_ptr<const Model> model, Product product, std::string arithmetic,
                                        DType kv) {
  return std::make_unique<RefExecutor>(std::move(model), std::move(product), std::move(arithmetic), kv);
}

}  // namespace baton::ref
