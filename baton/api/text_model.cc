// Tokenizer and chat template from a Hugging Face folder's files or a GGUF file's keys.
#include "baton/api/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "baton/api/gguf_tokenizer.h"
#include "baton/base/file.h"
#include "baton/model/container.h"
#include "baton/model/container_text.h"

namespace baton {
namespace {

constexpr size_t kTokenizerBytesMax = size_t{256} << 20;
constexpr size_t kConfigBytesMax = size_t{16} << 20;

std::filesystem::path folder_of(const Container& container) {
  return std::filesystem::is_directory(container.path) ? container.path : container.path.parent_path();
}

// Empty when the file does not exist.
Result<std::string> read_optional(const std::filesystem::path& path, size_t bytes_max) {
  BATON_TRY(const bool there, is_there(path));
  if (!there) return std::string();
  return read_file(path, bytes_max);
}

// Of BERT's tokenizer: old files have a vocab.txt in the place of a tokenizer.json.
bool has_vocab_txt(const Container& container) {
  const auto type = container.config.is_object() ? container.config.find("model_type") : container.config.end();
  if (!container.config.is_object() || type == container.config.end()) return false;
  return *type == "bert" || *type == "distilbert" || *type == "nomic_bert";
}

// SentencePiece's model files, by the names that families gave them.
struct SentencePieceName {
  const char* file;
  SentencePieceLayout layout;
};
constexpr SentencePieceName kSentencePieceNames[] = {{"tokenizer.model", SentencePieceLayout::kPlain},
                                                     {"spiece.model", SentencePieceLayout::kT5},
                                                     {"sentencepiece.bpe.model", SentencePieceLayout::kXlmRoberta}};

Result<bool> has_tokenizer(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    return container.gguf.find("tokenizer.ggml.model") != nullptr ||
           container.gguf.find("tokenizer.ggml.tokens") != nullptr;
  }
  BATON_TRY(const bool there, is_there(folder_of(container) / "tokenizer.json"));
  if (there) return true;
  for (const SentencePieceName& name : kSentencePieceNames) {
    BATON_TRY(const bool has_model, is_there(folder_of(container) / name.file));
    if (has_model) return true;
  }
  if (!has_vocab_txt(container)) return false;
  return is_there(folder_of(container) / "vocab.txt");
}

// The template's source; empty when the files have none.
Result<std::string> template_source(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    BATON_TRY(const auto text, container.gguf.text("tokenizer.chat_template"));
    return std::string(text.value_or(""));
  }
  BATON_TRY(const TextFiles files, read_text_files(container));
  return files.chat_template;
}

}  // namespace

Result<TextFiles> read_text_files(const Container& container) {
  const auto folder = folder_of(container);
  TextFiles files;
  files.bert = has_vocab_txt(container);
  BATON_TRY(files.tokenizer_json, read_optional(folder / "tokenizer.json", kTokenizerBytesMax));
  BATON_TRY(files.tokenizer_config_json, read_optional(folder / "tokenizer_config.json", kConfigBytesMax));
  BATON_TRY(files.chat_template, read_optional(folder / "chat_template.jinja", kConfigBytesMax));
  for (const SentencePieceName& name : kSentencePieceNames) {
    if (!files.tokenizer_json.empty() || !files.sentencepiece.empty()) break;
    BATON_TRY(files.sentencepiece, read_optional(folder / name.file, kTokenizerBytesMax));
    files.sentencepiece_name = name.file;
    files.sentencepiece_layout = name.layout;
  }
  if (files.tokenizer_json.empty() && files.sentencepiece.empty() && files.bert) {
    BATON_TRY(files.vocab_txt, read_optional(folder / "vocab.txt", kConfigBytesMax));
  }
  if (files.chat_template.empty() && !files.tokenizer_config_json.empty()) {
    auto source = chat_template_from_config(files.tokenizer_config_json);
    if (!source) return fail(std::move(source).error().in((folder / "tokenizer_config.json").string()));
    files.chat_template = source->value_or("");
  }
  return files;
}

Result<TokenizerSpec> tokenizer_spec_of(const TextFiles& files) {
  if (!files.sentencepiece.empty()) {
    return tokenizer_spec_from_sentencepiece(files.sentencepiece, files.tokenizer_config_json,
                                             files.sentencepiece_layout);
  }
  if (!files.vocab_txt.empty()) return tokenizer_spec_from_vocab_txt(files.vocab_txt, files.tokenizer_config_json);
  return tokenizer_spec_from_json(files.tokenizer_json, files.tokenizer_config_json, files.bert);
}

// Of the files that are looked for, the first that is there: all are empty.
tl::unexpected<Error> empty_tokenizer(const std::filesystem::path& folder) {
  std::string name = "tokenizer.json";
  const auto there = [&](const char* file) { return is_there(folder / file).value_or(false); };
  for (const SentencePieceName& other : kSentencePieceNames) {
    if (!there(name.c_str())) name = other.file;
  }
  if (!there(name.c_str())) name = "vocab.txt";
  return fail(Code::kInvalidInput,
              fmt::format("{}: is empty (0 bytes): take it again from where the model came", (folder / name).string()));
}

Result<Tokenizer> load_tokenizer(const Container& container, bool lower_case) {
  if (container.kind == ContainerKind::kSafetensors) {
    BATON_TRY(const TextFiles files, read_text_files(container));
    if (files.tokenizer_json.empty() && files.sentencepiece.empty() && files.vocab_txt.empty()) {
      return empty_tokenizer(folder_of(container));
    }
    const char* name = !files.sentencepiece.empty() ? files.sentencepiece_name
                       : !files.vocab_txt.empty()   ? "vocab.txt"
                                                    : "tokenizer.json";
    const std::string file = (folder_of(container) / name).string();
    auto spec = tokenizer_spec_of(files);
    if (!spec) return fail(std::move(spec).error().in(file));
    if (lower_case) spec->normalizer.emplace(spec->normalizer.begin())->kind = NormalizerStep::Kind::kLowercase;
    auto tokenizer = Tokenizer::create(*spec);
    if (!tokenizer) return fail(std::move(tokenizer).error().in(file));
    return tokenizer;
  }
  auto tokenizer = tokenizer_from_gguf(container.gguf);
  if (!tokenizer) return fail(std::move(tokenizer).error().in(container.path.string()));
  return tokenizer;
}

tl::unexpected<Error> no_tokenizer(const TextModel& model) {
  const Container& container = *model.model->container;
  const std::string missing =
      container.kind == ContainerKind::kGguf
          ? "the file has no tokenizer; convert it again with one"
          : fmt::format("there is no {} beside the weights; add it",
                        model.model->program.whole_sequence ? "tokenizer.json, vocab.txt or sentencepiece.bpe.model"
                                                            : "tokenizer.json or tokenizer.model");
  return fail(Code::kUnsupported, fmt::format("{}: {}, or give token ids", container.path.string(), missing));
}

Result<TextModel> load_text_model(const std::filesystem::path& path, uint64_t context, ModelUse use,
                                  std::span<const AdapterChoice> adapters) {
  BATON_TRY(auto model, load_model(path, context, use, adapters));
  TextModel text_model{std::move(model), std::nullopt, std::nullopt, {}, {}, {}, {}};
  std::set<int32_t> stops(text_model.model->spec.stop_ids.begin(), text_model.model->spec.stop_ids.end());
  const Container& container = *text_model.model->container;
  BATON_TRY(const bool with_tokenizer, has_tokenizer(container));
  if (with_tokenizer) {
    BATON_TRY(text_model.tokenizer, load_tokenizer(container));
    const Tokenizer& text = *text_model.tokenizer;
    if (text.vocab_size() > text_model.model->spec.vocab) {
      return fail(
          Code::kInvalidInput,
          fmt::format("{}: the tokenizer has {} ids, the embedding only {} rows; the files do not belong together",
                      path.string(), text.vocab_size(), text_model.model->spec.vocab));
    }
    text_model.bos_text = text.token_text(text.bos_id());
    text_model.eos_text = text.token_text(text.eos_id());
    stops.insert(text.stop_ids().begin(), text.stop_ids().end());
  }
  text_model.stop_ids.assign(stops.begin(), stops.end());

  BATON_TRY(const std::string source, template_source(container));
  if (source.empty()) {
    text_model.chat_template_note = "the file has no chat template";
  } else if (auto parsed = ChatTemplate::parse(source)) {
    text_model.chat_template = std::move(*parsed);
  } else {
    text_model.chat_template_note = fmt::format("the file's chat template cannot be used: {}", parsed.error().message);
  }
  return text_model;
}

Result<std::vector<int32_t>> encode_text(const TextModel& model, std::string_view text, bool parse_special,
                                         TextPlace place) {
  if (!model.tokenizer) return no_tokenizer(model);
  BATON_TRY(auto ids, model.tokenizer->encode(text, parse_special, place != TextPlace::kContinuation));
  return place == TextPlace::kStart ? model.tokenizer->with_bos(std::move(ids)) : std::move(ids);
}

Result<std::vector<int32_t>> encode_chat(const TextModel& model, const ChatInput& input) {
  if (!model.tokenizer) return no_tokenizer(model);
  if (!model.chat_template) {
    return fail(Code::kUnsupported, fmt::format("{}: {}; the prompt can be given as it is",
                                                model.model->container->path.string(), model.chat_template_note));
  }
  ChatInput filled = input;
  filled.bos_token = model.bos_text;
  filled.eos_token = model.eos_text;
  auto pieces = model.chat_template->render_pieces(filled);
  if (!pieces) return fail(std::move(pieces).error());
  BATON_TRY(auto ids, model.tokenizer->encode_pieces(*pieces));
  return model.tokenizer->with_bos(std::move(ids));
}

}  // namespace baton
