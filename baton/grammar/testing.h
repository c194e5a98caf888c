// Vocabularies and walks for the tests of grammars.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/random.h"
#include "baton/grammar/constraint.h"

namespace baton::grammar {

inline constexpr int32_t kTestStop = 256;

// Each byte by its value, kTestStop, then these.
inline std::shared_ptr<const Vocabulary> test_vocabulary(const std::vector<std::string>& words) {
  std::string bytes(256, '\0');
  std::vector<Vocabulary::Token> tokens;
  for (int32_t b = 0; b < 256; ++b) bytes[static_cast<size_t>(b)] = static_cast<char>(b);
  for (int32_t b = 0; b < 256; ++b) tokens.push_back({b, std::string_view(bytes).substr(static_cast<size_t>(b), 1)});
  int32_t id = kTestStop + 1;
  for (const std::string& word : words) tokens.push_back({id++, word});
  return std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{kTestStop});
}

inline const std::vector<std::string>& test_words() {
  static const std::vector<std::string> words = {
      "{\"",          "\":",       "\": ",     "\",",    "\", ",  "\"}",   "\"]",    "[\"",  "},",
      "]}",           "}}",        "],",       ", ",     "\n",    "\n  ",  "\n    ", "  ",   " {",
      "true",         "false",     "null",     "tr",     "ue",    " the",  "the",    "abc",  "name",
      "\"name",       "\"name\":", "na",       "me\"",   "a\"",   "b\":",  "12",     "34",   "0.5",
      "e1",           "-1",        "\\",       "\\n",    "\\u00", "\\\"",  "\xc3",   "\xa9", "\xc3\xa9",
      "\xf0\x9f",     "\x98\x80",  "id",       "\"id\"", "2024-", "01",    "@",      ".com", "<tool_call>",
      "</tool_call>", "\n</",      "</think>", ">\n\n",  "</",    "think", "\n\n"};
  return words;
}

inline bool allows(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

// Tokens drawn alike from each mask until the answer ends; above `soft` bytes an end is taken where it is allowed, and
// shorter tokens are taken. Empty optional text: it did not end.
inline std::string random_walk(TokenConstraint* constraint, const Vocabulary& vocabulary, Random* random, size_t soft,
                               bool* ended) {
  std::string text;
  std::vector<uint32_t> mask(vocabulary.words());
  std::vector<int32_t> ids;
  *ended = false;
  for (int step = 0; step < 4000; ++step) {
    constraint->allow(mask);
    ids.clear();
    for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.words() * 32); ++id) {
      if (allows(mask, id)) ids.push_back(id);
    }
    int32_t id = ids[random->below(ids.size())];
    if (text.size() > soft) {  // what closes something, most of the time
      for (const int32_t closing : {kTestStop, int32_t{'"'}, int32_t{'}'}, int32_t{']'}}) {
        if (allows(mask, closing) && random->below(8) != 0) {
          id = closing;
          break;
        }
      }
    }
    if (!constraint->accept(id)) return text;
    if (id == kTestStop) {
      *ended = true;
      return text;
    }
    text += vocabulary.bytes(id);
  }
  return text;
}

}  // namespace baton::grammar
