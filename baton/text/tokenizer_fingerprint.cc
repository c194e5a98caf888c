// Hashes a TokenizerSpec. What byte-level BPE has adds up as it always did: sealed states hold the number.
#include "baton/text/tokenizer_fingerprint.h"

#include <cstring>
#include <string_view>

#include "baton/text/hash.h"

namespace baton {
namespace {

class Fingerprint {
 public:
  explicit Fingerprint(std::string_view what) : hash_(hash_bytes(what)) {}
  void add(uint64_t value) { hash_ = mix_bits(hash_ ^ value) + 0x9e3779b97f4a7c15ull; }
  void add(std::string_view value) { hash_ = hash_bytes(value, hash_); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_;
};

void add_bert(const BertRules& rules, Fingerprint* made) {
  made->add(uint64_t{rules.clean} | uint64_t{rules.split_ideographs} << 1 | uint64_t{rules.strip_accents} << 2 |
            uint64_t{rules.lower_case} << 3);
}

void add_pieces(const PieceRules& rules, const TokenizerSpec& spec, Fingerprint* made) {
  made->add(static_cast<uint64_t>(rules.model) | uint64_t{rules.byte_fallback} << 8 | uint64_t{rules.fuse_unk} << 9 |
            uint64_t{rules.float_sums} << 10);
  for (const double score : spec.scores) {
    uint64_t bits = 0;
    std::memcpy(&bits, &score, sizeof bits);
    made->add(bits);
  }
}

void add_normalizer(const TokenizerSpec& spec, Fingerprint* made) {
  for (const NormalizerStep& step : spec.normalizer) {
    made->add(static_cast<uint64_t>(step.kind) | uint64_t{step.left} << 8 | uint64_t{step.right} << 9 |
              static_cast<uint64_t>(step.prefix) << 10 | uint64_t{step.merge_spaces} << 12 |
              uint64_t{step.escape_spaces} << 13 | uint64_t{step.space_as_suffix} << 14);
    made->add(step.pattern);
    made->add(step.content);
    for (const std::string& kept : step.kept) made->add(std::string_view(kept));
    if (step.kind == NormalizerStep::Kind::kBert) add_bert(step.bert, made);
  }
}

}  // namespace

uint64_t tokenizer_fingerprint(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds) {
  Fingerprint made(spec.word_piece ? "wordpiece 2" : spec.pieces ? "pieces 1" : "byte-level bpe 1");
  made.add(kinds.size());
  for (size_t id = 0; id < kinds.size(); ++id) made.add(index.text(static_cast<int32_t>(id)));
  for (const TokenKind kind : kinds) made.add(static_cast<uint64_t>(kind));
  made.add(spec.merges.size());
  for (const auto& merge : spec.merges) made.add(merge.left), made.add(merge.right);
  for (const AddedToken& token : spec.added) {
    made.add(static_cast<uint64_t>(token.id));
    made.add(uint64_t{token.special} | uint64_t{token.lstrip} << 1 | uint64_t{token.rstrip} << 2 |
             uint64_t{token.single_word} << 3 | uint64_t{token.normalized} << 4);
  }
  for (const PretokenizerStep& step : spec.pretokenizer) {
    made.add(std::string_view(step.pattern));
    made.add(static_cast<uint64_t>(step.kind) | static_cast<uint64_t>(step.behavior) << 8 |
             uint64_t{step.invert} << 16 | static_cast<uint64_t>(step.prefix) << 17 | uint64_t{!step.splits} << 20);
  }
  made.add(uint64_t{spec.normalize_nfc} | uint64_t{spec.add_prefix_space} << 1 | uint64_t{spec.ignore_merges} << 2 |
           uint64_t{spec.add_bos} << 3 | uint64_t{spec.add_eos} << 4);
  for (const int32_t id : {spec.bos_id, spec.eos_id, spec.unk_id}) made.add(static_cast<uint64_t>(id));
  if (spec.word_piece) {
    made.add(std::string_view(spec.word_piece->prefix));
    made.add(spec.word_piece->word_chars_max);
  }
  if (spec.pieces) add_pieces(*spec.pieces, spec, &made);
  add_normalizer(spec, &made);
  return made.value();
}

}  // namespace baton
