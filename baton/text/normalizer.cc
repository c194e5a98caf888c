// The steps that change text, one after the other.
#include "baton/text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <utility>

#include "baton/base/terminal.h"
#include "baton/text/added_tokens.h"
#include "baton/text/char_classes.h"
#include "baton/text/charsmap.h"
#include "baton/text/nfc.h"
#include "baton/text/pretokenizer.h"
#include "baton/text/utf8.h"
#include "baton/text/word_piece.h"

namespace baton {
namespace {

using StepKind = NormalizerStep::Kind;

constexpr size_t kPatternShownMax = 80;

// Calls with each character; `text` is UTF-8.
template <class Visit>
void each_char(std::string_view text, Visit&& visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    visit(c.code, text.substr(at, c.length));
    at += c.length;
  }
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_char(text, [&](uint32_t code, std::string_view) { append_lower(code, &out); });
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_char(text, [&](uint32_t code, std::string_view bytes) {
    if (!is_mark(code)) out.append(bytes);
  });
  return out;
}

std::string by_nmt(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_char(text, [&](uint32_t c, std::string_view bytes) {
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) return;
    const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    if (space) {
      out.push_back(' ');
    } else {
      out.append(bytes);
    }
  });
  return out;
}

std::string stripped(std::string_view text, bool left, bool right) {
  size_t begin = text.size(), end = 0;
  size_t at = 0;
  each_char(text, [&](uint32_t code, std::string_view bytes) {
    if (!is_white_space(code)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  if (!left) begin = 0;
  if (!right) end = text.size();
  return std::string(begin < end ? text.substr(begin, end - begin) : std::string_view());
}

tl::unexpected<Error> grows(std::string_view pattern, size_t bytes) {
  return fail(Code::kInvalidInput,
              fmt::format("normalizer Replace of '{}': makes more than {} bytes of {}, the most there may be",
                          terminal_safe(pattern, kPatternShownMax), Normalizer::kTextBytesMax, bytes));
}

Result<std::string> replaced(std::string_view text, std::string_view pattern, std::string_view content) {
  size_t bytes = text.size();
  for (size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, at + pattern.size())) {
    bytes += content.size() - pattern.size();  // modulo 2^64; never below 0
    if (bytes > Normalizer::kTextBytesMax) return grows(pattern, text.size());
  }
  std::string out;
  out.reserve(bytes);
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(pattern, at), text.size());
    out.append(text.substr(at, found - at));
    if (found == text.size()) break;
    out.append(content);
    at = found + pattern.size();
  }
  return out;
}

// A cluster below six bytes is looked up as a whole, then its characters; the shortest match stands for all that was
// looked up.
std::string by_clusters(const Charsmap& map, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto each_of = [&](std::string_view cluster) {
    if (cluster.size() < 6) {
      if (const Charsmap::Match match = map.shortest(cluster); match.length > 0) {
        out.append(match.becomes);
        return;
      }
    }
    each_char(cluster, [&](uint32_t, std::string_view bytes) {
      const Charsmap::Match match = map.shortest(bytes);
      out.append(match.length > 0 ? match.becomes : bytes);
    });
  };
  size_t begin = 0, at = 0;
  utf8proc_int32_t state = 0, before = -1;
  each_char(text, [&](uint32_t code, std::string_view bytes) {
    const auto now = static_cast<utf8proc_int32_t>(code);
    if (before >= 0 && utf8proc_grapheme_break_stateful(before, now, &state)) {
      each_of(text.substr(begin, at - begin));
      begin = at;
    }
    before = now;
    at += bytes.size();
  });
  if (begin < text.size()) each_of(text.substr(begin));
  return out;
}

bool has_prefix(PrefixRule rule, StretchStart start) {
  return rule == PrefixRule::kAlways ? start.of_words : rule == PrefixRule::kFirst && start.of_text;
}

// What SentencePiece makes of text, character by character.
class Sentence {
 public:
  Sentence(const NormalizerStep& step, const Charsmap& map)
      : step_(step), map_(map), space_(step.escape_spaces ? kSpaceMark : std::string_view(" ")) {
    after_space_ = step.merge_spaces;
  }

  // Spaces in front go, where runs become one.
  void add_char_or_more(std::string_view* text) {
    const Charsmap::Match match = map_.longest(*text);
    const size_t length = match.length > 0 ? match.length : decode_utf8(*text, 0).length;
    add(match.length > 0 ? match.becomes : text->substr(0, length));
    text->remove_prefix(length);
  }
  void add(std::string_view piece) {
    saw_more_ = saw_more_ || piece != " ";
    while (after_space_ && piece.starts_with(' ')) piece.remove_prefix(1);
    if (piece.empty()) return;
    if (leads_) out_.append(space_);
    leads_ = false;
    for (const char c : piece) {
      if (c == ' ') {
        out_.append(space_);
      } else {
        out_.push_back(c);
      }
    }
    after_space_ = step_.merge_spaces && piece.back() == ' ';
  }
  // In front of whatever comes; where runs become one, only if something comes.
  void lead_with_space() {
    leads_ = step_.merge_spaces;
    if (!leads_) out_.append(space_);
  }
  std::string take(bool closes_with_space) {
    if (step_.merge_spaces) {
      while (std::string_view(out_).ends_with(space_)) out_.resize(out_.size() - space_.size());
    }
    if (closes_with_space && (saw_more_ || !step_.merge_spaces)) out_.append(space_);
    return std::move(out_);
  }

 private:
  const NormalizerStep& step_;
  const Charsmap& map_;
  std::string_view space_;
  std::string out_;
  bool after_space_ = false, leads_ = false, saw_more_ = false;
};

}  // namespace

struct Normalizer::Step {
  NormalizerStep step;
  Charsmap map;
  std::unique_ptr<const Pretokenizer> pattern;  // finds what is replaced
  std::unique_ptr<const AddedTokenFinder> kept;

  std::string by_sentence(std::string_view text, StretchStart start) const;
  Result<std::string> by_pattern(std::string_view text) const;
  Result<std::string> apply(std::string_view text, StretchStart start) const;
};

std::string Normalizer::Step::by_sentence(std::string_view text, StretchStart start) const {
  Sentence sentence(step, map);
  const bool prefixes = has_prefix(step.prefix, start);
  if (prefixes && !step.space_as_suffix && !text.empty()) sentence.lead_with_space();
  const AddedTokenFinder::Allowed any = [](const AddedToken&, size_t, size_t) { return true; };
  for (size_t at = 0; at < text.size();) {
    const AddedTokenFinder::Match match = kept ? kept->find(text, at, any) : AddedTokenFinder::Match();
    const size_t gap_end = match.token == nullptr ? text.size() : match.start;
    for (std::string_view gap = text.substr(at, gap_end - at); !gap.empty();) sentence.add_char_or_more(&gap);
    if (match.token == nullptr) break;
    sentence.add(text.substr(match.start, match.end - match.start));
    at = match.end;
  }
  return sentence.take(prefixes && step.space_as_suffix && !text.empty());
}

Result<std::string> Normalizer::Step::by_pattern(std::string_view text) const {
  std::vector<PieceOfText> pieces;
  if (auto matched = pattern->match(text, &pieces); !matched) {
    return fail(std::move(matched).error().in(
        fmt::format("normalizer Replace, on the {} bytes that the steps before it made of the text", text.size())));
  }
  std::string out;
  out.reserve(text.size());
  for (const PieceOfText& piece : pieces) {
    out.append(piece.matches ? std::string_view(step.content) : piece.text);
    if (out.size() > kTextBytesMax) return grows(step.pattern, text.size());
  }
  return out;
}

Result<std::string> Normalizer::Step::apply(std::string_view text, StretchStart start) const {
  switch (step.kind) {
    case StepKind::kNfc:
      return to_normal_form(text, NormalForm::kNfc);
    case StepKind::kNfd:
      return to_normal_form(text, NormalForm::kNfd);
    case StepKind::kNfkc:
      return to_normal_form(text, NormalForm::kNfkc);
    case StepKind::kNfkd:
      return to_normal_form(text, NormalForm::kNfkd);
    case StepKind::kLowercase:
      return to_lower(text);
    case StepKind::kStrip:
      return stripped(text, step.left, step.right);
    case StepKind::kStripAccents:
      return without_marks(text);
    case StepKind::kNmt:
      return by_nmt(text);
    case StepKind::kReplace:
      return replaced(text, step.pattern, step.content);
    case StepKind::kReplaceRegex:
      return by_pattern(text);
    case StepKind::kPrepend:
      return (has_prefix(step.prefix, start) && !text.empty() ? step.content : "") + std::string(text);
    case StepKind::kClusters:
      return by_clusters(map, text);
    case StepKind::kSentence:
      return by_sentence(text, start);
    case StepKind::kBert:
      return WordPiece::normalize(step.bert, text);
  }
  return fail(Code::kInternal, "normalizer: a step of no kind");
}

Normalizer::Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Result<Normalizer> Normalizer::create(std::span<const NormalizerStep> steps) {
  if (steps.size() > kStepsMax) {
    return fail(Code::kInvalidInput, fmt::format("normalizer of {} steps: at most {}", steps.size(), kStepsMax));
  }
  std::vector<Step> made;
  for (const NormalizerStep& step : steps) {
    Step one{step, Charsmap(), nullptr, nullptr};
    if (step.kind == StepKind::kClusters || step.kind == StepKind::kSentence) {
      BATON_TRY(one.map, Charsmap::create(step.content));
    }
    if (step.kind == StepKind::kReplace && step.pattern.empty()) {
      return fail(Code::kInvalidInput, "normalizer Replace: the string to replace is empty");
    }
    if (step.kind == StepKind::kReplaceRegex) {
      PretokenizerStep split;
      split.pattern = step.pattern;
      BATON_TRY(Pretokenizer pattern, Pretokenizer::create(std::span(&split, 1)));
      one.pattern = std::make_unique<const Pretokenizer>(std::move(pattern));
    }
    if (!step.kept.empty()) {
      std::vector<AddedToken> kept;
      for (const std::string& text : step.kept) {
        AddedToken token;
        token.id = 0;
        token.text = text;
        kept.push_back(std::move(token));
      }
      BATON_TRY(AddedTokenFinder finder, AddedTokenFinder::create(std::move(kept)));
      one.kept = std::make_unique<const AddedTokenFinder>(std::move(finder));
    }
    made.push_back(std::move(one));
  }
  return Normalizer(std::move(made));
}

Result<std::string> Normalizer::apply(std::string_view text, StretchStart start) const {
  std::string now(text);
  for (const Step& step : steps_) {
    BATON_TRY(now, step.apply(now, start));
    if (now.size() > kTextBytesMax) {
      return fail(Code::kInvalidInput, fmt::format("the normalizer makes {} bytes of {}: at most {}", now.size(),
                                                   text.size(), kTextBytesMax));
    }
  }
  return now;
}

}  // namespace baton
