// The contract of a compute unit. A Unit loads a Model into an Executor; an Executor runs its Program over
// SequenceStates. The engine, the bridge, the tests and the CLI know units only through this page.
//
// Threads: a Unit may be used from any one thread at a time. An Executor and the states it made are used from one
// thread at a time (its lane); it may run its own threads inside a call. Only the bridge touches a state between two
// lanes. Errors: after a failed prefill or decode all states in that call are poisoned: drop them. Nothing throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/model.h"
#include "baton/unit/sequence_state.h"

namespace baton {

// Largest |logit difference| to `ref` that a unit's arithmetic may cause with weights of a format.
struct LogitTolerance {
  DType weights;
  float largest;
};

// What a unit can do: facts for planning, listing and conformance tests.
struct Caps {
  std::vector<OpKind> ops;                 // one by one: a Program with any other is refused at load
  std::vector<DType> native_formats;       // weights used as stored; others are decoded at load
  DType kv_type = DType::kF32;             // of keys and values in its states
  DType product_type = DType::kF32;        // narrowest type of inputs, weights and results of its matrix products
  uint32_t prefill_tokens_preferred = 64;  // tokens per prefill call that suit it
  uint32_t prefill_tokens_min = 1;         // fewer in a call take as long
  uint32_t prefill_slots_shared = 1;       // sequences of a prefill_batch that share a pass; 1: one after the other
  uint32_t decode_slots_max = 1;           // sequences per decode call; 0: this unit only prefills
  // Sequences that share a prefill_batch get the bits that each would get alone; those that share a decode always do.
  bool shared_prefills_exact = true;
  std::vector<std::string> features;             // instruction sets or device facts, for `baton units`
  std::vector<LogitTolerance> logit_tolerances;  // every format: near ties below it are explained
  float logit_tolerance(DType weights) const;
};
// The same for every format.
std::vector<LogitTolerance> equal_tolerances(float largest);
// kUnsupported names the first op of the program that is not among `caps.ops`, by kind, index and layer.
Status check_ops(std::string_view unit, const Caps& caps, const Program& program);

// One row of a decode step: feed `token` at the state's position, write vocab logits.
struct DecodeSlot {
  SequenceState* state;
  int32_t token;
  std::span<float> logits;  // vocab values, written; empty: none wanted
};

// One sequence of a prefill: `tokens` at the state's position, the last logits.size() / vocab of them make logits.
struct PrefillSlot {
  SequenceState* state;
  std::span<const int32_t> tokens;  // from 1 up to what the state can still hold
  std::span<float> logits;          // whole rows of vocab values in token order, written; empty: none wanted
};

// Who did an executor's arithmetic, and how that is known.
struct Placement {
  std::string ran;           // unit name
  std::string arithmetic;    // what computed, in words: "avx512-vnni kernels", "plain f32 loops"
  std::string kernels = {};  // set of the host's kernels that did all of it ("avx512"); empty: something else did
  uint32_t threads = 0;      // of the host; 0: they do not tell how fast it is
  bool emulated = false;     // on another device than it stands for: its times and energy are not the device's
  std::string notes = {};    // the rest of the sentence, as it goes on behind the threads
  std::string warning = {};  // what the user asked for and did not get; empty: nothing to say

  // One sentence for people: "avx512-vnni kernels, 2 threads".
  std::string text() const;
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const Model& model() const = 0;
  // Of its states.
  virtual const StateShape& shape() const = 0;
  // What a state takes that holds up to `tokens` tokens. Any thread.
  virtual uint64_t state_bytes(uint64_t tokens) const { return section_bytes(shape(), tokens); }

  // A state at position 0. kOutOfMemory when it does not fit.
  virtual Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) = 0;
  // A state as `from`, one of this executor's, was at `position`, at most its own: what it holds is shared or copied.
  // kUnsupported when that cannot be told any more (a recurrent state has moved on). Here: a copy, of a smaller
  // position only where every segment counts tokens.
  virtual Result<std::unique_ptr<SequenceState>> fork(const SequenceState& from, uint64_t position);

  // Processes `tokens` at the state's position. `logits` receives the last logits.size() / vocab tokens' rows, in token
  // order; empty: none (the output head is not run). Any number of tokens from 1 up to what the state can still hold.
  virtual Status prefill(SequenceState& state, std::span<const int32_t> tokens, std::span<float> logits) = 0;
  // Prefills several sequences, any number, each of any length; the slots' states are distinct. Here: one prefill after
  // the other. A unit that shares passes among them (caps().prefill_slots_shared) may round a sequence's sums another
  // way than in a prefill of its own, within its logit_tolerance; what does so, and when, is in docs/cpu.md. A slot
  // that cannot run is found before any has: the message names it.
  virtual Status prefill_batch(std::span<const PrefillSlot> slots);
  // One token for each slot; the slots' states are distinct. At most caps().decode_slots_max slots. Each gets the bits
  // that it would get alone.
  virtual Status decode(std::span<const DecodeSlot> slots) = 0;

  // Finishes what load left for later, so that the next calls run at full speed: for measurements, and for idle time.
  virtual Status settle() { return {}; }

  virtual Placement placement() const = 0;

  // Names what decides the bits of its results: unit, kernels, options, build. Two executors with equal names on models
  // with equal fingerprints give the same bits for the same steps from the same state: prefill calls of the same
  // tokens in the same pieces, decodes token by token; prefills alone, or together with others where
  // caps().shared_prefills_exact.
  // Threads, room in the state, memory and time do not matter. Equal is a promise, unequal is none: other names may
  // give the same bits. Constant for the executor's life, printable ASCII without spaces, from arithmetic_name().
  virtual std::string arithmetic() const = 0;

 protected:
  LiveStates live_;  // its states: they die before it
};

// "what/0123abcd": `what` begins with the unit's name; the digits stand for this build (sources, compiler, flags) and
// the mathematics library of this machine.
inline constexpr size_t kArithmeticNameMax = 95;
std::string arithmetic_name(std::string_view what);
// Processor and version of the operating system, for units whose arithmetic belongs to these.
std::string system_arithmetic();

// What a load would make of a model, found from its shapes: for `inspect`.
struct LoadPlan {
  struct Programs {
    std::string shape;
    uint32_t count = 0;
    uint64_t weight_bytes = 0;  // of the largest one
    uint64_t all_bytes = 0;
  };
  std::vector<Programs> programs;
  std::vector<std::string> notes;  // limits, and what does not fit them
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string_view name() const = 0;
  virtual const Caps& caps() const = 0;
  // kUnsupported: this unit makes no programs of its own.
  virtual Result<LoadPlan> plan(const Model& model) const;
  // Slow (may convert or repack weights); never inside a request. `threads` 0: the unit's own choice. kUnsupported: an
  // op that the unit cannot do (check_ops), or what it says itself.
  Result<std::unique_ptr<Executor>> load(std::shared_ptr<const Model> model, uint32_t threads);

 protected:
  // As load(), with ops that are among caps().ops.
  virtual Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t threads) = 0;
};

// Shared by executors: token ids in range, room in the state. The message says which token or how many tokens.
Status check_tokens(const Model& model, const SequenceState& state, std::span<const int32_t> tokens);
// The same for each slot, the message beginning with "sequence N: " when there are several. States given twice and
// logits of more rows than tokens are bugs.
Status check_slots(const Model& model, std::span<const PrefillSlot> slots);

}  // namespace baton
