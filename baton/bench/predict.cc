// Sums of dispatches, bytes and operations; a coordinate search for the figures that fit the calibration rows.
#include "baton/bench/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr std::string_view kFittedChip = "m2-ultra";
constexpr uint32_t kColumns = 32;
constexpr double kCopyOperations = 4;   // of one value between f32 and a surface: load, convert, store, and its line
constexpr uint64_t kRowsInFile = 2048;  // of keys and values in an ANELMS file, whatever the prompt
constexpr double kDecodedTokens = 200;  // of the source's runs, for joules
constexpr uint32_t kCoreMlLengths[] = {64, 256, 512};

// Memory bandwidth and f32 arithmetic of the GPUs, as Apple and reviews state them; 0: not known here. Only ratios to
// the M2 Ultra are used.
struct GpuSpec {
  std::string_view chip;
  double gb_s, tflops;
};
constexpr GpuSpec kGpus[] = {{"m1", 68, 2.6},  {"m2-ultra", 800, 27.2}, {"m3-max", 400, 14.2},
                             {"m4", 120, 4.3}, {"m4-max", 546, 18.4},   {"m5", 153, 0}};

const GpuSpec* gpu_spec(std::string_view chip) {
  const auto* found =
      std::find_if(std::begin(kGpus), std::end(kGpus), [&](const GpuSpec& s) { return s.chip == chip; });
  return found != std::end(kGpus) && found->tflops > 0 ? found : nullptr;
}

// Bytes the GPU moves to use every weight once.
double gpu_bytes(const ModelShape& shape, GpuWeights weights) {
  const double bytes = weights == GpuWeights::kBf16 ? 2 : (weights == GpuWeights::k8Bit ? 1 + 4.0 / 64 : 2 + 4 + 4);
  return static_cast<double>(matrix_parameters(shape)) * bytes;
}

bool decodes_on_engine(std::string_view pipeline) { return pipeline == "ane" || pipeline == "ane-batch-only"; }
bool prefills_in_batches(std::string_view pipeline) { return pipeline == "ane-batch" || pipeline == "ane-batch-only"; }
bool needs_bridge(std::string_view pipeline) { return pipeline != "gpu" && !decodes_on_engine(pipeline); }

std::vector<double*> fitted(MachineFigures& f) {
  return {&f.engine_gb_s, &f.host_gflops,       &f.gpu_gb_s,         &f.gpu_tflops,      &f.gpu_8bit_tflops,
          &f.gpu_step_ms, &f.gpu_prefill_ms,    &f.gpu_cold_ms,      &f.coreml_fixed_ms, &f.coreml_tflops,
          &f.bridge_gb_s, &f.gpu_prefill_watts, &f.gpu_decode_watts, &f.host_watts};
}

}  // namespace

Result<const EngineWork*> Predictor::work_of(const ModelShape& shape) {
  const auto found = work_.find(shape.name);
  if (found != work_.end()) return &found->second;
  BATON_TRY(EngineWork work, engine_work(shape));
  return &work_.emplace(std::string(shape.name), std::move(work)).first->second;
}

double Predictor::engine_ms(const std::vector<KernelWork>& kernels) const {
  apple::ChipPreset chip = *chip_;
  chip.weights_gb_s = figures_.engine_gb_s;
  double ms = 0;
  for (const KernelWork& kernel : kernels) ms += apple::evaluate_ms(chip, kernel.weight_bytes, kernel.flops);
  return ms;
}

double Predictor::host_ms(const ModelShape& shape, const EngineWork& work, double depth) const {
  const double operations = static_cast<double>(host_flops(shape, static_cast<uint64_t>(depth))) +
                            kCopyOperations * static_cast<double>(work.copied_values);
  return operations / (figures_.host_gflops * 1e6);
}

double Predictor::gpu_step_ms(const ModelShape& shape, GpuWeights weights, double depth) const {
  const double state = static_cast<double>(state_bytes(shape, static_cast<uint64_t>(depth), 2));
  return figures_.gpu_step_ms + (gpu_bytes(shape, weights) + state) / (figures_.gpu_gb_s * 1e6);
}

double Predictor::bridge_ms(const ModelShape& shape) const {
  const uint64_t bytes = state_bytes(shape, kRowsInFile, sizeof(float)) + shape.vocab * sizeof(float);
  return static_cast<double>(bytes) / (figures_.bridge_gb_s * 1e6);
}

Result<double> Predictor::prefill_ms(const PublishedRow& row, const ModelShape& shape) {
  const double tokens = row.tokens, operations = 2.0 * static_cast<double>(matrix_parameters(shape));
  if (row.pipeline == "gpu") {
    const double tflops = row.weights == GpuWeights::k8Bit ? figures_.gpu_8bit_tflops : figures_.gpu_tflops;
    const double cold = row.source == "B" ? figures_.gpu_cold_ms : 0;
    return cold + figures_.gpu_prefill_ms + gpu_bytes(shape, row.weights) / (figures_.gpu_gb_s * 1e6) +
           operations * tokens / (tflops * 1e9);
  }
  if (row.pipeline == "coreml-hybrid") {
    const auto* length = std::find_if(std::begin(kCoreMlLengths), std::end(kCoreMlLengths),
                                      [&](uint32_t most) { return row.tokens <= most; });
    if (length == std::end(kCoreMlLengths))
      return fail(Code::kUnsupported, "Core ML models of the source end at 512 tokens");
    return figures_.coreml_fixed_ms + operations * *length / (figures_.coreml_tflops * 1e9);
  }
  BATON_TRY(const EngineWork* work, work_of(shape));
  const double body = engine_ms(work->body), head = engine_ms(work->head), host = host_ms(shape, *work, tokens / 2);
  if (prefills_in_batches(row.pipeline)) return std::ceil(tokens / kColumns) * body + head + tokens * host;
  return tokens * (body + head + host);  // the source's program makes logits for every token
}

Result<double> Predictor::decode_ms(const PublishedRow& row, const ModelShape& shape) {
  if (!decodes_on_engine(row.pipeline)) return gpu_step_ms(shape, row.weights, row.tokens);
  BATON_TRY(const EngineWork* work, work_of(shape));
  return engine_ms(work->body) + engine_ms(work->head) + host_ms(shape, *work, row.tokens);
}

double Predictor::watts(std::string_view pipeline, bool prefill) const {
  if (pipeline == "gpu" || pipeline == "coreml-hybrid")
    return prefill ? figures_.gpu_prefill_watts : figures_.gpu_decode_watts;
  if (!prefill && !decodes_on_engine(pipeline)) return figures_.gpu_decode_watts;
  return chip_->active_watts + figures_.host_watts;
}

Result<double> Predictor::value(const PublishedRow& row) {
  const ModelShape* shape = model_shape(row.shape);
  if (shape == nullptr) return fail(Code::kNotFound, fmt::format("no model shape '{}'", row.shape));
  switch (row.quantity) {
    case Quantity::kTtftMs: {
      BATON_TRY(const double ms, prefill_ms(row, *shape));
      return ms + (needs_bridge(row.pipeline) ? bridge_ms(*shape) : 0);
    }
    case Quantity::kPrefillTps: {
      BATON_TRY(const double ms, prefill_ms(row, *shape));
      return row.tokens / ms * 1e3;
    }
    case Quantity::kDecodeTps: {
      BATON_TRY(const double ms, decode_ms(row, *shape));
      return 1e3 / ms;
    }
    case Quantity::kBridgeMs:
      return bridge_ms(*shape);
    case Quantity::kPrefillWatts:
      return watts(row.pipeline, true);
    case Quantity::kDecodeWatts:
      break;
  }
  return watts(row.pipeline, false);
}

double Predictor::error() {
  double sum = 0;
  for (const PublishedRow& row : published_rows()) {
    if (!row.calibrates || row.chip != chip_->name) continue;
    const auto predicted = value(row);
    const double ratio = predicted ? std::log(*predicted / row.value) : HUGE_VAL;
    sum += ratio * ratio;
  }
  return sum;
}

// Least squares of log(predicted / published): a tenth too much and a tenth too little weigh the same in every unit.
// Each figure in turn is moved by a factor that shrinks when nothing improves.
Status Predictor::fit() {
  constexpr double kFactorStart = 1.5, kFactorEnd = 1.0001;
  double best = error();
  if (!std::isfinite(best)) return fail(Code::kInternal, "a calibration row has no prediction");
  for (double factor = kFactorStart; factor > kFactorEnd;) {
    bool better = false;
    for (double* figure : fitted(figures_)) {
      for (const double by : {factor, 1 / factor}) {
        const double before = *figure;
        *figure *= by;
        const double now = error();
        if (now < best) {
          best = now;
          better = true;
        } else {
          *figure = before;
        }
      }
    }
    if (!better) factor = std::sqrt(factor);
  }
  return {};
}

Result<Predictor> Predictor::create(std::string_view name) {
  const apple::ChipPreset* chip = apple::chip_preset(name);
  if (chip == nullptr) {
    std::string names;
    for (const apple::ChipPreset& preset : apple::chip_presets())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", preset.name);
    return fail(Code::kNotFound, fmt::format("no chip '{}'; there are: {}", name, names));
  }
  Predictor fitted_chip(*apple::chip_preset(kFittedChip));
  BATON_OK(fitted_chip.fit());
  if (name == kFittedChip) return fitted_chip;
  Predictor predictor(*chip);
  MachineFigures& figures = predictor.figures_ = fitted_chip.figures_;
  figures.engine_gb_s = chip->weights_gb_s;
  predictor.power_known_ = false;
  const GpuSpec *spec = gpu_spec(name), *base = gpu_spec(kFittedChip);
  predictor.has_gpu_ = spec != nullptr;
  if (spec != nullptr) {
    figures.gpu_gb_s *= spec->gb_s / base->gb_s;
    figures.gpu_tflops *= spec->tflops / base->tflops;
    figures.gpu_8bit_tflops *= spec->tflops / base->tflops;
    figures.coreml_tflops *= spec->tflops / base->tflops;
  }
  return predictor;
}

Result<Predictor::Times> Predictor::times(std::string_view pipeline, const ModelShape& shape, GpuWeights weights,
                                          uint32_t tokens) {
  if (!has_gpu_ && !decodes_on_engine(pipeline))
    return fail(Code::kUnsupported, fmt::format("the arithmetic of the {}'s GPU is not known here", chip_->name));
  const bool bridged = needs_bridge(pipeline);
  const PublishedRow row{"", chip_->name, shape.name, pipeline, weights, tokens, Quantity::kTtftMs, 0, false, ""};
  BATON_TRY(const double prefill, prefill_ms(row, shape));
  BATON_TRY(const double step, decode_ms(row, shape));
  Times times;
  times.prefill_tps = tokens / prefill * 1e3;
  times.decode_tps = 1e3 / step;
  if (bridged) {
    times.bridge_ms = bridge_ms(shape);
    times.bridge_bytes = state_bytes(shape, kRowsInFile, sizeof(float)) + shape.vocab * sizeof(float);
  }
  times.ttft_ms = prefill + times.bridge_ms;
  // One copy of the weights for each kind of unit that works, and the state.
  const uint64_t copies = bridged ? 2 : 1;
  times.memory_bytes =
      copies * 2 * parameters(shape) + state_bytes(shape, tokens + static_cast<uint64_t>(kDecodedTokens), 2);
  if (power_known_) {
    const double prefill_joules = watts(pipeline, true) * prefill / 1e3;
    const double decode_joules = watts(pipeline, false) * step * kDecodedTokens / 1e3;
    const double seconds = (prefill + step * kDecodedTokens) / 1e3;
    times.joules = prefill_joules + decode_joules;
    times.watts = *times.joules / seconds;
  }
  return times;
}

std::string_view explanation(const PublishedRow& row) {
  if (!row.doubt.empty()) return row.doubt;
  const bool engine_decode = row.quantity == Quantity::kDecodeTps && decodes_on_engine(row.pipeline);
  if (row.source == "F") {
    return "preset of the m3-max, host figures of the m2-ultra: the source counts 0.75 ms a dispatch with its "
           "conversions, "
           "more than the preset's latency and bandwidth give";
  }
  if (row.source == "H" && (engine_decode || (row.quantity == Quantity::kTtftMs && row.pipeline.starts_with("ane")))) {
    return "two sources disagree: H has 42 ms a token where B has 57 to 61 with the same model, chip and calls; the "
           "engine is "
           "calibrated on B";
  }
  if (row.source == "B" && row.shape == "qwen3.5-2b" && engine_decode) {
    return "the source decodes a token in 80 ms, but its prefill of one chunk, which runs the same kernels, takes 113 "
           "ms: no "
           "sum of dispatches and bytes gives both";
  }
  if (row.source == "B" && row.pipeline == "ane-batch" && row.tokens == 13 && row.quantity == Quantity::kDecodeTps) {
    return "the same decode is at 53.9 behind 28 tokens and 54.0 behind 74: the first of 20 tokens of a new process is "
           "slow";
  }
  if (row.pipeline == "gpu" && row.shape == "qwen3.5-0.8b" && row.quantity == Quantity::kTtftMs) {
    return "the source's 0.8B begins later than its 2B on the same GPU (56 against 22 ms), though it is 2.5 times "
           "smaller: its "
           "f32 arithmetic has a cost that is not bytes or operations";
  }
  if (row.pipeline == "coreml-hybrid" && row.quantity == Quantity::kTtftMs) {
    return "through Core ML a padded token of the 0.8B costs a third of the 9B's, not a twelfth: the unrolled "
           "recurrence is "
           "thousands of small operations, which are not counted";
  }
  if (row.pipeline == "coreml-hybrid" || row.shape == "qwen3.5-0.8b") {
    return "f32 arithmetic on 16-bit weights is counted as five times their bytes, an inference from the 2B's "
           "hand-over";
  }
  if (row.source == "H" && row.pipeline == "gpu" && row.weights == GpuWeights::kBf16) {
    return "the fixed cost of a prefill is that of the 8-bit rows; the source's 6 tokens take 8 ms more in 16 bits, of "
           "which "
           "the weights explain less than half";
  }
  if (row.source == "B" && row.pipeline == "gpu") {
    return "the start of a new process is taken from the 0.8B's runs, where it was longer";
  }
  return "";
}

Result<std::vector<Comparison>> compare_published() {
  std::map<std::string, Predictor, std::less<>> predictors;
  std::vector<Comparison> all;
  for (const PublishedRow& row : published_rows()) {
    auto found = predictors.find(row.chip);
    if (found == predictors.end()) {
      BATON_TRY(Predictor made, Predictor::create(row.chip));
      found = predictors.emplace(std::string(row.chip), std::move(made)).first;
    }
    BATON_TRY(const double predicted, found->second.value(row));
    all.push_back({row, predicted, predicted / row.value - 1});
  }
  return all;
}

}  // namespace baton
