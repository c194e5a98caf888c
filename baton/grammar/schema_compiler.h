// The compiler of JSON schemas: first a schema becomes a list of flat ones, of which a value fits any, without $ref,
// allOf, anyOf and oneOf; then each becomes an expression by its types.
#pragma once

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/grammar/json_schema.h"

namespace baton::grammar {

using Json = nlohmann::ordered_json;

tl::unexpected<Error> schema_error(Code code, const std::string& path, std::string_view what);

// What a value must be to fit both; null: nothing fits. Neither has $ref, allOf, anyOf or oneOf at its top. Where both
// speak of a part, the part becomes an allOf.
Result<std::optional<Json>> merge_schemas(const Json& a, const Json& b, const std::string& path);

// kInvalidInput for keywords of a wrong type; kUnsupported for those that are not understood.
Status check_keywords(const Json& schema, const std::string& path);
// A number that JSON's reader could only keep as a double, of 2^63 and more: its digits are lost.
bool digits_are_lost(const Json& number);
// What `nullable` and a missing `type` mean, as a list of types; empty: any.
std::vector<std::string> types_of(const Json& schema);

// Strings between quotes. Null: any string.
Result<RegexId> format_regex(const std::string& format, const std::string& path, Draft* draft);  // without the quotes
Result<ByteDfa> format_dfa(const std::string& format, const std::string& path, Draft* draft);
Result<ByteDfa> pattern_dfa(const std::string& pattern, const std::string& path, Draft* draft);
// Numbers within what minimum, maximum, their exclusive forms and multipleOf say.
Result<ExprId> number_value(const Json& schema, bool integer, const std::string& path, Draft* draft,
                            JsonPieces* pieces);

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, Draft* draft, JsonPieces* pieces) : root_(root), draft_(*draft), pieces_(*pieces) {}
  Result<ExprId> run() { return run(root_, "#"); }
  // A schema of which the references are those of the root; it need not last.
  Result<ExprId> run(const Json& schema, const std::string& path);

 private:
  struct Target {
    const Json* schema = nullptr;
    std::string path;
    uint32_t rule = 0;
  };
  using Flats = std::vector<Json>;

  Result<ExprId> compile(const Json& schema, const std::string& path, int depth);
  Result<ExprId> reference(const Json& ref, const std::string& path);
  Result<const Json*> resolve(const std::string& ref, const std::string& path) const;
  // Schemas without combinations, of which a value fits at least one. `within`: the references that led here.
  Result<Flats> flatten(const Json& schema, const std::string& path, std::vector<const Json*>* within);
  Result<Flats> combine(const Flats& a, const Flats& b, const std::string& path);
  Result<ExprId> flat(const Json& schema, const std::string& path, int depth);
  Result<ExprId> enumerated(const Json& schema, const std::string& path);
  Result<bool> admits(const Json& schema, const Json& value, const std::string& path);
  Result<ExprId> string_value(const Json& schema, const std::string& path);
  Result<ByteDfa> string_dfa(const Json& schema, const std::string& path);
  Result<ExprId> array_value(const Json& schema, const std::string& path, int depth);
  Result<ExprId> object_value(const Json& schema, const std::string& path, int depth);
  Result<ExprId> typed(const std::string& type, const Json& schema, const std::string& path, int depth);
  struct Keys;
  Result<std::optional<ExprId>> extra_members(const Json& schema, const Keys& keys, const std::string& path, int depth);

  const Json& root_;
  Draft& draft_;
  JsonPieces& pieces_;
  std::map<const Json*, uint32_t> rules_;  // of references
  std::deque<Target> targets_;             // still to be compiled
};

}  // namespace baton::grammar
