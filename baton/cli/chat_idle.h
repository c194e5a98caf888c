// Idle-prefill of a chat: what its prefill unit does while the other one decodes the answer, and while the user reads
// it and types. Strategy `idle-prefill`.
#pragma once

#include <chrono>
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
  uint64_t tokens_max = 0;  // before one question; 0: no bound
  double joules_max = 0;    // of the whole package, from what is first prefilled before it; 0: no bound
};

// From an answer's first piece, or its end, to the next question. Runtime and conversation are borrowed.
class ChatIdle {
 public:
  // kUnsupported, with the reason, when joules are to be bounded and there is no meter.
  static Result<std::unique_ptr<ChatIdle>> create(Runtime& runtime, const Conversation& conversation,
                                                  const ModelFlags& model, const IdleFlags& flags);

  // Whether the unit that prefills has nothing to do while an answer decodes: it is another one, and needs no step of
  // that one to end a prompt.
  static bool beside_answers(const ModelFlags& model);

  // While an answer decodes: the next prompt surely begins so (ConversationOptions::on_certain).
  void answering(std::vector<int32_t> certain);
  // A few times a second while it does. Returns at once.
  void look();
  // It has ended. Interrupted: what is under way ends within a step, and the pause begins anew.
  void answered(bool interrupted);

  // An answer has ended, or a command changed the conversation: what was certain may not be.
  void begin();
  // Asked a few times a second while nothing is asked of the units: the question begins with `typed`; when that has
  // stood for a moment, it may be all of it. Returns at once.
  void wait(std::string_view typed);
  // The question is sent: what is under way ends within a step, and what it left stays.
  void end();

  // Before the last question; `joules` of the whole package, null without a meter.
  OrderedJson json() const;
  std::string text() const;  // of what was done so far, for /show
  uint64_t tokens() const { return tokens_; }
  uint64_t decoding_tokens() const { return decoding_tokens_; }  // of them, while the answer before decoded

 private:
  ChatIdle(Runtime& runtime, const Conversation& conversation, const ModelFlags& model, const IdleFlags& flags);
  bool may_go_on();
  // `tokens`, where they leave room for an answer: what does not fit now may be taken back.
  void tell(std::vector<int32_t> tokens);
  void give_up(const Error& why);
  void count();
  uint64_t prefilled() const;

  Runtime& runtime_;
  const Conversation& conversation_;
  const IdleFlags flags_;
  EnergyMeter meter_;
  IdlePrefill idle_;
  std::optional<std::string> words_;  // of the question, as they were when the certain tokens were last told
  std::string typed_;                 // and all of it
  std::chrono::steady_clock::time_point typed_at_;
  bool whole_ = false;  // told as if it were sent so
  std::vector<int32_t> told_;
  bool pausing_ = false, given_up_ = false;  // given up: for good, or, without memory, for this pause
  bool for_good_ = false;
  uint64_t prefilled_before_ = 0, while_answering_ = 0, tokens_ = 0, decoding_tokens_ = 0;
  std::optional<double> joules_;
};

}  // namespace baton::cli
