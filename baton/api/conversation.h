// A conversation: messages, and the tokens they went through the model in. Each turn leaves checkpoints
// (Request::reuse): before the question, where the template begins to write what the next prompt will not share, at the
// end of the prompt and of the answer. The next turn, the same one asked again and another question in its place begin
// from the longest that holds.
//
// The tokens are kept because models write text in other tokens than the tokenizer would: a prompt begins with those
// that were said where that was seen to hold, token by token or byte by byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/runtime.h"
#include "baton/state/state_key.h"

namespace baton {

struct ConversationOptions {
  uint64_t context = 0;  // tokens that prompt and answer may take together: the engine's limit
  std::vector<std::string> stops = {};
  std::function<void(Request&)> prepare = {};  // sampler, units and strategy of every request
  std::optional<bool> thinking = {};           // enable_thinking of the template; empty: its own default
  ProofEvents proof = {};                      // of requests that ask for the proof
  // kAny where the runtime keeps checkpoints (EngineLimits::checkpoint_bytes_max): nothing is prefilled twice, and near
  // ties may fall otherwise than without. kOff: each turn prefills all.
  ReuseMode reuse = ReuseMode::kAny;
  std::function<void(uint64_t done, uint64_t total)> on_prefill = {};  // of CompletionRequest
  // Told while an answer decodes, each time that it is kAnswerPiece tokens longer: what the next prompt surely begins
  // with, however the answer goes on. Not told of what a checkpoint of the answer will hold: where the template writes
  // answers as they were said, and no stop string may end this one. From within ask and retry; may start requests. May
  // be empty.
  std::function<void(std::vector<int32_t>)> on_certain = {};
};

inline constexpr size_t kAnswerPiece = 64;

// What became of one question.
struct Turn {
  // Empty: the prompt does not fit into the context, and nothing was changed but pending().
  std::optional<Completion> completion;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;  // of the prompt, from a checkpoint or a loaded state
  bool context_full = false;   // the answer ended because the context did
};

struct ConversationUse {
  uint64_t messages = 0;
  uint64_t tokens = 0;       // before the next question, from a state or to be prefilled; at most the context
  uint64_t state_bytes = 0;  // of all checkpoints of the runtime, and of a loaded state that was not asked yet
};

// Single-threaded. The runtime is borrowed; its model has a tokenizer and a chat template.
class Conversation {
 public:
  Conversation(Runtime& runtime, ConversationOptions options) : runtime_(runtime), options_(std::move(options)) {}

  // One turn. `on_text` and `cancelled` as Runtime::complete. A question that failed, that did not fit or that was
  // stopped before a word came is taken back and is pending().
  Result<Turn> ask(std::string question, const std::function<void(std::string_view)>& on_text,
                   const std::function<bool()>& cancelled);
  // The pending question, or else the last one again, its answer forgotten once another has begun: what fails, does not
  // fit or is stopped before a word came leaves it as it was. kInvalidInput when there is none.
  Result<Turn> retry(const std::function<void(std::string_view)>& on_text, const std::function<bool()>& cancelled);
  const std::string& pending() const { return pending_; }

  void clear();  // all but the system prompt
  void set_system(std::string text);
  const std::string& system_prompt() const { return system_; }
  void set_thinking(std::optional<bool> thinking) { options_.thinking = thinking; }
  // False when there is no question to take back. It is not pending.
  bool undo();
  // Forgets the oldest question and its answer; false when there is none.
  bool drop_oldest();
  uint64_t turns() const;  // questions answered

  const nlohmann::ordered_json& messages() const { return messages_; }  // without the system prompt
  Result<ConversationUse> use() const;
  // What the next turn has to prefill, where what was kept is still there: of the conversation so far without its
  // `dropped` oldest turns, and the pending question.
  Result<uint64_t> tokens_to_prefill(uint64_t dropped = 0) const;
  // How many of the oldest turns have to go before the pending question fits into the context: 0 when it does, or when
  // none is pending; nothing when it does not fit alone.
  Result<std::optional<uint64_t>> turns_to_drop() const;
  // The text that a prompt of this conversation ends with: what the template writes before an answer.
  Result<std::string> answer_opening() const;
  // What the next prompt surely begins with, when the question begins with `typed`; its last word may go on.
  Result<std::vector<int32_t>> certain(std::string_view typed) const;
  // What a prompt begins with whose question is `typed` as it stands: all but its last token, which a turn processes
  // itself for what it says of the next.
  Result<std::vector<int32_t>> if_sent(std::string_view typed) const;
  // As of a turn's request: options, reuse, tenant.
  void prepare(Request& request) const;
  // How often the same turn was asked again: seeds have to differ.
  uint64_t attempts() const { return attempts_; }

  // FILE: the longest state of what was said, made from its checkpoint; FILE.json: the messages. Mode 0600.
  // docs/chat.md. `cancelled` as Runtime::complete: kCancelled, and nothing is written.
  Status save(const std::filesystem::path& file, const StateKey* key = nullptr,
              const std::function<bool()>& cancelled = {});
  // Replaces the conversation. kMismatch for another model, tokenizer or template, or when the two files do not belong
  // together; nothing is changed then. Without FILE, but with FILE.json, all is prefilled again.
  // `key`: as in state/seal_file.h; it covers both files.
  Status load(const std::filesystem::path& file, const StateKey* key = nullptr);

 private:
  struct LoadedState {
    std::vector<int32_t> tokens;
    SealSource state;
  };
  // Tokens that went through the model, and where checkpoints were asked for in them, in order.
  struct Said {
    std::vector<int32_t> tokens;
    std::vector<uint64_t> kept;
  };
  struct Prompt {
    std::vector<int32_t> tokens;
    const Said* said = nullptr;          // the longest that it begins with
    const LoadedState* start = nullptr;  // to begin from it
  };
  // Where others may part from a prompt: at the question's first token, and at the last token that every next prompt
  // shares.
  struct Branches {
    uint64_t question = 0, lasting = 0;
  };

  ChatInput input_of(const nlohmann::ordered_json& messages, bool asks) const;
  // The prompt's tokens, the longest that were said in front; `saying`: of an answer that has not ended.
  Result<Prompt> prompt_of(const nlohmann::ordered_json& messages, bool asks, const Said* saying = nullptr) const;
  // `said` and then the rest of the text in new tokens; empty when its text does not begin the prompt's.
  Result<std::optional<std::vector<int32_t>>> splice(const std::vector<int32_t>& said,
                                                     const std::vector<int32_t>& canonical,
                                                     const ChatInput& input) const;
  Result<Branches> branches_of(const Prompt& prompt) const;
  // Of the next prompt, while this one is being answered; no tokens: a checkpoint will hold them.
  Result<std::vector<int32_t>> certain_while(const Prompt& prompt, const AnswerSoFar& answer) const;
  Result<Turn> answer(const std::function<void(std::string_view)>& on_text, const std::function<bool()>& cancelled);
  // The next turn's prompt without the `dropped` oldest turns; no tokens when nothing is left to ask.
  Result<Prompt> next_prompt(uint64_t dropped) const;
  // Of the prompt, by a checkpoint that was asked for or the loaded state.
  uint64_t held_tokens(const Prompt& prompt) const;
  void remember(const Prompt& prompt, const Branches& branches, const Completion& completion);
  void remember(Said said);
  CompletionRequest request_of(const Prompt& prompt) const;
  // The state behind these tokens; empty when it was cancelled.
  Result<std::vector<std::byte>> seal(const std::vector<int32_t>& tokens, const std::function<bool()>& cancelled);
  nlohmann::ordered_json with_system(const nlohmann::ordered_json& messages) const;
  uint64_t template_digest() const;

  Runtime& runtime_;
  ConversationOptions options_;
  std::string system_, pending_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<Said> said_;             // the newest last
  std::optional<LoadedState> loaded_;  // until a turn left checkpoints of it
  uint64_t loads_ = 0;
  uint64_t attempts_ = 0;
};

// Whether the template looks at enable_thinking.
bool knows_thinking(const TextModel& text);

}  // namespace baton
