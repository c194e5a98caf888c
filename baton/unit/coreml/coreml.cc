// The `coreml` unit: prefill through exported Core ML packages. Not yet run on Apple hardware.
// BATON_COREML=emulate runs the packages in the interpreter; BATON_COREML_UNITS is all (default), ane, gpu or cpu;
// BATON_COREML_SEQ the lengths to export (64,256,512; emulated 64,256); BATON_COREML_TIMEOUT the seconds a load may
// take (300); BATON_COREML_CACHE the folder of compiled programs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include "baton/unit/coreml/executor.h"
#include "baton/unit/coreml/framework.h"
#include "baton/unit/entry.h"

namespace baton::coreml {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kEmulatorThreads = 2;  // of each package that is loaded

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

fs::path cache_folder() {
  if (const std::string own = variable("BATON_COREML_CACHE"); !own.empty()) return own;
#if defined(__APPLE__)
  const fs::path caches = fs::path(variable("HOME")) / "Library" / "Caches";
#else
  const std::string given = variable("XDG_CACHE_HOME");
  const fs::path caches = !given.empty() ? fs::path(given) : fs::path(variable("HOME")) / ".cache";
#endif
  return caches / "baton" / "coreml";
}

Result<std::chrono::milliseconds> load_timeout(std::chrono::milliseconds otherwise) {
  const std::string text = variable("BATON_COREML_TIMEOUT");
  if (text.empty()) return otherwise;
  uint32_t seconds = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || rest != text.data() + text.size() || seconds == 0 || seconds > 86400) {
    return fail(Code::kInvalidInput, fmt::format("BATON_COREML_TIMEOUT={}: seconds, 1 to 86400", text));
  }
  return std::chrono::seconds(seconds);
}

// The interpreter keeps all activations of a package: 512 columns of a small model take more than 1 GB.
Result<std::vector<int32_t>> lengths(bool emulated) {
  const std::string text = variable("BATON_COREML_SEQ");
  std::vector<int32_t> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int32_t seq = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, seq);
    if (error != std::errc() || rest != text.data() + end || seq < apple::kSeqMin || seq > apple::kSeqMax ||
        seq % apple::kSeqMultiple != 0) {
      return fail(Code::kInvalidInput, fmt::format("BATON_COREML_SEQ={}: lengths are multiples of {} from {} to {}",
                                                   text, apple::kSeqMultiple, apple::kSeqMin, apple::kSeqMax));
    }
    out.push_back(seq);
    begin = end + 1;
  }
  if (out.empty()) out = emulated ? std::vector<int32_t>{64, 256} : std::vector<int32_t>{64, 256, 512};
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// fp16 weights, activations and states. Measured with the interpreter: 0.061 on the bundled models.
constexpr float kLogitTolerance = 0.1f;

class CoreMlUnit final : public Unit {
 public:
  CoreMlUnit(std::unique_ptr<PackageEngine> engine, ExecutorOptions options)
      : engine_(std::move(engine)), options_(std::move(options)) {
    caps_.ops = {OpKind::kEmbed,  OpKind::kRmsNorm,     OpKind::kLinear,     OpKind::kSplitPairs, OpKind::kRope,
                 OpKind::kAttend, OpKind::kSigmoidGate, OpKind::kCausalConv, OpKind::kDeltaRule,  OpKind::kGatedNorm,
                 OpKind::kSwiGlu, OpKind::kAdd,         OpKind::kBias,       OpKind::kHead};
    caps_.kv_type = DType::kF16;
    caps_.prefill_tokens_preferred = static_cast<uint32_t>(options_.seqs.back());
    caps_.prefill_tokens_min = caps_.prefill_tokens_preferred;  // a package takes as long when it is half empty
    caps_.decode_slots_max = 0;
    caps_.features = {std::string(engine_->emulated() ? "emulated" : "core-ml"),
                      fmt::format("units={}", to_string(options_.units))};
    caps_.features.push_back(fmt::format("cache={}({:.0f}-MB)", options_.cache.string(),
                                         static_cast<double>(folder_bytes(options_.cache)) * 1e-6));
    if (!engine_->emulated())
      caps_.features.push_back(engine_->has_neural_engine() ? "neural-engine" : "no-neural-engine");
    caps_.logit_tolerances = equal_tolerances(kLogitTolerance);
  }
  std::string_view name() const override { return "coreml"; }
  const Caps& caps() const override { return caps_; }

 private:
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t) override {
    return CoreMlExecutor::load(std::move(model), *engine_, options_);
  }

  std::unique_ptr<PackageEngine> engine_;
  const ExecutorOptions options_;
  Caps caps_;
};

Result<std::unique_ptr<Unit>> create() {
  ExecutorOptions options;
  if (const std::string units = variable("BATON_COREML_UNITS"); !units.empty()) {
    auto chosen = compute_units_by_name(units);
    if (!chosen) return fail(std::move(chosen).error().in("BATON_COREML_UNITS"));
    options.units = *chosen;
  }
  const std::string how = variable("BATON_COREML");
  BATON_TRY(options.seqs, lengths(how == "emulate"));
  options.cache = cache_folder();
  FrameworkOptions framework;
  framework.units = options.units;
  BATON_TRY(framework.load_timeout, load_timeout(framework.load_timeout));
  if (how == "emulate") return std::make_unique<CoreMlUnit>(interpreter_engine(kEmulatorThreads), std::move(options));
  if (!how.empty()) return fail(Code::kInvalidInput, fmt::format("BATON_COREML={}: there is only emulate", how));
  BATON_TRY(auto engine, open_framework(framework));
  return std::make_unique<CoreMlUnit>(std::move(engine), std::move(options));
}

}  // namespace
}  // namespace baton::coreml

namespace baton {
extern const UnitEntry k_unit_coreml;
const UnitEntry k_unit_coreml = {"coreml", coreml::create};
}  // namespace baton
