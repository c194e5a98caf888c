// A model with its text side: tokenizer and chat template, from the same file or folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "baton/model/adapter.h"
#include "baton/model/model.h"
#include "baton/text/chat_template.h"
#include "baton/text/tokenizer.h"

namespace baton {

struct TextModel {
  std::shared_ptr<const Model> model;
  std::optional<Tokenizer> tokenizer;         // empty: the folder or file has none, only token ids can be used
  std::optional<ChatTemplate> chat_template;  // empty: the file has none, or it is outside the subset (see note)
  std::string chat_template_note;             // why there is none
  std::string bos_text, eos_text;             // what templates see as bos_token and eos_token
  // End-of-turn and end-of-text: the file's ids and any token whose text is a known stop marker.
  std::vector<int32_t> stop_ids;
};

// What a user must do to use text with this model, when it has no tokenizer.
tl::unexpected<Error> no_tokenizer(const TextModel& model);

// Errors name the file and the field. The tokenizer must not have more ids than the model's vocabulary. `context`,
// `use` and `adapters`: as load_model's.
Result<TextModel> load_text_model(const std::filesystem::path& path, uint64_t context = 0,
                                  ModelUse use = ModelUse::kText, std::span<const AdapterChoice> adapters = {});

// Where in a sequence a text lies: what continues one gets no BOS, whatever the tokenizer asks for, nor the space that
// some put before a text; a start without BOS gets that space. A prompt gets no EOS: it is not where its sequence ends.
enum class TextPlace : uint8_t { kStart, kStartWithoutBos, kContinuation };
// Text as it is; control tokens in it are recognised only with `parse_special`.
Result<std::vector<int32_t>> encode_text(const TextModel& model, std::string_view text, bool parse_special,
                                         TextPlace place);
// Messages through the chat template; nothing in their contents becomes a control token.
Result<std::vector<int32_t>> encode_chat(const TextModel& model, const ChatInput& input);

// The text side of a Hugging Face folder as it is in its files; empty strings for files that are not there.
struct TextFiles {
  std::string tokenizer_json, tokenizer_config_json;
  std::string chat_template;  // chat_template.jinja, else the configuration's
  std::string sentencepiece;  // tokenizer.model and its kind, where there is no tokenizer.json
  const char* sentencepiece_name = "";
  SentencePieceLayout sentencepiece_layout = SentencePieceLayout::kPlain;
  std::string vocab_txt;  // of an encoder without either
  bool bert = false;      // whose tokenizer transformers makes by BERT's rules, where no class is named
};
Result<TextFiles> read_text_files(const Container& container);
// Of those that are there. Errors name the field, not the file.
Result<TokenizerSpec> tokenizer_spec_of(const TextFiles& files);

// The tokenizer alone, for converters and tests. `lower_case`: text becomes that before all else.
Result<Tokenizer> load_tokenizer(const Container& container, bool lower_case = false);

}  // namespace baton
