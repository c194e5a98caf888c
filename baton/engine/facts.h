// What the scheduler knows of its units from the start, and what follows from it for a request. Constant data and pure
// functions, used at submit (on the caller's thread) and at admission.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/engine/limits.h"
#include "baton/engine/request.h"
#include "baton/engine/work.h"
#include "baton/state/stored_states.h"

namespace baton {

// Where a prefill is cut at multiples of so many tokens, its bits do not show it (docs/cpu.md).
inline constexpr uint64_t kExactTokens = 64;

// What planning needs to know of a model that lanes serve; constant.
struct ModelFacts {
  std::string name;          // EngineUnit::model
  uint64_t context_max = 0;  // tokens
  int32_t vocab = 0;         // token ids are below it
};

// Tokens of a step that makes a row of logits for each: whole pieces of kExactTokens.
uint64_t scored_tokens_max(const ModelFacts& model);

// What planning needs to know of a unit; constant.
struct LaneFacts {
  std::string name;
  std::string asked = {};  // EngineUnit::asked
  StateMaker maker = {};   // of what its unit makes
  uint32_t model = 0;      // which of SchedulerFacts::models it serves
  uint32_t prefill_tokens_preferred = 64;
  uint32_t prefill_tokens_min = 1;
  uint32_t prefill_seats_shared = 1;
  uint32_t decode_seats_max = 1;
  bool mixes = false;  // prefills and decodes share a step, each with the bits that it has alone
  std::function<uint64_t(uint64_t tokens)> state_bytes = [](uint64_t) { return uint64_t{0}; };  // Executor::state_bytes
  bool decodes = true;  // false: it only prefills
  bool shared_prefills_exact = true;
  bool pieces_exact = true;
};

struct SchedulerFacts {
  std::vector<ModelFacts> models;
  std::vector<LaneFacts> lanes;
  EngineLimits limits;
  StoredStates* cache = nullptr;  // of the main model; borrowed
};

// "the main model", "model 'draft'".
std::string model_in_words(const std::string& name);

// Whether a state of this provenance counts as HeldState::exact on a lane: made by its unit's prefills alone, each from
// a multiple of kExactTokens on, to one.
bool made_exactly(const Provenance& provenance, const StateMaker& by, bool shared_prefills_exact);

// What is said of a lane that a request names.
struct LaneWords {
  std::string asked;  // "cuda:driver=emulated"
  std::string shown;  // its name, and that it is emulated: "cuda (emulated)"
};

// A request that can run, and what its names stand for here. All its lanes serve one model.
struct ResolvedRequest {
  Request request;  // max_new_tokens cut to what the context holds, prefill_unit never empty
  const Strategy* strategy = nullptr;
  LaneIndex prefill = 0, via = 0, decode = 0;  // via: the decode unit where there is none
  LaneWords prefill_words = {}, via_words = {}, decode_words = {};
  uint64_t tokens_max = 0;     // room that its states need: the last token of an answer is never fed back
  uint64_t state_bytes = 0;    // of all states it may hold at once
  std::vector<uint64_t> cuts;  // where checkpoints are kept
  std::unique_ptr<TokenPicker> picker;
};

// What a request hears that needs a unit that is lost.
Error lost_unit(const std::string& name, const std::string& why);

// kInvalidInput, kNotFound, kUnsupported or kOutOfMemory with the field and the remedy, when the request can never run.
// `bytes_in_use`: for the message. Pure.
Result<ResolvedRequest> resolve(Request request, const SchedulerFacts& facts, uint64_t bytes_in_use = 0);

}  // namespace baton
