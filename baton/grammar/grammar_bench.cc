// Masks for a vocabulary of 151,000 tokens, with the shape of one of byte-level BPE: what allow() takes at each token
// of answers that follow a grammar.
//   median_us, p99_us   of all tokens, those of a fresh grammar's first masks among them
//   warm_p99_us         of the second half of the answers
//   compile_ms          of the grammar
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "baton/base/random.h"
#include "baton/grammar/constraint.h"
#include "baton/grammar/gbnf.h"
#include "baton/grammar/json_schema.h"
#include "baton/grammar/regex.h"
#include "baton/text/utf8.h"

namespace baton::grammar {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr size_t kTokens = 151'000;
constexpr int32_t kStop = 151'643;

// A word of made-up syllables, so that prefixes are shared as in a language.
std::string word(Random* random) {
  constexpr const char* kSyllables[] = {"an", "be", "con",  "de",  "er",   "for", "in",  "ing", "ion", "ist",
                                        "ka", "lo", "ment", "mi",  "ne",   "or",  "per", "qu",  "re",  "ro",
                                        "s",  "st", "ta",   "ter", "tion", "un",  "ve",  "y"};
  std::string out;
  for (uint64_t n = 1 + random->below(4); n > 0; --n) out += kSyllables[random->below(std::size(kSyllables))];
  return out;
}

std::vector<std::string> tokens() {
  Random random(5);
  std::set<std::string> all;
  for (int b = 0; b < 256; ++b) all.insert(std::string(1, static_cast<char>(b)));
  for (int n = 2; n <= 128; ++n) {
    all.insert(std::string(static_cast<size_t>(n), ' '));
    if (n < 32) all.insert("\n" + std::string(static_cast<size_t>(n), ' '));
    if (n < 16)
      all.insert(std::string(static_cast<size_t>(n), '\t')), all.insert(std::string(static_cast<size_t>(n), '-'));
  }
  const std::string marks = " {}[]\":,.;()<>/\\=-_'*#!?+&|\n";
  while (all.size() < 8'000) {
    std::string text;
    for (uint64_t n = 2 + random.below(3); n > 0; --n) text += marks[random.below(marks.size())];
    all.insert(text);
  }
  while (all.size() < 40'000) {  // other scripts, whole characters and halves
    std::string text;
    for (uint64_t n = 1 + random.below(3); n > 0; --n)
      append_utf8(0x400 + static_cast<uint32_t>(random.below(0x9000)), &text);
    if (random.below(8) == 0) text.pop_back();
    all.insert(text);
  }
  while (all.size() < kTokens) {
    std::string text = word(&random);
    const uint64_t kind = random.below(8);
    if (kind < 5) text.insert(0, " ");
    if (kind == 5) text[0] = static_cast<char>(text[0] - 32);
    if (kind == 6) text.insert(0, 1, "\"_./(\\"[random.below(6)]);
    if (kind == 7) text += "\"_.:(,"[random.below(6)];
    if (random.below(3) == 0) text += word(&random);
    all.insert(text);
  }
  return {all.begin(), all.end()};
}

const std::shared_ptr<const Vocabulary>& vocabulary() {
  static const std::shared_ptr<const Vocabulary> made = [] {
    const std::vector<std::string> texts = tokens();
    std::vector<Vocabulary::Token> list;
    for (size_t i = 0; i < texts.size(); ++i) list.push_back({static_cast<int32_t>(i), texts[i]});
    return std::make_shared<const Vocabulary>(list, std::vector<int32_t>{kStop});
  }();
  return made;
}

// As a model would write it: the longest token that the text begins with.
std::vector<int32_t> split(std::string_view text) {
  const TokenTrie& trie = vocabulary()->trie();
  std::vector<int32_t> out;
  while (!text.empty()) {
    uint32_t node = 0, best = 0;
    for (size_t depth = 0; depth < text.size(); ++depth) {
      uint32_t child = node + 1;
      while (child < trie.nodes[node].end && trie.nodes[child].byte != static_cast<uint8_t>(text[depth]))
        child = trie.nodes[child].end;
      if (child >= trie.nodes[node].end) break;
      node = child;
      if (!trie.tokens(node).empty()) best = node;
    }
    out.push_back(trie.tokens(best).front());
    text.remove_prefix(trie.nodes[best].depth);
  }
  return out;
}

std::string sentence(Random* random, size_t words) {
  std::string out;
  for (size_t i = 0; i < words; ++i) out += (i > 0 ? " " : "") + word(random);
  return out;
}

Json person(Random* random, int depth) {
  Json out = {{"name", sentence(random, 2)},
              {"age", random->below(90)},
              {"score", static_cast<double>(random->below(1000)) / 8},
              {"kind", random->below(2) == 0 ? "reader" : "writer"},
              {"note", sentence(random, 20)},
              {"tags", {word(random), word(random), word(random)}}};
  if (depth < 2) out["friends"] = {person(random, depth + 1), person(random, depth + 1)};
  return out;
}

const char* const kPerson =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":80},"age":{"type":"integer",
"minimum":0,"maximum":120},"score":{"type":"number"},"kind":{"enum":["reader","writer"]},"note":{"type":"string"},
"tags":{"type":"array","items":{"type":"string"},"maxItems":8},"friends":{"type":"array","items":{"$ref":"#"}}},
"required":["name","age","score","kind","note","tags"],"additionalProperties":false})";

using Compile = Result<ExprId> (*)(Draft*, JsonPieces*);

void run(benchmark::State& state, Compile compile, const std::vector<std::string>& answers) {
  std::vector<double> all, warm;
  double compile_ms = 0;
  for (auto unused : state) {
    static_cast<void>(unused);
    const auto start = Clock::now();
    TerminalStore store;
    Draft draft(&store);
    JsonPieces pieces(&draft);
    const uint32_t root = draft.add_rule("root");
    const auto body = compile(&draft, &pieces);
    draft.define(root, *body);
    const auto grammar = *draft.finish(root);
    compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    std::vector<uint32_t> mask(vocabulary()->words());
    for (size_t i = 0; i < answers.size(); ++i) {
      GrammarConstraint constraint(vocabulary(), grammar);
      for (const int32_t id : split(answers[i])) {
        const auto from = Clock::now();
        constraint.allow(mask);
        const double us = std::chrono::duration<double, std::micro>(Clock::now() - from).count();
        all.push_back(us);
        if (i >= answers.size() / 2) warm.push_back(us);
        if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0 || !constraint.accept(id)) {
          state.SkipWithError("the answer is not in the grammar");
          return;
        }
      }
    }
  }
  const auto at = [](std::vector<double>* of, double q) {
    std::sort(of->begin(), of->end());
    return (*of)[static_cast<size_t>(q * static_cast<double>(of->size() - 1))];
  };
  state.counters["median_us"] = at(&all, 0.5);
  state.counters["p99_us"] = at(&all, 0.99);
  state.counters["max_us"] = at(&all, 1);
  state.counters["warm_p99_us"] = at(&warm, 0.99);
  state.counters["compile_ms"] = compile_ms;
  state.counters["tokens"] = static_cast<double>(all.size());
}

std::vector<std::string> people(bool spaced) {
  Random random(9);
  std::vector<std::string> out;
  for (int i = 0; i < 20; ++i) out.push_back(person(&random, 0).dump(spaced ? 2 : -1));
  return out;
}

void json_object(benchmark::State& state) {
  run(
      state, [](Draft*, JsonPieces* pieces) -> Result<ExprId> { return pieces->any_object(); }, people(true));
}
void json_schema(benchmark::State& state) {
  run(
      state, [](Draft* draft, JsonPieces* pieces) { return schema_value(Json::parse(kPerson), draft, pieces); },
      people(true));
}
void regex_list(benchmark::State& state) {
  Random random(3);
  std::vector<std::string> answers;
  for (int i = 0; i < 20; ++i) {
    std::string text;
    for (int n = 1; n <= 9; ++n) text += std::to_string(n) + ". " + sentence(&random, 12) + "\n";
    answers.push_back(text);
  }
  run(
      state,
      [](Draft* draft, JsonPieces*) -> Result<ExprId> {
        BATON_TRY(const RegexId id,
                  parse_regex("([1-9]\\. [a-z ]+\n){1,9}", Spelling::kText, RegexReach::kWhole, &draft->regex()));
        return draft->terminal(id);
      },
      answers);
}
void gbnf_sums(benchmark::State& state) {
  Random random(3);
  std::vector<std::string> answers;
  for (int i = 0; i < 20; ++i) {
    std::string text = word(&random);
    for (int n = 0; n < 40; ++n) text = n % 5 == 0 ? "(" + text + ")" : text + " + " + word(&random);
    answers.push_back(text + "\n");
  }
  run(
      state,
      [](Draft* draft, JsonPieces*) {
        return gbnf_root(
            "root ::= sum \"\\n\"\nsum ::= item (\" \" [-+*/] \" \" item)*\nitem ::= [a-z]+ | \"(\" sum \")\"\n",
            draft);
      },
      answers);
}

BENCHMARK(json_object)->Unit(benchmark::kMillisecond);
BENCHMARK(json_schema)->Unit(benchmark::kMillisecond);
BENCHMARK(regex_list)->Unit(benchmark::kMillisecond);
BENCHMARK(gbnf_sums)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton::grammar
