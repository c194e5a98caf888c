// A stretch of a rendered prompt with its origin: what the template wrote, or what came from a message.
#pragma once

#include <string>

namespace baton {

// Concatenating the texts of all pieces gives the rendered prompt. Neighbours differ in `from_content`.
struct RenderedPiece {
  std::string text;
  bool from_content = false;  // any byte that came from messages, tools or extra variables; never a control token
};

}  // namespace baton
