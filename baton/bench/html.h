// What the pages of this folder share: head and style (light and dark, phone and desk), the block of facts below the
// title. A page is one file that needs nothing else: no scripts, nothing fetched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Text for element contents and quoted attributes.
std::string html_escaped(std::string_view text);

// Where a page comes from; what is empty is left out.
struct PageInfo {
  std::string made;     // date and time
  std::string version;  // of this program
  std::string command;  // the command line, without absolute paths
};

// From <!doctype> to the block of facts; `facts` are lines of text. `style` is added to the shared one.
std::string html_head(std::string_view title, std::string_view style, const std::vector<std::string>& facts,
                      const PageInfo& info);
std::string html_tail();
// What is wider than the page scrolls in itself.
std::string html_scroll(const std::string& inside);

}  // namespace baton
