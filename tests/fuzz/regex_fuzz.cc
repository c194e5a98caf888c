// Fuzzes regular expressions: the automaton of an expression, and the graph of smaller ones that a tight limit makes of
// it, let the same bytes through.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "baton/grammar/grammar.h"
#include "baton/grammar/matcher.h"
#include "baton/grammar/regex.h"

namespace {

using baton::grammar::Draft;
using baton::grammar::Grammar;

std::shared_ptr<const Grammar> compiled(std::string_view pattern, const baton::grammar::Limits& limits) {
  baton::grammar::TerminalStore store;
  Draft draft(&store, limits);
  const auto regex = baton::grammar::parse_regex(pattern, baton::grammar::Spelling::kText,
                                                 baton::grammar::RegexReach::kWhole, &draft.regex());
  if (!regex) return nullptr;
  const uint32_t root = draft.add_rule("root");
  draft.define(root, draft.terminal(*regex));
  return draft.finish(root).value_or(nullptr);
}

}  // namespace

// The expression, and after a NUL byte a text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size > 2048) return 0;
  const size_t end = std::min(input.find('\0'), size);
  const std::string_view pattern = input.substr(0, end), text = end < size ? input.substr(end + 1, 200) : "";
  const auto whole = compiled(pattern, {.work = 1'000'000});
  const auto parts = compiled(pattern, {.terminal_states_max = 8, .work = 1'000'000});
  if (whole == nullptr || parts == nullptr) return 0;
  baton::grammar::Matcher a(whole, false), b(parts, false);
  for (const char c : text) {
    const bool one = a.push(std::string_view(&c, 1)), other = b.push(std::string_view(&c, 1));
    if (b.overflowed()) return 0;
    if (one != other || (one && a.can_end() != b.can_end())) std::abort();
    if (!one) return 0;
  }
  return 0;
}
