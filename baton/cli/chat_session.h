// A chat's conversation with its commands and messages: everything but where the input comes from.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "baton/api/conversation.h"
#include "baton/cli/chat_command.h"
#include "baton/cli/chat_idle.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/line_editor.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/progress.h"
#include "baton/cli/sampling_flags.h"
#include "baton/cli/state_key.h"
#include "baton/cli/thinking.h"

namespace baton::cli {

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  ThinkingFlags thinking;
  StateCacheFlags cache;
  IdleFlags idle;
  std::string prompt, file, system, load_state, save_state, state_key, history;
  std::optional<StateKey> key;  // of state_key
  bool json = false, figures = false, no_reuse = false;
};

class ChatSession {
 public:
  ChatSession(ChatFlags& flags, Runtime& runtime, InterruptScope& interrupts);

  // A command or a question, as typed.
  void enter(const EnteredTurn& turn, bool* leave);
  // A question; an ExitCode.
  int say(const std::string& question);
  // A command line; false when it could not be done, which was said.
  bool obey(std::string_view text, bool* leave);

  // Idle-prefill, from now on.
  Status begin_idle();
  // The next question begins so, as far as is known; and the pause goes on, with `line` behind it.
  void typing(std::string_view text) { typed_ = text; }
  void wait(std::string_view line);
  bool idles() const { return idle_ != nullptr; }
  // No more of it: nothing is under way.
  void end_idle() { idle_.reset(); }

  Status save(const std::filesystem::path& file);
  // Says what was loaded, and when no question fits behind it.
  Status load(const std::filesystem::path& file);
  // --system and --think in the place of what a conversation was saved with.
  void take_flags();
  // Whether a bridge proof failed in this chat.
  bool proof_failed() const { return proof_failed_; }

  // Model, units and context in one line.
  std::string header() const;
  std::string units_text() const;
  bool colour() const { return colour_; }
  // Says why there is no answer; with --json also as an object on stdout. Always false.
  bool refuse(std::string_view why) const;
  bool interrupted() const { return interrupts_.interrupted(); }
  void clear_interrupt() { interrupts_.clear(); }
  // What is polled while an answer streams; null: nothing.
  void attach(LineEditor* editor) { editor_ = editor; }

 private:
  bool run_command(const ParsedCommand& command, bool* leave);
  bool set(const std::string& argument);
  bool think(const std::string& argument);
  bool drop(const std::string& argument);
  // Whether forgetting so many turns lets the pending question in; what else would is said.
  bool drop_helps(uint64_t count) const;
  bool undo();
  bool change_system(const std::string& argument);
  bool help(const std::string& argument) const;
  std::string show();
  std::string history() const;

  // Asks, or asks again when there is no question, and shows the answer.
  int answer(const std::string* question);
  int answer_now(const std::string* question);
  void show_prefill(uint64_t done, uint64_t total);
  void show_turn(const Turn& turn);
  void explain_full(const Turn& turn);
  // Tokens of the context in use; nothing, with a warning, when the template refuses the conversation.
  std::optional<ConversationUse> use() const;
  // "120 tokens, about 0.4 s"
  std::string prefill_cost(uint64_t tokens) const;
  void note(std::string_view text) const;  // on stderr
  // What a command shows: on stdout, with --json on stderr, as stdout has the answers.
  bool tell(std::string_view text) const;
  void prepare(Request& request) const;
  // ConversationOptions::on_certain; empty: nothing is prefilled beside answers.
  std::function<void(std::vector<int32_t>)> certain_while_answering();

  ChatFlags& flags_;
  Runtime& runtime_;
  InterruptScope& interrupts_;
  std::optional<Progress> meter_, measuring_;  // of the question under way, and of what its proof needs first
  Conversation conversation_;
  std::unique_ptr<ChatIdle> idle_;  // null: no idle-prefill
  std::string typed_;
  LineEditor* editor_ = nullptr;
  const uint64_t context_;
  const bool colour_;
  const bool commands_;     // whether the input can have any
  double prefill_tps_ = 0;  // of the last prefill that was long enough to tell
  bool proof_failed_ = false;
};

}  // namespace baton::cli
