// Turns of a conversation and the tokens they go on from. Files are in conversation_file.cc.
#include "baton/api/conversation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "baton/bridge/checkpoint.h"

namespace baton {
namespace {

// Of what was said, ways that are remembered: the current one, and those that were left by undo and retry.
constexpr size_t kSaidMax = 32;
constexpr const char* kThinkingEnd = "</think>";
// Loaded states are somebody else's word: their checkpoints are a tenant's of their own, which goes into no folder.
constexpr uint64_t kLoadedTenant = uint64_t{1} << 48;

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

// Where a checkpoint is kept of one that is asked for at `at`.
uint64_t page_before(uint64_t at) { return at / kPageTokens * kPageTokens; }

}  // namespace

bool knows_thinking(const TextModel& text) {
  return text.chat_template && text.chat_template->source().find("enable_thinking") != std::string::npos;
}

void Conversation::clear() {
  messages_.clear();
  messages_ = nlohmann::ordered_json::array();
  said_.clear();
  loaded_.reset();
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

Result<std::optional<std::vector<int32_t>>> Conversation::splice(const std::vector<int32_t>& said,
                                                                 const std::vector<int32_t>& canonical,
                                                                 const ChatInput& input) const {
  using None = std::optional<std::vector<int32_t>>;
  const Tokenizer& tokenizer = *runtime_.text().tokenizer;
  BATON_TRY(const std::string held, tokenizer.decode(said, false));
  BATON_TRY(const std::string whole, tokenizer.decode(canonical, false));
  if (held.size() >= whole.size() || !whole.starts_with(held)) return None();
  ChatInput filled = input;
  filled.bos_token = runtime_.text().bos_text;
  filled.eos_token = runtime_.text().eos_text;
  BATON_TRY(std::vector<RenderedPiece> pieces, runtime_.text().chat_template->render_pieces(filled));
  const auto rest = tail_of(std::move(pieces), whole.size() - held.size());
  if (!rest) return None();
  BATON_TRY(const std::vector<int32_t> more, tokenizer.encode_pieces(*rest, held.empty()));
  std::vector<int32_t> tokens = said;
  tokens.insert(tokens.end(), more.begin(), more.end());
  BATON_TRY(const std::string spliced, tokenizer.decode(tokens, false));
  // The same bytes, and the same of them made by the template: text that only looks like a control token is not one.
  const bool same = spliced == whole && control_tokens(tokenizer, tokens) == control_tokens(tokenizer, canonical);
  return same ? None(std::move(tokens)) : None();
}

Result<Conversation::Prompt> Conversation::prompt_of(const nlohmann::ordered_json& messages, bool asks,
                                                     const Said* saying) const {
  const ChatInput input = input_of(messages, asks);
  Prompt prompt;
  BATON_TRY(prompt.tokens, runtime_.encode_chat(input));
  std::vector<const Said*> longest;
  for (const Said& said : said_) longest.push_back(&said);
  if (saying != nullptr) longest.push_back(saying);
  std::stable_sort(longest.begin(), longest.end(),
                   [](const Said* a, const Said* b) { return a->tokens.size() > b->tokens.size(); });
  for (const Said* said : longest) {
    if (said->tokens.size() >= prompt.tokens.size() || !begins_with(prompt.tokens, said->tokens)) {
      BATON_TRY(auto tokens, splice(said->tokens, prompt.tokens, input));
      if (!tokens) continue;
      prompt.tokens = *std::move(tokens);
    }
    prompt.said = said;
    break;
  }
  if (loaded_ && loaded_->tokens.size() < prompt.tokens.size() && begins_with(prompt.tokens, loaded_->tokens))
    prompt.start = &*loaded_;
  return prompt;
}

Result<Conversation::Branches> Conversation::branches_of(const Prompt& prompt) const {
  BATON_TRY(const std::vector<int32_t> here, runtime_.encode_chat(input_of(messages_, true)));
  // In tokens from the end: what was said before may stand in other ones.
  const auto parts_at = [&](const nlohmann::ordered_json& other) -> uint64_t {
    const auto probe = runtime_.encode_chat(input_of(other, true));
    if (!probe) return prompt.tokens.size();  // a template that refuses the probe says nothing about the prompt
    const auto differ = std::mismatch(here.begin(), here.end(), probe->begin(), probe->end());
    const auto behind = static_cast<size_t>(here.end() - differ.first);
    return prompt.tokens.size() > behind ? prompt.tokens.size() - behind : 0;
  };
  nlohmann::ordered_json later = messages_, another = messages_;
  later.push_back({{"role", "assistant"}, {"content", "x"}});
  later.push_back({{"role", "user"}, {"content", "y"}});
  auto& content = another.back()["content"];
  content = content.get<std::string>().starts_with('x') ? "y" : "x";
  return Branches{.question = parts_at(another), .lasting = parts_at(later)};
}

void Conversation::prepare(Request& request) const {
  if (options_.prepare) options_.prepare(request);
  request.reuse = options_.reuse;
  request.tenant += loads_ * kLoadedTenant;
}

CompletionRequest Conversation::request_of(const Prompt& prompt) const {
  CompletionRequest request{runtime_.make_request(prompt.tokens), options_.stops};
  prepare(request.request);
  request.on_prefill = options_.on_prefill;
  if (prompt.start != nullptr) request.request.start_state = prompt.start->state;
  request.start_tokens = held_tokens(prompt);
  return request;
}

void Conversation::remember(Said said) {
  if (said.tokens.empty()) return;
  std::erase_if(said_, [&](const Said& other) { return other.tokens == said.tokens; });
  if (said_.size() == kSaidMax) said_.erase(said_.begin());
  said_.push_back(std::move(said));
}

void Conversation::remember(const Prompt& prompt, const Branches& branches, const Completion& completion) {
  const auto first = [&](uint64_t count) {
    return std::vector<int32_t>(prompt.tokens.begin(), prompt.tokens.begin() + static_cast<ptrdiff_t>(count));
  };
  std::vector<uint64_t> kept = prompt.said != nullptr ? prompt.said->kept : std::vector<uint64_t>();
  const uint64_t last = prompt.tokens.size() - 1;
  for (const uint64_t at : {branches.question, branches.lasting, last}) {
    if (at <= branches.lasting && page_before(std::min(at, last)) > 0) kept.push_back(page_before(std::min(at, last)));
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  Said said{prompt.tokens, kept};
  remember({first(branches.lasting), std::move(kept)});
  if (branches.lasting < prompt.tokens.size()) return;
  // What ends by anything but an end token ends with one that no step has processed.
  said.tokens.insert(said.tokens.end(), completion.ids.begin(), completion.ids.end());
  if (completion.ended != Ended::kEndToken) said.tokens.pop_back();
  if (completion.ended != Ended::kStopString) said.kept.push_back(said.tokens.size());  // there is more behind those
  remember(std::move(said));
}

Result<Turn> Conversation::answer(const std::function<void(std::string_view)>& on_text,
                                  const std::function<bool()>& cancelled) {
  BATON_TRY(const Prompt prompt, prompt_of(messages_, true));
  Turn turn;
  turn.prompt_tokens = prompt.tokens.size();
  if (options_.context != 0 && prompt.tokens.size() > options_.context) return turn;

  BATON_TRY(const Branches branches, branches_of(prompt));
  CompletionRequest request = request_of(prompt);
  request.request.keep_at = {branches.question, branches.lasting};
  if (options_.on_certain) {
    request.on_answer = [&, told = size_t{0}](const AnswerSoFar& so_far) mutable {
      if (so_far.ids.size() < told + kAnswerPiece) return;
      told = so_far.ids.size();
      auto tokens = certain_while(prompt, so_far);
      // A template that refuses half of an answer may take the whole one.
      if (tokens && !tokens->empty()) options_.on_certain(*std::move(tokens));
    };
  }
  BATON_OK(runtime_.prepare_proof(request.request, options_.proof));
  BATON_TRY(Completion completion, runtime_.complete(std::move(request), on_text, cancelled));
  turn.reused_tokens = completion.stats.reused_tokens;
  turn.context_full = completion.ended == Ended::kContextFull;
  // Of what nothing came of there is nothing to go on from.
  if (completion.reason != FinishReason::kCancelled || !completion.ids.empty()) {
    remember(prompt, branches, completion);
    if (completion.stats.kept_checkpoints > 0) loaded_.reset();
  }
  turn.completion = std::move(completion);
  return turn;
}

Result<Turn> Conversation::ask(std::string question, const std::function<void(std::string_view)>& on_text,
                               const std::function<bool()>& cancelled) try {
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
} catch (const std::bad_alloc&) {
  if (messages_.size() % 2 == 1) messages_.erase(messages_.size() - 1);
  if (pending_.empty()) pending_ = std::move(question);
  return fail(Code::kOutOfMemory, "out of memory for the turn");
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
  use.state_bytes = runtime_.engine().usage().checkpoint_bytes + (loaded_ ? loaded_->state.size() : 0);
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
  return prompt.tokens.size() - held_tokens(prompt);
}

uint64_t Conversation::held_tokens(const Prompt& prompt) const {
  uint64_t held = prompt.start != nullptr ? prompt.start->tokens.size() : 0;
  if (options_.reuse == ReuseMode::kOff || prompt.start != nullptr) return held;
  for (const Said& said : said_) {
    const auto differ =
        std::mismatch(said.tokens.begin(), said.tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
    const auto alike = std::min<uint64_t>(static_cast<uint64_t>(differ.first - said.tokens.begin()),
                                          std::max<uint64_t>(prompt.tokens.size(), 1) - 1);
    for (const uint64_t at : said.kept) held = at <= alike ? std::max(held, at) : held;
  }
  return held;
}

Result<std::vector<int32_t>> Conversation::certain(std::string_view typed) const {
  const std::string words(typed.substr(0, typed.find_last_of(" \t\n") + 1));
  const auto with = [&](const char* next) {
    nlohmann::ordered_json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", words + next}});
    return prompt_of(messages, true);
  };
  BATON_TRY(Prompt prompt, with("x"));
  BATON_TRY(const Prompt other, with("y"));
  const auto differ =
      std::mismatch(prompt.tokens.begin(), prompt.tokens.end(), other.tokens.begin(), other.tokens.end());
  prompt.tokens.erase(differ.first, prompt.tokens.end());
  return std::move(prompt.tokens);
}

Result<std::vector<int32_t>> Conversation::if_sent(std::string_view typed) const {
  nlohmann::ordered_json messages = messages_;
  messages.push_back({{"role", "user"}, {"content", std::string(typed)}});
  BATON_TRY(Prompt prompt, prompt_of(messages, true));
  if (!prompt.tokens.empty()) prompt.tokens.pop_back();
  return std::move(prompt.tokens);
}

Result<std::vector<int32_t>> Conversation::certain_while(const Prompt& prompt, const AnswerSoFar& answer) const {
  const size_t blank = answer.text.find_last_of(" \t\n");  // the last word may go on
  const size_t end = blank == std::string::npos ? blank : answer.text.find_last_not_of(" \t\n", blank);
  if (end == std::string::npos) return std::vector<int32_t>();
  const std::string words = answer.text.substr(0, end + 1);
  // The tokens of these words, as they were said: whole ones.
  const Tokenizer& tokenizer = *runtime_.text().tokenizer;
  Said saying{prompt.tokens, {}};
  size_t bytes = 0;
  for (const int32_t id : answer.ids) {
    BATON_TRY(const std::string piece, tokenizer.decode(std::span(&id, 1), false));
    if ((bytes += piece.size()) > words.size()) break;
    saying.tokens.push_back(id);
  }
  // However it goes on: also with the end of a thinking that the template then drops.
  std::vector<const char*> ends = {" x", "\n\ny"};
  BATON_TRY(const std::string opening, answer_opening());
  if ((opening + words).find(kThinkingEnd) == std::string::npos) ends.push_back(kThinkingEnd);
  std::optional<std::vector<int32_t>> common;
  for (const char* more : ends) {
    nlohmann::ordered_json next = messages_;
    next.push_back({{"role", "assistant"}, {"content", words + more}});
    next.push_back({{"role", "user"}, {"content", "x"}});
    BATON_TRY(const Prompt would, prompt_of(next, true, &saying));
    if (!common) common = would.tokens;
    const auto differ = std::mismatch(common->begin(), common->end(), would.tokens.begin(), would.tokens.end());
    common->erase(differ.first, common->end());
  }
  // As it was said: the checkpoint at its end holds it, which one that a stop string ends has not.
  if (options_.stops.empty() && begins_with(*common, saying.tokens)) return std::vector<int32_t>();
  return *std::move(common);
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
