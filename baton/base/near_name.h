// What somebody who mistyped a name may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

// The nearest of the names, whatever the case, when it is near: a third of the letters may differ, or the word begins
// it; else empty. Words of more than 120 bytes are near nothing.
std::string near_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace baton
