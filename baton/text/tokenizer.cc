// The tokenizer: added tokens, normalisation, pre-tokens, their ids; and the way back.
#include "baton/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "baton/text/added_tokens.h"
#include "baton/text/bpe.h"
#include "baton/text/normalizer.h"
#include "baton/text/piece_bpe.h"
#include "baton/text/pretokenizer.h"
#include "baton/text/token_bytes.h"
#include "baton/text/tokenizer_fingerprint.h"
#include "baton/text/unigram.h"
#include "baton/text/utf8.h"
#include "baton/text/word_piece.h"

namespace baton {
namespace {

constexpr size_t kTextBytesMax = size_t{64} << 20;

// Control tokens that end a turn in some model family, besides eos.
constexpr std::string_view kEndOfTurn[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|end|>",
    "<|end_of_turn|>",
    "<|return|>",
    "<|call|>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "<|flush|>",
    "<|calls|>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
    "<turn|>",
    "[e~[",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

}  // namespace

struct Tokenizer::Parts {
  // Token texts as in the vocabulary, and the bytes they stand for, end to end; [id, id + 1) of the offsets.
  std::string texts, bytes;
  std::vector<uint32_t> text_offsets, byte_offsets;
  std::vector<TokenKind> kinds;
  TokenIndex index;
  std::unique_ptr<const TokenModel> model;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  AddedTokenFinder raw_tokens, normalized_tokens;
  bool only_nfc = false;      // the normalizer has nothing to do to ASCII
  size_t leading_spaces = 0;  // that decoding drops where a text begins
  bool add_prefix_space = false, add_bos = false, add_eos = false;
  int32_t bos_id = -1, eos_id = -1, pad_id = -1;
  std::vector<int32_t> stop_ids, unused_ids;
  uint64_t fingerprint = 0;

  Parts(Normalizer changes, Pretokenizer pre, AddedTokenFinder raw, AddedTokenFinder normalized)
      : normalizer(std::move(changes)),
        pretokenizer(std::move(pre)),
        raw_tokens(std::move(raw)),
        normalized_tokens(std::move(normalized)) {}

  size_t size() const { return kinds.size(); }
  bool has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < kinds.size(); }
  std::string_view text(size_t id) const {
    return std::string_view(texts).substr(text_offsets[id], text_offsets[id + 1] - text_offsets[id]);
  }
  std::string_view bytes_of(size_t id) const {
    return std::string_view(bytes).substr(byte_offsets[id], byte_offsets[id + 1] - byte_offsets[id]);
  }

  Status fill_tokens(const TokenizerSpec& spec);
  Status fill_ids(const TokenizerSpec& spec);
  Status make_model(const TokenizerSpec& spec);
  Result<std::vector<int32_t>> encode(std::string_view input, bool begins,
                                      const AddedTokenFinder::Allowed& allowed) const;
  Status encode_gap(std::string_view gap, StretchStart start, std::vector<int32_t>* out) const;
  Status encode_valid(std::string_view run, StretchStart start, std::vector<int32_t>* out) const;
  Status encode_words(std::string_view text, StretchStart start, std::vector<int32_t>* out) const;
};

Status Tokenizer::Parts::fill_tokens(const TokenizerSpec& spec) {
  size_t count = spec.tokens.size(), text_bytes = 0;
  if (!spec.kinds.empty() && spec.kinds.size() != count) {
    return fail(Code::kInvalidInput, fmt::format("{} tokens but {} token types", count, spec.kinds.size()));
  }
  for (const AddedToken& token : spec.added) {
    if (token.id < 0 || token.id >= kTokensMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("added token '{}' has id {}: must be below {}", token.text, token.id, kTokensMax));
    }
    count = std::max(count, static_cast<size_t>(token.id) + 1);
    text_bytes += token.text.size();
  }
  if (count == 0) return fail(Code::kInvalidInput, "the vocabulary is empty");
  if (count > static_cast<size_t>(kTokensMax)) {
    return fail(Code::kInvalidInput, fmt::format("{} tokens: at most {}", count, kTokensMax));
  }
  for (const std::string_view token : spec.tokens) text_bytes += token.size();
  if (text_bytes > (size_t{1} << 30)) return fail(Code::kInvalidInput, "the vocabulary is above 1 GiB");

  std::vector<std::string_view> names(spec.tokens);
  names.resize(count);
  kinds.assign(count, TokenKind::kNormal);
  if (!spec.kinds.empty()) std::copy(spec.kinds.begin(), spec.kinds.end(), kinds.begin());
  for (const AddedToken& token : spec.added) {
    std::string_view& name = names[static_cast<size_t>(token.id)];
    if (!name.empty() && name != token.text) {
      return fail(Code::kInvalidInput,
                  fmt::format("added token '{}' has id {}, which belongs to '{}'", token.text, token.id, name));
    }
    name = token.text;
    kinds[static_cast<size_t>(token.id)] = token.special ? TokenKind::kControl : TokenKind::kUserDefined;
  }
  texts.reserve(text_bytes);
  bytes.reserve(text_bytes);
  text_offsets.reserve(count + 1);
  byte_offsets.reserve(count + 1);
  for (size_t id = 0; id < count; ++id) {
    text_offsets.push_back(static_cast<uint32_t>(texts.size()));
    byte_offsets.push_back(static_cast<uint32_t>(bytes.size()));
    if (names[id].empty()) kinds[id] = TokenKind::kUnused;
    texts.append(names[id]);
    append_token_bytes(spec, names[id], kinds[id], &bytes);
  }
  text_offsets.push_back(static_cast<uint32_t>(texts.size()));
  byte_offsets.push_back(static_cast<uint32_t>(bytes.size()));
  return {};
}

Status Tokenizer::Parts::make_model(const TokenizerSpec& spec) {
  if (spec.word_piece) {
    BATON_TRY(WordPiece made, WordPiece::create(*spec.word_piece, index, kinds, spec.unk_id));
    model = std::make_unique<const WordPiece>(std::move(made));
    leading_spaces = 1;
  } else if (!spec.pieces) {
    BATON_TRY(Bpe made, Bpe::create(spec, index, kinds));
    model = std::make_unique<const Bpe>(std::move(made));
  } else if (spec.pieces->model == PieceRules::Model::kUnigram) {
    BATON_TRY(model, Unigram::create(spec, index, kinds));
  } else {
    BATON_TRY(model, PieceBpe::create(spec, index, kinds));
  }
  if (spec.pieces) leading_spaces = spec.pieces->leading_spaces;
  return {};
}

Status Tokenizer::Parts::fill_ids(const TokenizerSpec& spec) {
  const std::pair<int32_t, std::string_view> named[] = {
      {spec.bos_id, "bos"}, {spec.eos_id, "eos"}, {spec.pad_id, "pad"}, {spec.unk_id, "unk"}};
  for (const auto& [id, name] : named) {
    if (id != -1 && !has(id)) {
      return fail(Code::kInvalidInput,
                  fmt::format("the {} token id {} is outside the vocabulary of {}", name, id, size()));
    }
  }
  if (spec.add_bos && spec.bos_id < 0) return fail(Code::kInvalidInput, "add_bos is set, but there is no bos token");
  if (spec.add_eos && spec.eos_id < 0) return fail(Code::kInvalidInput, "add_eos is set, but there is no eos token");
  only_nfc = spec.normalizer.empty();
  add_prefix_space = spec.add_prefix_space;
  add_bos = spec.add_bos;
  add_eos = spec.add_eos;
  bos_id = spec.bos_id;
  eos_id = spec.eos_id;
  pad_id = spec.pad_id;
  for (const int32_t id : spec.stop_ids) {
    if (!has(id)) {
      return fail(Code::kInvalidInput, fmt::format("the stop token id {} is outside the vocabulary of {}", id, size()));
    }
    stop_ids.push_back(id);
  }
  if (eos_id >= 0) stop_ids.push_back(eos_id);
  for (size_t id = 0; id < size(); ++id) {
    if (kinds[id] == TokenKind::kUnused) unused_ids.push_back(static_cast<int32_t>(id));
    if (kinds[id] != TokenKind::kControl) continue;
    if (std::find(std::begin(kEndOfTurn), std::end(kEndOfTurn), text(id)) != std::end(kEndOfTurn)) {
      stop_ids.push_back(static_cast<int32_t>(id));
    }
  }
  // Where <|return|> and <|call|> end answers, <|end|> is between their parts.
  const auto stops_at = [&](std::string_view name) {
    return std::any_of(stop_ids.begin(), stop_ids.end(),
                       [&](int32_t id) { return text(static_cast<size_t>(id)) == name; });
  };
  if (stops_at("<|return|>") && stops_at("<|call|>")) {
    std::erase_if(stop_ids, [&](int32_t id) { return text(static_cast<size_t>(id)) == "<|end|>"; });
  }
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  return {};
}

Result<std::vector<int32_t>> Tokenizer::Parts::encode(std::string_view input, bool begins,
                                                      const AddedTokenFinder::Allowed& allowed) const {
  if (input.size() > kTextBytesMax) {
    return fail(Code::kInvalidInput,
                fmt::format("text of {} bytes: at most {} can be tokenised at once", input.size(), kTextBytesMax));
  }
  std::vector<int32_t> ids;
  for (size_t at = 0; at < input.size();) {
    const AddedTokenFinder::Match match = raw_tokens.find(input, at, allowed);
    const size_t gap_end = match.token == nullptr ? input.size() : match.start;
    BATON_OK(encode_gap(input.substr(at, gap_end - at), {begins && at == 0, begins || at > 0}, &ids));
    if (match.token == nullptr) break;
    ids.push_back(match.token->id);
    at = match.end;
  }
  return ids;
}

// What lies between raw added tokens: cut into UTF-8 and what is not.
Status Tokenizer::Parts::encode_gap(std::string_view gap, StretchStart start, std::vector<int32_t>* out) const {
  if (!model->takes_bytes())
    return is_utf8(gap) ? encode_valid(gap, start, out) : encode_valid(replace_invalid_utf8(gap), start, out);
  while (!gap.empty()) {
    const size_t valid = utf8_prefix(gap);
    if (valid > 0) BATON_OK(encode_valid(gap.substr(0, valid), start, out));
    gap.remove_prefix(valid);
    size_t invalid = 0;
    while (invalid < gap.size()) {
      const Utf8Char c = decode_utf8(gap, invalid);
      if (c.valid) break;
      invalid += c.length;
    }
    if (invalid > 0) BATON_OK(model->encode_bytes(gap.substr(0, invalid), out));
    gap.remove_prefix(invalid);
    start = {false, false};
  }
  return {};
}

Status Tokenizer::Parts::encode_valid(std::string_view run, StretchStart start, std::vector<int32_t>* out) const {
  std::string changed;
  if (!normalizer.empty() && !(only_nfc && is_ascii(run))) {
    BATON_TRY(changed, normalizer.apply(run, start));
    run = changed;
  }
  const AddedTokenFinder::Allowed any = [](const AddedToken&, size_t, size_t) { return true; };
  for (size_t at = 0; at < run.size();) {
    const AddedTokenFinder::Match match = normalized_tokens.find(run, at, any);
    const size_t gap_end = match.token == nullptr ? run.size() : match.start;
    const std::string_view words = run.substr(at, gap_end - at);
    const StretchStart here{start.of_text && at == 0, start.of_words || at > 0};
    if (add_prefix_space && here.of_words && !words.empty() && words[0] != ' ') {
      BATON_OK(encode_words(std::string(" ").append(words), here, out));
    } else {
      BATON_OK(encode_words(words, here, out));
    }
    if (match.token == nullptr) break;
    out->push_back(match.token->id);
    at = match.end;
  }
  return {};
}

Status Tokenizer::Parts::encode_words(std::string_view text, StretchStart start, std::vector<int32_t>* out) const {
  std::vector<std::string_view> pieces;
  std::deque<std::string> made;
  BATON_OK(pretokenizer.split(text, &pieces, &made, start.of_text, start.of_words));
  for (const std::string_view piece : pieces) BATON_OK(model->encode(piece, out));
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(const TokenizerSpec& spec) {
  std::vector<NormalizerStep> changes = spec.normalizer;
  if (spec.normalize_nfc) changes.emplace_back();
  BATON_TRY(Normalizer normalizer, Normalizer::create(changes));
  // Control tokens are always matched in raw text, so that origin by byte stays known.
  std::vector<AddedToken> raw, normalized;
  for (const AddedToken& token : spec.added) {
    AddedToken copy = token;
    if (!token.normalized || token.special) {
      raw.push_back(std::move(copy));
      continue;
    }
    if (!copy.is_normal && is_utf8(copy.text)) {
      BATON_TRY(copy.text, normalizer.apply(copy.text, {}));
    }
    normalized.push_back(std::move(copy));
  }
  BATON_TRY(AddedTokenFinder raw_finder, AddedTokenFinder::create(std::move(raw)));
  BATON_TRY(AddedTokenFinder normalized_finder, AddedTokenFinder::create(std::move(normalized)));
  BATON_TRY(Pretokenizer pretokenizer, Pretokenizer::create(spec.pretokenizer));
  auto parts = std::make_unique<Parts>(std::move(normalizer), std::move(pretokenizer), std::move(raw_finder),
                                       std::move(normalized_finder));
  BATON_OK(parts->fill_tokens(spec));
  parts->index = TokenIndex(parts->texts.data(), parts->text_offsets);
  BATON_OK(parts->make_model(spec));
  BATON_OK(parts->fill_ids(spec));
  parts->fingerprint = tokenizer_fingerprint(spec, parts->index, parts->kinds);
  return Tokenizer(std::move(parts));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool parse_special, bool begins) const {
  return parts_->encode(text, begins,
                        [&](const AddedToken& token, size_t, size_t) { return parse_special || !token.special; });
}

Result<std::vector<int32_t>> Tokenizer::encode_pieces(std::span<const RenderedPiece> pieces, bool begins) const {
  std::string text;
  std::vector<std::pair<size_t, size_t>> content;  // byte ranges, in order
  for (const RenderedPiece& piece : pieces) {
    if (piece.from_content && !piece.text.empty()) content.emplace_back(text.size(), text.size() + piece.text.size());
    text.append(piece.text);
  }
  return parts_->encode(text, begins, [&](const AddedToken& token, size_t start, size_t end) {
    if (!token.special) return true;
    // The first content range that ends after `start` must not begin before `end`.
    const auto after =
        std::partition_point(content.begin(), content.end(), [&](const auto& range) { return range.second <= start; });
    return after == content.end() || after->first >= end;
  });
}

std::vector<int32_t> Tokenizer::with_bos(std::vector<int32_t> ids) const {
  if (parts_->add_bos && (ids.empty() || ids.front() != parts_->bos_id)) ids.insert(ids.begin(), parts_->bos_id);
  return ids;
}

std::vector<int32_t> Tokenizer::with_ends(std::vector<int32_t> ids) const {
  if (parts_->add_bos) ids.insert(ids.begin(), parts_->bos_id);
  if (parts_->add_eos) ids.push_back(parts_->eos_id);
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    if (!parts_->has(id)) {
      return fail(Code::kInvalidInput, fmt::format("token id {} is outside the vocabulary of {}", id, vocab_size()));
    }
    if (skip_special && is_special(id)) continue;
    text.append(parts_->bytes_of(static_cast<size_t>(id)));
  }
  text.erase(0, std::min(text.find_first_not_of(' '), std::min(text.size(), parts_->leading_spaces)));
  return text;
}

std::string Tokenizer::token_text(int32_t id) const {
  return parts_->has(id) ? std::string(parts_->text(static_cast<size_t>(id))) : std::string();
}
std::string_view Tokenizer::token_bytes(int32_t id) const {
  return parts_->has(id) ? parts_->bytes_of(static_cast<size_t>(id)) : std::string_view();
}
TokenKind Tokenizer::kind(int32_t id) const {
  return parts_->has(id) ? parts_->kinds[static_cast<size_t>(id)] : TokenKind::kUnused;
}
int32_t Tokenizer::find(std::string_view token_text) const { return parts_->index.find(token_text); }
int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->size()); }
int32_t Tokenizer::bos_id() const { return parts_->bos_id; }
int32_t Tokenizer::eos_id() const { return parts_->eos_id; }
int32_t Tokenizer::pad_id() const { return parts_->pad_id; }
bool Tokenizer::add_bos() const { return parts_->add_bos; }
bool Tokenizer::add_eos() const { return parts_->add_eos; }
std::span<const int32_t> Tokenizer::stop_ids() const { return parts_->stop_ids; }
std::span<const int32_t> Tokenizer::unused_ids() const { return parts_->unused_ids; }
size_t Tokenizer::leading_spaces() const { return parts_->leading_spaces; }
uint64_t Tokenizer::fingerprint() const { return parts_->fingerprint; }

}  // namespace baton
