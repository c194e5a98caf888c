// Fuzzes SentencePiece's model file and its charsmap; after the last NUL byte comes the text to encode. Whatever loads
// must encode without making control tokens from text, and decode what it encoded.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "baton/text/charsmap.h"
#include "baton/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t last = input.rfind('\0');
  const std::string_view text = last == std::string_view::npos ? input.substr(0, 200) : input.substr(last + 1);
  if (const auto map = baton::Charsmap::create(input)) {
    const auto longest = map->longest(text), shortest = map->shortest(text);
    if (longest.length < shortest.length || longest.length > text.size()) std::abort();
  }
  using Layout = baton::SentencePieceLayout;
  for (const Layout layout : {Layout::kPlain, Layout::kT5, Layout::kXlmRoberta}) {
    const auto spec = baton::tokenizer_spec_from_sentencepiece(input.substr(0, std::min(last, size)), "", layout);
    if (!spec) return 0;
    const auto tokenizer = baton::Tokenizer::create(*spec);
    if (!tokenizer) return 0;
    const auto ids = tokenizer->encode(text.substr(0, 2000), false);
    if (!ids) continue;
    for (const int32_t id : *ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      if (tokenizer->is_special(id) && id != spec->unk_id) std::abort();
    }
    if (!tokenizer->decode(*ids, false)) std::abort();
  }
  return 0;
}
