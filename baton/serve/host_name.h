// Whose name a request came for. A page of another site can have its own name resolved to this machine's loopback
// address and is then no stranger to a browser ("DNS rebinding"); an address, or "localhost", it cannot take.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace baton::serve {

// `host`: as in the header, with or without a port. Addresses, localhost and names below it, and those in `allowed`,
// whatever the case of their letters.
bool is_own_host(std::string_view host, std::span<const std::string> allowed);

}  // namespace baton::serve
