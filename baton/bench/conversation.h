// A conversation of fixed lengths, turn by turn, with each way to use a pair of units: what a user waits for, and what
// it costs. The scenario is the source documents': three turns of 74 tokens, answers of 100.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/runtime.h"
#include "baton/base/status.h"
#include "baton/bench/stats.h"

namespace baton {

struct ConversationShape {
  uint32_t turns = 3, input_tokens = 74, answer_tokens = 100;
  // Between an answer and the next question. The question is typed during it: an eighth more of its tokens is known at
  // each eighth of the pause, the last of them when it is sent.
  uint32_t pause_ms = 2000;
};

// How a pair is used. All begin each turn from what the turn before left (Request::reuse kAny).
enum class ConversationWay : uint8_t {
  kSingle,       // all of it on the unit that decodes
  kSingleBusy,   // the same, while it decodes another answer too
  kHandoff,      // prefill on the other unit
  kOverlap,      // the strategy overlap, while the unit that decodes has another answer too
  kIdlePrefill,  // the strategy overlap; in the pauses the other unit prefills what is known of the next question
};
std::string_view to_string(ConversationWay way);  // "single", "single-busy", ...

struct ConversationSettings {
  ConversationShape shape;
  std::string prefill, decode;  // names of the runtime's units; equal: one unit, and no way that hands over
  bool only_prefills = false;   // the prefill unit: it cannot end even a prompt by itself
  uint32_t rounds = 5;          // of all ways in turns, in another order each time; one before them does not count
};

// A turn of a way over the rounds. Counts are those of the last round: they are equal in all, but for idle-prefill's.
struct ConversationRow {
  ConversationWay way = ConversationWay::kSingle;
  std::string pair;
  uint32_t turn = 1, rounds = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, replayed_tokens = 0;
  Summary ttft_ms, hand_over_ms, decode_tps;
  Summary total_ms;  // from the submit to the answer's end
  // From the end of the answer before (the pause is in it) to the end of this one, of the whole package.
  std::optional<double> joules;
  bool emulated = false;
};

struct ConversationReport {
  std::vector<ConversationRow> rows;  // by way, then by turn
  std::string energy_reason;          // why there are no joules
};

// The runtime has been opened with both units and EngineLimits::checkpoint_bytes_max. kInvalidInput when the context
// does not hold the conversation; errors of the engine.
Result<ConversationReport> measure_conversation(Runtime& runtime, const ConversationSettings& settings,
                                                const std::function<void(std::string_view)>& progress);

}  // namespace baton
