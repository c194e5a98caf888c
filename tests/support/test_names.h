// Names of parameterized tests, which are letters, digits and underscores.
#pragma once

#include <cctype>
#include <string>

namespace baton {

// "neon-i8mm" -> "neon_i8mm".
inline std::string test_name(std::string name) {
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace baton
