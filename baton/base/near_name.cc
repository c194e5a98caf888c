// By edit distance.
#include "baton/base/near_name.h"

#include <algorithm>

namespace baton {
namespace {

constexpr size_t kWordMax = 120;

std::string small(std::string_view text) {
  std::string made(text);
  for (char& c : made) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return made;
}

// Insertions, deletions, replacements and exchanged neighbours between two short words.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost.back().back();
}

}  // namespace

std::string near_name(std::string_view word, const std::vector<std::string>& names, size_t most) {
  std::string best;
  size_t least = word.size() / 3 + 1;
  if (word.empty() || word.size() > kWordMax) return best;
  const std::string plain = small(word);
  for (const std::string& name : names) {
    if (name.size() > 2 * kWordMax) continue;
    const std::string other = small(name);
    const bool begins = word.size() >= 4 && other.starts_with(plain);
    const size_t apart = begins ? 1 : distance(plain, other);
    if (apart > most) continue;
    if (apart >= least && !(best.empty() && apart == least && apart <= 2 && word.size() > 3)) continue;
    least = apart;
    best = name;
  }
  return best;
}

}  // namespace baton
