// Arithmetic over requests and lanes that admission rests on.
#include "baton/engine/facts.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr uint64_t kRowValuesMax = uint64_t{16} << 20;  // logits that a step makes of a prompt's tokens

uint64_t context_of(const ModelFacts& model, const EngineLimits& limits) {
  return limits.tokens_max == 0 ? model.context_max : std::min(limits.tokens_max, model.context_max);
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
  const bool via = !request.via_unit.empty();
  for (const auto& [lane, name] : {std::pair(&resolved->prefill, &request.prefill_unit),
                                   std::pair(&resolved->via, via ? &request.via_unit : &request.decode_unit),
                                   std::pair(&resolved->decode, &request.decode_unit)}) {
    *lane = find_lane(facts, *name);
    if (*lane == facts.lanes.size())
      return fail(Code::kNotFound, "unit '" + *name + "' is not loaded; loaded: " + names_of(facts));
    if (lane == &resolved->prefill || facts.lanes[*lane].decodes) continue;
    return fail(Code::kUnsupported, "unit '" + *name + "' only prefills: prefill on it and decode on another one");
  }
  const LaneFacts& decode = facts.lanes[resolved->decode];
  for (const LaneIndex index : {resolved->prefill, resolved->via}) {
    const LaneFacts& lane = facts.lanes[index];
    if (lane.model == decode.model) continue;
    return fail(Code::kInvalidInput,
                "unit '" + lane.name + "' serves " + model_in_words(facts.models[lane.model].name) + ", unit '" +
                    decode.name + "' " + model_in_words(facts.models[decode.model].name) + ": name units of one model");
  }
  const auto words_of = [&](LaneIndex index) -> LaneWords {
    const LaneFacts& lane = facts.lanes[index];
    return {lane.asked.empty() ? lane.name : lane.asked, with_emulated(lane.name, lane.maker.arithmetic)};
  };
  resolved->prefill_words = words_of(resolved->prefill);
  resolved->via_words = words_of(resolved->via);
  resolved->decode_words = words_of(resolved->decode);
  BATON_TRY(resolved->strategy,
            choose_strategy(request.strategy, request.prefill_unit, request.via_unit, request.decode_unit));
  request.strategy = resolved->strategy->name;
  return {};
}

// What of a request the logprobs of its prompt leave no room for.
Status settle_scores(Request& request) {
  if (!request.prompt_logprobs) return {};
  BATON_OK(check_logprobs("prompt_logprobs", *request.prompt_logprobs));
  if (!request.start_state.empty()) {
    return fail(
        Code::kInvalidInput,
        "prompt_logprobs with a starting state: the tokens in it are not computed again; leave one of both out");
  }
  if (request.verify != VerifyMode::kOff) {
    return fail(Code::kUnsupported,
                "prompt_logprobs with a bridge proof: they are of the prefill unit alone; leave one of both out");
  }
  request.reuse = ReuseMode::kOff;
  return {};
}

Status check_tokens(const Request& request, uint64_t context, int32_t vocab) {
  if (request.tokens.empty()) return fail(Code::kInvalidInput, "the prompt is empty: at least one token is needed");
  if (request.tokens.size() > context) {
    return fail(Code::kInvalidInput, "the prompt has " + std::to_string(request.tokens.size()) +
                                         " tokens, the context holds " + std::to_string(context) +
                                         ": shorten it or raise the context");
  }
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    if (request.tokens[i] < 0 || request.tokens[i] >= vocab) {
      return fail(Code::kInvalidInput, "token " + std::to_string(i) + " is " + std::to_string(request.tokens[i]) +
                                           ", the vocabulary has ids 0 to " + std::to_string(vocab - 1));
    }
  }
  return {};
}

// Of all states it may hold at once: those of the larger hand-over.
uint64_t state_bytes_of(const ResolvedRequest& resolved, const SchedulerFacts& facts) {
  const Request& request = resolved.request;
  const uint32_t hand_overs = resolved.strategy->hand_overs;
  const bool hands_over = hand_overs > 0 && (request.tokens.size() > 1 || !request.start_state.empty());
  const auto of = [&](LaneIndex from, LaneIndex to, bool moves) {
    const auto one = [&](LaneIndex lane) { return facts.lanes[lane].state_bytes(resolved.tokens_max); };
    const bool proves = request.verify != VerifyMode::kOff && (moves || !request.start_state.empty());
    return (moves && from != to ? one(from) : 0) + one(to) * (proves ? 2 : 1);
  };
  const uint64_t first = of(resolved.prefill, resolved.via, hands_over);
  return hand_overs < 2 ? first : std::max(first, of(resolved.via, resolved.decode, true));
}

// Ends of messages and of the prompt, and every so many tokens, each cut to whole pages; to multiples of 64 where the
// bits of what follows are not to show it.
std::vector<uint64_t> cuts_of(const Request& request, const EngineLimits& limits) {
  const uint64_t piece = request.reuse == ReuseMode::kExact ? kExactTokens : kPageTokens;
  const uint64_t last = (request.tokens.size() - 1) / piece * piece;
  std::vector<uint64_t> cuts = {last};
  for (const uint64_t at : request.keep_at) cuts.push_back(std::min(at / piece * piece, last));
  const uint64_t every = std::max<uint64_t>(limits.checkpoint_tokens / kExactTokens, 1) * kExactTokens;
  for (uint64_t at = every; at < last; at += every) cuts.push_back(at);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  if (cuts.front() == 0) cuts.erase(cuts.begin());
  return cuts;
}

}  // namespace

uint64_t scored_tokens_max(const ModelFacts& model) {
  const uint64_t rows = kRowValuesMax / static_cast<uint64_t>(std::max(model.vocab, 1));
  return std::max(rows / kExactTokens * kExactTokens, kExactTokens);
}

std::string model_in_words(const std::string& name) { return name.empty() ? "the main model" : "model '" + name + "'"; }

Error lost_unit(const std::string& name, const std::string& why) {
  return {Code::kUnavailable, "unit '" + name + "' is lost (" + why + "): ask for another unit, or start again"};
}

bool made_exactly(const Provenance& provenance, const StateMaker& by, bool shared_prefills_exact) {
  if (provenance.makers.size() != 1 || !(provenance.makers.front() == by)) return false;
  uint64_t position = 0;
  for (const StateStep& step : provenance.steps) {
    const bool prefills = step.kind == StepKind::kPrefill && (!step.shared || shared_prefills_exact);
    const bool inside = step.count == 1 || step.tokens % kExactTokens == 0;
    if (!prefills || !inside || position % kExactTokens != 0) return false;
    position += uint64_t{step.tokens} * step.count;
  }
  return position % kExactTokens == 0;
}

Result<ResolvedRequest> resolve(Request request, const SchedulerFacts& facts, uint64_t bytes_in_use) {
  ResolvedRequest resolved;
  resolved.request = std::move(request);
  Request& asked = resolved.request;
  BATON_OK(resolve_names(facts, &resolved));
  if (asked.weight == 0 || asked.weight > kWeightMax) {
    return fail(Code::kInvalidInput,
                "weight " + std::to_string(asked.weight) + ": a tenant's weight is 1 to " + std::to_string(kWeightMax));
  }
  const ModelFacts& model = facts.models[facts.lanes[resolved.decode].model];
  const uint64_t context = context_of(model, facts.limits);
  BATON_OK(check_tokens(asked, context, model.vocab));
  BATON_OK(settle_scores(asked));
  const uint64_t room = context - asked.tokens.size() + 1;
  asked.max_new_tokens = static_cast<uint32_t>(std::min<uint64_t>(asked.max_new_tokens, room));
  resolved.tokens_max = asked.tokens.size() + std::max<uint64_t>(asked.max_new_tokens, 1) - 1;
  BATON_TRY(Sampler sampler, Sampler::create(asked.sampler, model.vocab));
  resolved.picker = std::make_unique<TokenPicker>(
      TokenPicker{std::move(sampler), asked.ignore_eos ? std::vector<int32_t>() : std::move(asked.stop_ids)});
  resolved.state_bytes = state_bytes_of(resolved, facts);
  if (asked.verify != VerifyMode::kOff || facts.limits.checkpoint_bytes_max == 0) asked.reuse = ReuseMode::kOff;
  // A checkpoint cuts the prompt, which shows in the bits of some units.
  const bool cuts_show = !facts.lanes[resolved.prefill].pieces_exact || !facts.lanes[resolved.via].pieces_exact;
  if (asked.reuse == ReuseMode::kExact && cuts_show) asked.reuse = ReuseMode::kOff;
  if (asked.reuse != ReuseMode::kOff) resolved.cuts = cuts_of(asked, facts.limits);
  if (const uint64_t limit = facts.limits.state_bytes_max; limit != 0 && resolved.state_bytes > limit) {
    return fail(Code::kOutOfMemory, "the request needs " + std::to_string(resolved.state_bytes) +
                                        " bytes of states, the limit is " + std::to_string(limit) + ", of which " +
                                        std::to_string(bytes_in_use) +
                                        " are in use now: shorten the prompt or the answer");
  }
  return resolved;
}

}  // namespace baton
