// `baton state show FILE`, `baton state convert IN OUT`: sealed states and the state files of other projects. `ls` and
// `rm`: state_list.h.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>

#include "baton/api/units.h"
#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/output_file.h"
#include "baton/cli/command.h"
#include "baton/cli/fingerprint.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/paths.h"
#include "baton/cli/state_key.h"
#include "baton/cli/state_list.h"
#include "baton/cli/state_show.h"
#include "baton/hub/resolve.h"
#include "baton/state/seal_file.h"
#include "baton/state/seal_list.h"
#include "baton/tools/foreign.h"

namespace baton::cli {
namespace {

constexpr size_t kPromptFileBytesMax = size_t{64} << 20;

struct StateConvertFlags {
  std::string in, out, to = "seal", state_key, model, ids, prompt, prompt_file, logits, dump_logits, type = "bf16";
  uint64_t kv_capacity = 2048;
  uint32_t threads = 0;
  bool raw = false, json = false;
  std::optional<StateKey> key;  // of state_key
};

Result<StateIdentity> identity_of(const TextModel& text) {
  BATON_TRY(const Fingerprints prints, text.model->fingerprints(shown_fingerprint()));
  return StateIdentity{prints.model, prints.quantization, text.tokenizer ? text.tokenizer->fingerprint() : 0};
}

StateShape widest_shape(const Model& model) { return state_shape(model.program, DType::kF32); }

Result<SealExpectation> expectation(const TextModel& text, const StateShape& shape) {
  SealExpectation expected;
  BATON_TRY(expected.identity, identity_of(text));
  expected.shape = &shape;
  expected.position_max = static_cast<uint64_t>(text.model->spec.context_max);
  expected.vocab = text.model->spec.vocab;
  return expected;
}

struct Source {
  std::string format;
  PlainState state;
  bool gets_key = false;  // a state without a MAC that leaves with one
};

Result<Source> read_source(const StateConvertFlags& flags, const TextModel& text) {
  BATON_TRY(const MappedFile file, MappedFile::open(flags.in));
  if (is_seal(file.bytes())) {
    const StateShape shape = widest_shape(*text.model);
    BATON_TRY(const SealExpectation expected, expectation(text, shape));
    const bool gets_key = flags.key && flags.to == "seal" && !has_mac(file.bytes(), file.bytes().size());
    BATON_TRY(const SealedFile sealed, read_seal_file(flags.in, expected, gets_key ? nullptr : pointer_to(flags.key)));
    BATON_TRY(PlainState state, from_seal(sealed.source, expected));
    return Source{"seal", std::move(state), gets_key};
  }
  const auto parsed = parse_foreign(file.bytes());
  if (!parsed) return fail(Error(parsed.error()).in(flags.in));
  auto state = from_foreign(*parsed, *text.model);
  if (!state) return fail(std::move(state).error().in(flags.in));
  return Source{std::string(to_string(parsed->format)), *std::move(state), flags.key && flags.to == "seal"};
}

// The prompt of the flags as token ids; empty when none was given.
Result<std::vector<int32_t>> given_tokens(const StateConvertFlags& flags, const TextModel& text) {
  if (!flags.ids.empty()) return parse_ids(flags.ids);
  std::string prompt = flags.prompt;
  if (!flags.prompt_file.empty()) {
    BATON_TRY(prompt, read_file(flags.prompt_file, kPromptFileBytesMax));
  }
  if (prompt.empty()) return std::vector<int32_t>{};
  if (flags.raw) return encode_text(text, prompt, true, TextPlace::kStart);
  ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", prompt}});
  return encode_chat(text, input);
}

Status settle_tokens(const StateConvertFlags& flags, const TextModel& text, PlainState& state) {
  BATON_TRY(std::vector<int32_t> given, given_tokens(flags, text));
  for (const int32_t id : given) {
    if (id < 0 || id >= text.model->spec.vocab)
      return fail(Code::kInvalidInput,
                  fmt::format("token {} is not one of the model's {}", id, text.model->spec.vocab));
  }
  if (given.empty()) return {};
  if (given.size() != state.position) {
    return fail(Code::kMismatch, fmt::format("{}: a state of {} tokens, the prompt given has {}", flags.in,
                                             state.position, given.size()));
  }
  if (!state.tokens.empty() && state.tokens != given)
    return fail(Code::kMismatch, fmt::format("{}: names other tokens than the prompt given", flags.in));
  state.tokens = std::move(given);
  return {};
}

// Logits behind the last token, by running the tokens again: a state cannot be rolled back to give them.
Result<std::vector<float>> computed_logits(const StateConvertFlags& flags, const TextModel& text,
                                           const PlainState& state) {
  BATON_TRY(const auto unit, create_unit("cpu"));
  BATON_TRY(const auto executor, unit->load(text.model, flags.threads));
  BATON_TRY(const auto sequence, executor->new_state(state.position));
  std::vector<float> logits(static_cast<size_t>(text.model->spec.vocab));
  // As an answer begins: the last prompt token goes through decode.
  const std::span<const int32_t> tokens(state.tokens);
  if (tokens.empty()) return fail(Code::kInvalidInput, "a state of no tokens has no logits; give a file with --logits");
  if (tokens.size() > 1) BATON_OK(executor->prefill(*sequence, tokens.first(tokens.size() - 1), {}));
  BATON_OK(executor->decode(*sequence, tokens.back(), logits));
  return logits;
}

Result<std::vector<float>> file_logits(const std::string& path) {
  BATON_TRY(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() % sizeof(float) != 0) return fail(Code::kInvalidInput, path + ": not whole f32 values");
  std::vector<float> logits(file.bytes().size() / sizeof(float));
  if (!logits.empty()) std::memcpy(logits.data(), file.bytes().data(), file.bytes().size());
  return logits;
}

// Where the logits of an ANELMS file come from: "in the file", "of --logits" or "computed by cpu".
Result<std::string> settle_logits(const StateConvertFlags& flags, const TextModel& text, PlainState& state) {
  if (!flags.logits.empty()) {
    BATON_TRY(state.logits, file_logits(flags.logits));
    return "of --logits";
  }
  if (!state.logits.empty()) return "in the file";
  if (state.tokens.empty()) {
    return fail(Code::kInvalidInput,
                "an anelms file ends with the logits behind its last token: give the prompt (--ids, -p or -f), "
                "so that they can be computed, or a file with --logits");
  }
  BATON_TRY(state.logits, computed_logits(flags, text, state));
  return "computed by cpu";
}

// Of the state, which it borrows; it was read once.
Result<SealSource> seal_of(const TextModel& text, const PlainState& state) {
  const StateShape shape = widest_shape(*text.model);
  BATON_TRY(const SealExpectation expected, expectation(text, shape));
  BATON_TRY(SealSource source, to_seal(state, expected.identity));
  BATON_OK(verify_seal(source, expected));
  return source;
}

Result<OrderedJson> convert(const StateConvertFlags& flags) {
  std::string path = flags.model;
  if (path.empty()) {
    BATON_TRY(const auto bundled, bundled_model());
    path = bundled.string();
  }
  BATON_OK(hub::check_model(path));
  BATON_TRY(const TextModel text, load_text_model(path));
  BATON_TRY(Source source, read_source(flags, text));
  PlainState& state = source.state;
  BATON_OK(settle_tokens(flags, text, state));
  OrderedJson json;
  json["in"] = flags.in;
  json["out"] = flags.out;
  json["from"] = source.format;
  json["to"] = flags.to;
  json["position"] = state.position;
  json["sections"] = state.sections.size();
  SealSource seal;
  std::vector<std::byte> bytes;  // of another form
  OrderedJson notes = OrderedJson::array();
  if (flags.to == "seal") {
    if (state.tokens.size() != state.position) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: {} files do not name their tokens; give the {} of the prompt with --ids, -p or -f",
                              flags.in, source.format, state.position));
    }
    BATON_TRY(seal, seal_of(text, state));
    if (source.format != "seal")
      notes.push_back("the file does not say which weights made it: that is taken on your word");
  } else {
    const auto format = parse_foreign_format(flags.to);
    ForeignOptions options;
    options.kv_capacity = flags.kv_capacity;
    if (flags.type != "as-is")
      options.type = flags.type == "f32" ? DType::kF32 : (flags.type == "f16" ? DType::kF16 : DType::kBF16);
    if (*format == ForeignFormat::kAnelms) {
      BATON_TRY(json["logits"], settle_logits(flags, text, state));
    }
    BATON_TRY(bytes, to_foreign(state, *text.model, *format, options));
    if (*format == ForeignFormat::kMlx && options.type && *options.type != DType::kF32)
      notes.push_back(
          fmt::format("keys, values and convolution as {}; --type as-is keeps every bit", to_string(*options.type)));
  }
  if (!flags.dump_logits.empty()) {
    if (state.logits.empty())
      return fail(Code::kInvalidInput, fmt::format("{}: there are no logits in it for --dump-logits", flags.in));
    BATON_OK(write_output(flags.dump_logits, std::as_bytes(std::span(state.logits)), kModeShared));
  }
  BATON_OK(flags.to == "seal" ? write_seal_file(flags.out, seal, pointer_to(flags.key))
                              : write_output(flags.out, bytes, kModeOwner));
  if (source.gets_key) {
    fmt::print(stderr,
               "baton: warning: {} carries no MAC: nobody vouches for what was read, {} is now under your key\n",
               flags.in, flags.out);
  }
  json["bytes"] = seal.empty() ? bytes.size() : seal.size();
  json["notes"] = notes;
  return json;
}

int run_convert(StateConvertFlags& flags) {
  const int prompts = !flags.ids.empty() + !flags.prompt.empty() + !flags.prompt_file.empty();
  if (prompts > 1) {
    fmt::print(stderr, "baton: more than one prompt; give one of --ids, -p and -f\n");
    return kUsage;
  }
  auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
  flags.key = *std::move(key);
  const auto done = convert(flags);
  if (!done) return report(with_key_flag(done.error(), flags.in, flags.key));
  if (flags.json) {
    print_json(*done);
    return kOk;
  }
  std::string text = fmt::format("{} -> {}: {} to {}, {} tokens, {} sections, {} bytes\n", flags.in, flags.out,
                                 (*done)["from"].get<std::string>(), flags.to, (*done)["position"].dump(),
                                 (*done)["sections"].dump(), (*done)["bytes"].dump());
  if (done->contains("logits")) text += fmt::format("logits: {}\n", (*done)["logits"].get<std::string>());
  for (const auto& note : (*done)["notes"]) text += fmt::format("note: {}\n", note.get<std::string>());
  print(text);
  return kOk;
}

void add_convert_flags(CLI::App& app, StateConvertFlags& flags) {
  takes_path(
      app.add_option("in", flags.in, "a sealed state (--save-state), or an ANELMS, ANELM_CACHE or MLX cache file"),
      PathKind::kFile)
      ->required();
  takes_path(app.add_option("out", flags.out, "file to write (mode 0600)"), PathKind::kOutput)->required();
  app.add_option("--to", flags.to, "what to write: seal, anelms, anelm-cache or mlx")
      ->capture_default_str()
      ->check(CLI::IsMember({"seal", "anelms", "anelm-cache", "mlx"}));
  takes_path(
      app.add_option(
          "--state-key", flags.state_key,
          "key of the sealed states: one that is written carries a MAC under it, one that is read must, unless it "
          "has none and is written as a seal"),
      PathKind::kFile);
  takes_path(app.add_option("-m,--model", flags.model, "the model of the state (default: the bundled model)"),
             PathKind::kBundledModel);
  app.add_option("--ids", flags.ids, "tokens of the state, where its file does not name them: 1,2,3");
  app.add_option("-p,--prompt", flags.prompt, "the same as text: a user's message through the chat template");
  takes_path(app.add_option("-f,--file", flags.prompt_file, "the same from a file"), PathKind::kFile);
  app.add_flag("--raw", flags.raw, "no chat template: the prompt as it is");
  app.add_option("--type", flags.type, "mlx: type of keys, values and convolution: bf16, f16, f32 or as-is")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "f16", "f32", "as-is"}));
  app.add_option("--kv-capacity", flags.kv_capacity, "anelms: rows of keys and values in the file")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  takes_path(app.add_option("--logits", flags.logits,
                            "anelms: the logits behind the last token (f32); default: computed by cpu"),
             PathKind::kFile);
  takes_path(
      app.add_option("--dump-logits", flags.dump_logits, "write the logits that the input holds (f32, little-endian)"),
      PathKind::kOutput);
  app.add_option("-t,--threads", flags.threads, "threads (default: physical cores)")->check(CLI::Range(1, 1024));
  app.add_flag("--json", flags.json, "one JSON object instead of text");
}

struct StateFlags {
  ShowStateFlags show;
  StateConvertFlags convert;
  CacheFolderFlags cache;
};

int run_state(StateFlags& flags) {
  if (!flags.cache.folder.empty()) return list_or_remove(flags.cache);
  return flags.show.in.empty() ? run_convert(flags.convert) : show_state(flags.show);
}

}  // namespace

std::unique_ptr<Command> add_state(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("state", "show, list and remove saved states, and convert them for other projects");
  app->require_subcommand(1);
  auto command = std::make_unique<FlagsCommand<StateFlags, run_state>>(app);
  ShowStateFlags& show_flags = command->flags.show;
  CLI::App* show_app = app->add_subcommand("show", "list what a state file holds; needs no model, checks no values");
  takes_path(show_app->add_option("in", show_flags.in, "a sealed state, or an ANELMS, ANELM_CACHE or MLX cache file"),
             PathKind::kFile)
      ->required();
  takes_path(show_app->add_option("--state-key", show_flags.state_key, "check the MAC of a sealed state with this key"),
             PathKind::kFile);
  show_app->add_flag("--json", show_flags.json, "one JSON object instead of text");
  CLI::App* convert_app = app->add_subcommand("convert", "write a state file in another format");
  add_convert_flags(*convert_app, command->flags.convert);
  add_cache_folder(*app, command->flags.cache);
  return command;
}

}  // namespace baton::cli
