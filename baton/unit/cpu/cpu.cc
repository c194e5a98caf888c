// The `cpu` unit: vector kernels chosen for the processor at run time, its own thread pool, weights packed at load.
#include <fmt/format.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "baton/base/affinity.h"
#include "baton/base/simd/cpu_features.h"
#include "baton/unit/cpu/executor.h"
#include "baton/unit/entry.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/operands.h"
#include "baton/unit/host/pack.h"
#include "baton/unit/host/weights.h"

namespace baton::cpu {
namespace {

// Float weights: order of summation and f16 keys and values. Integer weights: activations rounded to 8 bits, but for
// outliers. Measured against `ref`: 0.004 with 16-bit weights (f16 keys and values); with integer weights the largest
// of all logits over 600 tokens differed by 0.2 (28M model) and 0.9 (135M model), their root mean square by 0.02 and
// 0.08. `rounds`: activations of 16-bit weights are rounded to bf16 in prefill: 0.03 against `ref` (3M model), 0.11 of
// tiny random models.
float logit_tolerance(DType weights, bool rounds, DType kv) {
  const float most = kv_logit_tolerance(kv);
  if (host::is_integer(host::packing_of(weights))) return 1.0f + most;
  return rounds && weights != DType::kF32 ? 0.2f + most : 0.02f + most;
}

class CpuUnit final : public Unit {
 public:
  CpuUnit(const host::Kernels& kernels, uint32_t threads, std::vector<uint32_t> cores, DType kv,
          host::ExpertRoom experts)
      : kernels_(kernels), threads_(threads), cores_(std::move(cores)), experts_(experts) {
    const bool rounds = host::form_of(kernels, host::Packing::kF16, true) == host::Form::kTiles;
    caps_.ops = {OpKind::kEmbed,     OpKind::kRmsNorm,   OpKind::kLinear,        OpKind::kSplitPairs,
                 OpKind::kRope,      OpKind::kAttend,    OpKind::kSigmoidGate,   OpKind::kCausalConv,
                 OpKind::kDeltaRule, OpKind::kGatedNorm, OpKind::kSwiGlu,        OpKind::kAdd,
                 OpKind::kBias,      OpKind::kHead,      OpKind::kLayerNorm,     OpKind::kPosition,
                 OpKind::kAttendAll, OpKind::kGelu,      OpKind::kOutput,        OpKind::kGeGlu,
                 OpKind::kScale,     OpKind::kShortConv, OpKind::kPositionScale, OpKind::kExperts};
    caps_.traits.assign(std::begin(kOpTraits), std::end(kOpTraits));
    caps_.cuts_prompts = false;
    for (const Format& format : formats()) {
      if (host::is_native(format.dtype)) caps_.native_formats.push_back(format.dtype);
      caps_.logit_tolerances.push_back({format.dtype, logit_tolerance(format.dtype, rounds, kv)});
    }
    caps_.kv_type = kv;
    caps_.prefill_tokens_preferred = static_cast<uint32_t>(chunk_tokens(kernels));
    caps_.prefill_tokens_min = kStepTokensMin;
    caps_.prefill_seats_shared = kPrefillSeatsMax;
    caps_.decode_seats_max = kDecodeSeatsMax;
    caps_.mixes = true;
    caps_.tells_layers = true;
    caps_.states_grow = true;
    caps_.rewind_tokens_max = host::kKeptMax;
    caps_.features = feature_names(cpu_features());
    if (rounds) caps_.product_type = DType::kBF16;
  }
  std::string_view name() const override { return "cpu"; }
  const Caps& caps() const override { return caps_; }
  std::span<const uint32_t> cores() const override { return cores_; }
  KeptBytes kept_bytes(const Model& model) const override { return host::kept_bytes(model); }

 private:
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t threads) override {
    const bool said = threads_ > 0 || !cores_.empty();
    return CpuExecutor::load(std::move(model), kernels_, said ? threads_ : threads, cores_, caps_.kv_type, experts_);
  }

  const host::Kernels& kernels_;
  const uint32_t threads_;  // 0: as many as cores_, or what load() says
  const std::vector<uint32_t> cores_;
  const host::ExpertRoom experts_;
  Caps caps_;
};

std::vector<UnitOption> options() {
  return {threads_option(),
          UnitOption::one_of("kernels", host::kernel_set_choices(), host::kKernelSetMeaning, "the first"),
          UnitOption::one_of("experts", "auto|memory|used|file",
                             "where a mixture's experts are: packed in memory, packed when they are first used and "
                             "while memory is left, or in the file's pages and packed for each product; auto: used "
                             "where they take more than half of the machine's memory",
                             "auto"),
          UnitOption::number("experts-mib", 0, 1 << 30,
                             "experts=used: MiB of packed experts at most; 0: what the machine can spare", "0"),
          cores_option(),
          kv_option("f16")};
}

Result<std::unique_ptr<Unit>> create(const UnitOptions& given) {
  try {
    BATON_TRY(const host::Kernels* kernels, host::kernels_or_best(given.text("kernels")));
    std::vector<uint32_t> cores = parse_cores(given.text("cores"));
    if (Status can = check_cores(cores); !can)
      return fail(std::move(can).error().in("cpu: cores=" + std::string(given.text("cores"))));
    BATON_TRY(const DType kv, kv_of(given, DType::kF16));
    const std::string_view place = given.text("experts");
    host::ExpertRoom experts;
    if (place == "memory") experts.place = host::ExpertPlace::kMemory;
    if (place == "used") experts.place = host::ExpertPlace::kUsed;
    if (place == "file") experts.place = host::ExpertPlace::kFile;
    experts.bytes_max = given.number("experts-mib") << 20;
    if (experts.bytes_max != 0) {
      if (place == "memory" || place == "file")
        return fail(Code::kInvalidInput, fmt::format("cpu: experts-mib is of experts=used, not of experts={}", place));
      experts.place = host::ExpertPlace::kUsed;
    }
    return std::make_unique<CpuUnit>(*kernels, static_cast<uint32_t>(given.number("threads")), std::move(cores), kv,
                                     experts);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "cpu: no memory to start");
  }
}

}  // namespace
}  // namespace baton::cpu

namespace baton {
extern const UnitEntry k_unit_cpu;
const UnitEntry k_unit_cpu = {"cpu", cpu::create, cpu::options};
}  // namespace baton
