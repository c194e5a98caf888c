// What a request says, by name.
#include <algorithm>

#include "baton/http/server.h"

namespace baton::http {
namespace {

const std::string* first_of(const std::vector<std::pair<std::string, std::string>>& pairs, std::string_view name) {
  const auto at = std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == name; });
  return at == pairs.end() ? nullptr : &at->second;
}

}  // namespace

const std::string* Request::header(std::string_view name) const { return first_of(headers, name); }
const std::string* Request::parameter(std::string_view name) const { return first_of(query, name); }

}  // namespace baton::http
