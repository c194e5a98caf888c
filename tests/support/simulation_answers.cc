// What a simulated request's answer, states and figures must be.
#include <algorithm>

#include "baton/bridge/bridge.h"
#include "tests/support/simulation.h"

namespace baton::fake {

Status Simulation::check_answer(const Ask& ask, RequestId id, const FinishedEvent& finished) {
  if (ask.start > StartKind::kGood) return broken("answered in spite of a bad starting state", id);
  if (ask.got != ask.expected.tokens || finished.stop_id != ask.expected.stop_id) return broken("a wrong answer", id);
  if ((finished.reason == FinishReason::kStop) != (finished.stop_id >= 0)) return broken("a wrong reason", id);
  const std::vector<int32_t>& prompt = ask.request.tokens;
  if (ask.request.want_logits && finished.logits != expected_logits(prompt, start_of(ask.other), vocab_of(ask.other)))
    return broken("wrong logits", id);
  std::vector<Logprobs> scores;
  if (const auto& top = ask.request.prompt_logprobs)
    scores = expected_logprobs(prompt, 1, *top, start_of(ask.other), vocab_of(ask.other));
  if (finished.prompt_logprobs != scores) return broken("wrong logprobs of the prompt", id);
  if (ask.request.want_answer_state && (weather_ != Weather::kStormy || !finished.answer_state.empty())) {
    BATON_OK(check_answer_state(ask, id, finished));
  }
  if (!ask.request.want_sealed_state && !finished.sealed_state.empty()) return broken("an unasked seal", id);
  if (!ask.request.want_sealed_state && !ask.request.seal_to) return {};
  const std::vector<std::byte>& sealed = ask.request.seal_to ? ask.taken : finished.sealed_state;
  if (ask.request.want_sealed_state && finished.sealed_state != sealed) return broken("two seals of one state", id);
  ++counts_.sealed;
  Provenance made;
  BATON_OK(check_sealed(ask, sealed, prompt, id, &made));
  return check_provenance_of(ask, id, finished, made);
}

Status Simulation::check_logprobs(const Ask& ask, RequestId id, const TokenEvent& token) const {
  const std::optional<uint32_t>& top = ask.request.sampler.logprobs;
  if (top.has_value() != token.logprobs.has_value()) return broken("logprobs that nobody asked for, or none", id);
  if (!top) return {};
  std::vector<int32_t> tokens = ask.request.tokens;
  tokens.insert(tokens.end(), ask.got.begin(), ask.got.end());
  const auto expected = expected_logprobs(tokens, tokens.size() - 1, *top, start_of(ask.other), vocab_of(ask.other));
  return *token.logprobs == expected.front() ? Status() : broken("wrong logprobs", id);
}

Status Simulation::check_answer_state(const Ask& ask, RequestId id, const FinishedEvent& finished) {
  std::vector<int32_t> tokens = ask.request.tokens;
  tokens.insert(tokens.end(), ask.got.begin(), ask.got.end());
  // The last token was sampled and not processed, but where a stop id came behind it (unseen after a cancel).
  const uint64_t open = finished.answer_state_tokens < tokens.size() ? 1 : 0;
  const bool stopped = finished.reason == FinishReason::kStop || ask.max_new == 0;
  const bool broken_off = finished.reason == FinishReason::kCancelled || finished.reason == FinishReason::kDeadline;
  if (finished.answer_state_tokens + open != tokens.size() || (!broken_off && open != (stopped ? 0 : 1))) {
    return broken("the answer's state has " + std::to_string(finished.answer_state_tokens) +
                      " tokens, prompt and answer " + std::to_string(tokens.size()) + ", of at most " +
                      std::to_string(ask.max_new) + " new; the end is \"" + std::string(to_string(finished.reason)) +
                      "\"",
                  id);
  }
  tokens.resize(finished.answer_state_tokens);
  ++counts_.sealed_answers;
  counts_.sealed_cancelled += finished.reason == FinishReason::kCancelled ? 1 : 0;
  Provenance made;
  return check_sealed(ask, finished.answer_state, tokens, id, &made);
}

Status Simulation::check_sealed(const Ask& ask, const std::vector<std::byte>& block, const std::vector<int32_t>& tokens,
                                RequestId id, Provenance* made) {
  LiveStates live;
  const uint64_t start = start_of(ask.other);
  State opened({DType::kF16, true}, kSimulatedContext, live, start),
      direct({DType::kF16, true}, kSimulatedContext, live, start);
  SealExpectation expected;
  expected.identity = ask.other ? other_identity_ : identity_;
  if (auto held = unseal_state(SealSource::borrowed(block), expected, opened, made); !held || *held != tokens) {
    return broken("the sealed state does not open as that of its tokens", id);
  }
  if (auto status = check_provenance(*made, tokens.size()); !status) return broken(status.error().message, id);
  for (const int32_t token : tokens) direct.append(token);
  std::vector<float> a(kVocab), b(kVocab);
  opened.write_logits(a);
  direct.write_logits(b);
  return a == b ? Status() : broken("the sealed state is another one", id);
}

// Whoever is named did it, and nobody else: as far as the way of the state is known here.
Status Simulation::check_provenance_of(const Ask& ask, RequestId id, const FinishedEvent& finished,
                                       const Provenance& made) {
  const size_t prompt = ask.request.tokens.size();
  if (auto status = check_provenance(made, prompt); !status) return broken(status.error().message, id);
  const StateStep& last = made.steps.back();
  const std::string& first_to_decode = ask.request.via_unit.empty() ? ask.request.decode_unit : ask.request.via_unit;
  if (made.makers[last.maker].unit != first_to_decode || last.kind != StepKind::kDecode)
    return broken("the last token was decoded by '" + made.makers[last.maker].unit + "'", id);
  if (ask.start != StartKind::kNone || !finished.stats.fallback.empty() || prompt == 1) return {};
  const uint64_t reused = finished.stats.reused_tokens;
  if (reused > 0 && (ask.request.reuse == ReuseMode::kAny || reused + 1 == prompt)) return {};
  // A whole run: everything but the last token by the unit that was asked to prefill.
  const RequestStats& stats = finished.stats;
  const StateMaker& first = made.makers.front();
  if (first.unit != stats.prefill.ran || made.makers.size() != (stats.prefill.ran == first_to_decode ? 1u : 2u))
    return broken("prefilled by '" + stats.prefill.ran + "', said to be by '" + first.unit + "'", id);
  const uint64_t decoded = last.count;
  if (decoded != 1 || made.tokens() - decoded != reused + stats.prefill_tokens || !made.replayable())
    return broken("steps that nobody made", id);
  return {};
}

// What it began from was made for the same tenant, from the same tokens, of the same model.
Status Simulation::check_reuse(const Ask& ask, RequestId id, const RequestStats& stats) const {
  const uint64_t reused = stats.reused_tokens;
  if (ask.start != StartKind::kNone || reused == 0) return {};
  if (ask.request.reuse == ReuseMode::kOff || ask.request.verify != VerifyMode::kOff || !stats.reuse_failed.empty())
    return broken("reused what it must not", id);
  if (ask.request.reuse == ReuseMode::kExact && reused % 64 != 0) return broken("began at a place that shows", id);
  if (reused >= ask.request.tokens.size()) return broken("reused the last token of the prompt", id);
  for (const auto& [other_id, other] : asks_) {
    // One that was set aside before the end of its prompt may find what it left itself.
    if ((other_id == id && stats.preempted == 0) || other.refused || other.other != ask.other ||
        other.request.tenant != ask.request.tenant)
      continue;
    std::vector<int32_t> tokens = other.request.tokens;
    tokens.insert(tokens.end(), other.got.begin(), other.got.end());
    if (tokens.size() >= reused &&
        std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(reused), ask.request.tokens.begin()))
      return {};
  }
  return broken("reused what nobody made", id);
}

constexpr uint64_t kRelayTokens = 16;  // of the only strategy that has a via unit

Status Simulation::check_figures(const Ask& ask, RequestId id, const FinishedEvent& finished) {
  const RequestStats& stats = finished.stats;
  const Request& request = ask.request;
  const std::string& asked = request.prefill_unit.empty() ? request.decode_unit : request.prefill_unit;
  if (stats.prompt_tokens != request.tokens.size()) return broken("prompt tokens miscounted", id);
  const bool relays = !request.via_unit.empty() && request.via_unit != request.decode_unit;
  const std::string& target = relays ? request.via_unit : request.decode_unit;
  const bool passed = relays && ask.got.size() >= kRelayTokens && ask.max_new > kRelayTokens;
  if (stats.decode.ran != (relays && !passed ? "" : request.decode_unit)) return broken("decoded elsewhere", id);
  if (relays && (stats.via.ran != target || stats.via_tokens != std::min<uint64_t>(ask.got.size(), kRelayTokens))) {
    return broken("the via unit's part is not what it is asked for", id);
  }
  if (stats.prefill.asked != asked || stats.decode.asked != request.decode_unit) return broken("asked of another", id);
  if (request.tokens.size() == 1 && !stats.prefill.ran.empty()) return broken("prefilled nothing, but says where", id);

  const bool hands_over = find_strategy(request.strategy)->hand_overs > 0 && request.tokens.size() > 1;
  const bool foreign = hands_over || passed || ask.start == StartKind::kGood;
  const bool whole = stats.fallback.empty();
  if (weather_ == Weather::kCalm && !whole) return broken("fell back without a cause: " + stats.fallback, id);
  const bool moves_first = hands_over && asked != target, moves = moves_first || passed;
  const bool needs = relays || moves;
  const bool known = (!needs || request.move_bounds) && (!relays || !moves_first || request.via_bounds) &&
                     (ask.start != StartKind::kGood || (request.start_bounds && !relays));
  const bool proves = foreign && known && request.verify != VerifyMode::kOff;
  const bool sealed = moves || ask.start == StartKind::kGood;
  const BridgeLevel level = proves ? BridgeLevel::kProven : sealed ? BridgeLevel::kSealed : BridgeLevel::kNone;
  const BridgeLevel wanted = request.verify == VerifyMode::kOff ? BridgeLevel::kSealed : BridgeLevel::kProven;
  if (whole && stats.bridge.level != level) return broken("the level is not what happened", id);
  // One that relays may have fallen back in one hand-over and used the other.
  if (!whole && !relays && ask.start != StartKind::kGood && stats.fallback.find("decode on") == std::string::npos &&
      stats.bridge.level != BridgeLevel::kNone) {
    return broken("a level of a state that was not used", id);
  }
  if (stats.bridge.verified != (stats.bridge.level == wanted)) return broken("'verified' is not what happened", id);
  if (whole && stats.bridge.unproven.empty() != (proves || request.verify == VerifyMode::kOff)) {
    return broken("what could not be proven is not said", id);
  }
  if (foreign && whole) {
    if (proves != (stats.bridge.checked > 0)) return broken("the proof asked for was not made", id);
    const uint64_t states = proves ? (ask.start == StartKind::kGood) + (hands_over || !relays) + passed : 0;
    if (stats.bridge.states != states) return broken("a state was not compared", id);
    const uint64_t rows = ask.got.size() + (finished.stop_id >= 0 || ask.max_new == 0 ? 1 : 0);
    const uint64_t own = hands_over || !relays ? 0 : kRelayTokens;  // nothing was handed over before these
    if (proves && request.verify == VerifyMode::kAll && stats.bridge.checked + own != rows) {
      return broken("a row was not proved", id);
    }
    if (stats.bridge.max_abs_dlogit > 0 || stats.bridge.proof_failed) return broken("a failed proof was believed", id);
    const BridgeKind kind = moves ? BridgeKind::kMove : hands_over ? BridgeKind::kAlias : BridgeKind::kOpen;
    const bool adopted = moves && stats.bridge.kind == BridgeKind::kAdopt;
    if (stats.bridge.kind != kind && !adopted)
      return broken("carried as '" + std::string(to_string(stats.bridge.kind)) + "'", id);
  }
  if (whole && ask.start == StartKind::kNone && request.tokens.size() > 1) {
    const uint64_t left = request.tokens.size() - 1 - stats.reused_tokens;
    if (stats.prefill.ran != (left > 0 ? asked : "")) return broken("prefilled elsewhere without saying why", id);
    if (stats.prefill_tokens != left) return broken("prefill tokens miscounted", id);
  }
  return {};
}

}  // namespace baton::fake
