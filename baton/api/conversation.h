// A conversation: messages, and the sealed states that save prefilling again what was said. After each turn the states
// behind the prompt and behind the answer are kept; the next turn goes on from the longest one whose tokens begin its
// prompt. A state is only used when that was seen to hold, token by token or, for an answer that the model wrote in
// other tokens than the tokenizer would, byte by byte.
//
// Some templates write an answer's place in the history differently from the prompt it was given on (they drop the
// thinking): there the state behind the answer can never go on. For those a state is kept at the last token that the
// next prompt will surely share, and the answer is prefilled again, as its text requires.
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
  std::function<void(uint64_t done, uint64_t total)> on_prefill = {};  // of CompletionRequest
};

// What became of one question.
struct Turn {
  // Empty: the prompt does not fit into the context, and nothing was changed but pending().
  std::optional<Completion> completion;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;  // of the prompt, held by a kept state
  bool context_full = false;   // the answer ended because the context did
};

struct ConversationUse {
  uint64_t messages = 0;
  uint64_t tokens = 0;       // before the next question, from a state or to be prefilled; at most the context
  uint64_t state_bytes = 0;  // of the kept states
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
  // What the next turn has to prefill: of the conversation so far without its `dropped` oldest turns, and the pending
  // question.
  Result<uint64_t> tokens_to_prefill(uint64_t dropped = 0) const;
  // How many of the oldest turns have to go before the pending question fits into the context: 0 when it does, or when
  // none is pending; nothing when it does not fit alone.
  Result<std::optional<uint64_t>> turns_to_drop() const;
  // The text that a prompt of this conversation ends with: what the template writes before an answer.
  Result<std::string> answer_opening() const;
  // How often the same turn was asked again: seeds have to differ.
  uint64_t attempts() const { return attempts_; }

  // FILE: the longest state of what was said (when there is one), FILE.json: the messages. Mode 0600. docs/chat.md.
  Status save(const std::filesystem::path& file, const StateKey* key = nullptr) const;
  // Replaces the conversation. kMismatch for another model, tokenizer or template, or when the two files do not belong
  // together; nothing is changed then. Without FILE, but with FILE.json, all is prefilled again.
  // `key`: as in state/seal_file.h; it covers both files.
  Status load(const std::filesystem::path& file, const StateKey* key = nullptr);

 private:
  struct KnownState {
    std::vector<int32_t> tokens;
    SealSource state;  // in memory, or the file it was loaded from
  };
  struct Prompt {
    std::vector<int32_t> tokens;
    const KnownState* start = nullptr;  // null: from nothing
  };

  ChatInput input_of(const nlohmann::ordered_json& messages, bool asks) const;
  // The prompt's tokens, the longest known state in front.
  Result<Prompt> prompt_of(const nlohmann::ordered_json& messages, bool asks) const;
  // `state` and then the rest of the text in new tokens; empty when the state's text does not begin the prompt's.
  Result<std::optional<std::vector<int32_t>>> splice(const KnownState& state, const std::vector<int32_t>& canonical,
                                                     const ChatInput& input) const;
  // How many tokens of the prompt every next prompt begins with too.
  Result<size_t> lasting_tokens(const std::vector<int32_t>& prompt) const;
  Result<Turn> answer(const std::function<void(std::string_view)>& on_text, const std::function<bool()>& cancelled);
  // The next turn's prompt without the `dropped` oldest turns; no tokens when nothing is left to ask.
  Result<Prompt> next_prompt(uint64_t dropped) const;
  // Keeps a state at `tokens`, a beginning of the prompt, and makes it the one to start from.
  Status keep_lasting(Prompt& prompt, size_t tokens, const std::function<bool()>& cancelled, RequestStats* stats);
  void keep_states(Prompt prompt, Completion& completion);
  CompletionRequest request_of(const Prompt& prompt) const;
  nlohmann::ordered_json with_system(const nlohmann::ordered_json& messages) const;
  uint64_t template_digest() const;

  Runtime& runtime_;
  ConversationOptions options_;
  std::string system_, pending_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::vector<KnownState> states_;
  uint64_t attempts_ = 0;
};

// Whether the template looks at enable_thinking.
bool knows_thinking(const TextModel& text);

}  // namespace baton
