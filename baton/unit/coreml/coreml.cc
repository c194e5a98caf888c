// The `coreml` unit: prefill through exported Core ML packages. Not yet run on Apple hardware. With device=emulator the
// packages run in the interpreter.
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

fs::path cache_folder(std::string_view own) {
  if (!own.empty()) return own;
#if defined(__APPLE__)
  const fs::path caches = fs::path(variable("HOME")) / "Library" / "Caches";
#else
  const std::string given = variable("XDG_CACHE_HOME");
  const fs::path caches = !given.empty() ? fs::path(given) : fs::path(variable("HOME")) / ".cache";
#endif
  return caches / "baton" / "coreml";
}

// From "64+256"; empty when that is not what it says.
std::vector<int32_t> lengths_in(std::string_view text) {
  std::vector<int32_t> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    int32_t seq = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, seq);
    if (text[begin] == '0' || end + 1 == text.size() || error != std::errc() || rest != text.data() + end ||
        seq < apple::kSeqMin || seq > apple::kSeqMax || seq % apple::kSeqMultiple != 0)
      return {};
    out.push_back(seq);
    begin = end + 1;
  }
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
    caps_.decode_seats_max = 0;
    caps_.pieces_exact = options_.seqs.size() == 1 && options_.seqs[0] == 64;  // another cut may take another package
    caps_.emulated = engine_->emulated();
    caps_.states_grow = true;
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

std::vector<UnitOption> option_list() {
  return {
      UnitOption::one_of("device", "auto|emulator", "auto: Core ML; emulator: its packages in the interpreter", "auto"),
      UnitOption::one_of("units", "all|ane|gpu|cpu", "what Core ML may use, with the CPU", "all"),
      UnitOption::text(
          "lengths",
          fmt::format("N+N (multiples of {}, {} to {})", apple::kSeqMultiple, apple::kSeqMin, apple::kSeqMax),
          "tokens of a call: a package is exported for each", "64+256+512, emulated 64+256",
          [](std::string_view text) { return !lengths_in(text).empty(); }),
      UnitOption::number("timeout", 1, 86400, "seconds that a load may take", "300"),
      UnitOption::text("cache", "FOLDER", "where compiled programs are kept", "coreml in baton's folder of caches"),
  };
}

Result<std::unique_ptr<Unit>> create(const UnitOptions& given) {
  const bool emulated = given.text("device") == "emulator";
  for (const char* framework_only : {"units", "timeout"}) {
    if (emulated && !given.text(framework_only).empty()) {
      return fail(
          Code::kInvalidInput,
          fmt::format("coreml: {}= is about Core ML itself: it does not go with device=emulator", framework_only));
    }
  }
  ExecutorOptions options;
  if (const std::string_view units = given.text("units"); !units.empty()) {
    BATON_TRY(options.units, compute_units_by_name(units));
  }
  // The interpreter keeps all activations of a package: 512 columns of a small model take more than 1 GB.
  options.seqs =
      lengths_in(given.text("lengths").empty() ? (emulated ? "64+256" : "64+256+512") : given.text("lengths"));
  options.cache = cache_folder(given.text("cache"));
  if (emulated) return std::make_unique<CoreMlUnit>(interpreter_engine(kEmulatorThreads), std::move(options));
  FrameworkOptions framework;
  framework.units = options.units;
  if (const uint64_t seconds = given.number("timeout"); seconds > 0)
    framework.load_timeout = std::chrono::seconds(seconds);
  BATON_TRY(auto engine, open_framework(framework));
  return std::make_unique<CoreMlUnit>(std::move(engine), std::move(options));
}

}  // namespace
}  // namespace baton::coreml

namespace baton {
extern const UnitEntry k_unit_coreml;
const UnitEntry k_unit_coreml = {"coreml", coreml::create, coreml::option_list, true};
}  // namespace baton
