// References, combinations, and values by their types.
#include "baton/grammar/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/grammar/regex.h"
#include "baton/text/utf8.h"

namespace baton::grammar {
namespace {

constexpr size_t kFlatsMax = 200;         // alternatives that combinations of a schema may come to
constexpr int kDepthMax = 128;            // of schemas within each other, allOf written out
constexpr uint64_t kWorkOfSchema = 2000;  // steps of the budget
constexpr std::string_view kCombinations[] = {"$ref", "allOf", "anyOf", "oneOf"};

// Keywords that narrow a value; the others are notes.
bool narrows(std::string_view name) {
  constexpr std::string_view kNarrowing[] = {"type",
                                             "enum",
                                             "const",
                                             "$ref",
                                             "allOf",
                                             "anyOf",
                                             "oneOf",
                                             "properties",
                                             "required",
                                             "items",
                                             "prefixItems",
                                             "patternProperties",
                                             "minProperties",
                                             "maxProperties",
                                             "minItems",
                                             "maxItems",
                                             "uniqueItems",
                                             "additionalProperties",
                                             "minLength",
                                             "maxLength",
                                             "pattern",
                                             "format",
                                             "minimum",
                                             "maximum",
                                             "exclusiveMinimum",
                                             "exclusiveMaximum",
                                             "multipleOf"};
  return std::ranges::find(kNarrowing, name) != std::end(kNarrowing);
}

// The narrowing keywords alone.
Json bare(const Json& schema) {
  Json out = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (narrows(name) || name == "nullable") out[name] = value;
  }
  return out;
}

// Values within it; false: too many, or too deep.
bool count_values(const Json& value, int depth, size_t* count) {
  if (depth > kSchemaDepthMax || ++*count > kSchemaNodesMax) return false;
  if (!value.is_structured()) return true;
  return std::all_of(value.begin(), value.end(), [&](const Json& v) { return count_values(v, depth + 1, count); });
}

// Of a reference's text: %41 and ~0, ~1.
std::string pointer_of(std::string_view text) {
  std::string out;
  const auto hex = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string unescaped(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size()) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

bool is_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
}

uint64_t code_points(std::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

Result<ExprId> schema_value(const Json& schema, Draft* draft, JsonPieces* pieces) {
  size_t count = 0;
  if (!count_values(schema, 0, &count)) {
    return fail(Code::kUnsupported,
                fmt::format("#: more than {} values, or more than {} levels", kSchemaNodesMax, kSchemaDepthMax));
  }
  return SchemaCompiler(schema, draft, pieces).run();
}

Result<ExprId> SchemaCompiler::run(const Json& schema, const std::string& path) {
  BATON_TRY(const ExprId root, compile(schema, path, 0));
  while (!targets_.empty()) {
    const Target target = std::move(targets_.front());
    targets_.pop_front();
    BATON_TRY(const ExprId body, compile(*target.schema, target.path, 0));
    draft_.define(target.rule, body);
  }
  return root;
}

Result<ExprId> SchemaCompiler::compile(const Json& schema, const std::string& path, int depth) {
  if (depth > kDepthMax) return schema_error(Code::kUnsupported, path, fmt::format("more than {} levels", kDepthMax));
  if (!draft_.budget().spend(kWorkOfSchema)) return too_much_work();
  if (schema == true) return pieces_.any_value();
  if (schema == false) return draft_.alt({});
  if (!schema.is_object()) return schema_error(Code::kInvalidInput, path, "a schema is an object, true or false");
  BATON_OK(check_keywords(schema, path));
  std::vector<std::string> narrowing;
  for (const auto& [name, value] : schema.items()) {
    if (narrows(name)) narrowing.push_back(name);
  }
  if (narrowing.empty()) return pieces_.any_value();
  if (narrowing.size() == 1 && narrowing[0] == "$ref") return reference(schema["$ref"], path);
  if (narrowing.size() == 1 && (narrowing[0] == "anyOf" || narrowing[0] == "oneOf" || narrowing[0] == "allOf")) {
    const Json& parts = schema[narrowing[0]];
    std::vector<ExprId> ways;
    for (size_t i = 0; i < parts.size() && (narrowing[0] != "allOf" || parts.size() == 1); ++i) {
      BATON_TRY(const ExprId way, compile(parts[i], fmt::format("{}/{}/{}", path, narrowing[0], i), depth + 1));
      ways.push_back(way);
    }
    if (!ways.empty()) return draft_.alt(std::move(ways));
  }
  const bool combined =
      std::ranges::any_of(kCombinations, [&](std::string_view name) { return schema.contains(name); });
  if (!combined) return flat(schema, path, depth);
  std::vector<const Json*> within;
  BATON_TRY(const Flats flats, flatten(schema, path, &within));
  std::vector<ExprId> ways;
  for (const Json& one : flats) {
    BATON_TRY(const ExprId way, one.empty() ? Result<ExprId>(pieces_.any_value()) : flat(one, path, depth));
    ways.push_back(way);
  }
  return draft_.alt(std::move(ways));
}

Result<const Json*> SchemaCompiler::resolve(const std::string& ref, const std::string& path) const {
  const std::string where = path + "/$ref";
  if (!ref.starts_with('#')) return schema_error(Code::kUnsupported, where, "only references within the schema: #/...");
  const std::string pointer = pointer_of(std::string_view(ref).substr(1));
  if (!pointer.empty() && pointer[0] != '/') return schema_error(Code::kUnsupported, where, "no anchors, only #/...");
  const Json* at = &root_;
  for (size_t from = 0; from < pointer.size();) {
    const size_t end = std::min(pointer.find('/', from + 1), pointer.size());
    const std::string token = unescaped(std::string_view(pointer).substr(from + 1, end - from - 1));
    const Json* next = nullptr;
    if (at->is_object() && at->contains(token)) {
      next = &(*at)[token];
    } else if (at->is_array() && !token.empty() && token.size() < 7 &&
               std::ranges::all_of(token, [](char c) { return c >= '0' && c <= '9'; })) {
      size_t index = 0;
      for (const char c : token) index = index * 10 + static_cast<size_t>(c - '0');
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) return schema_error(Code::kInvalidInput, where, fmt::format("'{}' leads to nothing", ref));
    at = next;
    from = end;
  }
  return at;
}

Result<ExprId> SchemaCompiler::reference(const Json& ref, const std::string& path) {
  BATON_TRY(const Json* target, resolve(ref, path));
  const auto [found, made] = rules_.emplace(target, 0);
  if (made) {
    found->second = draft_.add_rule(ref);
    targets_.push_back({target, ref, found->second});
  }
  return draft_.rule(found->second);
}

Result<SchemaCompiler::Flats> SchemaCompiler::combine(const Flats& a, const Flats& b, const std::string& path) {
  Flats out;
  for (const Json& first : a) {
    for (const Json& second : b) {
      if (!draft_.budget().spend(kWorkOfSchema * (1 + (first.size() + second.size()) / 8))) return too_much_work();
      BATON_TRY(auto merged, merge_schemas(first, second, path));
      if (merged) out.push_back(*std::move(merged));
      if (out.size() > kFlatsMax) {
        return schema_error(Code::kUnsupported, path, fmt::format("its combinations come to more than {}", kFlatsMax));
      }
    }
  }
  return out;
}

Result<SchemaCompiler::Flats> SchemaCompiler::flatten(const Json& schema, const std::string& path,
                                                      std::vector<const Json*>* within) {
  if (schema == true) return Flats{Json::object()};
  if (schema == false) return Flats{};
  if (within->size() > kDepthMax) return schema_error(Code::kUnsupported, path, "too many levels of references");
  BATON_OK(check_keywords(schema, path));
  Json own = bare(schema);
  for (const std::string_view name : kCombinations) own.erase(std::string(name));
  Flats flats = {std::move(own)};
  if (schema.contains("$ref")) {
    BATON_TRY(const Json* target, resolve(schema["$ref"], path));
    if (std::ranges::find(*within, target) != within->end()) {
      return schema_error(Code::kUnsupported, path + "/$ref",
                          "beside other keywords, or within allOf, it leads to itself");
    }
    within->push_back(target);
    if (!target->is_object() && !target->is_boolean()) {
      return schema_error(Code::kInvalidInput, path + "/$ref", "it does not lead to a schema");
    }
    BATON_TRY(const Flats more, flatten(*target, schema["$ref"], within));
    within->pop_back();
    BATON_TRY(flats, combine(flats, more, path));
  }
  for (const char* name : {"allOf", "anyOf", "oneOf"}) {
    if (!schema.contains(name)) continue;
    Flats any;
    for (size_t i = 0; i < schema[name].size(); ++i) {
      within->push_back(nullptr);
      BATON_TRY(Flats more, flatten(schema[name][i], fmt::format("{}/{}/{}", path, name, i), within));
      within->pop_back();
      if (std::string_view(name) == "allOf") {
        BATON_TRY(flats, combine(flats, more, path));
      } else {
        any.insert(any.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
      }
    }
    if (std::string_view(name) == "allOf") continue;
    BATON_TRY(flats, combine(flats, any, path));
  }
  return flats;
}

Result<ExprId> SchemaCompiler::flat(const Json& schema, const std::string& path, int depth) {
  if (schema.contains("enum") || schema.contains("const")) return enumerated(schema, path);
  const std::vector<std::string> types = types_of(schema);
  if (types.empty()) return pieces_.any_value();
  std::vector<ExprId> ways;
  for (const std::string& type : types) {
    BATON_TRY(const ExprId way, typed(type, schema, path, depth));
    ways.push_back(way);
  }
  return draft_.alt(std::move(ways));
}

Result<ExprId> SchemaCompiler::typed(const std::string& type, const Json& schema, const std::string& path, int depth) {
  if (type == "null") return pieces_.null();
  if (type == "boolean") return pieces_.boolean();
  if (type == "string") return string_value(schema, path);
  if (type == "array") return array_value(schema, path, depth);
  if (type == "object") return object_value(schema, path, depth);
  return number_value(schema, type == "integer", path, &draft_, &pieces_);
}

// Values, of those listed, that fit what else the schema says.
Result<ExprId> SchemaCompiler::enumerated(const Json& schema, const std::string& path) {
  Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  std::vector<RegexId> texts;
  std::vector<ExprId> ways;
  for (const Json& value : values) {
    if (schema.contains("const") && schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
      continue;
    }
    BATON_TRY(const bool fits, admits(schema, value, path));
    if (!fits) continue;
    if (!value.is_structured()) {
      texts.push_back(draft_.regex().text(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
      continue;
    }
    const auto literal = pieces_.value(value);
    if (!literal) return schema_error(Code::kUnsupported, path + "/enum", "a value of too many levels");
    ways.push_back(*literal);
  }
  if (!texts.empty()) {
    auto dfa = determinise(draft_.regex(), draft_.regex().alt(std::move(texts)), 60'000, &draft_.budget());
    if (!dfa) return schema_error(Code::kUnsupported, path + "/enum", "its values are too long together");
    ways.push_back(draft_.terminal(*std::move(dfa)));
  }
  return draft_.alt(std::move(ways));
}

Result<bool> SchemaCompiler::admits(const Json& schema, const Json& value, const std::string& path) {
  const std::vector<std::string> types = types_of(schema);
  if (!types.empty() && std::ranges::none_of(types, [&](const auto& type) { return is_type(value, type); }))
    return false;
  const auto bound = [&schema](const char* name) { return schema.contains(name) ? &schema[name] : nullptr; };
  if (value.is_number()) {
    const Json *low = bound("minimum"), *above = bound("exclusiveMinimum"), *high = bound("maximum"),
               *below = bound("exclusiveMaximum");
    if ((low != nullptr && value < *low) || (above != nullptr && value <= *above) ||
        (high != nullptr && value > *high) || (below != nullptr && value >= *below)) {
      return false;
    }
    if (schema.contains("multipleOf")) {
      return schema_error(Code::kUnsupported, path + "/multipleOf", "beside enum or const");
    }
  }
  if (value.is_string()) {
    const std::string text = value;
    if (schema.contains("minLength") && code_points(text) < schema["minLength"].get<double>()) return false;
    if (schema.contains("maxLength") && code_points(text) > schema["maxLength"].get<double>()) return false;
    if (schema.contains("pattern") || schema.contains("format")) {
      BATON_TRY(const ByteDfa dfa, string_dfa(schema, path));
      return dfa.matches(value.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  if (!value.is_structured()) return true;
  for (const auto& [name, unused] : schema.items()) {
    if (narrows(name) && name != "type" && name != "enum" && name != "const") {
      return schema_error(Code::kUnsupported, path + "/" + name, "beside an enum or const of objects or arrays");
    }
  }
  return true;
}

}  // namespace baton::grammar
