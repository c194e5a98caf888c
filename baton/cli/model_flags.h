// The flags of -m, units, threads and context, and the model that they open.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "baton/api/runtime.h"
#include "baton/cli/state_cache_flags.h"

namespace baton::cli {

// `model` empty: the bundled model.
struct ModelFlags {
  std::string model;
  std::vector<std::string> lora;  // "PATH[=SCALE]" each
  // As parse_unit() reads them; empty: the other one, or "cpu"; no via unit. Settled: what the runtime calls them.
  std::string prefill_unit, via_unit, decode_unit;
  std::string strategy;  // empty: by the units
  std::string verify = "off";
  std::string kv;  // "q8_0", of units that do not say; empty: as each has it
  uint32_t threads = 0;
  uint32_t context = 4096;
  bool verbose = false;
  bool bundled = false;  // settled: no model was asked for, and `model` is the bundled one

  void add_to(CLI::App& app);
  // Fills the defaults; kInvalidInput for a strategy, unit or option that does not exist. Warns of more threads than
  // processors. Once.
  Status settle();
  // kNotFound when there is none.
  Status check_file() const;
  // `limits`: of the engine; tokens_max is by the context. `cache`: its key is borrowed for the runtime's life.
  Result<std::unique_ptr<Runtime>> open(const EngineLimits& limits = {}, const StateCacheFlags& cache = {}) const;
  void apply(Request& request) const;
  // Of the units, for a model. Settled.
  UnitsFacts units_facts(const Model& of) const;
  // What models may take on these units: memory_of.
  uint64_t memory_bytes() const;

  // Units to load, with what of their options shows in answers.
  std::vector<std::string> units_that_show() const;

 private:
  Status settle_units();
  Status settle_strategy();

  CLI::Option* context_option_ = nullptr;
  std::vector<std::string> units_;  // to load, the decode unit first
};

// The model that comes with the program: $BATON_MODELS, else beside the build or the installation. kNotFound says where
// it was looked for. Warns when BATON_MODELS is no folder.
Result<std::filesystem::path> bundled_model();

}  // namespace baton::cli
