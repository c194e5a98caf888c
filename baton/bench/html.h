// What the pages of this folder share.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Text for element contents and quoted attributes.
std::string html_escaped(std::string_view text);

}  // namespace baton
