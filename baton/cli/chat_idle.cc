// What is certain of the next prompt goes to the unit that has nothing to do.
#include "baton/cli/chat_idle.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <new>
#include <utility>

#include "baton/api/units.h"

namespace baton::cli {
namespace {

// A question that nobody adds to for so long may be sent as it is.
constexpr std::chrono::milliseconds kStands(200);

}  // namespace

Result<std::unique_ptr<ChatIdle>> ChatIdle::create(Runtime& runtime, const Conversation& conversation,
                                                   const ModelFlags& model, const IdleFlags& flags) {
  std::unique_ptr<ChatIdle> idle(new ChatIdle(runtime, conversation, model, flags));
  if (flags.joules_max == 0 || idle->meter_.available()) return idle;
  return fail(Code::kUnsupported,
              fmt::format("--idle-joules: the energy of this machine cannot be read ({}); bound it with --idle-tokens",
                          idle->meter_.reason()));
}

ChatIdle::ChatIdle(Runtime& runtime, const Conversation& conversation, const ModelFlags& model, const IdleFlags& flags)
    : runtime_(runtime),
      conversation_(conversation),
      flags_(flags),
      idle_(
          runtime,
          [&conversation, &model](Request& request) {
            conversation.prepare(request);
            const auto prefill = parse_unit(model.prefill_unit);
            const bool only_prefills = prefill && prefill->entry->only_prefills;
            if (!only_prefills) request.decode_unit = request.prefill_unit;
            request.via_unit.clear();
            request.strategy.clear();
            --request.priority;  // an answer that decodes does not wait for it
          },
          [this] { return may_go_on(); }) {}

bool ChatIdle::beside_answers(const ModelFlags& model) {
  const auto prefill = parse_unit(model.prefill_unit);
  return prefill && !prefill->entry->only_prefills && model.prefill_unit != model.decode_unit &&
         model.prefill_unit != model.via_unit;
}

uint64_t ChatIdle::prefilled() const { return runtime_.engine().usage().prefilled; }

bool ChatIdle::may_go_on() {
  if (flags_.tokens_max > 0 && prefilled() - prefilled_before_ >= flags_.tokens_max) return false;
  // Energy that can be read no longer is not spent.
  return flags_.joules_max == 0 || meter_.joules().value_or(flags_.joules_max) < flags_.joules_max;
}

void ChatIdle::give_up(const Error& why) {
  spdlog::warn("idle-prefill ends: {}", why.message);
  given_up_ = true;
  for_good_ = why.code != Code::kOutOfMemory;
}

void ChatIdle::tell(std::vector<int32_t> tokens) {
  if (tokens == told_ || tokens.size() >= runtime_.context_tokens()) return;
  told_ = std::move(tokens);
  if (const Status status = idle_.certain(told_); !status) give_up(status.error());
}

void ChatIdle::count() {
  if (std::exchange(pausing_, true)) return;
  prefilled_before_ = prefilled();
  while_answering_ = 0;
  meter_.start();
}

void ChatIdle::begin() {
  words_.reset();
  given_up_ = for_good_;
  count();
}

void ChatIdle::answering(std::vector<int32_t> certain) {
  if (given_up_ || certain == told_) return;
  count();
  tell(std::move(certain));
}

void ChatIdle::look() {
  if (given_up_ || !pausing_) return;
  if (const Status status = idle_.poll(std::chrono::nanoseconds(0)); !status) give_up(status.error());
}

void ChatIdle::answered(bool interrupted) {
  if (!pausing_) return;
  while_answering_ = prefilled() - prefilled_before_;
  if (!interrupted) return;
  told_.clear();
  if (const Status status = idle_.stop(); !status && !given_up_) give_up(status.error());
}

void ChatIdle::wait(std::string_view typed) try {
  if (given_up_ || !pausing_) return;
  const auto now = std::chrono::steady_clock::now();
  if (typed != typed_) {
    typed_ = typed;
    typed_at_ = now;
    whole_ = false;
  }
  const std::string_view words = typed.substr(0, typed.find_last_of(" \t\n") + 1);
  std::optional<Result<std::vector<int32_t>>> tokens;
  if (!words_ || *words_ != words) {
    words_ = words;
    tokens = conversation_.certain(typed);
  } else if (!whole_ && !idle_.busy() && now - typed_at_ >= kStands && typed.find_first_not_of(" \t\n") != typed.npos) {
    whole_ = true;
    tokens = conversation_.if_sent(typed);
  }
  // A template that refuses half of a turn may take the whole one.
  if (tokens && *tokens) tell(**std::move(tokens));
  look();
} catch (const std::bad_alloc&) {
  give_up({Code::kOutOfMemory, "out of memory"});
}

void ChatIdle::end() {
  if (!std::exchange(pausing_, false)) return;
  if (const Status status = idle_.stop(); !status && !given_up_) give_up(status.error());
  tokens_ = prefilled() - prefilled_before_;
  decoding_tokens_ = while_answering_;
  joules_ = meter_.joules();
}

OrderedJson ChatIdle::json() const {
  return {{"tokens", tokens_},
          {"while_decoding", decoding_tokens_},
          {"joules", joules_ ? OrderedJson(*joules_) : OrderedJson(nullptr)}};
}

std::string ChatIdle::text() const {
  if (given_up_) return "ended by an error";
  const uint64_t before = pausing_ ? while_answering_ : 0;
  return fmt::format("{} tokens since the last answer, {}{}", pausing_ ? prefilled() - prefilled_before_ - before : 0,
                     idle_.busy() ? "going on" : "nothing left",
                     before > 0 ? fmt::format("; {} while it decoded", before) : "");
}

}  // namespace baton::cli
