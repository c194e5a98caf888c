// Cuts text into pre-tokens by the steps of a TokenizerSpec, with PCRE2 (UTF, UCP) for the regular expressions.
// Patterns are written for Oniguruma; what means something else in PCRE2 (\s, \w) is rewritten, what cannot be
// (class intersection, nested classes, \h, \b) is refused. Immutable after creation; any thread may use it.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

struct PieceOfText {
  std::string_view text;
  bool matches = false;
};

class Pretokenizer {
 public:
  static constexpr size_t kStepsMax = 32;
  static constexpr size_t kPatternBytesMax = 16384;

  static Result<Pretokenizer> create(std::span<const PretokenizerStep> steps);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Appends the pre-tokens of `text` (UTF-8) in order as views into it. Bounded time: a match may take a limited number
  // of steps, and patterns that are not our own a limited time (1 s and 1 us a byte); past it kInvalidInput.
  // kMetaspace steps put what they make into `made`, and the views of `out` point there; `begins` says that `text` is
  // where a text begins, `begins_words` that nothing or an added token is before it.
  Status split(std::string_view text, std::vector<std::string_view>* out, std::deque<std::string>* made = nullptr,
               bool begins = true, bool begins_words = true) const;
  // What the first step's pattern matches, and what lies between.
  Status match(std::string_view text, std::vector<PieceOfText>* out) const;

 private:
  struct Step;
  struct Scratch;
  explicit Pretokenizer(std::vector<Step> steps);
  std::vector<Step> steps_;
};

// One of the rules that are known by name: its time is known too.
bool is_own_pattern(std::string_view pattern);
// An Oniguruma pattern in PCRE2's words; see above. Exposed for tests.
Result<std::string> to_pcre2_pattern(std::string_view pattern);

}  // namespace baton
