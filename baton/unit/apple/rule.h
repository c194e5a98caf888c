// The rules of the neural engine as this project knows them (docs/ane.md), each with a name that every refusal carries,
// and the words with which the system itself refuses. Nothing here has run on Apple hardware yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::apple {

// The system's refusals: texts and IOKit codes.
enum class Fault : uint8_t {
  kCompile,       // ANECCompile() FAILED: err=()
  kProgram,       // InvalidMILProgram
  kInference,     // status=0x1d
  kRecompile,     // GetANEFModel: must re-compile
  kChaining,      // Code=15
  kNotPermitted,  // 0xe00002e2
  kUnsupported,   // 0xe00002c7
  kBadArgument,   // 0xe00002c2
  kNoMemory,      // 0xe00002bd
  kNoResources,   // 0xe00002be
  kNotReady,      // 0xe00002d0
  kAborted,       // 0xe00002eb
  kNotFound,      // 0xe00002f0
  kTimeout,       // 0xe0000404
  kUnknown,
};
// The words the system uses: what an Error of a driver begins with.
std::string_view to_string(Fault fault);
// From the text of a system error: its words or its code in hexadecimal. kUnknown when neither is there.
Fault fault_in(std::string_view text);
// "<system's words>: <detail>", with the Code that suits the fault.
Error device_error(Fault fault, std::string_view detail);

enum class Rule : uint8_t {
#define BATON_ANE_RULE(section, enumerator, name, level, fault) k##enumerator,
#include "baton/unit/apple/rule_list.inc"
#undef BATON_ANE_RULE
};

enum class RuleLevel : uint8_t { kError, kStrict, kWarning };

struct RuleFacts {
  Rule rule;
  uint32_t section;  // number in docs/ane.md
  std::string_view name;
  RuleLevel level;
  Fault fault;
};
std::span<const RuleFacts> rules();
const RuleFacts& facts_of(Rule rule);
inline std::string_view to_string(Rule rule) { return facts_of(rule).name; }

// "<system's words>: [<rule name>] <detail>".
Error rule_error(Rule rule, std::string_view detail);
// The rule an error names; empty when it names none.
std::optional<Rule> rule_in(const Error& error);

// kStrict is what a program should pass before it is tried on hardware; kLenient accepts what some source says works.
enum class Mode : uint8_t { kStrict, kLenient };

struct Warning {
  Rule rule;
  std::string text;
  uint64_t count;
};

// Collects warnings of one model or driver; the same text is counted, not repeated. At most kWarningsMax are kept.
class Diagnostics {
 public:
  static constexpr size_t kWarningsMax = 256;
  explicit Diagnostics(Mode mode) : mode_(mode) {}

  Mode mode() const { return mode_; }
  bool is_error(Rule rule) const;
  // An error when the rule is one in this mode; otherwise the warning is kept.
  Status report(Rule rule, std::string text);
  void warn(Rule rule, std::string text, uint64_t count = 1);
  std::span<const Warning> warnings() const { return warnings_; }
  // Warnings that did not fit.
  uint64_t dropped() const { return dropped_; }
  void clear();

 private:
  Mode mode_;
  std::vector<Warning> warnings_;
  uint64_t dropped_ = 0;
};

}  // namespace baton::apple
