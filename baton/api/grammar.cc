// The vocabulary of a tokenizer, and the grammars that were compiled for it.
#include "baton/api/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <mutex>

#include "baton/grammar/constraint.h"
#include "baton/grammar/gbnf.h"
#include "baton/grammar/json_schema.h"
#include "baton/grammar/regex.h"
#include "baton/grammar/tool_calls.h"

namespace baton {
namespace {

using grammar::Draft;
using grammar::ExprId;
using grammar::Grammar;
using grammar::GrammarConstraint;
using grammar::JsonPieces;
using grammar::Vocabulary;
using nlohmann::ordered_json;

constexpr size_t kGrammarsKept = 32;

class Compiler final : public FormatCompiler {
 public:
  Compiler(std::shared_ptr<const Vocabulary> vocabulary, std::vector<std::pair<std::string, int32_t>> control)
      : vocabulary_(std::move(vocabulary)), control_(std::move(control)) {}

  Result<std::shared_ptr<TokenConstraint>> constraint(const AnswerFormat& format) override {
    switch (format.kind) {
      case AnswerFormat::Kind::kAny:
        return std::shared_ptr<TokenConstraint>();
      case AnswerFormat::Kind::kJsonObject:
        return fresh(json_);
      case AnswerFormat::Kind::kJsonSchema:
        return made(
            "schema", "schema: ", format.schema.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
            [&](Draft* draft, JsonPieces* pieces) { return grammar::schema_value(format.schema, draft, pieces); });
      case AnswerFormat::Kind::kRegex:
        return made("regex", "regex: ", format.text, [&](Draft* draft, JsonPieces*) -> Result<ExprId> {
          BATON_TRY(const auto regex, grammar::parse_regex(format.text, grammar::Spelling::kText,
                                                           grammar::RegexReach::kWhole, &draft->regex()));
          return draft->terminal(regex);
        });
      case AnswerFormat::Kind::kGrammar:
        break;
    }
    return made("gbnf", "grammar: ", format.text,
                [&](Draft* draft, JsonPieces*) { return grammar::gbnf_root(format.text, draft); });
  }

  Result<std::shared_ptr<TokenConstraint>> tool_calls(ToolStyle style, const ordered_json& tools,
                                                      const std::string& name, bool parallel) override {
    if (style == ToolStyle::kNone) {
      return fail(Code::kUnsupported, "tools: this model's chat template knows none");
    }
    const auto form = style == ToolStyle::kHermes    ? grammar::CallForm::kTaggedJson
                      : style == ToolStyle::kQwenXml ? grammar::CallForm::kTaggedXml
                                                     : grammar::CallForm::kBareJson;
    const std::string key = fmt::format("{} {} {} {}", static_cast<int>(style), parallel, name,
                                        tools.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    return made("tools", "", key, [&](Draft* draft, JsonPieces* pieces) {
      return grammar::tool_calls(form, tools, name, parallel, draft, pieces);
    });
  }

  std::shared_ptr<TokenConstraint> behind(std::string_view marker,
                                          const std::shared_ptr<TokenConstraint>& inner) override {
    const auto* plain = dynamic_cast<const GrammarConstraint*>(inner.get());
    if (plain == nullptr) return inner;
    const auto found = std::ranges::find(control_, marker, &std::pair<std::string, int32_t>::first);
    const int32_t id = found == control_.end() ? -1 : found->second;
    return std::make_shared<grammar::BehindMarker>(std::string(marker), id, vocabulary_, plain->grammar());
  }

  // Masks that most formats need, those of strings before all: a request does not wait for them.
  Status warm() {
    BATON_TRY(json_, compile([](Draft*, JsonPieces* pieces) -> Result<ExprId> { return pieces->any_object(); }));
    GrammarConstraint walk(vocabulary_, json_);
    std::vector<uint32_t> mask(vocabulary_->words());
    for (const char c : std::string_view("{\n \"a\": [\"b\\n\\u00e9\", 1, -2.5e1, true], \"c\": {}}")) {
      walk.allow(mask);
      if (!walk.push(std::string_view(&c, 1))) return fail(Code::kInternal, "JSON is no JSON");
    }
    return {};
  }

 private:
  // What `write` gives, or what it gave before for the same `key`.
  template <class Write>
  Result<std::shared_ptr<TokenConstraint>> made(const char* kind, const char* where, const std::string& key,
                                                Write write) {
    const std::string name = std::string(kind) + '\n' + key;
    if (auto known = find(name)) return fresh(std::move(known));
    auto compiled = compile(write);
    if (!compiled) {
      Error error = std::move(compiled).error();
      if (error.code == Code::kOutOfMemory) error.code = Code::kUnsupported;  // of automata
      error.message.insert(0, where);
      return fail(std::move(error));
    }
    keep(name, *compiled);
    return fresh(*std::move(compiled));
  }

  template <class Write>
  Result<std::shared_ptr<const Grammar>> compile(Write write) {
    Draft draft(&terminals_);
    JsonPieces pieces(&draft);
    const uint32_t root = draft.add_rule("(answer)");
    BATON_TRY(const ExprId body, write(&draft, &pieces));
    draft.define(root, body);
    return draft.finish(root);
  }

  std::shared_ptr<TokenConstraint> fresh(std::shared_ptr<const Grammar> of) const {
    return std::make_shared<GrammarConstraint>(vocabulary_, std::move(of));
  }

  std::shared_ptr<const Grammar> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const auto& one) { return one.first == name; });
    if (found == kept_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found);
    return found->second;
  }
  void keep(const std::string& name, const std::shared_ptr<const Grammar>& of) {
    const std::lock_guard lock(mutex_);
    kept_.emplace_front(name, of);
    if (kept_.size() > kGrammarsKept) kept_.pop_back();
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<std::pair<std::string, int32_t>> control_;  // texts of control tokens
  grammar::TerminalStore terminals_;
  std::shared_ptr<const Grammar> json_;  // any object
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Grammar>>> kept_;  // last used first
};

}  // namespace

Result<std::shared_ptr<FormatCompiler>> FormatCompiler::create(const TextModel& model) {
  if (!model.tokenizer) return fail(Code::kUnsupported, "a model without a tokenizer has no formats of answers");
  const Tokenizer& tokenizer = *model.tokenizer;
  std::vector<Vocabulary::Token> tokens;
  std::vector<std::pair<std::string, int32_t>> control;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const TokenKind kind = tokenizer.kind(id);
    if (kind == TokenKind::kControl) control.emplace_back(tokenizer.token_text(id), id);
    const bool text = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kByte;
    if (text) tokens.push_back({id, tokenizer.token_bytes(id)});
  }
  std::vector<int32_t> stops = model.stop_ids;
  stops.insert(stops.end(), tokenizer.stop_ids().begin(), tokenizer.stop_ids().end());
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  if (stops.empty()) {
    return fail(Code::kUnsupported, "the tokenizer has no token that ends an answer: no format can be asked for");
  }
  auto vocabulary = std::make_shared<const Vocabulary>(tokens, std::move(stops));
  auto made = std::make_shared<Compiler>(std::move(vocabulary), std::move(control));
  BATON_OK(made->warm());
  return std::shared_ptr<FormatCompiler>(std::move(made));
}

}  // namespace baton
