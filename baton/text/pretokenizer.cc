// Pre-tokenizer steps over PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "baton/text/pretokenizer.h"

#include <fmt/format.h>
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "baton/text/char_classes.h"
#include "baton/text/utf8.h"
#include "baton/text/word_piece.h"

namespace baton {
namespace {

// Steps that one match may take. The rules above need a few per character of the match.
constexpr uint32_t kMatchStepsMax = 10'000'000;
constexpr size_t kStartsPerCall = 64;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

tl::unexpected<Error> no_memory() { return fail(Code::kOutOfMemory, "pre-tokenizer: out of memory"); }

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// What a step does with the time that it takes.
struct Budget {
  std::chrono::steady_clock::time_point end;
  bool spent() const { return std::chrono::steady_clock::now() > end; }
};

}  // namespace

// What matching one step needs beside the compiled pattern; made once per text.
struct Pretokenizer::Scratch {
  std::unique_ptr<pcre2_match_data, MatchDeleter> data;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context;
};

struct Pretokenizer::Step {
  PretokenizerStep step;
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool trusted = false;

  static Result<Step> create(const PretokenizerStep& step);
  Result<Scratch> new_scratch() const;
  // The next match at or after `from`, never empty; false when there is none.
  Result<bool> find(std::string_view text, size_t from, const Scratch& scratch, const Budget& budget, size_t* start,
                    size_t* end) const;
  Status split(std::string_view text, const Scratch& scratch, const Budget& budget,
               std::vector<std::string_view>* out) const;
  tl::unexpected<Error> too_slow(size_t at, size_t bytes) const {
    return fail(Code::kInvalidInput, fmt::format("the tokenizer's pattern '{}' is too slow: gave up at byte {} of {}",
                                                 step.pattern, at, bytes));
  }
};

Result<Pretokenizer::Scratch> Pretokenizer::Step::new_scratch() const {
  Scratch scratch;
  if (!code) return scratch;
  scratch.data.reset(pcre2_match_data_create(1, nullptr));
  scratch.context.reset(pcre2_match_context_create(nullptr));
  if (!scratch.data || !scratch.context) return no_memory();
  pcre2_set_match_limit(scratch.context.get(), kMatchStepsMax);
  pcre2_set_heap_limit(scratch.context.get(), 65536);  // KiB
  return scratch;
}

Result<Pretokenizer::Step> Pretokenizer::Step::create(const PretokenizerStep& step) {
  Step made;
  made.step = step;
  using Kind = PretokenizerStep::Kind;
  made.trusted = step.kind != Kind::kRegex || is_own_pattern(step.pattern);
  if (step.kind == Kind::kBertWords || step.kind == Kind::kDigitGroups) return made;
  if (step.kind == Kind::kMetaspace) {
    if (step.pattern.empty()) return fail(Code::kInvalidInput, "pre-tokenizer Metaspace: the replacement is empty");
    // Pieces begin with the mark.
    made.step.behavior = PretokenizerStep::Behavior::kMergedWithNext;
    return made;
  }
  if (step.kind == Kind::kLiteral) {
    if (step.pattern.empty()) return fail(Code::kInvalidInput, "pre-tokenizer: the string to split at is empty");
    return made;
  }
  if (step.pattern.size() > kPatternBytesMax) {
    return fail(Code::kInvalidInput,
                fmt::format("pre-tokenizer pattern of {} bytes: at most {}", step.pattern.size(), kPatternBytesMax));
  }
  if (!is_utf8(step.pattern)) return fail(Code::kInvalidInput, "pre-tokenizer pattern: not UTF-8");
  BATON_TRY(const std::string pattern, to_pcre2_pattern(step.pattern));
  const std::unique_ptr<pcre2_compile_context, CompileContextDeleter> context(pcre2_compile_context_create(nullptr));
  if (!context) return no_memory();
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  made.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT, &error, &offset,
                                context.get()));
  if (!made.code && error == PCRE2_ERROR_HEAP_FAILED) return no_memory();
  if (!made.code) {
    return fail(Code::kInvalidInput,
                fmt::format("pre-tokenizer pattern '{}': {} (at byte {})", step.pattern, pcre2_message(error), offset));
  }
  // Without JIT (not built in, or no executable memory) PCRE2 interprets: slower, same answers.
  static_cast<void>(pcre2_jit_compile(made.code.get(), PCRE2_JIT_COMPLETE));
  return made;
}

Result<bool> Pretokenizer::Step::find(std::string_view text, size_t from, const Scratch& scratch, const Budget& budget,
                                      size_t* start, size_t* end) const {
  if (step.kind != PretokenizerStep::Kind::kRegex) {
    *start = text.find(step.pattern, from);
    if (*start == std::string_view::npos) return false;
    *end = *start + step.pattern.size();
    return true;
  }
  const auto match = [&](size_t at, uint32_t options) {
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | options, scratch.data.get(), scratch.context.get());
  };
  for (size_t at = from;;) {
    // One call tries a bounded number of starts: PCRE2 counts steps per start, and a start may cost O(text).
    const size_t last_start = trusted ? text.size() : std::min(text.size(), at + kStartsPerCall);
    pcre2_set_offset_limit(scratch.context.get(), last_start);
    int found = match(at, 0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(at, PCRE2_NO_JIT);
    if (found >= 0) break;
    if (found == PCRE2_ERROR_NOMEMORY) return no_memory();
    if (found != PCRE2_ERROR_NOMATCH) {
      return fail(Code::kInvalidInput,
                  fmt::format("pre-tokenizer pattern '{}' at byte {}: {}; the pattern is not usable for this text",
                              step.pattern, at, pcre2_message(found)));
    }
    if (last_start >= text.size()) return false;
    if (budget.spent()) return too_slow(at, text.size());
    for (at = last_start + 1; at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80;) ++at;
    if (at >= text.size()) return false;
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data.get());
  *start = range[0];
  *end = range[1];
  return *start >= from && *end > *start;
}

Status Pretokenizer::Step::split(std::string_view text, const Scratch& scratch, const Budget& budget,
                                 std::vector<std::string_view>* out) const {
  using Behavior = PretokenizerStep::Behavior;
  // Emits the pieces with `is_match` already inverted where asked; merging looks at the piece before.
  const size_t first = out->size();
  bool last_was_match = false;
  size_t pending_match = std::string_view::npos;  // kMergedWithNext: where an unattached match began
  const auto emit = [&](size_t begin, size_t end, bool is_match) {
    if (begin == end) return;
    const bool match = is_match != step.invert;
    const std::string_view piece = text.substr(begin, end - begin);
    const bool has_last = out->size() > first;
    const auto extend_last = [&] { out->back() = {out->back().data(), out->back().size() + piece.size()}; };
    switch (step.behavior) {
      case Behavior::kIsolated:
        out->push_back(piece);
        break;
      case Behavior::kRemoved:
        if (!match) out->push_back(piece);
        break;
      case Behavior::kContiguous:
        if (has_last && match == last_was_match) {
          extend_last();
        } else {
          out->push_back(piece);
        }
        break;
      case Behavior::kMergedWithPrevious:
        if (match && !last_was_match && has_last) {
          extend_last();
        } else {
          out->push_back(piece);
        }
        break;
      case Behavior::kMergedWithNext:
        if (match) {
          if (pending_match != std::string_view::npos)
            out->push_back(text.substr(pending_match, begin - pending_match));
          pending_match = begin;
        } else {
          const size_t from = pending_match != std::string_view::npos ? pending_match : begin;
          out->push_back(text.substr(from, end - from));
          pending_match = std::string_view::npos;
        }
        break;
    }
    last_was_match = match;
  };
  size_t at = 0;
  int until_clock = 16;
  while (at < text.size()) {
    size_t start = 0, end = 0;
    BATON_TRY(const bool found, find(text, at, scratch, budget, &start, &end));
    if (!found) break;
    emit(at, start, false);
    emit(start, end, true);
    at = end;
    if (!trusted && --until_clock == 0) {
      until_clock = 16;
      if (budget.spent()) return too_slow(at, text.size());
    }
  }
  emit(at, text.size(), false);
  if (pending_match != std::string_view::npos) out->push_back(text.substr(pending_match));
  return {};
}

Pretokenizer::Pretokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create(std::span<const PretokenizerStep> steps) {
  if (steps.size() > kStepsMax) {
    return fail(Code::kInvalidInput, fmt::format("pre-tokenizer of {} steps: at most {}", steps.size(), kStepsMax));
  }
  std::vector<Step> made;
  for (const PretokenizerStep& step : steps) {
    BATON_TRY(Step one, Step::create(step));
    made.push_back(std::move(one));
  }
  return Pretokenizer(std::move(made));
}

namespace {

// Runs of digits in threes from the right; what lies between them stays.
void split_digits(std::string_view text, std::string_view which, std::vector<std::string_view>* out) {
  const auto is_digit = [&](const Utf8Char& c) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c.code));
    return category == UTF8PROC_CATEGORY_ND ||
           (which == "N" && (category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO));
  };
  size_t begin = 0;  // of what lies between
  for (size_t at = 0; at < text.size();) {
    std::vector<size_t> starts;
    Utf8Char c = decode_utf8(text, at);
    size_t end = at;
    while (is_digit(c)) {
      starts.push_back(end);
      end += c.length;
      c = end < text.size() ? decode_utf8(text, end) : Utf8Char();
      if (end >= text.size()) break;
    }
    if (starts.empty()) {
      at += c.length;
      continue;
    }
    const bool goes_on = end < text.size() && is_word_char(c.code);
    if (which != "Nd\\b" || !goes_on) {
      if (at > begin) out->push_back(text.substr(begin, at - begin));
      size_t from = 0, to = starts.size() % 3 == 0 ? 3 : starts.size() % 3;
      for (; from < starts.size(); from = to, to += 3) {
        const size_t stop = to < starts.size() ? starts[to] : end;
        out->push_back(text.substr(starts[from], stop - starts[from]));
      }
      begin = end;
    }
    at = end;
  }
  if (begin < text.size()) out->push_back(text.substr(begin));
}

// The text with a mark for each space, one in front where it is asked for.
std::string with_marks(const PretokenizerStep& step, std::string_view text, bool in_front) {
  std::string out;
  out.reserve(text.size() * 2);
  if (in_front && !text.starts_with(step.pattern) && !text.starts_with(' ')) out.append(step.pattern);
  for (const char c : text) {
    if (c == ' ') {
      out.append(step.pattern);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

Status Pretokenizer::split(std::string_view text, std::vector<std::string_view>* out, std::deque<std::string>* made,
                           bool begins, bool begins_words) const {
  if (text.empty()) return {};
  if (steps_.empty()) {
    out->push_back(text);
    return {};
  }
  const Budget budget{std::chrono::steady_clock::now() + std::chrono::seconds(1) +
                      std::chrono::microseconds(text.size())};
  std::vector<std::string_view> pieces{text}, next;
  const char* first = text.data();  // where the text's own beginning is now
  for (const Step& step : steps_) {
    next.clear();
    if (step.step.kind == PretokenizerStep::Kind::kBertWords) {
      for (const std::string_view piece : pieces) WordPiece::split(piece, &next);
      pieces.swap(next);
      continue;
    }
    if (step.step.kind == PretokenizerStep::Kind::kDigitGroups) {
      for (const std::string_view piece : pieces) split_digits(piece, step.step.pattern, &next);
      pieces.swap(next);
      continue;
    }
    BATON_TRY(const Scratch scratch, step.new_scratch());
    if (step.step.kind == PretokenizerStep::Kind::kMetaspace) {
      BATON_CHECK(made != nullptr);
      const char* new_first = nullptr;
      for (const std::string_view piece : pieces) {
        const bool is_first = piece.data() == first;
        const PrefixRule rule = step.step.prefix;
        const bool in_front =
            rule == PrefixRule::kAlways ? begins_words || !is_first : rule == PrefixRule::kFirst && begins && is_first;
        made->push_back(with_marks(step.step, piece, in_front));
        if (is_first) new_first = made->back().data();
        if (step.step.splits) {
          BATON_OK(step.split(made->back(), scratch, budget, &next));
        } else {
          next.push_back(made->back());
        }
      }
      first = new_first;
    } else {
      for (const std::string_view piece : pieces) BATON_OK(step.split(piece, scratch, budget, &next));
    }
    pieces.swap(next);
  }
  out->insert(out->end(), pieces.begin(), pieces.end());
  return {};
}

Status Pretokenizer::match(std::string_view text, std::vector<PieceOfText>* out) const {
  const Budget budget{std::chrono::steady_clock::now() + std::chrono::seconds(1) +
                      std::chrono::microseconds(text.size())};
  BATON_TRY(const Scratch scratch, steps_[0].new_scratch());
  for (size_t at = 0; at < text.size();) {
    size_t start = 0, end = 0;
    BATON_TRY(const bool found, steps_[0].find(text, at, scratch, budget, &start, &end));
    if (!found) start = end = text.size();
    if (start > at) out->push_back({text.substr(at, start - at), false});
    if (end > start) out->push_back({text.substr(start, end - start), true});
    at = end;
    if (budget.spent()) return steps_[0].too_slow(at, text.size());
  }
  return {};
}

}  // namespace baton
