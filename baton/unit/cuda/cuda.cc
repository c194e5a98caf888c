// The `cuda` unit: an NVIDIA card through its driver, or an emulated one.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/embedded.h"
#include "baton/unit/cuda/executor.h"
#include "baton/unit/entry.h"

namespace baton::cuda {
namespace {

// Prompts: inputs and decoded weights are rounded to bf16. Decoding: f32 with 16-bit weights, codes by codes else.
float logit_tolerance(const Format& format, DType kv) {
  return (format.coding.bits > 0 ? 1.0f : 0.1f) + kv_logit_tolerance(kv);
}

// A feature is one word.
std::string word_of(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '-');
  return text;
}

class CudaUnit final : public Unit {
 public:
  CudaUnit(const Driver& driver, const CardFacts& facts, DType kv) : driver_(driver), index_(facts.index) {
    caps_.ops = {OpKind::kEmbed,     OpKind::kRmsNorm,   OpKind::kLinear,        OpKind::kSplitPairs,
                 OpKind::kRope,      OpKind::kAttend,    OpKind::kSigmoidGate,   OpKind::kCausalConv,
                 OpKind::kDeltaRule, OpKind::kGatedNorm, OpKind::kSwiGlu,        OpKind::kAdd,
                 OpKind::kBias,      OpKind::kHead,      OpKind::kLayerNorm,     OpKind::kPosition,
                 OpKind::kAttendAll, OpKind::kGelu,      OpKind::kOutput,        OpKind::kGeGlu,
                 OpKind::kScale,     OpKind::kShortConv, OpKind::kPositionScale, OpKind::kExperts};
    caps_.traits.assign(std::begin(kOpTraits), std::end(kOpTraits));
    caps_.cuts_prompts = false;
    for (const Format& format : formats()) {
      const bool values = format.dtype == DType::kF32 || format.dtype == DType::kF16 || format.dtype == DType::kBF16;
      if (values || format.coding.bits > 0) caps_.native_formats.push_back(format.dtype);
      caps_.logit_tolerances.push_back({format.dtype, logit_tolerance(format, kv)});
    }
    caps_.kv_type = kv;
    caps_.product_type = DType::kBF16;
    caps_.prefill_tokens_preferred = kRowsOfPass;
    caps_.decode_seats_max = kDecodeSeats;
    caps_.states_grow = true;
    caps_.emulated = facts.emulated;
    caps_.features = {word_of(facts.name),
                      fmt::format("{:.1f}-GiB", static_cast<double>(facts.memory_bytes) / (uint64_t{1} << 30)),
                      fmt::format("sm_{}", facts.capability), word_of(facts.driver)};
  }
  std::string_view name() const override { return "cuda"; }
  const Caps& caps() const override { return caps_; }
  KeptBytes kept_bytes(const Model& model) const override { return cuda::kept_bytes(model); }

 private:
  // The card is opened here: a unit that is only listed takes none of its memory.
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t threads) override {
    BATON_TRY(std::shared_ptr<Card> card, Card::open(driver_, index_));
    return CudaExecutor::load(std::move(card), std::move(model), caps_.kv_type, threads);
  }

  const Driver& driver_;
  const uint32_t index_;
  Caps caps_;
};

Result<const Driver*> driver_for(bool emulated) {
  if (emulated) return &emulated_driver();
  if (kernel_images().empty())
    return fail(Code::kUnsupported, "built without CUDA: there was no toolkit when this program was built");
  return installed_driver();
}

std::vector<UnitOption> options() {
  UnitOption device = UnitOption::number("device", 0, 63, "number of the card; cuda:1 is cuda:device=1", "0");
  device.bare = true;
  return {std::move(device),
          UnitOption::one_of("driver", "card|emulated",
                             "NVIDIA's, or one that does all work on the processor: for tests", "card"),
          UnitOption::one_of(kKvOption, "f16|bf16|f32", "type of keys and values", "f16")};
}

Result<std::unique_ptr<Unit>> create(const UnitOptions& given) {
  try {
    BATON_TRY(const DType kv, kv_of(given, DType::kF16));
    BATON_TRY(const Driver* driver, driver_for(given.text("driver") == "emulated"));
    BATON_TRY(const CardFacts facts, Card::facts_of(*driver, static_cast<uint32_t>(given.number("device"))));
    return std::make_unique<CudaUnit>(*driver, facts, kv);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "cuda: no memory to start");
  }
}

// Cards behind the first.
std::vector<std::string> more_cards() {
  std::vector<std::string> words;
  const auto driver = driver_for(false);
  const Result<uint32_t> cards = driver ? Card::count(**driver) : Result<uint32_t>(0u);
  for (uint32_t i = 1; cards && i < *cards; ++i) words.push_back(std::to_string(i));
  return words;
}

}  // namespace
}  // namespace baton::cuda

namespace baton {
extern const UnitEntry k_unit_cuda;
const UnitEntry k_unit_cuda = {"cuda", cuda::create, cuda::options, false, cuda::more_cards};
}  // namespace baton
