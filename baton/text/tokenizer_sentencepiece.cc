// A TokenizerSpec from SentencePiece's model file: a protobuf of pieces, how it was trained, how text is changed.
//   ModelProto      1: pieces (repeated)  2: trainer_spec  3: normalizer_spec
//   SentencePiece   1: piece  2: score (f32)  3: type (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6
//   byte) TrainerSpec     3: model_type (1 unigram, 2 bpe)  24: treat_whitespace_as_suffix  35: byte_fallback
//                   46: bos_piece  47: eos_piece  48: pad_piece
//   NormalizerSpec  2: precompiled_charsmap  3: add_dummy_prefix  4: remove_extra_whitespaces  5: escape_whitespaces
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "baton/text/protobuf_reader.h"
#include "baton/text/tokenizer_fields.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace {

using tokenizer_fields::bad;
using Wire = ProtobufField::Wire;

constexpr int32_t kExtraIds = 100;  // of T5

struct SentencePieceFile {
  std::vector<std::string_view> pieces;
  std::vector<float> scores;
  std::vector<TokenKind> kinds;
  uint64_t model_type = 1;
  bool suffix = false, byte_fallback = false;
  std::string_view bos = "<s>", eos = "</s>", pad = "<pad>";
  std::string_view charsmap;
  bool dummy_prefix = true, merge_spaces = true, escape_spaces = true;
};

tl::unexpected<Error> wrong_kind(std::string_view field, const ProtobufReader& reader) {
  return bad(field, fmt::format("is of another kind than it should be, before byte {}", reader.bytes_offset()));
}

Status read_piece(std::string_view message, size_t offset, SentencePieceFile* file) {
  ProtobufReader reader(message, offset);
  std::string_view text;
  float score = 0;
  uint64_t type = 1;
  const std::string where = fmt::format("pieces[{}]", file->pieces.size());
  while (!reader.at_end()) {
    BATON_TRY(const ProtobufField field, reader.next());
    if (field.number == 1) {
      if (field.wire != Wire::kBytes) return wrong_kind(where + ".piece", reader);
      text = field.bytes;
    } else if (field.number == 2) {
      if (field.wire != Wire::kFixed32) return wrong_kind(where + ".score", reader);
      score = field.as_float();
    } else if (field.number == 3) {
      if (field.wire != Wire::kVarint) return wrong_kind(where + ".type", reader);
      type = field.value;
    }
  }
  if (text.empty()) return bad(where, "has no text");
  if (type < 1 || type > 6) return bad(where + ".type", fmt::format("is {}: known are 1 to 6", type));
  if (file->pieces.size() >= static_cast<size_t>(kTokensMax)) {
    return bad("pieces", fmt::format("more than {}", kTokensMax));
  }
  file->pieces.push_back(text);
  file->scores.push_back(score);
  file->kinds.push_back(static_cast<TokenKind>(type));
  return {};
}

struct FieldOf {
  uint32_t number;
  std::string_view name;
  bool* flag = nullptr;
  uint64_t* value = nullptr;
  std::string_view* text = nullptr;
};

Status read_fields(std::string_view message, size_t offset, std::string_view name, std::span<const FieldOf> known) {
  ProtobufReader reader(message, offset);
  while (!reader.at_end()) {
    BATON_TRY(const ProtobufField field, reader.next());
    for (const FieldOf& one : known) {
      if (one.number != field.number) continue;
      if (field.wire != (one.text != nullptr ? Wire::kBytes : Wire::kVarint)) {
        return wrong_kind(fmt::format("{}.{}", name, one.name), reader);
      }
      if (one.flag != nullptr) *one.flag = field.value != 0;
      if (one.value != nullptr) *one.value = field.value;
      if (one.text != nullptr) *one.text = field.bytes;
    }
  }
  return {};
}

Result<SentencePieceFile> read_file_of_pieces(std::string_view bytes) {
  SentencePieceFile file;
  const FieldOf trainer[] = {{3, "model_type", nullptr, &file.model_type, nullptr},
                             {24, "treat_whitespace_as_suffix", &file.suffix, nullptr, nullptr},
                             {35, "byte_fallback", &file.byte_fallback, nullptr, nullptr},
                             {46, "bos_piece", nullptr, nullptr, &file.bos},
                             {47, "eos_piece", nullptr, nullptr, &file.eos},
                             {48, "pad_piece", nullptr, nullptr, &file.pad}};
  const FieldOf normalizer[] = {{2, "precompiled_charsmap", nullptr, nullptr, &file.charsmap},
                                {3, "add_dummy_prefix", &file.dummy_prefix, nullptr, nullptr},
                                {4, "remove_extra_whitespaces", &file.merge_spaces, nullptr, nullptr},
                                {5, "escape_whitespaces", &file.escape_spaces, nullptr, nullptr}};
  ProtobufReader reader(bytes);
  while (!reader.at_end()) {
    BATON_TRY(const ProtobufField field, reader.next());
    if (field.number > 3) continue;
    if (field.wire != Wire::kBytes) return wrong_kind("ModelProto", reader);
    const size_t at = reader.bytes_offset();
    if (field.number == 1) {
      BATON_OK(read_piece(field.bytes, at, &file));
    } else if (field.number == 2) {
      BATON_OK(read_fields(field.bytes, at, "trainer_spec", trainer));
    } else {
      BATON_OK(read_fields(field.bytes, at, "normalizer_spec", normalizer));
    }
  }
  if (file.pieces.empty()) return bad("pieces", "there are none: not a SentencePiece model");
  if (file.model_type != 1 && file.model_type != 2) {
    return fail(Code::kUnsupported,
                fmt::format("trainer_spec.model_type is {}: unigram (1) and BPE (2) can be read", file.model_type));
  }
  return file;
}

// Texts that are no pieces of the file, in the arena.
class Arena {
 public:
  Arena(TokenizerSpec* spec, std::string_view bytes, size_t more) : next_(nullptr) {
    spec->arena = std::make_unique_for_overwrite<char[]>(bytes.size() + more + 1);
    std::memcpy(spec->arena.get(), bytes.data(), bytes.size());
    next_ = spec->arena.get() + bytes.size();
  }
  std::string_view keep(std::string_view text) {
    std::memcpy(next_, text.data(), text.size());
    next_ += text.size();
    return {next_ - text.size(), text.size()};
  }

 private:
  char* next_;
};

void add_token(std::string_view text, TokenKind kind, double score, TokenizerSpec* spec) {
  spec->tokens.push_back(text);
  spec->kinds.push_back(kind);
  spec->scores.push_back(score);
}

// Ids of the pieces: as in the file, or with XLM-R's own in front and one behind.
void place_pieces(const SentencePieceFile& file, SentencePieceLayout layout, Arena* arena, TokenizerSpec* spec) {
  size_t first = 0;
  if (layout == SentencePieceLayout::kXlmRoberta) {
    for (const std::string_view name : {"<s>", "<pad>", "</s>"})
      add_token(arena->keep(name), TokenKind::kControl, 0, spec);
    add_token(arena->keep("<unk>"), TokenKind::kUnknown, 0, spec);
    first = 3;  // <unk>, <s> and </s> of the file
  }
  for (size_t i = first; i < file.pieces.size(); ++i) {
    add_token(file.pieces[i], file.kinds[i], static_cast<double>(file.scores[i]), spec);
  }
  if (layout == SentencePieceLayout::kXlmRoberta) add_token(arena->keep("<mask>"), TokenKind::kControl, 0, spec);
  if (layout == SentencePieceLayout::kT5) {
    for (int32_t i = kExtraIds - 1; i >= 0; --i) {
      add_token(arena->keep(fmt::format("<extra_id_{}>", i)), TokenKind::kControl, 0, spec);
    }
  }
}

// Control tokens are found in text where the caller allows it; those that users defined always, in what normalisation
// makes.
void add_added_tokens(NormalizerStep* step, TokenizerSpec* spec) {
  for (size_t id = 0; id < spec->tokens.size(); ++id) {
    const TokenKind kind = spec->kinds[id];
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.text = spec->tokens[id];
    if (kind == TokenKind::kUserDefined) {
      step->kept.push_back(token.text);
      token.normalized = token.is_normal = true;
    } else if (kind == TokenKind::kControl || kind == TokenKind::kUnknown) {
      token.special = true;
      token.lstrip = token.text == "<mask>";
      if (kind == TokenKind::kUnknown) spec->unk_id = token.id;
    } else {
      continue;
    }
    spec->added.push_back(std::move(token));
  }
}

// What the configuration beside the file says, or what the family does without one.
Status read_ends(const SentencePieceFile& file, SentencePieceLayout layout, std::string_view config_text,
                 PrefixRule* prefix, TokenizerSpec* spec) {
  const auto control = [&](std::string_view name) {
    for (const AddedToken& token : spec->added) {
      if (token.special && token.text == name) return token.id;
    }
    return -1;
  };
  const int32_t bos = control(file.bos), eos = control(file.eos), pad = control(file.pad);
  nlohmann::json config = nlohmann::json::object();
  if (!config_text.empty()) {
    BATON_TRY(config, tokenizer_fields::parse_tokenizer_config(config_text));
    BATON_OK(tokenizer_fields::read_tokenizer_config(config_text, spec));
  }
  if (spec->bos_id < 0) spec->bos_id = bos;
  if (spec->eos_id < 0) spec->eos_id = eos;
  if (spec->pad_id < 0) spec->pad_id = pad;
  constexpr std::string_view kFile = "tokenizer_config.json";
  const bool xlm = layout == SentencePieceLayout::kXlmRoberta, t5 = layout == SentencePieceLayout::kT5;
  BATON_TRY(spec->add_bos, tokenizer_fields::flag_of(config, "add_bos_token", !t5 && spec->bos_id >= 0, kFile));
  BATON_TRY(spec->add_eos, tokenizer_fields::flag_of(config, "add_eos_token", (xlm || t5) && spec->eos_id >= 0, kFile));
  BATON_TRY(const bool legacy, tokenizer_fields::flag_of(config, "legacy", true, kFile));
  *prefix = !file.dummy_prefix ? PrefixRule::kNever : legacy ? PrefixRule::kAlways : PrefixRule::kFirst;
  return {};
}

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_sentencepiece(std::string_view model, std::string_view tokenizer_config_json,
                                                        SentencePieceLayout layout) {
  BATON_OK(tokenizer_fields::check_size(model, "SentencePiece model"));
  TokenizerSpec spec;
  Arena arena(&spec, model, 4096);
  BATON_TRY(const SentencePieceFile file, read_file_of_pieces({spec.arena.get(), model.size()}));
  if (layout == SentencePieceLayout::kXlmRoberta && (file.pieces.size() < 3 || file.pieces[0] != "<unk>")) {
    return bad("pieces", "the first three must be <unk>, <s> and </s> in a sentencepiece.bpe.model");
  }
  place_pieces(file, layout, &arena, &spec);
  const bool unigram = file.model_type == 1;
  PieceRules& rules = spec.pieces.emplace();
  rules.model = unigram ? PieceRules::Model::kUnigram : PieceRules::Model::kScoredBpe;
  rules.byte_fallback = file.byte_fallback;
  rules.fuse_unk = rules.float_sums = true;
  NormalizerStep step;
  step.kind = NormalizerStep::Kind::kSentence;
  step.content = file.charsmap;
  step.merge_spaces = file.merge_spaces;
  step.escape_spaces = file.escape_spaces;
  step.space_as_suffix = file.suffix;
  add_added_tokens(&step, &spec);
  BATON_OK(read_ends(file, layout, tokenizer_config_json, &step.prefix, &spec));
  if (!file.suffix) {
    rules.leading_spaces = file.merge_spaces ? std::numeric_limits<size_t>::max() : file.dummy_prefix ? 1 : 0;
  }
  spec.normalizer.push_back(std::move(step));
  return spec;
}

}  // namespace baton
