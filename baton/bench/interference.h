// What prefill and decode on two units cost each other while both work, and what an answer that is decoded meanwhile
// feels of it: the time between its tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/runtime.h"
#include "baton/base/status.h"
#include "baton/bench/stats.h"

namespace baton {

struct InterferenceSettings {
  std::string prefill, decode;  // names of the runtime's units, two of them
  std::string single;           // the unit that does both in the way `single`
  uint32_t prompt_tokens = 2000;
  uint32_t answer_tokens = 128;  // decoded alone
  uint32_t rounds = 5;           // of all ways in turns; one before them does not count
};

// Medians over the rounds.
struct InterferencePhase {
  std::string unit;
  Summary alone_tps, together_tps;
  // What is left of the speed.
  double share() const { return alone_tps.median > 0 ? together_tps.median / alone_tps.median : 0; }
};

enum class MeanwhileWay : uint8_t {
  kAlone,    // nobody prefills
  kSingle,   // a prompt is prefilled on the unit that decodes, which does both
  kOverlap,  // on another one, strategy overlap
};
std::string_view to_string(MeanwhileWay way);  // "alone", "single", "overlap"

// Of an answer that is decoded while a prompt is prefilled.
struct MeanwhileRow {
  MeanwhileWay way = MeanwhileWay::kAlone;
  std::string pair;
  uint64_t gaps = 0;       // between tokens, over all rounds
  Summary p50_ms, p99_ms;  // of the gaps of a round
  Summary decode_tps;
  Summary ttft_ms;  // of the prompt; none alone
};

struct InterferenceReport {
  InterferencePhase prefill, decode;
  std::vector<MeanwhileRow> rows;
  // Of the overlapped hand-overs: all of the move, what was waited for, the share that was not.
  Summary move_ms, visible_ms, hidden_share;
  bool emulated = false;
};

// kInvalidInput when the context does not hold the prompt; errors of the engine.
Result<InterferenceReport> measure_interference(Runtime& runtime, const InterferenceSettings& settings,
                                                const std::function<void(std::string_view)>& progress);

}  // namespace baton
