// Idle-prefill of a chat: what its prefill unit does while the user reads the answer and types. Strategy
// `idle-prefill`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/conversation.h"
#include "baton/api/idle_prefill.h"
#include "baton/bench/energy_meter.h"
#include "baton/cli/command.h"
#include "baton/cli/model_flags.h"

namespace baton::cli {

inline constexpr std::string_view kIdlePrefill = "idle-prefill";

struct IdleFlags {
  bool on = false;
  uint64_t tokens_max = 0;  // of one pause; 0: no bound
  double joules_max = 0;    // of the whole package, in one pause; 0: no bound
};

// The pause between an answer and the next question. Runtime and conversation are borrowed.
class ChatIdle {
 public:
  // kUnsupported, with the reason, when joules are to be bounded and there is no meter.
  static Result<std::unique_ptr<ChatIdle>> create(Runtime& runtime, const Conversation& conversation,
                                                  const ModelFlags& model, const IdleFlags& flags);

  // An answer has ended, or a command changed the conversation: what was certain may not be.
  void begin();
  // Asked a few times a second while nothing is asked of the units: the question begins with `typed`. Returns at once.
  void wait(std::string_view typed);
  // The question is sent: what is under way ends within a step, and what it left stays.
  void end();

  // Of the last pause; `joules` of the whole package, null without a meter.
  OrderedJson json() const;
  std::string text() const;  // of what was done so far, for /show
  uint64_t tokens() const { return tokens_; }

 private:
  ChatIdle(Runtime& runtime, const Conversation& conversation, const ModelFlags& model, const IdleFlags& flags);
  bool may_go_on();
  void give_up(const Error& why);
  uint64_t prefilled() const;

  Runtime& runtime_;
  const Conversation& conversation_;
  const IdleFlags flags_;
  EnergyMeter meter_;
  IdlePrefill idle_;
  std::optional<std::string> words_;  // of the question, as they were when the certain tokens were last told
  std::vector<int32_t> told_;
  bool pausing_ = false, given_up_ = false;
  uint64_t prefilled_before_ = 0, tokens_ = 0;
  std::optional<double> joules_;
};

}  // namespace baton::cli
