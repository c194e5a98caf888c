// The tokenizer: added tokens, NFC, pre-tokens, merges; and the way back.
#include "baton/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "baton/text/added_tokens.h"
#include "baton/text/bpe.h"
#include "baton/text/byte_alphabet.h"
#include "baton/text/hash.h"
#include "baton/text/nfc.h"
#include "baton/text/pretokenizer.h"
#include "baton/text/utf8.h"
#include "baton/text/word_piece.h"

namespace baton {
namespace {

constexpr size_t kTextBytesMax = size_t{64} << 20;

// Control tokens that end a turn in some model family, besides eos.
constexpr std::string_view kEndOfTurn[] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>",
    "<|end_of_turn|>", "<|return|>",    "<|call|>",   "</s>",       "<EOT>",           "_<EOT>",
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// A piece inside a word goes on where the one before ends, any other begins a word.
void append_word_piece(const WordPieceRules& rules, std::string_view name, std::string* out) {
  if (!rules.prefix.empty() && name.size() > rules.prefix.size() && name.starts_with(rules.prefix)) {
    out->append(name.substr(rules.prefix.size()));
  } else if (!name.empty()) {
    out->append(" ").append(name);
  }
}

}  // namespace

struct Tokenizer::Parts {
  // Token texts as in the vocabulary, and the bytes they stand for, end to end; [id, id + 1) of the offsets.
  std::string texts, bytes;
  std::vector<uint32_t> text_offsets, byte_offsets;
  std::vector<TokenKind> kinds;
  TokenIndex index;
  Bpe bpe;
  std::optional<WordPieceRules> word_rules;  // then `word_piece` does what merges do
  WordPiece word_piece;
  Pretokenizer pretokenizer;
  AddedTokenFinder raw_tokens, normalized_tokens;
  bool normalize_nfc = false, add_prefix_space = false, add_bos = false, add_eos = false;
  int32_t bos_id = -1, eos_id = -1, pad_id = -1;
  std::vector<int32_t> stop_ids, unused_ids;
  uint64_t fingerprint = 0;

  Parts(Pretokenizer pre, AddedTokenFinder raw, AddedTokenFinder normalized)
      : pretokenizer(std::move(pre)), raw_tokens(std::move(raw)), normalized_tokens(std::move(normalized)) {}

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
  void fill_fingerprint(const TokenizerSpec& spec);
  Result<std::vector<int32_t>> encode(std::string_view input, const AddedTokenFinder::Allowed& allowed) const;
  Status encode_gap(std::string_view gap, std::vector<int32_t>* out) const;
  Status encode_valid(std::string_view run, bool first, std::vector<int32_t>* out) const;
  Status encode_words(std::string_view text, std::vector<int32_t>* out) const;
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
    const bool is_plain = kinds[id] == TokenKind::kNormal || kinds[id] == TokenKind::kByte;
    if (is_plain && spec.word_piece) {
      append_word_piece(*spec.word_piece, names[id], &bytes);
    } else if (!is_plain || !from_byte_alphabet(names[id], &bytes)) {
      bytes.append(names[id]);
    }
  }
  text_offsets.push_back(static_cast<uint32_t>(texts.size()));
  byte_offsets.push_back(static_cast<uint32_t>(bytes.size()));
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
  normalize_nfc = spec.normalize_nfc;
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
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  return {};
}

void Tokenizer::Parts::fill_fingerprint(const TokenizerSpec& spec) {
  uint64_t hash = hash_bytes(spec.word_piece ? "wordpiece 1" : "byte-level bpe 1");
  const auto add_number = [&](uint64_t value) { hash = mix_bits(hash ^ value) + 0x9e3779b97f4a7c15ull; };
  const auto add_text = [&](std::string_view value) { hash = hash_bytes(value, hash); };
  add_number(size());
  for (size_t id = 0; id < size(); ++id) add_text(text(id));
  for (const TokenKind kind : kinds) add_number(static_cast<uint64_t>(kind));
  add_number(spec.merges.size());
  for (const auto& merge : spec.merges) add_text(merge.left), add_text(merge.right);
  for (const AddedToken& token : spec.added) {
    add_number(static_cast<uint64_t>(token.id));
    add_number(uint64_t{token.special} | uint64_t{token.lstrip} << 1 | uint64_t{token.rstrip} << 2 |
               uint64_t{token.single_word} << 3 | uint64_t{token.normalized} << 4);
  }
  for (const PretokenizerStep& step : spec.pretokenizer) {
    add_text(step.pattern);
    add_number(static_cast<uint64_t>(step.kind) | static_cast<uint64_t>(step.behavior) << 8 |
               uint64_t{step.invert} << 16);
  }
  add_number(uint64_t{spec.normalize_nfc} | uint64_t{spec.add_prefix_space} << 1 | uint64_t{spec.ignore_merges} << 2 |
             uint64_t{spec.add_bos} << 3 | uint64_t{spec.add_eos} << 4);
  for (const int32_t id : {spec.bos_id, spec.eos_id, spec.unk_id}) add_number(static_cast<uint64_t>(id));
  if (spec.word_piece) {
    const WordPieceRules& rules = *spec.word_piece;
    add_text(rules.prefix);
    add_number(rules.word_chars_max);
    add_number(uint64_t{rules.clean} | uint64_t{rules.split_ideographs} << 1 | uint64_t{rules.strip_accents} << 2 |
               uint64_t{rules.lower_case} << 3);
  }
  fingerprint = hash;
}

Result<std::vector<int32_t>> Tokenizer::Parts::encode(std::string_view input,
                                                      const AddedTokenFinder::Allowed& allowed) const {
  if (input.size() > kTextBytesMax) {
    return fail(Code::kInvalidInput,
                fmt::format("text of {} bytes: at most {} can be tokenised at once", input.size(), kTextBytesMax));
  }
  std::vector<int32_t> ids;
  for (size_t at = 0; at < input.size();) {
    const AddedTokenFinder::Match match = raw_tokens.find(input, at, allowed);
    const size_t gap_end = match.token == nullptr ? input.size() : match.start;
    BATON_OK(encode_gap(input.substr(at, gap_end - at), &ids));
    if (match.token == nullptr) break;
    ids.push_back(match.token->id);
    at = match.end;
  }
  return ids;
}

// What lies between raw added tokens: cut into UTF-8 and what is not.
Status Tokenizer::Parts::encode_gap(std::string_view gap, std::vector<int32_t>* out) const {
  if (word_rules) return encode_valid(gap, true, out);
  const std::string_view whole = gap;
  while (!gap.empty()) {
    const size_t valid = utf8_prefix(gap);
    if (valid > 0) BATON_OK(encode_valid(gap.substr(0, valid), gap.data() == whole.data(), out));
    gap.remove_prefix(valid);
    size_t invalid = 0;
    while (invalid < gap.size()) {
      const Utf8Char c = decode_utf8(gap, invalid);
      if (c.valid) break;
      invalid += c.length;
    }
    BATON_OK(bpe.encode(gap.substr(0, invalid), out));
    gap.remove_prefix(invalid);
  }
  return {};
}

Status Tokenizer::Parts::encode_valid(std::string_view run, bool first, std::vector<int32_t>* out) const {
  std::string changed;
  if (word_rules) {
    changed = WordPiece::normalize(*word_rules, run);
    run = changed;
  }
  if (normalize_nfc && !is_ascii(run)) {
    BATON_TRY(changed, to_nfc(run));
    run = changed;
  }
  const AddedTokenFinder::Allowed any = [](const AddedToken&, size_t, size_t) { return true; };
  for (size_t at = 0; at < run.size();) {
    const AddedTokenFinder::Match match = normalized_tokens.find(run, at, any);
    const size_t gap_end = match.token == nullptr ? run.size() : match.start;
    const std::string_view words = run.substr(at, gap_end - at);
    if (add_prefix_space && (first || at > 0) && !words.empty() && words[0] != ' ') {
      BATON_OK(encode_words(std::string(" ").append(words), out));
    } else {
      BATON_OK(encode_words(words, out));
    }
    if (match.token == nullptr) break;
    out->push_back(match.token->id);
    at = match.end;
  }
  return {};
}

Status Tokenizer::Parts::encode_words(std::string_view text, std::vector<int32_t>* out) const {
  std::vector<std::string_view> pieces;
  if (word_rules) {
    WordPiece::split(text, &pieces);
    for (const std::string_view piece : pieces) word_piece.encode(piece, out);
    return {};
  }
  BATON_OK(pretokenizer.split(text, &pieces));
  for (const std::string_view piece : pieces) BATON_OK(bpe.encode(piece, out));
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(const TokenizerSpec& spec) {
  // Control tokens are always matched in raw text, so that origin by byte stays known.
  std::vector<AddedToken> raw, normalized;
  for (const AddedToken& token : spec.added) {
    AddedToken copy = token;
    if (!token.normalized || token.special) {
      raw.push_back(std::move(copy));
      continue;
    }
    if (spec.normalize_nfc && is_utf8(copy.text)) {
      BATON_TRY(copy.text, to_nfc(copy.text));
    }
    if (spec.word_piece) copy.text = WordPiece::normalize(*spec.word_piece, copy.text);
    normalized.push_back(std::move(copy));
  }
  BATON_TRY(AddedTokenFinder raw_finder, AddedTokenFinder::create(std::move(raw)));
  BATON_TRY(AddedTokenFinder normalized_finder, AddedTokenFinder::create(std::move(normalized)));
  BATON_TRY(Pretokenizer pretokenizer, Pretokenizer::create(spec.pretokenizer));
  auto parts = std::make_unique<Parts>(std::move(pretokenizer), std::move(raw_finder), std::move(normalized_finder));
  BATON_OK(parts->fill_tokens(spec));
  parts->index = TokenIndex(parts->texts.data(), parts->text_offsets);
  if (spec.word_piece) {
    parts->word_rules = spec.word_piece;
    BATON_TRY(parts->word_piece, WordPiece::create(*spec.word_piece, parts->index, parts->kinds, spec.unk_id));
  } else {
    BATON_TRY(parts->bpe, Bpe::create(spec, parts->index, parts->kinds));
  }
  BATON_OK(parts->fill_ids(spec));
  parts->fill_fingerprint(spec);
  return Tokenizer(std::move(parts));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  return parts_->encode(text, [&](const AddedToken& token, size_t, size_t) { return parse_special || !token.special; });
}

Result<std::vector<int32_t>> Tokenizer::encode_pieces(std::span<const RenderedPiece> pieces) const {
  std::string text;
  std::vector<std::pair<size_t, size_t>> content;  // byte ranges, in order
  for (const RenderedPiece& piece : pieces) {
    if (piece.from_content && !piece.text.empty()) content.emplace_back(text.size(), text.size() + piece.text.size());
    text.append(piece.text);
  }
  return parts_->encode(text, [&](const AddedToken& token, size_t start, size_t end) {
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
  if (parts_->word_rules && text.starts_with(' ')) text.erase(0, 1);
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
uint64_t Tokenizer::fingerprint() const { return parts_->fingerprint; }

}  // namespace baton
