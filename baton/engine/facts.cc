// Arithmetic over requests and lanes that admission rests on.
#include "baton/engine/facts.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

uint64_t context_of(const SchedulerFacts& facts) {
  const uint64_t wanted = facts.limits.tokens_max;
  return wanted == 0 ? facts.context_max : std::min(wanted, facts.context_max);
}

const std::string& prefill_unit_of(const Request& request) {
  return request.prefill_unit.empty() ? request.decode_unit : request.prefill_unit;
}

bool hands_over(const Request& request) {
  return find_strategy(request.strategy)->hands_over && (request.tokens.size() > 1 || !request.start_state.empty());
}

std::string names_of(const SchedulerFacts& facts) {
  std::string names;
  for (const LaneFacts& lane : facts.lanes) names += (names.empty() ? "" : ", ") + lane.name;
  return names;
}

Status check_names(const Request& request, const SchedulerFacts& facts) {
  for (const std::string& unit : {prefill_unit_of(request), request.decode_unit}) {
    if (find_lane(facts, unit) == facts.lanes.size()) {
      return fail(Code::kNotFound, "unit '" + unit + "' is not loaded; loaded: " + names_of(facts));
    }
  }
  if (!facts.lanes[find_lane(facts, request.decode_unit)].decodes) {
    return fail(Code::kUnsupported,
                "unit '" + request.decode_unit + "' only prefills: prefill on it and decode on another one");
  }
  const Strategy* strategy = find_strategy(request.strategy);
  if (strategy == nullptr) {
    std::string names;
    for (const Strategy* known : strategies()) names += (names.empty() ? "" : ", ") + std::string(known->name);
    return fail(Code::kNotFound, "strategy '" + request.strategy + "' does not exist; there are: " + names);
  }
  if (!strategy->hands_over && prefill_unit_of(request) != request.decode_unit) {
    return fail(Code::kInvalidInput, "strategy '" + request.strategy + "' runs everything on the decode unit '" +
                                         request.decode_unit + "', but the prefill unit asked for is '" +
                                         request.prefill_unit + "': use strategy handoff, or one unit");
  }
  return {};
}

}  // namespace

LaneIndex find_lane(const SchedulerFacts& facts, const std::string& name) {
  const auto found =
      std::find_if(facts.lanes.begin(), facts.lanes.end(), [&](const LaneFacts& lane) { return lane.name == name; });
  return static_cast<LaneIndex>(found - facts.lanes.begin());
}

uint64_t answer_tokens_max(const Request& request, const SchedulerFacts& facts) {
  return std::min<uint64_t>(request.max_new_tokens, context_of(facts) - request.tokens.size() + 1);
}

uint64_t state_tokens_max(const Request& request, const SchedulerFacts& facts) {
  return request.tokens.size() + std::max<uint64_t>(answer_tokens_max(request, facts), 1) - 1;
}

uint64_t state_bytes_of(const Request& request, const SchedulerFacts& facts) {
  const uint64_t tokens = state_tokens_max(request, facts);
  const auto one = [&](const std::string& unit) {
    const LaneFacts& lane = facts.lanes[find_lane(facts, unit)];
    return lane.state_bytes(tokens);
  };
  const bool carries = hands_over(request) && prefill_unit_of(request) != request.decode_unit;
  const bool proves = request.verify != VerifyMode::kOff && (hands_over(request) || !request.start_state.empty());
  return (carries ? one(prefill_unit_of(request)) : 0) + one(request.decode_unit) * (proves ? 2 : 1);
}

Status check_request(const Request& request, const SchedulerFacts& facts) {
  BATON_OK(check_names(request, facts));
  if (request.tokens.empty()) return fail(Code::kInvalidInput, "the prompt is empty: at least one token is needed");
  const uint64_t context = context_of(facts);
  if (request.tokens.size() > context) {
    return fail(Code::kInvalidInput, "the prompt has " + std::to_string(request.tokens.size()) +
                                         " tokens, the context holds " + std::to_string(context) +
                                         ": shorten it or raise the context");
  }
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    if (request.tokens[i] < 0 || request.tokens[i] >= facts.vocab) {
      return fail(Code::kInvalidInput, "token " + std::to_string(i) + " is " + std::to_string(request.tokens[i]) +
                                           ", the vocabulary has ids 0 to " + std::to_string(facts.vocab - 1));
    }
  }
  if (auto sampler = Sampler::create(request.sampler, facts.vocab); !sampler) return fail(std::move(sampler).error());
  const uint64_t limit = facts.limits.state_bytes_max;
  if (const uint64_t bytes = state_bytes_of(request, facts); limit != 0 && bytes > limit) {
    return fail(Code::kOutOfMemory, "the request needs " + std::to_string(bytes) + " bytes of states, the limit is " +
                                        std::to_string(limit) + ": shorten the prompt or the answer");
  }
  return {};
}

}  // namespace baton
