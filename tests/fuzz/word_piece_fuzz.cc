// Fuzzes vocab.txt, after a NUL byte tokenizer_config.json, and after another the text to encode; a file that begins
// with a brace is a tokenizer.json. Whatever loads must encode without making control tokens from text, and decode
// what it encoded.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "baton/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t first = std::min(input.find('\0'), size);
  const size_t second = first < size ? std::min(input.find('\0', first + 1), size) : size;
  const std::string_view file = input.substr(0, first);
  const std::string_view config = first < size ? input.substr(first + 1, second - first - 1) : std::string_view();
  const std::string_view text = second < size ? input.substr(second + 1, 2000) : input.substr(0, 300);
  const auto spec = file.starts_with('{') ? baton::tokenizer_spec_from_json(file, config)
                                          : baton::tokenizer_spec_from_vocab_txt(file, config);
  if (!spec) return 0;
  const auto tokenizer = baton::Tokenizer::create(*spec);
  if (!tokenizer) return 0;
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer->encode(text, parse_special);
    if (!ids) continue;
    for (const int32_t id : *ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      if (!parse_special && tokenizer->is_special(id) && id != spec->unk_id) std::abort();
    }
    const auto whole = tokenizer->with_ends(*ids);
    if (!tokenizer->decode(whole, false)) std::abort();
  }
  return 0;
}
