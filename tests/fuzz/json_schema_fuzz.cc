// Fuzzes the compiler of JSON schemas: what compiles lets an answer through that is JSON, or says why there is none.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "baton/grammar/json_schema.h"
#include "baton/grammar/matcher.h"

namespace {

// Takes at each byte the first that goes on, those that end things before others.
void follow(const std::shared_ptr<const baton::grammar::Grammar>& grammar) {
  baton::grammar::Matcher matcher(grammar, false);
  std::string order = "}]\"01nta", text;
  for (int b = 1; b < 256; ++b) order += static_cast<char>(b);
  while (!matcher.can_end() && text.size() < 300) {
    const auto found =
        std::find_if(order.begin(), order.end(), [&](char c) { return matcher.push(std::string(1, c)); });
    if (found == order.end()) {
      if (text.size() < 100) std::abort();  // a way that leads nowhere; far down the depth may be used up
      return;
    }
    text += *found;
  }
  if (matcher.can_end() && !nlohmann::json::accept(text)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size > 4096) return 0;
  const auto schema = nlohmann::ordered_json::parse(input, nullptr, false);
  if (schema.is_discarded()) return 0;
  baton::grammar::TerminalStore store;
  baton::grammar::Draft draft(&store, {.work = 2'000'000});
  baton::grammar::JsonPieces pieces(&draft);
  const uint32_t root = draft.add_rule("root");
  const auto body = baton::grammar::schema_value(schema, &draft, &pieces);
  if (!body) return 0;
  draft.define(root, *body);
  const auto grammar = draft.finish(root);
  if (grammar) follow(*grammar);
  return 0;
}
