// Turns of a conversation and the states kept between them. Files are in conversation_file.cc.
#include "baton/api/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton {
namespace {

// A state above this size is not copied to be there for another try: prefilling the question again is cheaper than the
// memory.
constexpr size_t kSpareStateBytesMax = size_t{256} << 20;

bool begins_with(std::span<const int32_t> whole, std::span<const int32_t> part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// The last `bytes` of the pieces; empty when there are fewer.
std::optional<std::vector<RenderedPiece>> tail_of(std::vector<RenderedPiece> pieces, size_t bytes) {
  size_t total = 0;
  for (const RenderedPiece& piece : pieces) total += piece.text.size();
  if (bytes > total) return std::nullopt;
  size_t skip = total - bytes;
  while (!pieces.empty() && skip >= pieces.front().text.size()) {
    skip -= pieces.front().text.size();
    pieces.erase(pieces.begin());
  }
  if (!pieces.empty()) pieces.front().text.erase(0, skip);
  return pieces;
}

std::vector<int32_t> control_tokens(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<int32_t> found;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(found), [&](int32_t id) { return tokenizer.is_special(id); });
  return found;
}

// The request that made the state to begin from belongs to the turn; the parts of the first token's time still add up.
void add_phase(const RequestStats& earlier, RequestStats* stats) {
  const FirstTokenTimes& before = earlier.first_token;
  FirstTokenTimes& times = stats->first_token;
  times.queue_ms += before.queue_ms;
  times.waiting_ms += before.waiting_ms;
  times.prefill_ms += before.prefill_ms + before.first_decode_ms;  // its last token went through a decode step
  times.move_ms += before.move_ms + std::max(earlier.total_ms - before.sum(), 0.0);  // sealing
  times.proof_ms += before.proof_ms;
  stats->prefill_tokens += earlier.prefill_tokens + 1;
  stats->prefill_ms += earlier.prefill_ms + before.first_decode_ms;
  stats->prefill_tps =
      stats->prefill_ms > 0 ? static_cast<double>(stats->prefill_tokens) * 1000 / stats->prefill_ms : 0;
  stats->ttft_ms += earlier.total_ms;
  stats->total_ms += earlier.total_ms;
  if (stats->prefill.ran.empty()) stats->prefill = earlier.prefill;
}

}  // namespace

bool knows_thinking(const TextModel& text) {
  return text.chat_template && text.chat_template->source().find("enable_thinking") != std::string::npos;
}

void Conversation::clear() {
  messages_.clear();
  messages_ = nlohmann::ordered_json::array();
  states_.clear();
  pending_.clear();
  attempts_ = 0;
}

void Conversation::set_system(std::string text) { system_ = std::move(text); }

nlohmann::ordered_json Conversation::with_system(const nlohmann::ordered_json& messages) const {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  if (!system_.empty()) all.push_back({{"role", "system"}, {"content", system_}});
  for (const auto& message : messages) all.push_back(message);
  return all;
}

ChatInput Conversation::input_of(const nlohmann::ordered_json& messages, bool asks) const {
  ChatInput input;
  input.messages = with_system(messages);
  input.add_generation_prompt = asks;
  if (options_.thinking) input.extra["enable_thinking"] = *options_.thinking;
  return input;
}

Result<std::optional<std::vector<int32_t>>> Conversation::splice(const KnownState& state,
                                                                 const std::vector<int32_t>& canonical,
                                                                 const ChatInput& input) const {
  using None = std::optional<std::vector<int32_t>>;
  const Tokenizer& tokenizer = *runtime_.text().tokenizer;
  BATON_TRY(const std::string held, tokenizer.decode(state.tokens, false));
  BATON_TRY(const std::string whole, tokenizer.decode(canonical, false));
  if (held.size() >= whole.size() || !whole.starts_with(held)) return None();
  ChatInput filled = input;
  filled.bos_token = runtime_.text().bos_text;
  filled.eos_token = runtime_.text().eos_text;
  BATON_TRY(std::vector<RenderedPiece> pieces, runtime_.text().chat_template->render_pieces(filled));
  const auto rest = tail_of(std::move(pieces), whole.size() - held.size());
  if (!rest) return None();
  BATON_TRY(const std::vector<int32_t> more, tokenizer.encode_pieces(*rest));
  std::vector<int32_t> tokens = state.tokens;
  tokens.insert(tokens.end(), more.begin(), more.end());
  BATON_TRY(const std::string spliced, tokenizer.decode(tokens, false));
  // The same bytes, and the same of them made by the template: text that only looks like a control token is not one.
  const bool same = spliced == whole && control_tokens(tokenizer, tokens) == control_tokens(tokenizer, canonical);
  return same ? None(std::move(tokens)) : None();
}

Result<Conversation::Prompt> Conversation::prompt_of(const nlohmann::ordered_json& messages, bool asks) const {
  const ChatInput input = input_of(messages, asks);
  Prompt prompt;
  BATON_TRY(prompt.tokens, runtime_.encode_chat(input));
  const std::vector<int32_t> canonical = prompt.tokens;
  size_t longest = 0;
  for (const KnownState& state : states_) {
    if (state.tokens.size() <= longest) continue;
    if (state.tokens.size() < canonical.size() && begins_with(canonical, state.tokens)) {
      prompt.tokens = canonical;
    } else {
      BATON_TRY(auto tokens, splice(state, canonical, input));
      if (!tokens) continue;
      prompt.tokens = *std::move(tokens);
    }
    prompt.start = &state;
    longest = state.tokens.size();
  }
  return prompt;
}

Result<size_t> Conversation::lasting_tokens(const std::vector<int32_t>& prompt) const {
  nlohmann::ordered_json later = messages_;
  later.push_back({{"role", "assistant"}, {"content", "x"}});
  later.push_back({{"role", "user"}, {"content", "y"}});
  BATON_TRY(const std::vector<int32_t> here, runtime_.encode_chat(input_of(messages_, true)));
  const auto next = runtime_.encode_chat(input_of(later, true));
  if (!next) return prompt.size();  // a template that refuses the probe says nothing about the prompt
  const auto differ = std::mismatch(here.begin(), here.end(), next->begin(), next->end());
  const auto behind = static_cast<size_t>(here.end() - differ.first);
  return prompt.size() > behind ? prompt.size() - behind : 0;
}

CompletionRequest Conversation::request_of(const Prompt& prompt) const {
  CompletionRequest request{runtime_.make_request(prompt.tokens), options_.stops};
  if (options_.prepare) options_.prepare(request.request);
  request.on_prefill = options_.on_prefill;
  if (prompt.start != nullptr) {
    request.request.start_state = prompt.start->state;
    request.start_tokens = prompt.start->tokens.size();
  }
  return request;
}

Status Conversation::keep_lasting(Prompt& prompt, size_t tokens, const std::function<bool()>& cancelled,
                                  RequestStats* stats) {
  Prompt part{{prompt.tokens.begin(), prompt.tokens.begin() + static_cast<ptrdiff_t>(tokens)}, prompt.start};
  CompletionRequest request = request_of(part);
  request.request.max_new_tokens = 0;
  request.request.want_sealed_state = true;
  request.stops.clear();
  BATON_OK(runtime_.prepare_proof(request.request, options_.proof));
  BATON_TRY(Completion done, runtime_.complete(std::move(request), {}, cancelled));
  *stats = std::move(done.stats);
  if (done.sealed_state.empty()) return {};  // cancelled
  states_.clear();
  states_.push_back({std::move(part.tokens), SealSource::owned(std::move(done.sealed_state))});
  prompt.start = &states_.back();
  return {};
}

void Conversation::keep_states(Prompt prompt, Completion& completion) {
  std::vector<KnownState> kept;
  if (prompt.start != nullptr && prompt.start->state.size() <= kSpareStateBytesMax) {
    kept.push_back(*prompt.start);
  }
  const size_t asked = prompt.tokens.size();
  std::vector<int32_t> said = prompt.tokens;
  said.insert(said.end(), completion.ids.begin(), completion.ids.end());
  if (!completion.sealed_state.empty())
    kept.push_back({std::move(prompt.tokens), SealSource::owned(std::move(completion.sealed_state))});
  // After a stop string the state holds more than was said.
  const uint64_t held = completion.answer_state_tokens;
  if (!completion.answer_state.empty() && held > asked && held <= said.size()) {
    said.resize(held);
    kept.push_back({std::move(said), SealSource::owned(std::move(completion.answer_state))});
  }
  states_ = std::move(kept);
}

Result<Turn> Conversation::answer(const std::function<void(std::string_view)>& on_text,
                                  const std::function<bool()>& cancelled) {
  BATON_TRY(Prompt prompt, prompt_of(messages_, true));
  Turn turn;
  turn.prompt_tokens = prompt.tokens.size();
  turn.reused_tokens = prompt.start != nullptr ? prompt.start->tokens.size() : 0;
  if (options_.context != 0 && prompt.tokens.size() > options_.context) return turn;

  BATON_TRY(const size_t lasting, lasting_tokens(prompt.tokens));
  const bool lasts = lasting == prompt.tokens.size();
  RequestStats earlier;
  const bool apart = !lasts && lasting > turn.reused_tokens;
  if (apart) BATON_OK(keep_lasting(prompt, lasting, cancelled, &earlier));
  CompletionRequest request = request_of(prompt);
  request.request.want_answer_state = lasts;
  request.request.want_sealed_state = lasts && request.request.start_state.size() <= kSpareStateBytesMax;
  BATON_OK(runtime_.prepare_proof(request.request, options_.proof));
  BATON_TRY(Completion completion, runtime_.complete(std::move(request), on_text, cancelled));
  if (apart) add_phase(earlier, &completion.stats);
  completion.stats.reused_tokens = turn.reused_tokens;
  turn.context_full = completion.ended == Ended::kContextFull;
  // What nothing came of leaves the states of what was said before.
  const bool said = completion.reason != FinishReason::kCancelled || !completion.ids.empty();
  if (lasts && said) keep_states(std::move(prompt), completion);
  turn.completion = std::move(completion);
  return turn;
}

Result<Turn> Conversation::ask(std::string question, const std::function<void(std::string_view)>& on_text,
                               const std::function<bool()>& cancelled) {
  messages_.push_back({{"role", "user"}, {"content", question}});
  pending_.clear();
  auto turn = answer(on_text, cancelled);
  const bool nothing =
      turn && turn->completion && turn->completion->reason == FinishReason::kCancelled && turn->completion->ids.empty();
  if (!turn || !turn->completion || nothing) {
    messages_.erase(messages_.size() - 1);
    pending_ = std::move(question);
    return turn;
  }
  messages_.push_back({{"role", "assistant"}, {"content", turn->completion->text}});
  return turn;
}

Result<Turn> Conversation::retry(const std::function<void(std::string_view)>& on_text,
                                 const std::function<bool()>& cancelled) {
  if (!pending_.empty()) return ask(std::string(pending_), on_text, cancelled);
  if (messages_.size() < 2) return fail(Code::kInvalidInput, "there is no question to ask again");
  const nlohmann::ordered_json before = messages_;
  undo();
  ++attempts_;
  auto turn = ask(before[before.size() - 2]["content"].get<std::string>(), on_text, cancelled);
  if (!pending_.empty()) {
    messages_ = before;
    pending_.clear();
  }
  return turn;
}

bool Conversation::undo() {
  if (messages_.size() < 2) return false;
  messages_.erase(messages_.size() - 1);
  messages_.erase(messages_.size() - 1);
  return true;
}

bool Conversation::drop_oldest() {
  if (messages_.size() < 2) return false;
  messages_.erase(0);
  messages_.erase(0);
  return true;
}

uint64_t Conversation::turns() const { return messages_.size() / 2; }

Result<ConversationUse> Conversation::use() const {
  ConversationUse use{.messages = messages_.size() + (system_.empty() ? 0 : 1)};
  for (const KnownState& state : states_) use.state_bytes += state.state.size();
  if (use.messages == 0) return use;
  BATON_TRY(const Prompt prompt, prompt_of(messages_, false));
  use.tokens = prompt.tokens.size();
  if (options_.context != 0) use.tokens = std::min(use.tokens, options_.context);
  return use;
}

Result<Conversation::Prompt> Conversation::next_prompt(uint64_t dropped) const {
  nlohmann::ordered_json next = messages_;
  next.erase(next.begin(), next.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(2 * dropped, next.size())));
  if (next.empty() && pending_.empty()) return Prompt();
  next.push_back({{"role", "user"}, {"content", pending_}});
  return prompt_of(next, true);
}

Result<std::optional<uint64_t>> Conversation::turns_to_drop() const {
  if (pending_.empty() || options_.context == 0) return uint64_t{0};
  const auto fits = [&](uint64_t dropped) -> Result<bool> {
    BATON_TRY(const Prompt prompt, next_prompt(dropped));
    return prompt.tokens.size() <= options_.context;
  };
  BATON_TRY(const bool all_fits, fits(0));
  if (all_fits) return uint64_t{0};
  BATON_TRY(const bool some_fits, fits(turns()));
  if (!some_fits) return std::nullopt;
  // The fewer turns, the fewer tokens: a thousand turns are rendered ten times, not a thousand.
  uint64_t too_few = 0, enough = turns();
  while (enough - too_few > 1) {
    const uint64_t middle = too_few + (enough - too_few) / 2;
    BATON_TRY(const bool fit, fits(middle));
    (fit ? enough : too_few) = middle;
  }
  return enough;
}

Result<uint64_t> Conversation::tokens_to_prefill(uint64_t dropped) const {
  BATON_TRY(const Prompt prompt, next_prompt(dropped));
  return prompt.tokens.size() - (prompt.start != nullptr ? prompt.start->tokens.size() : 0);
}

Result<std::string> Conversation::answer_opening() const {
  nlohmann::ordered_json one = nlohmann::ordered_json::array();
  one.push_back({{"role", "user"}, {"content", "x"}});
  const auto text_of = [&](bool asks) -> Result<std::string> {
    ChatInput input = input_of(one, asks);
    input.bos_token = runtime_.text().bos_text;
    input.eos_token = runtime_.text().eos_text;
    return runtime_.text().chat_template->render(input);
  };
  BATON_TRY(const std::string open, text_of(true));
  BATON_TRY(const std::string closed, text_of(false));
  return open.starts_with(closed) ? open.substr(closed.size()) : std::string();
}

}  // namespace baton
