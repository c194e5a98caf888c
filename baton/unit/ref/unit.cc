// The unit, and its list of what it can do.
#include "baton/unit/ref/ref.h"

#include <utility>

#include "baton/unit/entry.h"
#include "baton/unit/host/host_state.h"
#include "baton/unit/ref/ops.h"

namespace baton::ref {
namespace {

void plain_product(WeightId, const Weight& weight, const float* x, float* y, int64_t tokens) {
  linear(weight, x, y, tokens);
}

class RefUnit final : public Unit {
 public:
  explicit RefUnit(DType kv) {
    caps_.ops = {OpKind::kEmbed,     OpKind::kRmsNorm,   OpKind::kLinear,        OpKind::kSplitPairs,
                 OpKind::kRope,      OpKind::kAttend,    OpKind::kSigmoidGate,   OpKind::kCausalConv,
                 OpKind::kDeltaRule, OpKind::kGatedNorm, OpKind::kSwiGlu,        OpKind::kAdd,
                 OpKind::kBias,      OpKind::kHead,      OpKind::kLayerNorm,     OpKind::kPosition,
                 OpKind::kAttendAll, OpKind::kGelu,      OpKind::kOutput,        OpKind::kGeGlu,
                 OpKind::kScale,     OpKind::kShortConv, OpKind::kPositionScale, OpKind::kExperts};
    caps_.traits.assign(std::begin(kOpTraits), std::end(kOpTraits));
    caps_.cuts_prompts = false;
    for (const Format& format : formats()) caps_.native_formats.push_back(format.dtype);
    caps_.kv_type = kv;
    caps_.prefill_tokens_preferred = kTokensPerPass;
    caps_.decode_seats_max = 8;
    caps_.rewind_tokens_max = host::kKeptMax;
    caps_.tells_layers = true;
    caps_.states_grow = true;
    caps_.features = {"f32"};
    caps_.logit_tolerances = equal_tolerances(2e-3f + (kv == DType::kF16 ? 0.02f : kv_logit_tolerance(kv)));
  }
  std::string_view name() const override { return "ref"; }
  const Caps& caps() const override { return caps_; }

 private:
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t) override {
    const DType kv = caps_.kv_type;
    return ref::make_executor(std::move(model), plain_product, with_kv_word("ref/f32", kv, DType::kF32), kv);
  }

  Caps caps_;
};

std::vector<UnitOption> options() { return {kv_option("f32")}; }

Result<std::unique_ptr<Unit>> create(const UnitOptions& given) {
  BATON_TRY(const DType kv, kv_of(given, DType::kF32));
  return std::make_unique<RefUnit>(kv);
}

}  // namespace
}  // namespace baton::ref

namespace baton {
extern const UnitEntry k_unit_ref;
const UnitEntry k_unit_ref = {"ref", ref::create, ref::options};
}  // namespace baton
