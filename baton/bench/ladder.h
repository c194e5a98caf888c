// A ladder of quantized copies of one model: for each type a file is made, compared with the source token by token over
// the same text, and its speed measured, all types in turn in each round. The table behind "which type should I take".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/bench/ladder_verdict.h"
#include "baton/bench/stats.h"
#include "baton/tools/perplexity.h"

namespace baton {

// The recipes below 16 bits, in the order of quantize_types().
std::vector<std::string> ladder_types();
// kInvalidInput names an unknown type and those there are, or one that is given twice.
Status check_ladder_types(const std::vector<std::string>& types);

struct LadderOptions {
  std::filesystem::path model;     // GGUF file or Hugging Face folder: the source and the reference
  std::vector<std::string> types;  // empty: ladder_types()
  std::filesystem::path text;
  uint32_t window = 512;
  uint64_t windows_max = 0;  // 0: all
  std::string unit = "cpu";
  uint32_t threads = 0;                                           // 0: physical cores
  uint32_t prefill_tokens = 512, decode_tokens = 64, rounds = 6;  // rounds 0: no speeds
  bool allow_requantize = false;                                  // from a source that is quantized itself
  std::filesystem::path keep;                                     // files stay here; empty: they are removed
  uint64_t memory_budget_bytes = 0;                               // for models loaded together; 0: unknown
  std::function<std::optional<uint64_t>(const std::filesystem::path&)>
      peak_memory;                                        // of a run with this file, measured
                                                          // by the caller; may be empty
  std::function<void(const std::string& text)> progress;  // may be empty
  std::function<bool()> stop;                             // true: end with kCancelled; may be empty
};

struct LadderSpeed {
  std::vector<double> prefill_tps, decode_tps;  // by round
  // Of the whole packages and boards, warm-ups included, medians over the rounds; empty: no meter.
  std::optional<double> prefill_joules_per_token, decode_joules_per_token;
};

struct LadderRow {
  std::string type;
  bool is_source = false;
  std::filesystem::path file;               // with `keep`; else empty
  uint64_t bytes = 0;                       // of the GGUF file
  double bits_per_weight = 0;               // tensors alone
  std::string recipe_hash;                  // empty: the source
  std::map<std::string, uint64_t> tensors;  // per stored type
  std::vector<std::string> notes;           // tensors in another type than the recipe's
  std::string same_as;  // a type above whose file has the same tensors in the same types: its figures are repeated here
  PairedQuality quality;
  LadderSpeed speed;
  std::optional<uint64_t> peak_memory_bytes;
  std::string evidence;   // of the unit
  bool emulated = false;  // it is
};

struct LadderReport {
  std::string model;  // spec.name
  std::filesystem::path source, text;
  std::string unit, ran;
  std::vector<std::string> notes;
  uint32_t window = 0, counted_from = 0;
  uint64_t text_tokens = 0, windows = 0, counted = 0;
  uint32_t prefill_tokens = 0, decode_tokens = 0, rounds = 0;
  std::string energy_missing;       // why there are no joules; empty: there are
  std::vector<LadderRow> rows;      // the largest file first
  std::vector<LadderPoint> points;  // by row
  LadderVerdict verdict;
};

// Errors: those of check_ladder_types; kInvalidInput for a text that fills no window and a disk without room
// (how much is missing, and where); those of quantize_to_gguf, loading and the unit. The temporary folder is removed
// whatever happens, a killed process apart.
Result<LadderReport> measure_ladder(const LadderOptions& options);

}  // namespace baton
