// Flags of `baton bench` and its ways of measuring, a file each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "baton/bench/stats.h"
#include "baton/cli/bench_pipelines.h"
#include "baton/cli/command.h"

namespace baton::cli {

struct BenchFlags {
  const CLI::App* app = nullptr;
  std::string model, output = "md";
  std::string unit = "cpu", prefill_unit, decode_unit;  // empty: `unit`
  std::vector<std::string> lora;                        // adapters of the model
  std::string kv;                                       // put into these
  std::vector<uint32_t> prefill = {512}, decode = {128}, depth = {0}, sequences = {1};
  std::vector<std::string> both;  // "512,128": a prompt, then tokens
  uint32_t repetitions = 5, threads = 0;
  bool load = false, load_child = false;
  bool no_warmup = false, no_limits = false, no_check = false;

  std::vector<std::string> ab;      // two configurations
  std::string ab_first, ab_second;  // the same, as bench_words() has them
  uint32_t rounds = 14;
  double confidence = 99.9, rest = 0.2;  // percent, seconds
  int64_t seed = -1;                     // of the coin; -1: from the clock

  bool conversation = false;
  uint32_t turns = 3, input_tokens = 74, answer_tokens = 100, pause_ms = 2000;

  bool interference = false;

  PipelineFlags pipelines;

  // Whether an option of the command line was given.
  bool given(const char* name) const { return app->get_option(name)->count() > 0; }
  std::string prefill_on() const { return prefill_unit.empty() ? unit : prefill_unit; }
  std::string decode_on() const { return decode_unit.empty() ? unit : decode_unit; }
};

// The words of a command line as the parser can read them: llama-bench's -pg, which it would take for -p g, as --pg;
// the two words behind --ab, which may begin with a dash, as hidden options.
std::vector<std::string> bench_words(std::vector<std::string> words);

// Median, lowest and highest.
OrderedJson summary_json(const Summary& summary);

// A row of speeds for each test.
int bench_speed(const BenchFlags& flags);
// Three numbers of the bundled model.
int bench_canonical(const BenchFlags& flags);
// Two configurations in turns.
int bench_ab(const BenchFlags& flags);
// Turns of a conversation with each way to use a pair of units.
int bench_conversation(const BenchFlags& flags);
// Prefill and decode on two units at once.
int bench_interference(const BenchFlags& flags);
// The child of a load test: from here to the first token, then its peak memory, a JSON line each.
int bench_load_child(const BenchFlags& flags);

}  // namespace baton::cli
