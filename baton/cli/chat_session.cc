// Turns and commands of a chat.
#include "baton/cli/chat_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "baton/base/terminal.h"
#include "baton/cli/figures.h"
#include "baton/cli/paths.h"
#include "baton/cli/prompt.h"

namespace baton::cli {
namespace {

constexpr uint64_t kTellingPrefillTokens = 32;
constexpr uint64_t kSeedStep = 65537;  // between attempts at one turn

uint64_t context_of(const ModelFlags& flags, const Model& model) {
  const auto most = static_cast<uint64_t>(std::max(model.spec.context_max, 1));
  return flags.context == 0 ? most : std::min<uint64_t>(flags.context, most);
}

std::string turns_text(uint64_t count) { return fmt::format("{} turn{}", count, count == 1 ? "" : "s"); }

// The format that most of the weights' bytes have.
std::string_view main_format(const Model& model) {
  std::map<DType, uint64_t> bytes;
  for (const Weight& weight : model.weights) bytes[weight.dtype] += weight.bytes;
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : to_string(most->first);
}

}  // namespace

ChatSession::ChatSession(ChatFlags& flags, Runtime& runtime, InterruptScope& interrupts)
    : flags_(flags),
      runtime_(runtime),
      interrupts_(interrupts),
      conversation_(runtime, {.context = context_of(flags.model, runtime.model()),
                              .stops = flags.sampling.stops,
                              .prepare = [this](Request& request) { prepare(request); },
                              .thinking = flags.thinking.asked(),
                              .proof = proof_events(interrupts, measuring_),
                              .reuse = flags.no_reuse ? ReuseMode::kOff : ReuseMode::kAny,
                              .on_prefill = [this](uint64_t done, uint64_t total) { show_prefill(done, total); },
                              .on_certain = certain_while_answering()}),
      context_(context_of(flags.model, runtime.model())),
      colour_(::isatty(STDOUT_FILENO) != 0 && !flags.json && std::getenv("NO_COLOR") == nullptr),
      commands_(flags.json || ::isatty(STDIN_FILENO) != 0) {
  conversation_.set_system(flags.system);
}

void ChatSession::prepare(Request& request) const {
  flags_.sampling.apply(request);
  flags_.model.apply(request);
  // Each turn and each attempt at it draws by numbers of its own.
  request.sampler.seed += conversation_.turns() + kSeedStep * conversation_.attempts();
}

Status ChatSession::begin_idle() {
  BATON_TRY(idle_, ChatIdle::create(runtime_, conversation_, flags_.model, flags_.idle));
  idle_->begin();
  return {};
}

std::function<void(std::vector<int32_t>)> ChatSession::certain_while_answering() {
  if (!flags_.idle.on || !ChatIdle::beside_answers(flags_.model)) return {};
  return [this](std::vector<int32_t> tokens) {
    if (idle_ && !interrupts_.interrupted()) idle_->answering(std::move(tokens));
  };
}

void ChatSession::wait(std::string_view line) {
  if (!idle_) return;
  std::string_view typed = line;
  if (typed_.empty()) {
    if (typed.starts_with("\"\"\"")) typed.remove_prefix(3);
    if (line.starts_with('/')) typed = {};  // a command, as far as is known
  }
  idle_->wait(typed_ + std::string(typed));
}

void ChatSession::show_prefill(uint64_t done, uint64_t total) {
  if (!meter_) meter_.emplace("prefill");
  meter_->show(done, total);
}

void ChatSession::note(std::string_view text) const { fmt::print(stderr, "{}\n", text); }

bool ChatSession::tell(std::string_view text) const {
  // Of files and models, and as long as a conversation.
  const std::string safe = terminal_safe(text, text.size() * 8);
  if (!flags_.json) return print(safe);
  fmt::print(stderr, "{}", safe);
  return true;
}

bool ChatSession::refuse(std::string_view why) const {
  note(fmt::format("baton: {}", terminal_safe(why, kMessageShownMax)));
  if (flags_.json) print_json({{"error", why}});
  return false;
}

std::string ChatSession::units_text() const {
  const std::vector<std::string> emulated = runtime_.emulated_units();
  const auto named = [&](const std::string& unit) {
    const bool is = std::find(emulated.begin(), emulated.end(), unit) != emulated.end();
    return unit + (is ? " (emulated)" : "");
  };
  return fmt::format("prefill on {}, decode on {}", named(flags_.model.prefill_unit), named(flags_.model.decode_unit));
}

std::string ChatSession::header() const {
  return fmt::format("{} ({}), {}, context {} tokens; /help for help, /bye to leave\n",
                     name_of_path(flags_.model.model), main_format(runtime_.model()), units_text(), context_);
}

void ChatSession::enter(const EnteredTurn& turn, bool* leave) {
  if (!turn.literal && parse_command(turn.text)) {
    obey(turn.text, leave);
  } else {
    say(turn.text);
  }
  interrupts_.clear();
}

int ChatSession::say(const std::string& question) { return answer(&question); }

bool ChatSession::obey(std::string_view text, bool* leave) {
  const auto command = parse_command(text);
  if (!command) return refuse(fmt::format("'{}' is no command; /help lists them", text));
  if (!command->name.empty()) return run_command(*command, leave);
  return refuse(fmt::format("no command '{}'{}; /help lists them", command->word,
                            command->nearest.empty() ? "" : fmt::format(", did you mean {}?", command->nearest)));
}

bool ChatSession::run_command(const ParsedCommand& command, bool* leave) {
  if (idle_) idle_->begin();  // it may change what is certain
  const auto& [name, argument, word, nearest] = command;
  const auto done = [&](const Status& status, std::string_view text) {
    if (!status) return refuse(status.error().message);
    note(text);
    return true;
  };
  if (name == "/help") return help(argument);
  if (name == "/set") return set(argument);
  if (name == "/think") return think(argument);
  if (name == "/system") return change_system(argument);
  if (name == "/drop") return drop(argument);
  if (name == "/save" || name == "/load") {
    if (argument.empty()) return refuse(name + " takes a file");
    const Status status = name == "/save" ? save(argument) : load(argument);
    if (status && name == "/load") return true;  // said there
    return done(status, fmt::format("saved in {0} and {0}.json", argument));
  }
  if (!argument.empty()) return refuse(fmt::format("{} takes no argument", name));
  if (name == "/bye") *leave = true;
  if (name == "/clear") {
    conversation_.clear();
    note(conversation_.system_prompt().empty() ? "the conversation is forgotten"
                                               : "the conversation is forgotten; the system prompt stays");
  }
  if (name == "/show") return tell(show());
  if (name == "/history") return tell(history());
  if (name == "/retry") {
    if (flags_.sampling.temperature == 0 && conversation_.pending().empty())
      note("(at temperature 0 the answer is the same; /set temp 0.8 draws)");
    return answer(nullptr) == kOk;
  }
  return name != "/undo" || undo();
}

bool ChatSession::undo() {
  if (!conversation_.undo()) return refuse("there is no question to take back");
  const uint64_t left = conversation_.turns();
  note(fmt::format("the last question and its answer are taken back; {} left", turns_text(left)));
  return true;
}

bool ChatSession::help(const std::string& argument) const {
  std::string text;
  const std::string wanted = argument.empty() || argument[0] == '/' ? argument : "/" + argument;
  for (const ChatCommand& command : chat_commands()) {
    if (!wanted.empty() && wanted != command.name) continue;
    text += fmt::format("{:<22} {}\n", fmt::format("{} {}", command.name, command.usage), command.help);
    if (command.name == "/set" && !wanted.empty()) text += settings_help();
  }
  if (text.empty()) {
    return refuse(fmt::format("no command '{}'; /help lists them", argument));
  }
  if (wanted.empty()) {
    text +=
        "Ctrl-C stops an answer, Ctrl-D leaves. Several lines: paste them, end a line with \\, press Alt-Enter,\n"
        "or put them between \"\"\" and \"\"\" (which also sends a line that begins with a slash).\n";
  }
  return tell(text);
}

bool ChatSession::set(const std::string& argument) {
  if (argument.empty()) return tell(sampling_text(flags_.sampling) + "\n");
  const size_t blank = argument.find_first_of(" \t=");
  const size_t value = blank == std::string::npos ? blank : argument.find_first_not_of(" \t=", blank);
  const std::string name = argument.substr(0, blank);
  const auto status = value == std::string::npos
                          ? Status(fail(Code::kInvalidInput, fmt::format("/set {} needs a value", name)))
                          : set_sampling(flags_.sampling, name, argument.substr(value));
  if (!status) return refuse(status.error().message);
  note("now " + sampling_text(flags_.sampling));
  return true;
}

bool ChatSession::think(const std::string& argument) {
  if (!knows_thinking(runtime_.text())) return refuse("the model's chat template has no switch for thinking");
  if (argument == "on" || argument == "off") {
    conversation_.set_thinking(argument == "on");
  } else if (argument == "auto") {
    conversation_.set_thinking(std::nullopt);
  } else {
    return refuse("/think takes on, off or auto");
  }
  return true;
}

bool ChatSession::change_system(const std::string& argument) {
  if (argument.empty()) {
    return tell(conversation_.system_prompt().empty() ? "no system prompt\n" : conversation_.system_prompt() + "\n");
  }
  conversation_.set_system(argument == "\"\"" || argument == "\"\"\"\"\"\"" ? "" : argument);
  note(conversation_.system_prompt().empty() ? "the system prompt is taken away" : "the system prompt is set");
  const auto tokens = conversation_.tokens_to_prefill();
  if (tokens && conversation_.turns() > 0)
    note(fmt::format("the next turn prefills the conversation again: {}", prefill_cost(*tokens)));
  return true;
}

bool ChatSession::drop(const std::string& argument) {
  uint64_t count = 1;
  const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), count);
  if (!argument.empty() && (error != std::errc() || end != argument.data() + argument.size() || count == 0)) {
    return refuse("/drop takes a number of turns");
  }
  if (conversation_.turns() > 0 && !drop_helps(count)) return false;
  uint64_t dropped = 0;
  while (dropped < count && conversation_.drop_oldest()) ++dropped;
  if (dropped == 0) return refuse("there is no turn to forget");
  const auto tokens = conversation_.tokens_to_prefill();
  note(fmt::format("forgot {} of {}; the next one prefills what is left: {}", dropped,
                   turns_text(dropped + conversation_.turns()), prefill_cost(tokens.value_or(0))));
  return conversation_.pending().empty() || answer(nullptr) == kOk;
}

bool ChatSession::drop_helps(uint64_t count) const {
  const auto needed = conversation_.turns_to_drop();
  if (!needed) return true;  // asking will say what is wrong
  if (!*needed) {
    const auto alone = conversation_.tokens_to_prefill(conversation_.turns());
    const std::string larger = larger_context_flag(runtime_.model(), context_, alone.value_or(0));
    return refuse(
        fmt::format("nothing was forgotten: the question does not fit alone, the context holds {}; "
                    "ask a shorter one{}",
                    context_, larger.empty() ? "" : ", or start with " + larger));
  }
  if (**needed <= count) return true;
  return refuse(
      fmt::format("nothing was forgotten: the question needs {0} to go: /drop {1}", turns_text(**needed), **needed));
}

std::string ChatSession::prefill_cost(uint64_t tokens) const {
  if (prefill_tps_ <= 0) return fmt::format("{} tokens", tokens);
  return fmt::format("{} tokens, about {:.1f} s (at the last prefill's speed)", tokens,
                     static_cast<double>(tokens) / prefill_tps_);
}

std::string ChatSession::history() const {
  std::string text;
  if (!conversation_.system_prompt().empty()) text += fmt::format("system: {}\n", conversation_.system_prompt());
  for (const auto& message : conversation_.messages())
    text += fmt::format("{}: {}\n", message["role"].get<std::string>(), message["content"].get<std::string>());
  return text;
}

std::string ChatSession::show() {
  const Model& model = runtime_.model();
  const std::optional<ConversationUse> used = use();
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<12} {}\n", name, value);
  };
  line("model", flags_.model.model);
  line("", fmt::format("{}, {} parameters, {}, {:.0f} MB", model.spec.name, model.parameter_count(), main_format(model),
                       static_cast<double>(model.weight_bytes()) / 1e6));
  line("units", units_text());
  if (used) {
    line("context", fmt::format("{} tokens used, {} left of {} (the model's limit is {})", used->tokens,
                                context_ - used->tokens, context_, model.spec.context_max));
    line("turns",
         fmt::format("{}; checkpoints {:.1f} MB", conversation_.turns(), static_cast<double>(used->state_bytes) / 1e6));
  }
  if (idle_) line(kIdlePrefill, idle_->text());
  line("settings", sampling_text(flags_.sampling));
  line("system", conversation_.system_prompt().empty() ? "none" : conversation_.system_prompt());
  if (!knows_thinking(runtime_.text())) line("thinking", "the model's template has no switch for it");
  return text;
}

Status ChatSession::save(const std::filesystem::path& file) {
  std::vector<UsedPath> paths = {{"-m", flags_.model.model, PathKind::kModel},
                                 {"/save", file.string(), PathKind::kConversation}};
  if (!flags_.state_key.empty()) paths.push_back({"--state-key", flags_.state_key, PathKind::kFile});
  if (!flags_.history.empty()) paths.push_back({"--history", flags_.history, PathKind::kHistory});
  BATON_OK(check_paths(paths));
  // Nobody reading what was said does not keep it from being saved.
  return conversation_.save(file, pointer_to(flags_.key), [&] { return interrupts_.interrupted() && !output_lost(); });
}

Status ChatSession::load(const std::filesystem::path& file) {
  if (const Status read = conversation_.load(file, pointer_to(flags_.key)); !read) {
    std::error_code ignored;
    Error error = with_key_flag(read.error(), file, flags_.key);
    if (error.code == Code::kNotFound && std::filesystem::exists(file, ignored))
      error.message += "; baton run --load-state does";
    return fail(std::move(error));
  }
  const std::optional<ConversationUse> used = use();
  note(fmt::format("{} from {}{}", turns_text(conversation_.turns()), file.string(),
                   used ? fmt::format(": {} of {} tokens used", used->tokens, context_) : ""));
  if (used && used->tokens == context_) {
    const std::string larger = larger_context_flag(runtime_.model(), context_, used->tokens);
    const char* drop = commands_ ? "; /drop forgets the oldest turns" : "";
    note(fmt::format("baton: warning: the conversation does not fit into the context: no question can be asked{}{}",
                     drop, larger.empty() ? "" : fmt::format("{} start with {}", commands_ ? ", or" : ";", larger)));
  }
  return {};
}

void ChatSession::take_flags() {
  if (!flags_.system.empty()) change_system(flags_.system);
  if (const auto thinking = flags_.thinking.asked()) conversation_.set_thinking(thinking);
}

std::optional<ConversationUse> ChatSession::use() const {
  auto use = conversation_.use();
  if (use) return *use;
  note(fmt::format("baton: warning: the tokens of the conversation are not known: {}", use.error().message));
  return std::nullopt;
}

int ChatSession::answer(const std::string* question) {
  typed_.clear();
  if (idle_) idle_->end();
  const int code = answer_now(question);
  if (idle_) {
    idle_->answered(interrupts_.interrupted());
    idle_->begin();
  }
  return code;
}

int ChatSession::answer_now(const std::string* question) {
  const auto opening = conversation_.answer_opening();
  ThinkingView view(colour_, opening.value_or(""));
  const auto show = [&](std::string_view text) {
    if (meter_) meter_->clear();
    if (!flags_.json) print(view.push(text));
  };
  const auto cancelled = [&] {
    if (editor_ != nullptr) editor_->poll();
    if (idle_) idle_->look();
    return interrupts_.interrupted();  // also when nobody reads the answer
  };
  const auto turn =
      question != nullptr ? conversation_.ask(*question, show, cancelled) : conversation_.retry(show, cancelled);
  meter_.reset();
  if (!flags_.json) print(view.finish());
  if (!turn) {
    if (flags_.json) {
      print_json({{"error", turn.error().message}});
    } else {
      print("\n");
    }
    return report(with_flags(turn.error()));
  }
  if (!turn->completion) {
    explain_full(*turn);
    return kFailed;
  }
  const bool stopped = turn->completion->reason == FinishReason::kCancelled;
  const bool failed = turn->completion->stats.bridge.proof_failed;
  proof_failed_ = proof_failed_ || failed;
  show_turn(*turn);
  if (output_lost() || (failed && editor_ == nullptr)) return kFailed;
  return stopped && editor_ == nullptr ? kInterrupted : kOk;
}

void ChatSession::show_turn(const Turn& turn) {
  const Completion& completion = *turn.completion;
  log_warnings(completion);
  const RequestStats& stats = completion.stats;
  if (stats.prefill_tokens >= kTellingPrefillTokens) prefill_tps_ = stats.prefill_tps;
  const std::optional<ConversationUse> use = this->use();
  const uint64_t used = use ? use->tokens : 0;
  if (flags_.json) {
    OrderedJson json;
    json["text"] = completion.text;
    json["ids"] = completion.ids;
    json.update(figures_json(completion));
    json["context_full"] = turn.context_full;
    json["idle"] = idle_ ? idle_->json() : OrderedJson(nullptr);
    json["context_used"] = use ? OrderedJson(used) : OrderedJson(nullptr);
    json["context_tokens"] = context_;
    json["sampling"] = flags_.sampling.json();
    print_json(json);
    return;
  }
  print(completion.reason == FinishReason::kCancelled ? " [stopped]\n" : "\n");
  if (turn.context_full) {
    const std::string larger = larger_context_flag(runtime_.model(), context_, used);
    std::string remedy = "\n/drop forgets the oldest turn, /clear all";
    if (!larger.empty()) remedy += "; or /save FILE, and go on with --load-state FILE " + larger;
    if (!commands_) remedy = larger.empty() ? "" : "\nmore with " + larger;
    note(fmt::format("[the context is full ({} tokens): the answer ends here, and so does the conversation as it is]{}",
                     context_, remedy));
  } else if (completion.reason == FinishReason::kLength) {
    note(fmt::format("[stopped after {} tokens (-n)]", completion.ids.size()));
  } else if (used * 4 > context_ * 3) {
    note(fmt::format("[context: {} of {} tokens used]", used, context_));
  }
  if (!flags_.figures) return;
  std::string figures = figures_text(completion, name_of_path(flags_.model.model));
  if (idle_) {
    figures +=
        fmt::format("{:<12} {} tokens before the question was sent, {} of them while the answer before decoded\n",
                    "idle-prefill", idle_->tokens(), idle_->decoding_tokens());
  }
  note("\n" + figures);
}

void ChatSession::explain_full(const Turn& turn) {
  const std::string why = fmt::format(
      "the context is full: with this question the conversation has {} tokens, the "
      "context holds {}; the question was not sent",
      turn.prompt_tokens, context_);
  if (flags_.json) print_json({{"error", why}, {"prompt_tokens", turn.prompt_tokens}, {"context_tokens", context_}});
  std::string text = fmt::format("baton: {}\n", why);
  const auto needed = conversation_.turns_to_drop();
  const bool alone = needed && !*needed;  // it does not fit without any turn before it
  const uint64_t drops = needed && *needed ? std::max<uint64_t>(**needed, 1) : 1;
  const bool drop = commands_ && conversation_.turns() > 0 && !alone;
  if (drop) {
    text += fmt::format("  {:<8} forget the oldest {} of {} and ask again; prefills what is left, {}\n",
                        drops == 1 ? "/drop" : fmt::format("/drop {}", drops), drops, turns_text(conversation_.turns()),
                        prefill_cost(conversation_.tokens_to_prefill(drops).value_or(0)));
    text += "  /clear   forget all of them\n";
  }
  const std::string larger = larger_context_flag(runtime_.model(), context_, turn.prompt_tokens);
  if (!larger.empty()) {
    const bool save = commands_ && conversation_.turns() > 0;
    text +=
        fmt::format("  {:<8} a larger context (this model: up to {}){}\n", larger, runtime_.model().spec.context_max,
                    save ? ": /save FILE first, then chat --load-state FILE -c ..." : "");
  } else if (!drop) {
    text += "  this is the model's limit: the question has to be shorter\n";
  }
  fmt::print(stderr, "{}", text);
}

}  // namespace baton::cli
