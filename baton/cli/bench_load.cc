// The parent measures, the child (`--load-child`) loads and answers.
#include "baton/cli/bench_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/api/text_model.h"
#include "baton/api/units.h"
#include "baton/bench/probes.h"
#include "baton/bench/runner.h"
#include "baton/cli/child.h"
#include "baton/cli/child_memory.h"
#include "baton/cli/shared_flags.h"

namespace baton::cli {

Result<LoadRow> measure_load(const BenchFlags& flags) {
  std::vector<std::string> words = {program_file().string(), "bench", "--load-child", "-m", flags.model, "--unit",
                                    flags.prefill_on()};
  for (const std::string& adapter : flags.lora) words.insert(words.end(), {"--lora", adapter});
  if (flags.threads > 0) words.insert(words.end(), {"-t", std::to_string(flags.threads)});
  LoadRow row;
  for (uint32_t i = 0; i < flags.repetitions; ++i) {
    progress(fmt::format("load {}/{}", i + 1, flags.repetitions));
    BATON_TRY(const ChildRun run, run_child(words));
    const auto line = static_cast<size_t>(std::find(run.output.begin(), run.output.end(), '\n') - run.output.begin());
    const auto first = OrderedJson::parse(run.output.substr(0, line), nullptr, false);
    const auto second = OrderedJson::parse(run.output.substr(std::min(line + 1, run.output.size())), nullptr, false);
    if (!first.is_object() || !second.is_object() || !first.contains("first_token"))
      return fail(Code::kInternal, "the child of --load printed something else");
    row.ms.push_back(run.first_line_ms);
    row.token = first["first_token"].get<int32_t>();
    row.emulated = first.value("emulated", false);
    if (second["peak_memory_bytes"].is_number()) row.peak_memory_bytes.push_back(second["peak_memory_bytes"]);
  }
  progress("");
  if (row.peak_memory_bytes.empty()) row.peak_memory_bytes.push_back(std::nan(""));
  return row;
}

int bench_load_child(const BenchFlags& flags) {
  auto unit = create_unit(flags.unit);
  if (!unit) return report(unit.error());
  const auto adapters = settle_lora(flags.lora);
  if (!adapters) return report_usage(adapters.error());
  // With its tokenizer, as an answer needs it.
  auto text = load_text_model(flags.model, 0, ModelUse::kText, *adapters);
  if (!text) return report(text.error());
  const int32_t vocab = text->model->program.vocab;
  auto executor = (*unit)->load(text->model, flags.threads);
  if (!executor) return report(executor.error());
  auto state = (*executor)->new_state(kLoadPrompt + 1);
  if (!state) return report(state.error());
  std::vector<float> logits(static_cast<size_t>(vocab));
  const auto ids = prompt_ids({.prefill_tokens = kLoadPrompt}, 0, vocab);
  if (const auto done = (*executor)->prefill(**state, ids, logits); !done) return report(done.error());
  print_json({{"first_token", std::max_element(logits.begin(), logits.end()) - logits.begin()},
              {"emulated", (*executor)->placement().emulated}});
  const auto peak = peak_memory_bytes();
  print_json({{"peak_memory_bytes", peak ? OrderedJson(*peak) : OrderedJson(nullptr)}});
  return kOk;
}

}  // namespace baton::cli
