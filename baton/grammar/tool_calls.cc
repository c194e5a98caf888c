// One call of each tool, and the values of tags.
#include "baton/grammar/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/grammar/regex.h"
#include "baton/grammar/schema_compiler.h"

namespace baton::grammar {
namespace {

constexpr int kNestedMax = 8;  // of choices within each other
constexpr uint32_t kTextStatesMax = 60'000;
constexpr uint32_t kTextMax = 1000;  // characters, where there is a maxLength
constexpr std::string_view kValueEnd = "</parameter>";

// Texts that hold kValueEnd once, at their end.
ByteDfa until_value_end() {
  ByteDfa dfa;
  std::string letters;
  for (const char c : kValueEnd) {
    if (letters.find(c) == std::string::npos) letters += c;
  }
  dfa.classes = static_cast<uint32_t>(letters.size()) + 1;
  dfa.class_of.fill(static_cast<uint8_t>(letters.size()));
  for (size_t i = 0; i < letters.size(); ++i) dfa.class_of[static_cast<uint8_t>(letters[i])] = static_cast<uint8_t>(i);
  // A state is how much of it was written: the longest of its beginnings that the text ends with.
  for (size_t seen = 0; seen <= kValueEnd.size(); ++seen) {
    for (uint32_t c = 0; c < dfa.classes; ++c) {
      if (seen == kValueEnd.size()) {
        dfa.next.push_back(kDead);
        continue;
      }
      std::string text(kValueEnd.substr(0, seen));
      text += c < letters.size() ? letters[c] : '\0';
      size_t kept = text.size();
      while (!kValueEnd.starts_with(std::string_view(text).substr(text.size() - kept))) --kept;
      dfa.next.push_back(static_cast<uint32_t>(kept));
    }
    dfa.accepting.push_back(seen == kValueEnd.size());
  }
  return dfa;
}

class TagValues {
 public:
  TagValues(const Json& root, std::string path, Draft* draft, JsonPieces* pieces)
      : root_(root), path_(std::move(path)), draft_(*draft), pieces_(*pieces) {}

  // With what ends it. As AnswerParser reads it: where a type is string, what is no JSON of another type is a text.
  Result<ExprId> value(const Json& schema) {
    plain_ = has_string(schema, 0);
    BATON_TRY(const ExprId inner, choice(schema, 0));
    return inner;
  }

 private:
  static bool has_string(const Json& schema, int depth) {
    if (!schema.is_object() || depth > kNestedMax) return false;
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      return type == "string" || (type.is_array() && std::find(type.begin(), type.end(), "string") != type.end());
    }
    if (schema.contains("const") && schema["const"].is_string()) return true;
    for (const char* name : {"enum", "anyOf", "oneOf"}) {
      if (!schema.contains(name) || !schema[name].is_array()) continue;
      for (const Json& one : schema[name]) {
        if (std::string_view(name) == "enum" ? one.is_string() : has_string(one, depth + 1)) return true;
      }
    }
    return false;
  }
  static bool only(const Json& schema, std::string_view name) {
    return schema.contains(name) && std::all_of(schema.items().begin(), schema.items().end(), [&](const auto& item) {
             return item.key() == name || item.key() == "title" || item.key() == "description" ||
                    item.key() == "default";
           });
  }

  ExprId ended(ExprId value) { return draft_.seq({value, draft_.terminal("\n" + std::string(kValueEnd) + "\n")}); }
  Result<ExprId> as_json(const Json& schema) {
    BATON_TRY(const ExprId value, SchemaCompiler(root_, &draft_, &pieces_).run(schema, path_));
    return ended(value);
  }

  Result<ExprId> choice(const Json& schema, int depth) {
    if (!plain_ || !schema.is_object() || depth > kNestedMax) return as_json(schema);
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!only(schema, name) || !schema[name].is_array()) continue;
      std::vector<ExprId> ways;
      for (const Json& one : schema[name]) {
        BATON_TRY(const ExprId way, choice(one, depth + 1));
        ways.push_back(way);
      }
      return draft_.alt(std::move(ways));
    }
    if (schema.contains("enum") || schema.contains("const")) return listed(schema);
    if (!has_string(schema, 0)) return as_json(schema);
    const std::vector<std::string> types = types_of(schema);
    std::vector<ExprId> ways;
    Json others = schema;
    others.erase("nullable");
    others["type"] = Json::array();
    for (const std::string& type : types) {
      if (type != "string") others["type"].push_back(type);
    }
    if (!others["type"].empty()) {
      BATON_TRY(const ExprId way, as_json(others));
      ways.push_back(way);
    }
    BATON_TRY(const ExprId text_value, text(schema));
    ways.push_back(text_value);
    return draft_.alt(std::move(ways));
  }

  Result<ExprId> listed(const Json& schema) {
    BATON_OK(check_keywords(schema, path_));
    std::vector<ExprId> ways;
    const Json& values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
    for (const Json& one : values) {
      const std::string shown = one.is_string() ? one.get<std::string>() : one.dump();
      if (shown.find(kValueEnd) == std::string::npos) ways.push_back(ended(draft_.terminal(shown)));
    }
    return draft_.alt(std::move(ways));
  }

  Result<ExprId> text(const Json& schema) {
    BATON_OK(check_keywords(schema, path_));
    RegexPool& regex = draft_.regex();
    const RegexId end = regex.text("\n" + std::string(kValueEnd));
    ByteDfa all = until_value_end();
    const auto narrow = [&](RegexId inner, const char* name) -> Status {
      auto dfa = determinise(regex, regex.cat({inner, end}), kTextStatesMax, &draft_.budget());
      if (dfa) dfa = product(all, *dfa, Product::kBoth, kTextStatesMax, &draft_.budget());
      if (!dfa) return schema_error(Code::kUnsupported, path_ + "/" + name, dfa.error().message);
      all = *std::move(dfa);
      return {};
    };
    const RegexId any = regex.characters({kAllCodes}, Spelling::kText);
    const uint32_t min = schema.contains("minLength") ? schema["minLength"].get<uint32_t>() : 0;
    const uint32_t max =
        schema.contains("maxLength") ? std::min(kTextMax, schema["maxLength"].get<uint32_t>()) : kUnbounded;
    BATON_OK(narrow(regex.repeat(any, min, max), max == kUnbounded ? "minLength" : "maxLength"));
    if (schema.contains("pattern")) {
      auto parsed = parse_regex(schema["pattern"].get<std::string>(), Spelling::kText, RegexReach::kSearch, &regex);
      if (!parsed) return schema_error(parsed.error().code, path_ + "/pattern", parsed.error().message);
      BATON_OK(narrow(*parsed, "pattern"));
    }
    if (schema.contains("format")) {
      BATON_TRY(const RegexId format, format_regex(schema["format"], path_, &draft_));
      BATON_OK(narrow(format, "format"));
    }
    return draft_.seq({draft_.terminal(std::move(all)), draft_.terminal("\n")});
  }

  const Json& root_;
  std::string path_;
  Draft& draft_;
  JsonPieces& pieces_;
  bool plain_ = false;
};

class Calls {
 public:
  Calls(CallForm form, Draft* draft, JsonPieces* pieces) : form_(form), draft_(*draft), pieces_(*pieces) {}

  Result<ExprId> call(const std::string& name, const Json& parameters) {
    // Without parameters it takes none, as OpenAI has it.
    const Json schema = parameters.is_null() ? Json{{"type", "object"}, {"properties", Json::object()}} : parameters;
    if (form_ == CallForm::kTaggedXml) return tags(name, schema);
    const bool object = schema.is_object() && schema.value("type", Json()) == "object";
    const Json typed = object ? schema : Json{{"allOf", Json::array({schema, Json{{"type", "object"}}})}};
    if (!object && schema.is_object() && (schema.contains("$defs") || schema.contains("definitions"))) {
      return schema_error(Code::kUnsupported, "#", "parameters with definitions must have the type object");
    }
    BATON_TRY(const ExprId arguments, schema_value(typed, &draft_, &pieces_));
    const bool tagged = form_ == CallForm::kTaggedJson;
    std::vector<ExprId> parts = {pieces_.open_object(),
                                 pieces_.key("name"),
                                 draft_.terminal(Json(name).dump()),
                                 pieces_.comma(),
                                 pieces_.key(tagged ? "arguments" : "parameters"),
                                 arguments,
                                 pieces_.close_object()};
    if (tagged) {
      parts.insert(parts.begin(), pieces_.pattern("<tool_call>\\n?"));
      parts.push_back(pieces_.pattern("\\n?</tool_call>"));
    }
    return draft_.seq(std::move(parts));
  }

 private:
  Result<ExprId> tags(const std::string& name, const Json& schema) {
    Draft::Members members{.between = draft_.seq({}), .close = draft_.terminal("</function>\n</tool_call>")};
    members.close_empty = members.close;
    Json properties = schema.is_object() ? schema.value("properties", Json::object()) : Json::object();
    const Json required = schema.is_object() ? schema.value("required", Json::array()) : Json::array();
    if (!properties.is_object() || !required.is_array()) {
      return schema_error(Code::kInvalidInput, "#", "properties must be an object, and required a list");
    }
    for (const Json& one : required) {
      if (one.is_string() && !properties.contains(one.get<std::string>())) properties[one.get<std::string>()] = true;
    }
    for (const auto& [key, value] : properties.items()) {
      if (key.empty() || key.find_first_of("<>\n") != std::string::npos) {
        return schema_error(Code::kUnsupported, "#/properties/" + key, "a name that cannot stand in a tag");
      }
      TagValues values(schema, "#/properties/" + key, &draft_, &pieces_);
      BATON_TRY(const ExprId written, values.value(value));
      const ExprId whole = draft_.seq({draft_.terminal("<parameter=" + key + ">\n"), written});
      members.parts.push_back({whole, std::find(required.begin(), required.end(), key) != required.end()});
    }
    const ExprId begin = draft_.terminal("<tool_call>\n<function=" + name + ">\n");
    return draft_.seq({begin, draft_.members(std::move(members))});
  }

  CallForm form_;
  Draft& draft_;
  JsonPieces& pieces_;
};

}  // namespace

Result<ExprId> tool_calls(CallForm form, const Json& tools, const std::string& name, bool several, Draft* draft,
                          JsonPieces* pieces) {
  std::vector<ExprId> ways;
  if (!tools.is_array()) return fail(Code::kInvalidInput, "tools: must be a list");
  for (const Json& tool : tools) {
    const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) {
      return fail(Code::kInvalidInput, "tools: one has no function with a name");
    }
    const std::string called = function["name"];
    if (!name.empty() && called != name) continue;
    auto way = Calls(form, draft, pieces).call(called, function.value("parameters", Json()));
    if (!way) return fail(std::move(way).error().in(fmt::format("parameters of tool '{}'", called)));
    ways.push_back(*way);
  }
  if (ways.empty()) {
    return fail(Code::kInvalidInput,
                name.empty() ? "tools: none is given" : fmt::format("no tool is called '{}'", name));
  }
  const uint32_t rule = draft->add_rule("call");
  draft->define(rule, draft->alt(std::move(ways)));
  const ExprId one = draft->rule(rule);
  if (!several) return one;
  const ExprId between = form == CallForm::kBareJson ? pieces->pattern(";[ \\n]?|\\n") : pieces->pattern("\\n?");
  return draft->seq({one, draft->repeat(draft->seq({between, one}), 0, 63)});
}

}  // namespace baton::grammar
