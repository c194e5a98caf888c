// Fuzzes grammars in llama.cpp's notation: what compiles can be followed, and no way of it leads nowhere.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "baton/grammar/gbnf.h"
#include "baton/grammar/matcher.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size > 4096) return 0;
  baton::grammar::TerminalStore store;
  baton::grammar::Draft draft(&store, {.work = 2'000'000});
  const auto body = baton::grammar::gbnf_root(input, &draft);
  if (!body) return 0;
  const uint32_t root = draft.add_rule("(root)");
  draft.define(root, *body);
  const auto grammar = draft.finish(root);
  if (!grammar) return 0;
  baton::grammar::Matcher matcher(*grammar, false);
  for (int step = 0; step < 100 && !matcher.can_end(); ++step) {
    bool moved = false;
    for (int b = 0; b < 256 && !moved; ++b) moved = matcher.push(std::string(1, static_cast<char>(b)));
    if (!moved && !matcher.overflowed()) std::abort();
    if (!moved) break;
  }
  return 0;
}
