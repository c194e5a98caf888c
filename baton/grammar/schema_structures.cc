// Arrays and objects.
#include <fmt/format.h>

#include <algorithm>

#include "baton/grammar/schema_compiler.h"

namespace baton::grammar {
namespace {

constexpr size_t kTupleMax = 128;
constexpr uint32_t kItemsMax = 4096;  // beyond the least number, where there is a greatest
constexpr uint32_t kKeyStatesMax = 20'000;

uint32_t bound_of(const Json& schema, const char* name, uint32_t otherwise) {
  return schema.contains(name) ? static_cast<uint32_t>(schema[name].get<double>()) : otherwise;
}

}  // namespace

Result<ExprId> SchemaCompiler::array_value(const Json& schema, const std::string& path, int depth) {
  const uint32_t min = bound_of(schema, "minItems", 0), max = bound_of(schema, "maxItems", kUnbounded);
  if (schema.value("uniqueItems", false) && max > 1) {
    return schema_error(Code::kUnsupported, path + "/uniqueItems", "not supported, but with maxItems of 1");
  }
  if (min > max) return draft_.alt({});
  const Json none = Json::array();
  const Json& tuple = schema.contains("prefixItems") ? schema["prefixItems"] : none;
  if (tuple.size() > kTupleMax) {
    return schema_error(Code::kUnsupported, path + "/prefixItems", fmt::format("more than {}", kTupleMax));
  }
  const auto items = schema.find("items");
  ExprId rest = pieces_.any_value();
  if (items != schema.end()) {
    BATON_TRY(rest, compile(*items, path + "/items", depth + 1));
  }
  std::vector<ExprId> first;
  for (size_t i = 0; i < tuple.size() && i < max; ++i) {
    BATON_TRY(const ExprId one, compile(tuple[i], fmt::format("{}/prefixItems/{}", path, i), depth + 1));
    first.push_back(one);
  }
  // From the last to the first: one more, and what may follow it. A tuple may end early.
  const uint32_t listed = static_cast<uint32_t>(first.size());
  const uint32_t more_min = min - std::min(min, std::max(listed, 1u));
  uint32_t more_max = max == kUnbounded ? max : max - std::min(max, std::max(listed, 1u));
  if (max != kUnbounded) more_max = std::min(more_max, std::max(more_min, kItemsMax));
  if (more_min > 1 || (more_max != kUnbounded && more_max > 1)) {  // written out once
    const uint32_t item = draft_.add_rule(path + "/items");
    draft_.define(item, rest);
    rest = draft_.rule(item);
  }
  ExprId behind = draft_.repeat(draft_.seq({pieces_.comma(), rest}), more_min, more_max);
  for (uint32_t i = listed; i-- > 1;) {
    const ExprId one = draft_.seq({pieces_.comma(), first[i], behind});
    behind = i < min ? one : draft_.optional(one);
  }
  std::vector<ExprId> ways;
  if (min == 0) ways.push_back(draft_.terminal("]"));
  if (max > 0) ways.push_back(draft_.seq({listed > 0 ? first[0] : rest, behind, pieces_.close_array()}));
  return draft_.seq({pieces_.open_array(), draft_.alt(std::move(ways))});
}

// The names of an object's members: those listed, and automata of the patterns.
struct SchemaCompiler::Keys {
  std::vector<std::string> listed;
  std::vector<std::pair<std::string, ByteDfa>> patterns;

  std::vector<std::string> matching(const std::string& name) const {
    std::vector<std::string> out;
    const std::string quoted = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
    for (const auto& [pattern, dfa] : patterns) {
      if (dfa.matches(quoted)) out.push_back(pattern);
    }
    return out;
  }
};

// Members that are not listed: of each pattern, names that only it matches; of additionalProperties those that nothing
// speaks of. Names stand there without escapes.
Result<std::optional<ExprId>> SchemaCompiler::extra_members(const Json& schema, const Keys& keys,
                                                            const std::string& path, int depth) {
  const bool listed = schema.contains("properties");
  const Json none;
  const Json& others = schema.contains("additionalProperties") ? schema["additionalProperties"] : none;
  const bool open = others.is_null() ? !listed && keys.patterns.empty() : others != false;
  if (!open && keys.patterns.empty()) return std::nullopt;
  if (keys.listed.empty() && keys.patterns.empty()) {
    BATON_TRY(const ExprId value,
              compile(others.is_null() ? Json(true) : others, path + "/additionalProperties", depth + 1));
    return draft_.seq({pieces_.string(), pieces_.colon(), value});
  }
  RegexPool& regex = draft_.regex();
  const auto narrowed = [&](const ByteDfa& a, const ByteDfa& b, Product kind) -> Result<ByteDfa> {
    auto made = product(a, b, kind, kKeyStatesMax, &draft_.budget());
    if (!made) return schema_error(Code::kUnsupported, path, "names of properties: " + made.error().message);
    return *std::move(made);
  };
  const RegexId quote = regex.text("\"");
  const RegexId plain = regex.characters(complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}), Spelling::kText);
  BATON_TRY(ByteDfa free, determinise(regex, regex.cat({quote, regex.repeat(plain, 0, kUnbounded), quote}),
                                      kKeyStatesMax, &draft_.budget()));
  if (!keys.listed.empty()) {
    std::vector<RegexId> names;
    for (const std::string& name : keys.listed) {
      names.push_back(regex.text(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    BATON_TRY(const ByteDfa taken, determinise(regex, regex.alt(std::move(names)), kKeyStatesMax, &draft_.budget()));
    BATON_TRY(free, narrowed(free, taken, Product::kFirstOnly));
  }
  std::vector<ExprId> ways;
  for (const auto& [pattern, dfa] : keys.patterns) {
    BATON_TRY(ByteDfa own, narrowed(free, dfa, Product::kBoth));
    for (const auto& other : keys.patterns) {
      if (other.first == pattern) continue;
      BATON_TRY(own, narrowed(own, other.second, Product::kFirstOnly));
    }
    BATON_TRY(const ExprId value,
              compile(schema["patternProperties"][pattern], path + "/patternProperties/" + pattern, depth + 1));
    ways.push_back(draft_.seq({draft_.terminal(std::move(own)), pieces_.colon(), value}));
  }
  if (open && !others.is_null()) {
    for (const auto& other : keys.patterns) {
      BATON_TRY(free, narrowed(free, other.second, Product::kFirstOnly));
    }
    BATON_TRY(const ExprId value, compile(others, path + "/additionalProperties", depth + 1));
    ways.push_back(draft_.seq({draft_.terminal(std::move(free)), pieces_.colon(), value}));
  }
  return draft_.alt(std::move(ways));
}

Result<ExprId> SchemaCompiler::object_value(const Json& schema, const std::string& path, int depth) {
  const Json none = Json::object();
  const Json& properties = schema.contains("properties") ? schema["properties"] : none;
  Keys keys;
  if (schema.contains("patternProperties")) {
    for (const auto& [pattern, unused] : schema["patternProperties"].items()) {
      BATON_TRY(ByteDfa dfa, pattern_dfa(pattern, path + "/patternProperties/" + pattern, &draft_));
      keys.patterns.emplace_back(pattern, std::move(dfa));
    }
  }
  std::vector<std::string> required;
  for (const Json& name : schema.value("required", Json::array())) {
    if (std::ranges::find(required, name.get<std::string>()) == required.end()) required.push_back(name);
  }
  const bool any = !schema.contains("properties") && required.empty() && keys.patterns.empty() &&
                   (!schema.contains("additionalProperties") || schema["additionalProperties"] == true);
  Draft::Members members{.between = pieces_.comma(),
                         .close = pieces_.close_object(),
                         .close_empty = draft_.terminal("}"),
                         .min = bound_of(schema, "minProperties", 0),
                         .max = bound_of(schema, "maxProperties", kUnbounded)};
  if (any && members.min == 0 && members.max == kUnbounded) return pieces_.any_object();
  // Listed ones in their order, then those that are only required.
  Json all = properties;
  const Json others = schema.value("additionalProperties", Json());
  for (const std::string& name : required) {
    if (!all.contains(name)) all[name] = !others.is_null() && keys.matching(name).empty() ? others : Json(true);
  }
  for (const auto& [name, value] : all.items()) keys.listed.push_back(name);
  for (const std::string& name : keys.listed) {
    Json one = all[name];
    for (const std::string& pattern : keys.matching(name)) {
      one = one == true ? schema["patternProperties"][pattern]
                        : Json{{"allOf", Json::array({one, schema["patternProperties"][pattern]})}};
    }
    BATON_TRY(const ExprId value, compile(one, path + "/properties/" + name, depth + 1));
    members.parts.push_back(
        {draft_.seq({pieces_.key(name), value}), std::ranges::find(required, name) != required.end()});
  }
  BATON_TRY(members.extra, extra_members(schema, keys, path, depth));
  if (members.min <= required.size()) members.min = 0;
  if (members.extra && members.min > required.size() + 1) {
    return schema_error(Code::kUnsupported, path + "/minProperties",
                        "beyond the required ones, where names are free: the same one could come twice");
  }
  if (members.min > members.max) return draft_.alt({});
  return draft_.seq({pieces_.open_object(), draft_.members(std::move(members))});
}

}  // namespace baton::grammar
