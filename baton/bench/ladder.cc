// Quantize, compare, measure.
#include "baton/bench/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "baton/api/units.h"
#include "baton/base/temporary_folder.h"
#include "baton/bench/energy_meter.h"
#include "baton/bench/probes.h"
#include "baton/bench/runner.h"
#include "baton/model/container.h"
#include "baton/tools/convert.h"
#include "baton/tools/quantize.h"
#include "baton/tools/recipe.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr double kConfidence = 0.95;
constexpr uint64_t kSeed = 11;
// A loaded model: the mapped file, and at most as much again of repacked weights.
constexpr uint64_t kMemoryPerByte = 2;

double bits_of(DType dtype) {
  const Format& format = format_of(dtype);
  return 8.0 * format.block_bytes / format.block_elements;
}

// The type that most of a model's bytes are in.
DType main_type_of(const Model& model) {
  std::map<DType, uint64_t> bytes;
  for (const Weight& weight : model.weights) bytes[weight.dtype] += weight.bytes;
  DType best = DType::kF32;
  for (const auto& [dtype, count] : bytes) {
    if (count > bytes[best]) best = dtype;
  }
  return best;
}

std::map<std::string, uint64_t> tensors_of(const Model& model) {
  std::map<std::string, uint64_t> tensors;
  for (const Weight& weight : model.weights) ++tensors[std::string(to_string(weight.dtype))];
  return tensors;
}

double bits_per_weight(const Model& model) {
  return 8.0 * static_cast<double>(model.weight_bytes()) /
         static_cast<double>(std::max<uint64_t>(model.parameter_count(), 1));
}

// One type at work. `executor` is empty while it is not loaded.
struct Rung {
  LadderRow row;
  fs::path file;
  std::unique_ptr<Executor> executor;
  std::vector<double> kld, nll;  // means of each window
  std::vector<double> prefill_joules, decode_joules;
};

std::vector<double> window_means(const std::vector<double>& values, uint32_t per_window) {
  std::vector<double> means(values.size() / per_window, 0.0);
  for (size_t i = 0; i < values.size(); ++i) means[i / per_window] += values[i] / per_window;
  return means;
}

class Measurement {
 public:
  Measurement(const LadderOptions& options, std::unique_ptr<Unit> unit, TemporaryFolder folder)
      : options_(options), unit_(std::move(unit)), folder_(std::move(folder)) {}

  Result<LadderReport> run() {
    BATON_OK(open_source());
    BATON_OK(quantize_all());
    BATON_OK(measure_memory());
    BATON_OK(measure_quality());
    BATON_OK(measure_speeds());
    return finish();
  }

 private:
  Status check_stop() const {
    if (options_.stop && options_.stop()) return fail(Code::kCancelled, "interrupted; temporary files are removed");
    return {};
  }
  void progress(const std::string& text) const {
    if (options_.progress) options_.progress(text);
  }

  Status open_source() {
    progress("loading the source");
    BATON_TRY(source_text_, load_text_model(options_.model));
    const Model& model = *source_text_.model;
    BATON_TRY(text_, read_perplexity_text(source_text_, options_.text));
    if (text_.ids.size() < options_.window) {
      return fail(Code::kInvalidInput, fmt::format("{}: {} tokens do not fill a window of {}; give a longer text",
                                                   options_.text.string(), text_.ids.size(), options_.window));
    }
    // Before the work: the tests of speed are the last of it.
    const auto context = static_cast<uint32_t>(std::max(model.spec.context_max, 0));
    const uint32_t timed = std::max(options_.prefill_tokens, options_.decode_tokens);
    if (options_.rounds > 0 && context > 0 && timed > context) {
      return fail(Code::kInvalidInput,
                  fmt::format("the speed of {} tokens cannot be measured: the model's context is {}", timed, context));
    }
    const DType main = main_type_of(model);
    report_.model = model.spec.name;
    report_.source = options_.model;
    const bool plain = main == DType::kF32 || main == DType::kF16 || main == DType::kBF16;
    if (!plain) {
      report_.notes.push_back(fmt::format(
          "the source is {} itself: differences are from it, and the copies were made from what it has kept",
          to_string(main)));
    }
    Rung rung;
    rung.row.type = to_string(main);
    rung.row.is_source = true;
    rung.row.tensors = tensors_of(model);
    rung.row.bits_per_weight = bits_per_weight(model);
    rung.file = options_.model;
    gguf_ = options_.model;
    if (model.container->kind == ContainerKind::kSafetensors) {
      gguf_ = folder_.path() / "source.gguf";
      BATON_OK(check_room(folder_.path(), model.weight_bytes()));
      ConvertOptions convert;
      convert.matrix_type = plain ? main : DType::kBF16;
      BATON_TRY(const ConvertReport done, convert_to_gguf(options_.model, gguf_, convert));
      rung.row.bytes = done.bytes;
    } else {
      for (const MappedFile& file : model.container->files) rung.row.bytes += file.bytes().size();
    }
    rungs_.push_back(std::move(rung));
    return {};
  }

  Status check_room(const fs::path& folder, uint64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(folder, error);
    if (error || space.available >= bytes) return {};
    return fail(Code::kInvalidInput,
                fmt::format("{} has {} bytes free, about {} are needed; compare fewer types, or keep the files in a "
                            "folder on a larger disk",
                            folder.string(), static_cast<uint64_t>(space.available), bytes));
  }

  // An upper estimate: recipes give some tensors more bits than most.
  uint64_t bytes_estimated(const std::string& type) const {
    const double bits = std::min(bits_of(recipe_by_name(type)->base) * 1.25, 32.0);
    return static_cast<uint64_t>(static_cast<double>(source_text_.model->parameter_count()) * bits / 8);
  }

  Status quantize_all() {
    const std::vector<std::string> types = options_.types.empty() ? ladder_types() : options_.types;
    const fs::path folder = options_.keep.empty() ? folder_.path() : options_.keep;
    std::error_code error;
    fs::create_directories(folder, error);
    uint64_t bytes = 0;
    for (const std::string& type : types) bytes += bytes_estimated(type);
    BATON_OK(check_room(folder, bytes));
    std::string stem = name_of_path(options_.model);
    stem.erase(0, stem.rfind('/') + 1);  // without the owner
    if (stem.ends_with(".gguf")) stem.resize(stem.size() - 5);
    for (size_t i = 0; i < types.size(); ++i) {
      BATON_OK(check_stop());
      Rung rung;
      rung.row.type = recipe_by_name(types[i])->name;
      rung.file = folder / fmt::format("{}.{}.gguf", stem, rung.row.type);
      if (!options_.keep.empty()) rung.row.file = rung.file;
      QuantizeOptions quantize;
      quantize.type = rung.row.type;
      quantize.allow_requantize = options_.allow_requantize;
      quantize.threads = options_.threads;
      quantize.on_tensor = [&](size_t done, size_t total, std::string_view) {
        progress(fmt::format("quantizing {} ({}/{}): tensor {}/{}", rung.row.type, i + 1, types.size(), done, total));
      };
      auto done = quantize_to_gguf(gguf_, rung.file, quantize);
      if (!done) return fail(std::move(done).error().in(rung.row.type));
      rung.row.bytes = done->bytes;
      rung.row.recipe_hash = done->recipe_hash;
      rung.row.tensors = done->types;
      rung.row.notes = done->notes;
      for (const Rung& other : rungs_) {
        if (!other.row.is_source && other.row.same_as.empty() && other.row.recipe_hash == rung.row.recipe_hash)
          rung.row.same_as = other.row.type;
      }
      rungs_.push_back(std::move(rung));
    }
    std::stable_sort(rungs_.begin(), rungs_.end(), [](const Rung& a, const Rung& b) {
      return a.row.is_source != b.row.is_source ? a.row.is_source : a.row.bytes > b.row.bytes;
    });
    for (Rung& rung : rungs_) {
      if (rung.row.same_as.empty()) work_.push_back(&rung);
    }
    return {};
  }

  Status measure_memory() {
    if (!options_.peak_memory) return {};
    for (Rung* rung : work_) {
      BATON_OK(check_stop());
      progress(fmt::format("memory: {}", rung->row.type));
      rung->row.peak_memory_bytes = options_.peak_memory(rung->file);
    }
    return {};
  }

  Status load(Rung& rung) {
    if (rung.executor) return {};
    std::shared_ptr<const Model> model = source_text_.model;
    if (!rung.row.is_source) {
      BATON_TRY(model, load_model(rung.file));
      rung.row.bits_per_weight = bits_per_weight(*model);
    }
    BATON_TRY(rung.executor, unit_->load(model, options_.threads));
    const Placement placement = rung.executor->placement();
    rung.row.evidence = placement.text();
    rung.row.emulated = placement.emulated;
    report_.ran = placement.ran;
    if (!placement.warning.empty()) {
      const std::string note = fmt::format("{}: {}", rung.row.type, placement.warning);
      if (std::find(report_.notes.begin(), report_.notes.end(), note) == report_.notes.end())
        report_.notes.push_back(note);
    }
    return {};
  }

  bool fits(uint64_t bytes) const { return bytes * kMemoryPerByte <= options_.memory_budget_bytes; }
  uint64_t bytes_of_all() const {
    uint64_t bytes = 0;
    for (const Rung* rung : work_) bytes += rung->row.bytes;
    return bytes;
  }

  // In groups that fit the memory together; the source goes through the text once for each group.
  Status measure_quality() {
    PerplexityOptions perplexity;
    perplexity.window = options_.window;
    perplexity.counted_from = peer_counted_from(options_.window);
    perplexity.windows_max = options_.windows_max;
    perplexity.window_start = text_.window_start;
    perplexity.threads = options_.threads;
    report_.window = options_.window;
    report_.counted_from = perplexity.counted_from;
    report_.text_tokens = text_.ids.size();
    Rung& source = *work_.front();
    BATON_OK(load(source));
    for (size_t begin = 1; begin < work_.size();) {
      uint64_t bytes = source.row.bytes;
      std::vector<Rung*> group;
      std::vector<Executor*> executors;
      while (begin + group.size() < work_.size()) {
        Rung& rung = *work_[begin + group.size()];
        bytes += rung.row.bytes;
        if (!group.empty() && !fits(bytes)) break;
        BATON_OK(load(rung));
        group.push_back(&rung);
        executors.push_back(rung.executor.get());
      }
      std::string names;
      for (const Rung* rung : group) names += (names.empty() ? "" : " ") + rung->row.type;
      perplexity.on_window = [&](uint64_t done, uint64_t total, double ppl) {
        progress(fmt::format("quality of {}: window {}/{}, PPL of {} {:.4f}", names, done, total,
                             group.front()->row.type, ppl));
      };
      BATON_TRY(const WindowScores scores,
                score_windows(executors, source.executor.get(), text_.ids, perplexity, options_.stop));
      take_scores(group, scores);
      begin += group.size();
      if (!fits(bytes_of_all())) {
        for (Rung* rung : group) rung->executor.reset();
      }
    }
    return {};
  }

  void take_scores(const std::vector<Rung*>& group, const WindowScores& scores) {
    const uint32_t per_window = scores.per_window;
    report_.windows = scores.windows;
    report_.counted = scores.windows * per_window;
    TokenScores reference = *scores.reference;
    for (size_t i = 0; i < group.size(); ++i) {
      group[i]->row.quality = compare_scores(scores.models[i], reference, per_window);
      group[i]->kld = window_means(scores.models[i].kld, per_window);
      group[i]->nll = window_means(scores.models[i].nll, per_window);
    }
    Rung& source = *work_.front();
    reference.kld.assign(reference.nll.size(), 0);
    reference.same_top.assign(reference.nll.size(), 1);
    source.row.quality = compare_scores(reference, reference, per_window);
    source.kld.assign(scores.windows, 0);
    source.nll = window_means(reference.nll, per_window);
  }

  // Each round goes over all types, forth and back in turn, so that drift of the machine is shared by all.
  Status measure_speeds() {
    report_.prefill_tokens = options_.prefill_tokens;
    report_.decode_tokens = options_.decode_tokens;
    report_.rounds = options_.rounds;
    if (options_.rounds == 0) return {};
    if (const auto busy = busy_machine()) report_.notes.push_back(fmt::format("Speeds: {}.", *busy));
    const bool keep_loaded = fits(bytes_of_all());
    if (!keep_loaded) {
      for (Rung* rung : work_) rung->executor.reset();
    }
    EnergyMeter meter;
    if (!meter.available()) report_.energy_missing = meter.reason();
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < work_.size(); ++i) {
        Rung& rung = *work_[round % 2 == 0 ? i : work_.size() - 1 - i];
        BATON_OK(check_stop());
        progress(fmt::format("speed, round {}/{}: {}", round + 1, options_.rounds, rung.row.type));
        BATON_OK(load(rung));
        BATON_OK(time_once(rung, meter));
        if (!keep_loaded) rung.executor.reset();
      }
    }
    for (Rung* rung : work_) {
      if (rung->row.emulated) continue;  // the emulator's energy, not the device's
      if (!rung->prefill_joules.empty()) rung->row.speed.prefill_joules_per_token = quantile(rung->prefill_joules, 0.5);
      if (!rung->decode_joules.empty()) rung->row.speed.decode_joules_per_token = quantile(rung->decode_joules, 0.5);
    }
    return {};
  }

  // A warm-up and a timed run of each test. The energy is that of both.
  Status time_once(Rung& rung, EnergyMeter& meter) {
    const auto measure = [&](const SpeedTest& test, uint32_t tokens, std::vector<double>& tps,
                             std::vector<double>& joules) -> Status {
      meter.start();
      BATON_TRY(const SpeedResult result, measure_speed(*rung.executor, test, 1, {}));
      if (const auto used = meter.joules()) joules.push_back(*used / (2.0 * tokens));
      tps.push_back(result.tokens_per_second.front());
      return {};
    };
    SpeedTest prefill, decode;
    prefill.prefill_tokens = options_.prefill_tokens;
    decode.decode_tokens = options_.decode_tokens;
    BATON_OK(measure(prefill, options_.prefill_tokens, rung.row.speed.prefill_tps, rung.prefill_joules));
    return measure(decode, options_.decode_tokens, rung.row.speed.decode_tps, rung.decode_joules);
  }

  Result<LadderReport> finish() {
    report_.unit = unit_->name();
    report_.text = options_.text;
    for (Rung& rung : rungs_) {
      if (!rung.row.same_as.empty()) {
        const auto same = std::find_if(rungs_.begin(), rungs_.end(), [&](const Rung& other) {
          return other.row.same_as.empty() && !other.row.is_source && other.row.type == rung.row.same_as;
        });
        BATON_CHECK(same != rungs_.end());
        rung.row.quality = same->row.quality;
        rung.row.speed = same->row.speed;
        rung.row.bits_per_weight = same->row.bits_per_weight;
        rung.row.peak_memory_bytes = same->row.peak_memory_bytes;
        rung.row.evidence = same->row.evidence;
        rung.row.emulated = same->row.emulated;
        rung.kld = same->kld;
        rung.nll = same->nll;
      }
      report_.points.push_back({rung.row.type, rung.row.bytes, rung.kld, rung.nll, rung.row.speed.prefill_tps,
                                rung.row.speed.decode_tps, rung.row.is_source});
      report_.rows.push_back(rung.row);
    }
    report_.verdict = judge_ladder(report_.points, kConfidence, kSeed, report_.rows.front().emulated);
    return std::move(report_);
  }

  const LadderOptions& options_;
  std::unique_ptr<Unit> unit_;
  TemporaryFolder folder_;
  TextModel source_text_;
  PerplexityText text_;
  fs::path gguf_;            // what is quantized
  std::vector<Rung> rungs_;  // the source first
  std::vector<Rung*> work_;  // those with figures of their own, the source first
  LadderReport report_;
};

}  // namespace

std::vector<std::string> ladder_types() {
  std::vector<std::string> types;
  for (const std::string_view type : quantize_types()) {
    const Recipe* recipe = recipe_by_name(type);
    if (recipe != nullptr && bits_of(recipe->base) < 16) types.emplace_back(type);
  }
  return types;
}

Status check_ladder_types(const std::vector<std::string>& types) {
  const std::vector<std::string_view> known = quantize_types();
  std::set<std::string_view> seen;
  for (const std::string& type : types) {
    const Recipe* recipe = recipe_by_name(type);
    if (recipe == nullptr || std::find(known.begin(), known.end(), recipe->name) == known.end()) {
      return fail(Code::kInvalidInput, fmt::format("no type named '{}'; there are: {}", type, fmt::join(known, ", ")));
    }
    if (!seen.insert(recipe->name).second)
      return fail(Code::kInvalidInput, fmt::format("type {} is given twice", type));
  }
  return {};
}

Result<LadderReport> measure_ladder(const LadderOptions& options) {
  BATON_OK(check_ladder_types(options.types));
  BATON_TRY(auto unit, create_unit(options.unit));
  BATON_TRY(auto folder, TemporaryFolder::create("baton-ladder"));
  Measurement measurement(options, std::move(unit), std::move(folder));
  return measurement.run();
}

}  // namespace baton
