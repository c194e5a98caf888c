// Unicode normalisation forms.
#pragma once

#include <string>
#include <string_view>

#include "baton/base/status.h"

namespace baton {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be UTF-8. n log n at most, whatever the text: utf8proc's own way of ordering marks takes the square of
// the number of marks in a row (200 KB of them: 22 s).
Result<std::string> to_normal_form(std::string_view text, NormalForm form);
inline Result<std::string> to_nfc(std::string_view text) { return to_normal_form(text, NormalForm::kNfc); }

}  // namespace baton
