// Merges, grouped by what they make.
#include "baton/text/merge_scores.h"

#include <string>
#include <string_view>
#include <unordered_map>

#include "baton/text/utf8.h"

namespace baton {
namespace {

using Ids = std::unordered_map<std::string_view, size_t>;

// Tokens that text may become.
Ids ids_of(const TokenizerSpec& spec) {
  std::vector<TokenKind> kinds(spec.kinds);
  kinds.resize(spec.tokens.size(), TokenKind::kNormal);
  for (const AddedToken& added : spec.added) {
    if (added.special && static_cast<size_t>(added.id) < kinds.size())
      kinds[static_cast<size_t>(added.id)] = TokenKind::kControl;
  }
  Ids ids;
  ids.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.tokens[id].empty() && (kinds[id] == TokenKind::kNormal || kinds[id] == TokenKind::kUserDefined))
      ids.emplace(spec.tokens[id], id);
  }
  return ids;
}

// Ways to cut a token into two that a merge by scores would put together again: tokens, or characters without one.
size_t cuts_of(std::string_view text, const Ids& ids) {
  const auto can_stand = [&](std::string_view part) {
    return ids.contains(part) || decode_utf8(part, 0).length == part.size();
  };
  size_t cuts = 0;
  for (size_t at = decode_utf8(text, 0).length; at < text.size(); at += decode_utf8(text, at).length) {
    cuts += can_stand(text.substr(0, at)) && can_stand(text.substr(at)) ? 1 : 0;
  }
  return cuts;
}

}  // namespace

MergeScores merge_scores(const TokenizerSpec& spec) {
  const Ids ids = ids_of(spec);
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> ways(spec.tokens.size(), 0);
  std::vector<size_t> ranks(spec.tokens.size(), kNone);
  // Tokens that users defined are found in the text before it is merged, all but runs of spaces: files of Gemma have
  // the ways to make them mixed, longest parts first.
  std::vector<bool> defined(spec.tokens.size(), false);
  for (const AddedToken& added : spec.added) {
    if (!added.special && static_cast<size_t>(added.id) < defined.size()) defined[static_cast<size_t>(added.id)] = true;
  }
  size_t groups = 0, last = kNone, last_plain = 0;  // places of merges in their list, from 1
  std::vector<size_t> firsts(spec.tokens.size(), 0);
  MergeScores made;
  made.same_order = true;
  std::string joined;
  size_t at = 0;
  for (const auto& [left, right] : spec.merges) {
    ++at;
    joined.assign(left).append(right);
    const auto found = ids.find(joined);
    if (found == ids.end() || !ids.contains(left) || !ids.contains(right)) continue;
    const size_t id = found->second;
    ++ways[id];
    if (!defined[id]) last_plain = at;
    if (id == last) continue;
    last = id;
    if (ranks[id] != kNone) {
      made.same_order = made.same_order && defined[id] && firsts[id] > last_plain;
      continue;
    }
    ranks[id] = groups++;
    firsts[id] = at;
  }
  made.values.assign(spec.tokens.size(), 0);
  for (const auto& [text, id] : ids) {
    made.same_order = made.same_order && ways[id] == cuts_of(text, ids);
    made.values[id] = -static_cast<double>(ranks[id] == kNone ? groups : ranks[id]);
  }
  return made;
}

}  // namespace baton
