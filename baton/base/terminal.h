// Text from files and models on its way to a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

inline constexpr size_t kNameShownMax = 200, kMessageShownMax = 4000;

// What a terminal would take for commands is written out: control characters but line feed and tab as \x1b, those of
// U+0080 to U+009F and the marks that turn the direction of writing as \u{202e}, bytes that are not UTF-8 as \xff. At
// most about `bytes_max` bytes, cut at a character and ended with "...".
std::string terminal_safe(std::string_view text, size_t bytes_max);

}  // namespace baton
