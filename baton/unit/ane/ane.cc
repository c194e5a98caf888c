// The `ane` unit: the neural engine through Apple's driver where it works, through the emulator elsewhere.
#include <fmt/format.h>

#include "baton/unit/ane/executor.h"
#include "baton/unit/ane/inventory.h"
#include "baton/unit/apple/driver_apple.h"
#include "baton/unit/entry.h"

namespace baton::ane {
namespace {

// fp16 inputs, weights and results of every product. Measured against `ref` on the golden models (docs/ane.md).
constexpr float kLogitTolerance = 0.05f;

class AneUnit final : public Unit {
 public:
  AneUnit(const AneOptions& options, bool hardware) : options_(options), hardware_(hardware) {
    caps_.ops = {OpKind::kEmbed,     OpKind::kRmsNorm,   OpKind::kLinear,       OpKind::kSplitPairs,
                 OpKind::kRope,      OpKind::kAttend,    OpKind::kSigmoidGate,  OpKind::kCausalConv,
                 OpKind::kDeltaRule, OpKind::kGatedNorm, OpKind::kSwiGlu,       OpKind::kAdd,
                 OpKind::kBias,      OpKind::kHead,      OpKind::kLayerNorm,    OpKind::kPosition,
                 OpKind::kAttendAll, OpKind::kGelu,      OpKind::kOutput,       OpKind::kGeGlu,
                 OpKind::kScale,     OpKind::kShortConv, OpKind::kPositionScale};
    caps_.traits = {OpTrait::kWindow, OpTrait::kScoreCap, OpTrait::kLogitCap, OpTrait::kReach,
                    OpTrait::kAlibi,  OpTrait::kChunk,    OpTrait::kAhead};
    caps_.cuts_prompts = false;
    caps_.native_formats = {DType::kF16};
    caps_.kv_type = DType::kF16;
    caps_.product_type = DType::kF16;
    caps_.prefill_tokens_preferred = static_cast<uint32_t>(options.columns);
    caps_.decode_seats_max = kSeatsMax;
    caps_.emulated = !hardware;
    caps_.states_grow = true;
    if (hardware) {
      caps_.features = {"apple-driver"};
    } else {
      caps_.features = {"emulated", options.mode == apple::Mode::kStrict ? "strict-rules" : "lenient-rules",
                        fmt::format("{}-numerics", to_string(options.numerics.profile))};
    }
    caps_.features.emplace_back("not-yet-run-on-Apple-hardware");
    caps_.logit_tolerances = equal_tolerances(kLogitTolerance);
  }
  std::string_view name() const override { return "ane"; }
  const Caps& caps() const override { return caps_; }
  Result<LoadPlan> plan(const Model& model) const override {
    BATON_TRY(LoadPlan plan, take_inventory(model.program, model.weights, options_));
    BATON_TRY(const auto range, range_notes(model.program, model.weights));
    plan.notes.insert(plan.notes.end(), range.begin(), range.end());
    return plan;
  }

 private:
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t threads) override {
    BATON_TRY(std::unique_ptr<Executor> executor, AneExecutor::load(std::move(model), options_, hardware_,
                                                                    options_.threads > 0 ? options_.threads : threads));
    return executor;
  }

  const AneOptions options_;
  const bool hardware_;
  Caps caps_;
};

Result<std::unique_ptr<Unit>> create(const UnitOptions& given) {
  AneOptions options = options_of(given);
#if defined(__APPLE__)
  constexpr bool kIsMac = true;
#else
  constexpr bool kIsMac = false;
#endif
  // Opens with the start-up check; a driver of its own for each model follows.
  BATON_TRY(const bool hardware, choose_hardware(options.device, kIsMac, []() -> Status {
              const auto driver = apple::AppleDriver::open({});
              return driver ? Status{} : fail(driver.error());
            }));
  options.cache_folder = cache_folder(options, hardware);
  return std::make_unique<AneUnit>(options, hardware);
}

}  // namespace
}  // namespace baton::ane

namespace baton {
extern const UnitEntry k_unit_ane;
const UnitEntry k_unit_ane = {"ane", ane::create, ane::option_list};
}  // namespace baton
