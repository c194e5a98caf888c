// `baton perplexity`: perplexity of models on a text, alone or against a reference model in the same pass.
#include "baton/tools/perplexity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "baton/api/units.h"
#include "baton/base/output_file.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"
#include "baton/state/rows.h"

namespace baton::cli {
namespace {

struct PerplexityFlags {
  std::vector<std::string> models, lora;
  std::string reference, text, unit = "cpu", per_token, kv, reference_kv;
  uint32_t window = 512, counted_from = 0, threads = 0;
  uint64_t chunks = 0;
  bool json = false;
};

// A model on the unit; the executor keeps the weights.
struct Loaded {
  std::string path;
  TextModel text;
  std::unique_ptr<Executor> executor;
};

Result<Loaded> load(Unit& unit, const std::string& path, uint32_t threads, const std::vector<std::string>& lora = {}) {
  BATON_OK(hub::check_model(path));
  BATON_TRY(const std::vector<AdapterChoice> adapters, settle_lora(lora));
  progress(fmt::format("loading {}", path));
  Loaded loaded{path, {}, nullptr};
  BATON_TRY(loaded.text, load_text_model(path, 0, ModelUse::kText, adapters));
  BATON_TRY(loaded.executor, unit.load(loaded.text.model, threads));
  progress("");
  return loaded;
}

// What its states keep keys and values in.
DType kv_of(const Loaded& loaded) {
  for (const Segment& segment : loaded.executor->shape().segments) {
    if (has_tokens_dim(segment.kind)) return segment.dtype;
  }
  return DType::kF32;
}

OrderedJson finite(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

void put(OrderedJson& json, const std::string& name, const Measured& measured) {
  json[name] = finite(measured.value);
  json[name + "_error"] = finite(measured.error);
  json[name + "_error_windows"] = measured.error_windows < 0 ? OrderedJson(nullptr) : finite(measured.error_windows);
}

OrderedJson quality_json(const PairedQuality& quality) {
  OrderedJson json;
  put(json, "ppl", quality.ppl);
  put(json, "dppl", quality.delta_ppl);
  put(json, "ppl_ratio", quality.ratio);
  put(json, "ln_ppl_ratio", quality.log_ratio);
  json["kld_mean"] = finite(quality.kld.value);
  json["kld_mean_error"] = finite(quality.kld.error);
  json["kld_mean_error_windows"] =
      quality.kld.error_windows < 0 ? OrderedJson(nullptr) : finite(quality.kld.error_windows);
  json["kld_median"] = finite(quality.kld_median);
  json["kld_p99"] = finite(quality.kld_p99);
  json["kld_p999"] = finite(quality.kld_p999);
  json["kld_max"] = finite(quality.kld_max);
  put(json, "top1", quality.top1);
  put(json, "mean_dp", quality.delta_p);
  put(json, "rms_dp", quality.rms_delta_p);
  return json;
}

std::string measured_text(const Measured& measured, int digits, double scale, std::string_view unit) {
  const std::string error =
      std::isfinite(measured.error) ? fmt::format("{:.{}f}", scale * measured.error, digits) : "unknown";
  std::string text = fmt::format("{:.{}f} \u00b1 {}{}", scale * measured.value, digits, error, unit);
  if (measured.error_windows >= 0)
    text += fmt::format("   (\u00b1 {:.{}f} by windows)", scale * measured.error_windows, digits);
  return text;
}

std::string quality_text(const PairedQuality& quality) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<18} {}\n", name, value);
  };
  text += fmt::format("PPL = {}\n", measured_text(quality.ppl, 4, 1, ""));
  line("delta PPL", measured_text(quality.delta_ppl, 5, 1, ""));
  line("PPL ratio", measured_text(quality.ratio, 6, 1, ""));
  line("KL divergence", measured_text(quality.kld, 6, 1, ""));
  line("  median", fmt::format("{:.6f}", quality.kld_median));
  line("  99 %, 99.9 %", fmt::format("{:.6f}, {:.6f}", quality.kld_p99, quality.kld_p999));
  line("  largest", fmt::format("{:.6f}", quality.kld_max));
  line("same top token", measured_text(quality.top1, 3, 100, " %"));
  line("RMS delta p", measured_text(quality.rms_delta_p, 3, 100, " %"));
  return text;
}

// One line per model and counted token. `window` and `token` count from 0; `id` is what stands in the text.
Status write_per_token(const PerplexityFlags& flags, const std::vector<Loaded>& models, const WindowScores& scores,
                       std::span<const int32_t> ids, uint32_t counted_from) {
  BATON_TRY(auto file, OutputFile::create(flags.per_token));
  const bool lines = flags.per_token.ends_with(".jsonl");
  const bool paired = scores.reference.has_value();
  std::string text =
      lines ? "" : (paired ? "model,window,token,id,nll,nll_reference,kld,same_top\n" : "model,window,token,id,nll\n");
  for (size_t m = 0; m < models.size(); ++m) {
    const TokenScores& model = scores.models[m];
    const std::string name = OrderedJson(models[m].path).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    for (uint64_t i = 0; i < model.nll.size(); ++i) {
      const uint64_t window = i / scores.per_window, token = counted_from + i % scores.per_window;
      const int32_t id = ids[window * flags.window + token];
      if (lines) {
        text += fmt::format(R"({{"model":{},"window":{},"token":{},"id":{},"nll":{})", name, window, token, id,
                            finite(model.nll[i]).dump());
        if (paired) {
          text += fmt::format(R"(,"nll_reference":{},"kld":{},"same_top":{})", finite(scores.reference->nll[i]).dump(),
                              finite(model.kld[i]).dump(), model.same_top[i] != 0);
        }
        text += "}\n";
      } else {
        text += fmt::format("{},{},{},{},{}", name, window, token, id, model.nll[i]);
        if (paired) text += fmt::format(",{},{},{}", scores.reference->nll[i], model.kld[i], model.same_top[i]);
        text += "\n";
      }
      if (text.size() > 1 << 20) {
        BATON_OK(file.write(std::as_bytes(std::span(text))));
        text.clear();
      }
    }
  }
  BATON_OK(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

void print_results(const PerplexityFlags& flags, const std::vector<Loaded>& models, const Loaded* reference,
                   const WindowScores& scores, const PerplexityText& text, const PerplexityOptions& options) {
  const Placement placement = models.front().executor->placement();
  const uint64_t counted = scores.windows * scores.per_window;
  OrderedJson json;
  json["unit"] = flags.unit;
  json["ran"] = placement.ran;
  json["emulated"] = placement.emulated;
  json["evidence"] = placement.text();
  json["kv"] = kv_word(kv_of(models.front()));
  json["text"] = flags.text;
  json["tokens"] = text.ids.size();
  json["window"] = options.window;
  json["counted_from"] = options.counted_from;
  json["windows"] = scores.windows;
  json["counted"] = counted;
  json["bos"] = options.window_start < 0 ? OrderedJson(nullptr) : OrderedJson(options.window_start);
  std::string head =
      fmt::format("{}: {} tokens, {} windows of {}, tokens {} to {} of each counted: {}{}\n", flags.text,
                  text.ids.size(), scores.windows, options.window, options.counted_from, options.window - 1, counted,
                  options.window_start < 0 ? "" : ", each window begins with BOS");
  head += fmt::format("ran on {} ({})\n", placement.ran, placement.text());
  if (reference != nullptr) {
    const Measured ppl = perplexity_of(scores.reference->nll, scores.per_window);
    json["reference"]["model"] = reference->path;
    json["reference"]["kv"] = kv_word(kv_of(*reference));
    put(json["reference"], "ppl", ppl);
    head += fmt::format("\nreference {}, keys and values in {}\nPPL = {}\n", reference->path,
                        kv_word(kv_of(*reference)), measured_text(ppl, 4, 1, ""));
  }
  json["models"] = OrderedJson::array();
  std::string body;
  for (size_t i = 0; i < models.size(); ++i) {
    OrderedJson row;
    row["model"] = models[i].path;
    body += fmt::format("\n{}\n", models[i].path);
    if (reference != nullptr) {
      const PairedQuality quality = compare_scores(scores.models[i], *scores.reference, scores.per_window);
      row.update(quality_json(quality));
      body += quality_text(quality);
    } else {
      const Measured ppl = perplexity_of(scores.models[i].nll, scores.per_window);
      put(row, "ppl", ppl);
      body += fmt::format("PPL = {}\n", measured_text(ppl, 4, 1, ""));
    }
    json["models"].push_back(row);
  }
  // The first model's figures also at the top, where one model is the usual case.
  const OrderedJson first = json["models"].front();
  json.update(first);
  if (flags.json) {
    print_json(json);
  } else {
    print(head + body);
  }
}

// The running value: a line that is rewritten on a terminal, one now and then elsewhere.
void show_progress(Progress& meter, uint64_t done, uint64_t total, double ppl) {
  if (::isatty(2) != 0) return meter.show(done, total, fmt::format("PPL {:.4f}", ppl));
  if (done == total || done % std::max<uint64_t>(total / 10, 1) == 0)
    fmt::print(stderr, "baton: window {}/{} PPL {:.4f}\n", done, total, ppl);
}

Status measure(const PerplexityFlags& flags, Unit& unit, Unit& reference_unit, const InterruptScope& interrupt) {
  std::vector<Loaded> models;
  std::optional<Loaded> reference;
  if (!flags.reference.empty()) {
    BATON_TRY(reference, load(reference_unit, flags.reference, flags.threads));
  }
  for (const std::string& path : flags.models) {
    BATON_TRY(auto model, load(unit, path, flags.threads, flags.lora));
    if (reference) BATON_OK(check_same_vocabulary(model.text, reference->text));
    if (!models.empty()) BATON_OK(check_same_vocabulary(model.text, models.front().text));
    models.push_back(std::move(model));
  }
  BATON_TRY(const auto text, read_perplexity_text(models.front().text, flags.text));
  PerplexityOptions options;
  options.window = flags.window;
  options.counted_from = flags.counted_from > 0 ? flags.counted_from : peer_counted_from(flags.window);
  options.windows_max = flags.chunks;
  options.window_start = text.window_start;
  options.threads = flags.threads;
  std::optional<Progress> meter;
  options.on_window = [&](uint64_t done, uint64_t total, double ppl) { show_progress(*meter, done, total, ppl); };
  const int32_t context = models.front().text.model->spec.context_max;
  if (context > 0 && flags.window > static_cast<uint32_t>(context))
    fmt::print(stderr, "baton: warning: windows of {} tokens, the model was made for {}\n", flags.window, context);
  std::vector<Executor*> executors;
  for (const Loaded& model : models) executors.push_back(model.executor.get());
  meter.emplace("window");
  auto scores = score_windows(executors, reference ? reference->executor.get() : nullptr, text.ids, options,
                              [&] { return interrupt.interrupted(); });
  meter->clear();
  if (!scores) return fail(std::move(scores).error().in(flags.text));
  if (!flags.per_token.empty()) BATON_OK(write_per_token(flags, models, *scores, text.ids, options.counted_from));
  print_results(flags, models, reference ? &*reference : nullptr, *scores, text, options);
  return {};
}

Result<std::unique_ptr<Unit>> unit_of(const std::string& unit, const std::string& kv) {
  BATON_TRY(const std::string text, with_kv(unit, kv));
  return create_unit(text);
}

// The reference's unit: the models', but for the type of its keys and values where that is said.
Result<std::unique_ptr<Unit>> reference_unit_of(const PerplexityFlags& flags) {
  if (flags.reference_kv.empty()) return unit_of(flags.unit, flags.kv);
  BATON_TRY(UnitChoice choice, parse_unit(flags.unit));
  choice.options.leave_out(kKvOption);
  return unit_of(choice.text(), flags.reference_kv);
}

int run_perplexity(PerplexityFlags& flags) {
  auto unit = unit_of(flags.unit, flags.kv);
  if (!unit) return report_unit(unit.error());
  auto reference_unit = reference_unit_of(flags);
  if (!reference_unit) return report_unit(reference_unit.error());
  flags.unit = (*unit)->name();
  if (flags.models.empty()) {
    const auto bundled = bundled_model();
    if (!bundled) return report(bundled.error());
    flags.models.push_back(bundled->string());
  }
  if (!flags.reference_kv.empty() && flags.reference.empty()) {
    if (flags.models.size() > 1) {
      fmt::print(stderr, "baton: --reference-kv without --reference compares a model with itself: give one model\n");
      return kUsage;
    }
    flags.reference = flags.models.front();
  }
  if (flags.counted_from >= flags.window) {
    fmt::print(stderr, "baton: --count-from {} is not inside a window of {}\n", flags.counted_from, flags.window);
    return kUsage;
  }
  const InterruptScope interrupt;
  const Status status = measure(flags, **unit, **reference_unit, interrupt);
  return status ? kOk : report(status.error());
}

}  // namespace

std::unique_ptr<Command> add_perplexity(CLI::App& program) {
  CLI::App* app = program.add_subcommand("perplexity", "perplexity of models on a text, and against a reference model");
  auto command = std::make_unique<FlagsCommand<PerplexityFlags, run_perplexity>>(app);
  PerplexityFlags* flags = &command->flags;
  CLI::Option* positional = takes_path(
      app->add_option(
          "model", flags->models,
          fmt::format(
              "a Hugging Face folder, a GGUF file, {}; several: all over the same windows (default: the bundled "
              "model)",
              kOrName)),
      PathKind::kBundledModel);
  takes_path(app->add_option("-m,--model", flags->models, "the same (repeatable)"), PathKind::kBundledModel)
      ->allow_extra_args(false)
      ->excludes(positional);
  takes_path(app->add_option("-f,--text,--file", flags->text, "text file; one newline at its end is left out"),
             PathKind::kFile)
      ->required();
  takes_path(
      app->add_option("--reference", flags->reference,
                      fmt::format("compare with this model (a path {}), token by token: PPL difference, KL divergence, "
                                  "same top token",
                                  kOrName)),
      PathKind::kModel);
  add_lora(*app, flags->lora, " of the models, not of the reference");
  app->add_option("-w,--window,-c,--ctx-size", flags->window, "tokens of a window; each starts from an empty state")
      ->capture_default_str()
      ->check(CLI::Range(4, 1 << 20));
  app->add_option("--count-from", flags->counted_from,
                  "first token of a window that counts, from 0 (default: window / 2 + 1, as llama.cpp counts)")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--chunks", flags->chunks, "windows at most (default: all)")->check(CLI::Range(1, 1 << 30));
  app->add_option("--unit", flags->unit, "the unit to run on")->capture_default_str();
  add_kv(*app, flags->kv);
  add_kv(*app, flags->reference_kv, "--reference-kv",
         "the same of the reference; without --reference it is the model itself: what a type costs");
  add_threads(*app, flags->threads);
  takes_path(
      app->add_option("--per-token", flags->per_token, "write the values of each token to this file: .jsonl, else CSV"),
      PathKind::kOutput);
  app->add_flag("--json", flags->json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
