// `baton chat`: a conversation. The state after each prompt is kept sealed; a turn whose rendered history begins with
// those tokens goes on from it and prefills only what is new.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "baton/cli/command.h"

namespace baton::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
  bool json = false, figures = false;
};

constexpr std::string_view kHelp =
    "/bye      leave (also Ctrl-D)\n"
    "/clear    forget the conversation\n"
    "/history  show the conversation\n"
    "/help     this list\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next.\n";

// Lines from standard input; a signal ends a waiting read.
class LineReader {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted };
  Outcome read(std::string* line) {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Outcome::kLine;
      }
      char bytes[4096];
      const ssize_t count = ::read(0, bytes, sizeof(bytes));
      if (count > 0) {
        buffer_.append(bytes, static_cast<size_t>(count));
        continue;
      }
      if (count < 0 && errno == EINTR) {
        buffer_.clear();
        return Outcome::kInterrupted;
      }
      if (buffer_.empty()) return Outcome::kEnd;
      *line = std::exchange(buffer_, {});  // a last line without its newline
      return Outcome::kLine;
    }
  }

 private:
  std::string buffer_;
};

class Conversation {
 public:
  Conversation(const ChatFlags& flags, Runtime& runtime, InterruptScope& interrupts)
      : flags_(flags), runtime_(runtime), interrupts_(interrupts) {
    clear();
  }

  void clear() {
    messages_ = OrderedJson::array();
    if (!flags_.system.empty()) messages_.push_back({{"role", "system"}, {"content", flags_.system}});
    state_.clear();
    state_tokens_.clear();
  }

  std::string history() const {
    std::string text;
    for (const auto& message : messages_) {
      text += fmt::format("{}: {}\n", message["role"].get<std::string>(), message["content"].get<std::string>());
    }
    return text;
  }

  // One turn. On an error the question is taken back, so that the conversation can go on.
  Result<Completion> answer(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    auto completion = ask();
    if (!completion) {
      messages_.erase(messages_.size() - 1);
      return completion;
    }
    messages_.push_back({{"role", "assistant"}, {"content", completion->text}});
    return completion;
  }
  uint64_t reused_tokens() const { return reused_tokens_; }

 private:
  Result<Completion> ask() {
    ChatInput input;
    input.messages = messages_;
    BATON_TRY(std::vector<int32_t> tokens, runtime_.encode_chat(input));
    CompletionRequest request{runtime_.make_request(tokens), flags_.sampling.stops};
    flags_.sampling.apply(request.request);
    flags_.model.apply(request.request);
    request.request.want_sealed_state = true;
    reused_tokens_ = 0;
    const bool goes_on = !state_tokens_.empty() && state_tokens_.size() < tokens.size() &&
                         std::equal(state_tokens_.begin(), state_tokens_.end(), tokens.begin());
    if (goes_on) {
      request.request.start_state = std::move(state_);
      reused_tokens_ = state_tokens_.size();
    }
    state_.clear();
    state_tokens_.clear();
    const auto show = [&](std::string_view text) {
      if (!flags_.json) print(text);
    };
    BATON_TRY(Completion completion,
              runtime_.complete(std::move(request), show, [&] { return interrupts_.interrupted(); }));
    state_ = std::move(completion.sealed_state);
    if (!state_.empty()) state_tokens_ = std::move(tokens);
    return completion;
  }

  const ChatFlags& flags_;
  Runtime& runtime_;
  InterruptScope& interrupts_;
  OrderedJson messages_;
  std::vector<std::byte> state_;       // sealed, after the last prompt
  std::vector<int32_t> state_tokens_;  // the tokens it holds
  uint64_t reused_tokens_ = 0;
};

void show_answer(const ChatFlags& flags, const Completion& completion, uint64_t reused_tokens) {
  log_warnings(completion);
  if (flags.json) {
    OrderedJson json;
    json["text"] = completion.text;
    json["ids"] = completion.ids;
    json.update(figures_json(completion));
    json["reused_tokens"] = reused_tokens;
    print_json(json);
    return;
  }
  print(completion.reason == FinishReason::kCancelled ? " [stopped]\n" : "\n");
  if (flags.figures)
    print(fmt::format("\n{}{:<12} {} tokens from the last turn's state\n\n", figures_text(completion), "reused",
                      reused_tokens));
}

// False: leave.
bool handle_line(const ChatFlags& flags, Conversation& conversation, InterruptScope& interrupts,
                 const std::string& line) {
  if (line == "/bye" || line == "/exit" || line == "/quit") return false;
  if (line.empty()) return true;
  if (line == "/clear") {
    conversation.clear();
  } else if (line == "/history") {
    print(conversation.history());
  } else if (line == "/help" || line == "/?") {
    print(kHelp);
  } else if (line.front() == '/' && line.find(' ') == std::string::npos) {
    fmt::print(stderr, "baton: no command '{}'; /help lists them\n", line);
  } else {
    interrupts.clear();
    const auto completion = conversation.answer(line);
    interrupts.clear();
    if (!completion) {
      fmt::print(stderr, "baton: {}\n", completion.error().message);
    } else {
      show_answer(flags, *completion, conversation.reused_tokens());
    }
  }
  return true;
}

int run(ChatFlags& flags) {
  if (const auto status = flags.model.settle(); !status) {
    fmt::print(stderr, "baton: {}\n", status.error().message);
    return status.error().code == Code::kInvalidInput ? kUsage : kFailed;
  }
  flags.sampling.settled_seed();
  auto runtime = flags.model.open();
  if (!runtime) return report(runtime.error());
  if (!(*runtime)->text().tokenizer) return report(no_tokenizer((*runtime)->text()).value());
  if (!(*runtime)->text().chat_template) {
    return report({Code::kUnsupported, fmt::format("{}: {}; chat needs one (use run --raw)", flags.model.model,
                                                   (*runtime)->text().chat_template_note)});
  }
  InterruptScope interrupts;
  Conversation conversation(flags, **runtime, interrupts);
  const bool terminal = ::isatty(0) != 0 && ::isatty(1) != 0;
  if (terminal)
    print(fmt::format("{}, prefill on {}, decode on {}; /help for help, /bye to leave\n", (*runtime)->model().spec.name,
                      flags.model.prefill_unit, flags.model.decode_unit));
  LineReader reader;
  std::string question;
  while (true) {
    if (terminal) print(question.empty() ? "> " : ". ");
    std::string line;
    const auto outcome = reader.read(&line);
    if (outcome == LineReader::Outcome::kEnd) {
      if (terminal) print("\n");
      return kOk;
    }
    if (outcome == LineReader::Outcome::kInterrupted) {
      interrupts.clear();
      question.clear();
      print("\n(/bye or Ctrl-D to leave)\n");
      continue;
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.back() == '\\') {
      line.back() = '\n';
      question += line;
      continue;
    }
    question += line;
    if (!handle_line(flags, conversation, interrupts, std::exchange(question, {}))) return kOk;
  }
}

}  // namespace

std::unique_ptr<Command> add_chat(CLI::App& program) {
  CLI::App* app = program.add_subcommand("chat", "talk in several turns; /bye leaves, Ctrl-C stops an answer");
  auto command = std::make_unique<FlagsCommand<ChatFlags, run>>(app);
  ChatFlags* flags = &command->flags;
  flags->sampling.temperature = 0.8f;
  app->add_option("--system", flags->system, "system prompt");
  flags->model.add_to(*app);
  flags->sampling.add_to(*app);
  app->add_flag("--json", flags->json, "one JSON object per answer instead of text");
  app->add_flag("--figures", flags->figures, "print the figures after each answer");
  return command;
}

}  // namespace baton::cli
