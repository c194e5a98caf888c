// The `cuda` unit: an NVIDIA card through its driver, or an emulated one.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/card_limits.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/embedded.h"
#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/pack.h"
#include "baton/unit/entry.h"

namespace baton::cuda {
namespace {

// Prompts: inputs, and weights that are not 16-bit or F32, are rounded to bf16. Against the vectors of tiny random
// models 0.15, and 0.96 of mixtures, whose routers then choose other experts. Decoding, and products=f32: f32, inputs
// of codes in 15 bits; but queries of prompts meet keys in 16 bits: 0.002, and 0.08 of such mixtures.
float logit_tolerance(DType kv, Products products) {
  return (products == Products::kF32 ? 0.1f : 1.2f) + kv_logit_tolerance(kv);
}

// A feature is one word.
std::string word_of(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '-');
  return text;
}

class CudaUnit final : public Unit {
 public:
  CudaUnit(const Driver& driver, const CardFacts& facts, const ExecutorOptions& options)
      : driver_(driver), index_(facts.index), options_(options) {
    const DType kv = options.kv;
    const Products products = options.products;
    caps_.ops = {OpKind::kEmbed,     OpKind::kRmsNorm,   OpKind::kLinear,        OpKind::kSplitPairs,
                 OpKind::kRope,      OpKind::kAttend,    OpKind::kSigmoidGate,   OpKind::kCausalConv,
                 OpKind::kDeltaRule, OpKind::kGatedNorm, OpKind::kSwiGlu,        OpKind::kAdd,
                 OpKind::kBias,      OpKind::kHead,      OpKind::kLayerNorm,     OpKind::kPosition,
                 OpKind::kAttendAll, OpKind::kGelu,      OpKind::kOutput,        OpKind::kGeGlu,
                 OpKind::kScale,     OpKind::kShortConv, OpKind::kPositionScale, OpKind::kExperts};
    caps_.traits.assign(std::begin(kOpTraits), std::end(kOpTraits));
    caps_.cuts_prompts = false;
    for (const Format& format : formats()) {
      if (is_native(format.dtype)) caps_.native_formats.push_back(format.dtype);
      caps_.logit_tolerances.push_back({format.dtype, logit_tolerance(kv, products)});
    }
    caps_.kv_type = kv;
    caps_.product_type = products == Products::kF32 ? DType::kF32 : DType::kBF16;
    caps_.prefill_tokens_preferred = kRowsOfPass;
    caps_.prefill_seats_shared = kPrefillSeats;
    caps_.decode_seats_max = options.together ? static_cast<uint32_t>(kRunsMax) : kDecodeSeats;
    caps_.decodes_exact = !options.together;
    caps_.rewind_tokens_max = kKeptMax;
    caps_.states_grow = true;
    caps_.tells_layers = true;
    caps_.emulated = facts.emulated;
    caps_.features = {word_of(facts.name),
                      fmt::format("{:.1f}-GiB", static_cast<double>(facts.memory_bytes) / (uint64_t{1} << 30)),
                      fmt::format("sm_{}", facts.capability), word_of(facts.driver)};
    caps_.device = {facts.name, facts.memory_bytes,
                    fmt::format("compute capability {}.{}", facts.capability / 10, facts.capability % 10)};
  }
  std::string_view name() const override { return "cuda"; }
  const Caps& caps() const override { return caps_; }
  KeptBytes kept_bytes(const Model& model) const override { return cuda::kept_bytes(model); }
  // Of the card that is open, or of one that is open for this alone.
  Result<Rate> limit(DeviceLimit which) override {
    if (caps_.emulated) return fail(Code::kUnsupported, "cuda: an emulated card has no speed of its own");
    if (const auto known = limits_.find(which); known != limits_.end()) return known->second;
    BATON_TRY(const std::shared_ptr<Card> card, card_now());
    BATON_TRY(Rate rate, measure_limit(*card, which));
    return limits_.emplace(which, std::move(rate)).first->second;
  }
  Result<DeviceRoom> device_room() override {
    BATON_TRY(const std::shared_ptr<Card> card, card_now());
    BATON_TRY(const uint64_t free, card->free_bytes());
    return DeviceRoom{card->facts().memory_bytes, free};
  }

 private:
  // The one that is open, or one that is open for a question alone.
  Result<std::shared_ptr<Card>> card_now() const {
    if (card_ != nullptr && !card_->lost()) return card_;
    return Card::open(driver_, index_, "limits");
  }
  // The card is opened here: a unit that is only listed takes none of its memory. It stays open for the next model, as
  // opening takes a quarter of a second.
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t threads) override {
    if (card_ == nullptr || card_->lost()) {
      BATON_TRY(card_, Card::open(driver_, index_));
    }
    ExecutorOptions given = options_;
    given.threads = threads;
    given.on_progress = load_progress();
    return CudaExecutor::load(card_, std::move(model), given);
  }

  const Driver& driver_;
  const uint32_t index_;
  const ExecutorOptions options_;
  std::shared_ptr<Card> card_;
  Caps caps_;
  std::map<DeviceLimit, Rate> limits_;
};

Result<const Driver*> driver_for(bool emulated) {
  if (emulated) return &emulated_driver();
  constexpr std::string_view kOther = "cuda:driver=emulated does the same work on the processor, far slower";
  if (kernel_images().empty())
    return fail(Code::kUnsupported,
                fmt::format("built without CUDA: nvcc was not found or not wanted (BATON_CUDA) when this program was "
                            "built; build it where nvcc is, or choose another unit ('baton units'); {}",
                            kOther));
  Result<const Driver*> driver = installed_driver();
  if (driver) return driver;
  return fail(driver.error().code,
              fmt::format("{}; this program has kernels by {}; {}", driver.error().message, kernel_build(), kOther));
}

std::vector<UnitOption> options() {
  UnitOption device = UnitOption::number("device", 0, 63, "number of the card; cuda:1 is cuda:device=1", "0");
  device.bare = true;
  return {
      std::move(device),
      UnitOption::one_of("driver", "card|emulated", "NVIDIA's, or one that does all work on the processor: for tests",
                         "card"),
      UnitOption::one_of("products", "bf16|f32",
                         "inputs of a prompt's products: rounded for tensor cores, or as they are and far slower",
                         "bf16"),
      UnitOption::one_of(kKvOption, "f16|bf16|f32", "type of keys and values", "f16"),
      UnitOption::one_of("batch", "exact|tensor",
                         "more than 4 sequences that decode: each with the bits that it has alone, or up to 64 on "
                         "tensor cores",
                         "exact"),
      UnitOption::one_of("times", "off|on", "notes how long each instruction of a step took, which slows it", "off")};
}

Result<std::unique_ptr<Unit>> create(const UnitOptions& given) {
  try {
    // f32 is no choice of other units (kv_type).
    BATON_TRY(const DType kv, given.text(kKvOption) == "f32" ? DType::kF32 : kv_of(given, DType::kF16));
    BATON_TRY(const Driver* driver, driver_for(given.text("driver") == "emulated"));
    BATON_TRY(const CardFacts facts, Card::facts_of(*driver, static_cast<uint32_t>(given.number("device"))));
    ExecutorOptions options;
    options.kv = kv;
    options.products = given.text("products") == "f32" ? Products::kF32 : Products::kBF16;
    options.together = given.text("batch") == "tensor";
    options.times = given.text("times") == "on";
    return std::make_unique<CudaUnit>(*driver, facts, options);
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
const UnitEntry k_unit_cuda = {"cuda", cuda::create, cuda::options, false, cuda::more_cards, "driver=emulated"};
}  // namespace baton
