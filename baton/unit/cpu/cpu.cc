// The `cpu` unit: vector kernels chosen for the processor at run time, its own thread pool, weights packed at load.
#include <algorithm>
#include <new>

#include "baton/base/simd/cpu_features.h"
#include "baton/unit/cpu/executor.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/pack.h"

namespace baton::cpu {
namespace {

// Float weights: order of summation and f16 keys and values. Integer weights: activations rounded to 8 bits, but for
// outliers. Measured against `ref`: 0.004 with 16-bit weights (f16 keys and values); with integer weights the largest
// of all logits over 600 tokens differed by 0.2 (28M model) and 0.9 (135M model), their root mean square by 0.02 and
// 0.08.
float logit_tolerance(DType weights) { return host::is_integer(host::packing_of(weights)) ? 1.0f : 0.02f; }
// With activations of 16-bit weights rounded to bf16: 0.03 against `ref` (3M model).
float rounding_tolerance(DType weights) {
  return weights == DType::kF32 ? 0.02f : std::max(0.1f, logit_tolerance(weights));
}

class CpuUnit final : public Unit {
 public:
  explicit CpuUnit(const host::Kernels& kernels) : kernels_(kernels) {
    for (int kind = 0; kind <= static_cast<int>(OpKind::kHead); ++kind) caps_.ops.push_back(static_cast<OpKind>(kind));
    for (const Format& format : formats()) {
      if (host::is_native(format.dtype)) caps_.native_formats.push_back(format.dtype);
    }
    caps_.kv_type = DType::kF16;
    caps_.memory = MemoryKind::kHost;
    caps_.prefill_tokens_preferred = static_cast<uint32_t>(chunk_tokens(kernels));
    caps_.prefill_tokens_min = kStepTokensMin;
    caps_.prefill_slots_shared = host::kRunsMax;
    caps_.decode_slots_max = kDecodeSlotsMax;
    caps_.shared_prefills_exact = kernels.tile_tokens_min == 0;  // which rows go through tiles depends on all rows
    caps_.features = feature_names(cpu_features());
    // Tiles that do not serve integers are those of bf16 alone: those of AMX keep 16 bits of activations.
    const bool rounds = kernels.tile_tokens_min > 0 && !kernels.integer_tiles();
    if (rounds) caps_.product_type = DType::kBF16;
    caps_.logit_tolerance = rounds ? rounding_tolerance : logit_tolerance;
  }
  std::string_view name() const override { return "cpu"; }
  const Caps& caps() const override { return caps_; }
  Result<std::unique_ptr<Executor>> load(std::shared_ptr<const Model> model, uint32_t threads) override {
    return CpuExecutor::load(std::move(model), kernels_, threads);
  }

 private:
  const host::Kernels& kernels_;
  Caps caps_;
};

Result<std::unique_ptr<Unit>> create() {
  try {
    BATON_TRY(const host::Kernels* kernels, host::chosen_kernels());
    return std::make_unique<CpuUnit>(*kernels);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "cpu: no memory to start");
  }
}

}  // namespace
}  // namespace baton::cpu

namespace baton {
extern const UnitEntry k_unit_cpu;
const UnitEntry k_unit_cpu = {"cpu", cpu::create};
}  // namespace baton
