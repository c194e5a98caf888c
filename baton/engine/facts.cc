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

// Index of the unit, or the number of units when there is none of that name.
LaneIndex find_lane(const SchedulerFacts& facts, const std::string& name) {
  const auto found =
      std::find_if(facts.lanes.begin(), facts.lanes.end(), [&](const LaneFacts& lane) { return lane.name == name; });
  return static_cast<LaneIndex>(found - facts.lanes.begin());
}

std::string names_of(const SchedulerFacts& facts) {
  std::string names;
  for (const LaneFacts& lane : facts.lanes) names += (names.empty() ? "" : ", ") + lane.name;
  return names;
}

Status resolve_names(const SchedulerFacts& facts, ResolvedRequest* resolved) {
  Request& request = resolved->request;
  if (request.prefill_unit.empty()) request.prefill_unit = request.decode_unit;
  resolved->prefill = find_lane(facts, request.prefill_unit);
  resolved->decode = find_lane(facts, request.decode_unit);
  for (const auto& [lane, name] :
       {std::pair(resolved->prefill, request.prefill_unit), std::pair(resolved->decode, request.decode_unit)}) {
    if (lane == facts.lanes.size())
      return fail(Code::kNotFound, "unit '" + name + "' is not loaded; loaded: " + names_of(facts));
  }
  if (!facts.lanes[resolved->decode].decodes) {
    return fail(Code::kUnsupported,
                "unit '" + request.decode_unit + "' only prefills: prefill on it and decode on another one");
  }
  resolved->strategy = find_strategy(request.strategy);
  if (resolved->strategy == nullptr) {
    std::string names;
    for (const Strategy* known : strategies()) names += (names.empty() ? "" : ", ") + std::string(known->name);
    return fail(Code::kNotFound, "strategy '" + request.strategy + "' does not exist; there are: " + names);
  }
  if (!resolved->strategy->hands_over && resolved->prefill != resolved->decode) {
    return fail(Code::kInvalidInput, "strategy '" + request.strategy + "' runs everything on the decode unit '" +
                                         request.decode_unit + "', but the prefill unit asked for is '" +
                                         request.prefill_unit + "': use strategy handoff, or one unit");
  }
  return {};
}

Status check_tokens(const Request& request, const SchedulerFacts& facts) {
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
  return {};
}

uint64_t state_bytes_of(const ResolvedRequest& resolved, const SchedulerFacts& facts) {
  const Request& request = resolved.request;
  const bool hands_over = resolved.strategy->hands_over && (request.tokens.size() > 1 || !request.start_state.empty());
  const bool proves = request.verify != VerifyMode::kOff && (hands_over || !request.start_state.empty());
  const auto one = [&](LaneIndex lane) { return facts.lanes[lane].state_bytes(resolved.tokens_max); };
  return (hands_over && resolved.prefill != resolved.decode ? one(resolved.prefill) : 0) +
         one(resolved.decode) * (proves ? 2 : 1);
}

}  // namespace

Error lost_unit(const std::string& name, const std::string& why) {
  return {Code::kUnavailable, "unit '" + name + "' is lost (" + why + "): ask for another unit, or start again"};
}

Result<ResolvedRequest> resolve(Request request, const SchedulerFacts& facts) {
  ResolvedRequest resolved;
  resolved.request = std::move(request);
  Request& asked = resolved.request;
  BATON_OK(resolve_names(facts, &resolved));
  BATON_OK(check_tokens(asked, facts));
  const uint64_t room = context_of(facts) - asked.tokens.size() + 1;
  asked.max_new_tokens = static_cast<uint32_t>(std::min<uint64_t>(asked.max_new_tokens, room));
  resolved.tokens_max = asked.tokens.size() + std::max<uint64_t>(asked.max_new_tokens, 1) - 1;
  BATON_TRY(Sampler sampler, Sampler::create(asked.sampler, facts.vocab));
  resolved.picker = std::make_unique<TokenPicker>(
      TokenPicker{std::move(sampler), asked.ignore_eos ? std::vector<int32_t>() : std::move(asked.stop_ids)});
  resolved.state_bytes = state_bytes_of(resolved, facts);
  if (const uint64_t limit = facts.limits.state_bytes_max; limit != 0 && resolved.state_bytes > limit) {
    return fail(Code::kOutOfMemory, "the request needs " + std::to_string(resolved.state_bytes) +
                                        " bytes of states, the limit is " + std::to_string(limit) +
                                        ": shorten the prompt or the answer");
  }
  return resolved;
}

}  // namespace baton
