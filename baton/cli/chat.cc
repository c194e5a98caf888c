// `baton chat`: a conversation at a terminal, or from a pipe. What is said and kept is api/conversation.h's; the
// commands are in chat_session.cc.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "baton/cli/chat_session.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/line_history.h"
#include "baton/cli/paths.h"
#include "baton/cli/prompt.h"

namespace baton::cli {
namespace {

constexpr size_t kInputBytesMax = size_t{256} << 20;

// What an editor asks while it waits. Lines of a pipe come whole: what lies there of the next one is JSON.
std::function<void(std::string_view)> waits(ChatSession& session, bool lines) {
  if (!session.idles()) return {};
  return [&session, lines](std::string_view line) { session.wait(lines ? std::string_view() : line); };
}

// The whole of standard input, as one text.
Result<std::string> read_whole(const ChatSession& session) {
  const auto reader = open_line_reader(STDIN_FILENO, [&] { return session.interrupted(); });
  std::string whole, line;
  while (true) {
    const auto outcome = reader->read({}, &line);
    if (outcome == LineEditor::Outcome::kInterrupted) return fail(Code::kCancelled, "interrupted");
    if (outcome == LineEditor::Outcome::kEnd) break;
    whole += line;
    whole += '\n';
    if (whole.size() > kInputBytesMax) return fail(Code::kInvalidInput, "standard input: more than 256 MiB");
  }
  while (whole.ends_with('\n')) whole.pop_back();
  return whole;
}

int run_piped(ChatSession& session) {
  const auto text = read_whole(session);
  if (!text) return report(text.error());
  if (text->empty()) {
    fmt::print(stderr, "baton: standard input is empty: nothing was asked\n");
    return kOk;
  }
  return session.say(*text);
}

// Each line is a JSON text (a question), {"role": "user", "content": TEXT}, {"command": "/clear"}, or {"typing": TEXT}:
// what the next question begins with, for idle-prefill; it has no answer.
// What a line asks and does not get is an object with an error; the lines behind it go on.
int run_json_lines(ChatSession& session) {
  int worst = kOk;
  const auto reader = open_line_reader(
      STDIN_FILENO, [&] { return session.interrupted(); }, waits(session, true));
  std::string line;
  for (size_t number = 1;; ++number) {
    const auto outcome = reader->read({}, &line);
    if (outcome == LineEditor::Outcome::kEnd) return worst;
    if (outcome == LineEditor::Outcome::kInterrupted) return kInterrupted;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const auto json = OrderedJson::parse(line, nullptr, false);
    const auto field = [&](const char* name) -> std::optional<std::string> {
      if (!json.is_object() || !json.contains(name) || !json[name].is_string()) return std::nullopt;
      return json[name].get<std::string>();
    };
    const auto content = field("content"), command = field("command"), typing = field("typing");
    int code = kOk;
    bool done = true;
    if (json.is_string()) {
      code = session.say(json.get<std::string>());
    } else if (typing && json.size() == 1) {
      session.typing(*typing);
    } else if (field("role") == "user" && content && !command) {
      code = session.say(*content);
    } else if (command && !command->empty() && !content) {
      bool leave = false;
      done = session.obey(*command, &leave);
      if (leave) return worst;
    } else {
      done = session.refuse(
          fmt::format("standard input, line {}: with --json each line is a JSON text, {{\"role\": \"user\", "
                      "\"content\": TEXT}}, {{\"command\": TEXT}} or {{\"typing\": TEXT}}",
                      number));
    }
    if (code == kInterrupted || output_lost()) return code;
    if (code != kOk || !done) worst = kFailed;
  }
}

int run_terminal(ChatSession& session, LineEditor& editor, bool prompts) {
  TurnAssembler turns;
  std::string entry;
  while (true) {
    const auto outcome = editor.read(!prompts ? "" : turns.begun() ? ". " : "> ", &entry);
    if (outcome == LineEditor::Outcome::kEnd) return kOk;
    if (outcome == LineEditor::Outcome::kInterrupted) {
      if (output_lost()) return kFailed;
      if (interrupted_code() != kInterrupted) return interrupted_code();  // the terminal is gone, say
      const bool was_empty = !turns.begun();
      session.clear_interrupt();
      turns.reset();
      session.typing({});
      if (was_empty) fmt::print(stderr, "(/bye or Ctrl-D to leave)\n");
      continue;
    }
    if (!turns.add(entry)) {
      session.typing(turns.so_far());
      continue;
    }
    session.typing({});
    const EnteredTurn turn = turns.take();
    if (turn.text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    editor.remember(turn.literal ? "\"\"\"" + turn.text + "\"\"\"" : turn.text);
    bool leave = false;
    session.enter(turn, &leave);
    if (leave) return kOk;
    if (output_lost()) return kFailed;
  }
}

int talk(ChatFlags& flags, ChatSession& session) {
  const bool asked = !flags.prompt.empty(), terminal = ::isatty(STDIN_FILENO) != 0;
  int first = kOk;
  if (asked) {
    if (!terminal && !flags.json && flags.file != "-") warn_of_unread_pipe();
    first = session.say(flags.prompt);
    if (first != kOk && (terminal || !flags.json || first == kInterrupted || output_lost())) return first;
  }
  if (!terminal) {
    if (!flags.json) return asked ? kOk : run_piped(session);
    const int code = run_json_lines(session);
    return code == kOk ? first : code;
  }
  const auto interrupted = [&] { return session.interrupted(); };
  if (::isatty(STDOUT_FILENO) == 0 || flags.json) {
    const auto reader = open_line_reader(STDIN_FILENO, interrupted, waits(session, false));
    return run_terminal(session, *reader, false);
  }
  EditorOptions options{.complete = {},
                        .history = flags.history,
                        .interrupted = interrupted,
                        .waiting = waits(session, false),
                        .colour = session.colour()};
  options.complete = [](std::string_view before) {
    Completions found = complete_chat(before);
    return std::pair(found.from, std::move(found.words));
  };
  auto editor = open_terminal_editor(std::move(options));
  if (!editor) {
    spdlog::warn("{}", editor.error().message);
    editor = open_line_reader(STDIN_FILENO, interrupted, waits(session, false));
  }
  session.attach(editor->get());
  print(session.header());
  const int code = run_terminal(session, **editor, true);
  session.attach(nullptr);
  return code;
}

Status check_chat_flags(ChatFlags& flags) {
  flags.idle.on = flags.model.strategy == kIdlePrefill;
  if (flags.idle.on) flags.model.strategy.clear();  // of the turns: by the units
  if (!flags.idle.on && (flags.idle.tokens_max > 0 || flags.idle.joules_max > 0))
    return fail(Code::kInvalidInput, "--idle-tokens and --idle-joules go with --strategy idle-prefill");
  if (flags.idle.on && (flags.no_reuse || flags.model.verify != "off")) {
    return fail(Code::kInvalidInput, fmt::format("--strategy idle-prefill: with {} each turn prefills all; leave one "
                                                 "of them out",
                                                 flags.no_reuse ? "--no-reuse" : "--verify-bridge"));
  }
  if (flags.no_reuse && flags.cache.bf16()) {
    return fail(Code::kInvalidInput,
                "--no-reuse keeps no checkpoints: --checkpoint-dtype bf16 has no use; leave one out");
  }
  if (flags.cache.folder.empty()) return {};
  if (flags.no_reuse)
    return fail(Code::kInvalidInput, "--no-reuse prefills all of each turn: --state-cache has no use; leave one out");
  if (flags.model.verify == "off") return {};
  return fail(Code::kInvalidInput,
              "--state-cache: --verify-bridge says what the answer rests on; leave one of them out");
}

// What a chat goes on from is most of what it does: a quarter of what is free.
EngineLimits chat_limits(const ChatFlags& flags) {
  EngineLimits limits;
  const uint64_t available = flags.model.memory_bytes();
  limits.checkpoint_bf16 = flags.cache.bf16();
  if (!flags.no_reuse) limits.checkpoint_bytes_max = available > 0 ? available / 4 : uint64_t{1} << 30;
  return limits;
}

int run_chat(ChatFlags& flags) {
  if (const auto status = check_chat_flags(flags); !status) return report_usage(status.error());
  if (const auto status = flags.model.settle(); !status) {
    fmt::print(stderr, "baton: {}\n", status.error().message);
    return status.error().code == Code::kInvalidInput ? kUsage : kFailed;
  }
  if (const auto status = check_no_model(flags.prompt); !status) return report_usage(status.error());
  auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
  flags.key = *std::move(key);
  if (!flags.file.empty()) {
    InterruptScope reading;
    reading.end_at_once(true);
    auto prompt = read_prompt({flags.prompt, flags.file});
    if (!prompt) return flags.file == "-" ? report_usage(prompt.error()) : report(prompt.error());
    flags.prompt = *std::move(prompt);
  }
  flags.sampling.settled_seed();
  flags.cache.key = pointer_to(flags.key);
  auto runtime = flags.model.open(chat_limits(flags), flags.cache);
  if (!runtime) return report(with_flags(runtime.error()));
  if (!(*runtime)->text().tokenizer) return report(no_tokenizer((*runtime)->text()).value());
  if (!(*runtime)->text().chat_template) {
    return report({Code::kUnsupported, fmt::format("{}: {}; chat needs one (use run --raw)", flags.model.model,
                                                   (*runtime)->text().chat_template_note)});
  }
  flags.thinking.warn((*runtime)->text());
  if (!flags.json) say_bundled_model(flags.model);
  InterruptScope interrupts(InterruptScope::kTerminateToo);  // states are saved then too
  ChatSession session(flags, **runtime, interrupts);
  if (!flags.load_state.empty()) {
    if (const auto status = session.load(flags.load_state); !status) return report(status.error());
    session.take_flags();
  }
  if (flags.idle.on) {
    if (const auto status = session.begin_idle(); !status) return report(status.error());
  }
  const int code = talk(flags, session);
  session.end_idle();
  Status saved;
  if (!flags.save_state.empty()) {
    session.clear_interrupt();
    saved = session.save(flags.save_state);
  }
  interrupts.clear();
  save_to_cache(**runtime, [&] { return interrupts.interrupted(); });
  if (!saved) return report(saved.error());
  return code == kOk && session.proof_failed() ? kFailed : code;
}

}  // namespace

std::unique_ptr<Command> add_chat(CLI::App& program) {
  CLI::App* app = program.add_subcommand("chat",
                                         "talk in several turns; /help lists commands, Ctrl-C stops an answer, /bye "
                                         "leaves. Input from a pipe is one turn");
  auto command = std::make_unique<FlagsCommand<ChatFlags, run_chat>>(app);
  ChatFlags* flags = &command->flags;
  flags->sampling.temperature = 0.2f;  // docs/chat.md has what was measured
  flags->sampling.min_p = 0.1f;
  flags->sampling.repeat_penalty = 1.1f;
  flags->history = default_history_path().string();
  app->add_option("-p,--prompt", flags->prompt, "the first question");
  takes_path(app->add_option("-f,--file", flags->file,
                             "a file with the first question, or - for standard input; behind the text of -p"),
             PathKind::kFile);
  app->add_option("--system", flags->system, "system prompt");
  flags->model.add_to(*app);
  flags->sampling.add_to(*app);
  flags->thinking.add_to(*app);
  flags->cache.add_to(*app);
  flags->cache.add_dtype_to(*app);
  CLI::Option* strategy = app->get_option("--strategy");
  strategy->description(strategy->get_description() +
                        fmt::format("; {}: by the units, and while you read and type the prefill unit prefills what is "
                                    "certain of the next turn",
                                    kIdlePrefill));
  app->add_option("--idle-tokens", flags->idle.tokens_max, "tokens that idle-prefill spends before a turn at most")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 31));
  app->add_option("--idle-joules", flags->idle.joules_max,
                  "joules of the whole machine that idle-prefill may go on for before a turn, where they can be read")
      ->check(CLI::Range(1e-3, 1e9));
  app->add_flag("--no-reuse", flags->no_reuse, "prefill all of each turn again (docs/chat.md)");
  takes_path(
      app->add_option("--load-state", flags->load_state, "go on with a conversation that /save or --save-state wrote"),
      PathKind::kState);
  takes_path(app->add_option("--save-state", flags->save_state,
                             "at the end save the conversation: its state in this file, its messages in FILE.json"),
             PathKind::kConversation);
  takes_path(app->add_option("--state-key", flags->state_key,
                             "file with a secret: states, saved, loaded or of --state-cache, have a MAC under it"),
             PathKind::kFile);
  takes_path(app->add_option("--history", flags->history, "file of the questions for the arrow keys; \"\": none"),
             PathKind::kHistory)
      ->capture_default_str();
  app->add_flag(
      "--json", flags->json,
      "one JSON object per answer instead of text; lines of a pipe are JSON texts or {\"command\": \"/clear\"}");
  app->add_flag("--figures", flags->figures, "print the figures after each answer (stderr)");
  return command;
}

}  // namespace baton::cli
