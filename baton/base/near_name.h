// What somebody who mistyped a name may have meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

inline constexpr size_t kNearMost = 120;

// The nearest of the names, whatever the case, when it is near: a third of the letters may differ, or the word begins
// it; else empty. Words of more than 120 bytes are near nothing. `most`: letters that differ at most.
std::string near_name(std::string_view word, const std::vector<std::string>& names, size_t most = kNearMost);

}  // namespace baton
