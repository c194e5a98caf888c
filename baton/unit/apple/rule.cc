// Names of rules and refusals, and the list of warnings.
#include "baton/unit/apple/rule.h"

#include <fmt/format.h>

#include <array>

namespace baton::apple {
namespace {

struct FaultWords {
  Fault fault;
  std::string_view words;   // what our errors begin with
  std::string_view marker;  // what is looked for in a system error
  Code code;
};

constexpr FaultWords kFaults[] = {
    {Fault::kCompile, "ANECCompile() FAILED: err=()", "ANECCompile() FAILED", Code::kDevice},
    {Fault::kProgram, "InvalidMILProgram", "InvalidMILProgram", Code::kInvalidInput},
    {Fault::kInference, "ANEProgramProcessRequestDirect() Failed with status=0x1d : Program Inference error",
     "status=0x1d", Code::kDevice},
    {Fault::kRecompile, "GetANEFModel: must re-compile", "must re-compile", Code::kDevice},
    {Fault::kChaining, "Code=15 ANEProgramChainingPrepare", "ANEProgramChainingPrepare", Code::kUnsupported},
    {Fault::kNotPermitted, "0xe00002e2 not permitted", "0xe00002e2", Code::kDevice},
    {Fault::kUnsupported, "0xe00002c7 unsupported", "0xe00002c7", Code::kUnsupported},
    {Fault::kBadArgument, "0xe00002c2 bad argument", "0xe00002c2", Code::kInvalidInput},
    {Fault::kNoMemory, "0xe00002bd no memory", "0xe00002bd", Code::kOutOfMemory},
    {Fault::kNoResources, "0xe00002be no resources", "0xe00002be", Code::kOutOfMemory},
    {Fault::kNotReady, "0xe00002d0 not ready", "0xe00002d0", Code::kDevice},
    {Fault::kAborted, "0xe00002eb aborted", "0xe00002eb", Code::kDevice},
    {Fault::kNotFound, "0xe00002f0 not found", "0xe00002f0", Code::kNotFound},
    {Fault::kTimeout, "0xe0000404 timeout", "0xe0000404", Code::kDevice},
    {Fault::kUnknown, "neural engine error", "", Code::kDevice},
};

constexpr RuleFacts kRules[] = {
#define BATON_ANE_RULE(section, enumerator, name, level, fault) \
  {Rule::k##enumerator, section, name, RuleLevel::k##level, Fault::k##fault},
#include "baton/unit/apple/rule_list.inc"
#undef BATON_ANE_RULE
};

const FaultWords& words_of(Fault fault) { return kFaults[static_cast<size_t>(fault)]; }

}  // namespace

std::string_view to_string(Fault fault) { return words_of(fault).words; }

Fault fault_in(std::string_view text) {
  for (const FaultWords& entry : kFaults) {
    if (!entry.marker.empty() && text.find(entry.marker) != std::string_view::npos) return entry.fault;
  }
  return Fault::kUnknown;
}

Error device_error(Fault fault, std::string_view detail) {
  const FaultWords& entry = words_of(fault);
  return {entry.code, fmt::format("{}: {}", entry.words, detail)};
}

std::span<const RuleFacts> rules() { return kRules; }

const RuleFacts& facts_of(Rule rule) { return kRules[static_cast<size_t>(rule)]; }

Error rule_error(Rule rule, std::string_view detail) {
  const RuleFacts& facts = facts_of(rule);
  return device_error(facts.fault, fmt::format("[{}] {}", facts.name, detail));
}

std::optional<Rule> rule_in(const Error& error) {
  for (const RuleFacts& facts : kRules) {
    if (error.message.find(fmt::format("[{}]", facts.name)) != std::string::npos) return facts.rule;
  }
  return std::nullopt;
}

bool Diagnostics::is_error(Rule rule) const {
  const RuleLevel level = facts_of(rule).level;
  return level == RuleLevel::kError || (level == RuleLevel::kStrict && mode_ == Mode::kStrict);
}

Status Diagnostics::report(Rule rule, std::string text) {
  if (is_error(rule)) return fail(rule_error(rule, text));
  warn(rule, std::move(text));
  return {};
}

void Diagnostics::warn(Rule rule, std::string text, uint64_t count) {
  for (Warning& warning : warnings_) {
    if (warning.rule == rule && warning.text == text) {
      warning.count += count;
      return;
    }
  }
  if (warnings_.size() < kWarningsMax) {
    warnings_.push_back({rule, std::move(text), count});
  } else {
    dropped_ += count;
  }
}

void Diagnostics::clear() {
  warnings_.clear();
  dropped_ = 0;
}

}  // namespace baton::apple
