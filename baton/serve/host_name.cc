// Names of this machine.
#include "baton/serve/host_name.h"

#include <algorithm>
#include <cctype>

namespace baton::serve {
namespace {

std::string small_letters(std::string_view text) {
  std::string made(text);
  for (char& c : made) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return made;
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.rfind(':'));
}

// 127.0.0.1, whatever the numbers: no name ends in a number.
bool is_ipv4(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return !last.empty() && std::ranges::all_of(name, [](unsigned char c) { return c == '.' || std::isdigit(c) != 0; });
}

// Between brackets, as a URL has it: no name has a colon.
bool is_ipv6(std::string_view name) {
  if (!name.starts_with('[') || !name.ends_with(']') || name.find(':') == name.npos) return false;
  return std::ranges::all_of(name.substr(1, name.size() - 2),
                             [](unsigned char c) { return c == ':' || c == '.' || std::isxdigit(c) != 0; });
}

}  // namespace

bool is_own_host(std::string_view host, std::span<const std::string> allowed) {
  std::string name = small_letters(without_port(host));
  if (name.ends_with('.')) name.pop_back();
  if (is_ipv6(name) || is_ipv4(name) || name == "localhost" || name.ends_with(".localhost")) return true;
  return std::ranges::any_of(allowed, [&](const std::string& other) { return small_letters(other) == name; });
}

}  // namespace baton::serve
