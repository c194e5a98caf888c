// Who made a state, and in which steps: the units that processed its tokens, with the names of their arithmetic, and
// their prefills and decodes in order. Carried by every sealed state, so that a receiver knows by how much it may
// differ from a state of its own (bridge proof), and can repeat the same steps. Like all of an unkeyed seal it is what
// the sender says: docs/state_format.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton {

// One unit's arithmetic. `unit` is a unit's name, or one of the two below.
struct StateMaker {
  std::string unit;        // "cpu"
  std::string arithmetic;  // Executor::arithmetic(); of kMakerForeign the file's format; of kMakerUnknown empty

  friend bool operator==(const StateMaker&, const StateMaker&) = default;
};
inline constexpr std::string_view kMakerUnknown = "unknown";
inline constexpr std::string_view kMakerForeign = "foreign";  // converted from a file of another project

// Whether the second part of an arithmetic's name begins with "emulated": the unit ran on another device than it stands
// for ("cuda/emulated/0123abcd"), what it made is not the device's, and nothing is proven of the device by it.
bool is_emulated(std::string_view arithmetic);
// "cuda", and "cuda (emulated)" where its arithmetic says so: for whatever names a maker or who is compared with whom.
std::string with_emulated(std::string_view unit, std::string_view arithmetic);

// Behind the arithmetic of a maker whose values lay rounded to bf16 since: the same steps do not make them again.
inline constexpr std::string_view kRoundedAtRest = "+bf16";

enum class StepKind : uint8_t {
  kPrefill = 0,  // one call, `tokens` tokens
  kDecode = 1,   // one call, one token
  kMixed = 2,    // `tokens` tokens in calls that are not known any more
};
std::string_view to_string(StepKind kind);  // "prefill", "decode", "mixed"

// `count` calls of the same kind and size, one after the other. A change of maker from one step to the next is a move
// over the bridge (through the types of both units), unless either is kMixed.
struct StateStep {
  uint32_t maker = 0;  // index in Provenance::makers
  StepKind kind = StepKind::kPrefill;
  bool shared = false;  // prefill: other sequences in the same calls, bits may differ if !Caps::shared_prefills_exact
  uint32_t tokens = 0;  // of each call
  uint32_t count = 0;   // calls

  friend bool operator==(const StateStep&, const StateStep&) = default;
};

inline constexpr size_t kMakersMax = 8, kStepsMax = 256;
inline constexpr size_t kMakerUnitMax = 31, kMakerArithmeticMax = 95;

// One form: makers in the order of their first step, each with one; no two steps in a row that could be one.
struct Provenance {
  std::vector<StateMaker> makers;
  std::vector<StateStep> steps;

  // `count` calls of `tokens` tokens. When the list is full, what it holds becomes one kMixed step for each maker; a
  // maker too many becomes kMakerUnknown. O(makers); allocates only when a step is added that does not continue the
  // last.
  void add(const StateMaker& maker, StepKind kind, uint64_t tokens, uint64_t count = 1, bool shared = false);

  // The same steps, of makers with kRoundedAtRest; one whose name has no room for it becomes kMakerUnknown.
  Provenance rounded() const;
  bool is_rounded() const;  // or a part of them

  // Every step is known: repeating them repeats the state.
  bool replayable() const;
  uint64_t tokens() const;
  uint64_t tokens_of(size_t maker) const;

  static Provenance of(std::string_view unit, std::string_view arithmetic, uint64_t tokens);  // one kMixed step
  static Provenance unknown(uint64_t tokens) { return of(kMakerUnknown, "", tokens); }

  friend bool operator==(const Provenance&, const Provenance&) = default;
};

// The one form, bounds, printable names, and that the steps make `tokens` tokens. kCorrupt, naming maker or step.
Status check_provenance(const Provenance& provenance, uint64_t tokens);

// "cpu (cpu/avx512/0123abcd): prefill 512 x2, prefill 37, decode 8": one line for each run of a maker's steps.
std::vector<std::string> to_lines(const Provenance& provenance);

}  // namespace baton
