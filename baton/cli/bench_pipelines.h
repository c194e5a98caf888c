// `baton bench --pipelines`: flags and what to do with them.
#pragma once

#include <string>
#include <vector>

#include "baton/cli/command.h"

namespace baton::cli {

struct PipelineFlags {
  bool chosen = false;  // --pipelines
  std::string file, emulate, html, published;
  std::vector<std::string> only;

  void add_to(CLI::App& app);
  // One of the other flags was given: they need --pipelines.
  bool any() const { return !file.empty() || !emulate.empty() || !html.empty() || !published.empty() || !only.empty(); }
};

// What they share with `baton bench`; empty or 0: the defaults of pipelines.
struct PipelineRun {
  std::string model, output;  // md, json or jsonl
  std::vector<uint32_t> prompt_tokens;
  uint32_t decode_tokens = 0, runs = 0, threads = 0;
};

int bench_pipelines(const PipelineFlags& flags, const PipelineRun& run);

}  // namespace baton::cli
