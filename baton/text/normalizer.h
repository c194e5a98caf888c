// Changes text before it is split, by the steps of a TokenizerSpec. Immutable after creation; any thread may use it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

// What lies before a stretch of text.
struct StretchStart {
  bool of_text = true;   // nothing
  bool of_words = true;  // nothing, or an added token: not bytes that are no UTF-8, nor text that this continues
};

class Normalizer {
 public:
  static constexpr size_t kStepsMax = 32;

  static Result<Normalizer> create(std::span<const NormalizerStep> steps);
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  bool empty() const { return steps_.empty(); }
  // `text` must be UTF-8. Linear in it, but for NFC and its kind (nfc.h) and patterns of the file's own, which have the
  // bounds of pretokenizer.h. kInvalidInput where it would grow past kTextBytesMax.
  Result<std::string> apply(std::string_view text, StretchStart start) const;
  static constexpr size_t kTextBytesMax = size_t{512} << 20;

 private:
  struct Step;
  explicit Normalizer(std::vector<Step> steps);
  std::vector<Step> steps_;
};

}  // namespace baton
