// The contract of a compute unit. A Unit loads a Model into an Executor; an Executor runs its Program over
// SequenceStates. The engine, the bridge and the API know units only through this page; they are listed and created by
// unit/entry.h.
//
// Threads: a Unit may be used from any one thread at a time. An Executor is called from one thread at a time (its
// lane), but for what says otherwise; it may run threads of its own inside a call. A state too is used by one thread at
// a time, but not by the lane's alone: the bridge's thread reads and fills states while their executor steps others,
// and any thread drops one. So nothing that states of an executor share may be changed by reading, filling or dropping
// one without a lock.
//
// Errors of a step: kInvalidInput and kOutOfMemory for a seat that cannot run, found before any has; kOutOfMemory and
// kDevice for what failed this time; kCancelled from StepContext; kUnavailable when the device is lost: the engine
// gives the lane no more work, and requests fall back to other units or end. After a failed step all states in it are
// poisoned: drop them. A call may throw std::bad_alloc, which counts as kOutOfMemory, and nothing else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/model.h"
#include "baton/sample/logprobs.h"
#include "baton/unit/device_limits.h"
#include "baton/unit/sequence_state.h"

namespace baton {

class Clock;
class Sampler;

// Largest |logit difference| to `ref` that a unit's arithmetic may cause with weights of a format.
struct LogitTolerance {
  DType weights;
  float largest;
};

// A device of its own: facts for lists.
struct DeviceFacts {
  std::string name;           // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes = 0;  // its own
  std::string kind;           // "compute capability 9.0"
};

// Its own memory at one time.
struct DeviceRoom {
  uint64_t bytes = 0, free_bytes = 0;
};

// What a unit can do: facts for planning, listing and conformance tests.
struct Caps {
  std::vector<OpKind> ops;            // one by one: a Program with any other is refused at load
  std::vector<OpTrait> traits;        // of these ops, likewise
  std::vector<DType> native_formats;  // weights used as stored; others are decoded at load
  DType kv_type = DType::kF32;        // of keys and values in its states
  // Narrowest type of inputs, weights and results of its matrix products: how far it may be from `ref`, op by op.
  DType product_type = DType::kF32;
  uint32_t prefill_tokens_preferred = 64;  // tokens of a seat that suit it
  uint32_t prefill_tokens_min = 1;         // fewer in a step take as long
  // Seats that share a pass over the weights. A step takes any number, in several passes where they are more; the
  // engine gives it no more than these, but always the two that a proof decodes side by side.
  uint32_t prefill_seats_shared = 1;  // that prefill; 1: one after the other
  bool cuts_prompts = true;           // always, so that it takes no whole_sequence; else only where it may
  uint32_t decode_seats_max = 1;      // that decode; 0: this unit only prefills
  bool mixes = false;                 // both kinds share a pass
  bool shared_prefills_exact = true;  // seats that prefill get the bits that each would get alone
  bool pieces_exact = true;           // where a prompt is cut at multiples of 64 does not show in its bits
  // Executor::rewind. 0: nowhere. Else a state of keys and values alone goes back to any position, and one that has
  // recurrent parts over so many tokens, where the seats that brought them kept those parts.
  uint32_t rewind_tokens_max = 0;
  bool decodes_exact = true;          // Seat::decodes
  bool states_grow = false;           // take memory as tokens come: Executor::state_bytes
  bool tells_layers = false;          // StepContext::watch
  bool emulated = false;              // on another device than it stands for, as Placement::emulated
  std::vector<std::string> features;  // instruction sets or device facts, for `baton units`
  std::optional<DeviceFacts> device = {};
  // Every format. What tests hold the unit to; the proof goes by bounds that are measured (bridge/compare.h).
  std::vector<LogitTolerance> logit_tolerances;
  float logit_tolerance(DType weights) const;
};
// The same for every format.
std::vector<LogitTolerance> equal_tolerances(float largest);
// kUnsupported: a Program that must not be cut, on a unit that does; or an op that is not among `caps.ops` or has a
// trait that is not among `caps.traits`, the first of them named by kind or trait, index and layer.
Status check_program(std::string_view unit, const Caps& caps, const Program& program);

// An id that was drawn from a row of outputs, and when.
struct DrawnId {
  int32_t id = -1;
  int64_t time_ns = 0;                    // by the clock of StepLimits
  std::optional<Logprobs> logprobs = {};  // where the sampler's parameters ask for them
};

// How a seat that decodes goes on by itself, see Executor::step_on. Lent to the unit for the call.
struct Draws {
  Sampler* sampler = nullptr;  // the sequence's own: what a unit draws with it is what the host would
  std::span<const int32_t> stop_ids = {};
  std::vector<DrawnId> ids = {};  // appended: one for each step that went well, be it a stop id
  Status status = {};             // of the sampler: nothing was drawn from the last step's outputs

  // Nothing follows the last id.
  bool ended() const;
};

// A sequence's part of a step: `tokens` at the state's position, a row of outputs behind each of the last `rows_out`.
struct Seat {
  SequenceState* state = nullptr;
  std::span<const int32_t> tokens;  // from 1 up to what the state can still hold
  uint32_t rows_out = 0;            // at most tokens.size(); 0: the output head need not run
  // One token of an answer: it gets the bits that it would get alone, whoever decodes beside it, where
  // caps().decodes_exact; else it is within logit_tolerance of them. A prompt's tokens are prefilled, be it one:
  // caps().pieces_exact.
  bool decodes = false;
  // Its recurrent parts are kept as they were before each of the last caps().rewind_tokens_max tokens, for rewind:
  // beside those kept before when these are fewer. Takes memory and time, and the bits of pieces of one token in those
  // parts. For drafts that may be refused: no step of the engine asks for it.
  bool keeps = false;
  Draws* draws = nullptr;  // for step_on, of a seat that decodes
};

// How far step_on may go.
struct StepLimits {
  uint32_t steps_max = 1;
  int64_t until_ns = INT64_MAX;  // on `clock`: behind it no further step is asked for
  const Clock* clock = nullptr;  // null: the steady clock
};

// Is told by a step, on the step's thread, that all segments of a layer are what they will be behind the step: for who
// sends a state while later layers compute. A seat's layers come in their order, each once. From then on, until the
// call for the seat's last layer returns, the layer can be read at the position that the step will bring, by one thread
// at a time, which need not be the step's (of a step that ends early, until the state is dropped); the rest cannot: the
// unit calls the state's show_coming with that position before it tells of the first layer, and set_position behind the
// last.
class LayerWatch {
 public:
  virtual ~LayerWatch() = default;
  virtual void layer_done(size_t seat, int32_t layer) = 0;
};

// What a long step looks at between its parts, and whom it tells.
struct StepContext {
  const std::atomic<bool>* cancelled = nullptr;  // true: end soon
  int64_t deadline_ns = INT64_MAX;  // on the steady clock; for callers with a limit of time: a lane has none
  LayerWatch* watch = nullptr;      // where caps().tells_layers

  // kCancelled when it is to end.
  Status check() const;
};

// Of all states of an executor: what states share counts once, what waits for the next ones does not.
struct StateMemory {
  uint64_t bytes = 0;  // now: at most the sum of their bytes()
  uint64_t most = 0;   // at any time so far
};

// How weights came to a device at load. Of an emulated one nothing is told.
struct WeightLoad {
  uint64_t bytes = 0;  // as the device keeps them; 0: not told
  double seconds = 0;  // of these the host read and packed, and it waited for copies:
  double packing_seconds = 0, waiting_seconds = 0;
  double link_bytes_per_second = 0;  // copies of pinned memory, measured in passing; 0: not measured
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
  WeightLoad load = {};

  // One sentence for people: "avx512-vnni kernels, 2 threads".
  std::string text() const;
};

// Of a layer with experts, what went where.
struct ExpertLoad {
  int32_t layer = -1;
  uint64_t tokens = 0;
  std::vector<uint64_t> rows;   // by expert: tokens that it was chosen for
  std::vector<uint64_t> steps;  // by expert: passes that read its weights
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const Model& model() const = 0;
  // Of its states.
  virtual const StateShape& shape() const = 0;
  // What a state made for `tokens` tokens takes: SequenceState::bytes() is never more, but for what a seat that `keeps`
  // adds. Where caps().states_grow, neither is it of a state that holds so many (during a step and when it failed:
  // those that it was to bring too), whatever it was made for. Requests are admitted by it, before there is a state.
  // Any thread; UINT64_MAX where it overflows. Here: the values and no more.
  virtual uint64_t state_bytes(uint64_t tokens) const { return section_bytes(shape(), tokens); }
  // What its states take together, for who holds it against what was reserved. Any thread. Here: not told.
  virtual std::optional<StateMemory> state_memory() const { return std::nullopt; }
  // What is held of the memory of its device now, for it and for others of the same Unit: weights, states, room to
  // work. Any thread. Here: it has none but the host's.
  virtual uint64_t device_bytes() const { return 0; }

  // A state at position 0, for up to tokens_max tokens. What the unit or the system would never give is refused here,
  // with kOutOfMemory that names the unit and the size; where states grow, a step may still find no memory.
  virtual Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) = 0;
  // A state as `from`, one of this executor's, was at `position`, at most its own: what it holds is shared until one of
  // both changes it, or copied, but for what it kept for rewind. kUnsupported when that cannot be told any more
  // (recurrent parts have moved on, and were not kept); kOutOfMemory. Here: a copy, of a smaller position only where
  // every segment counts tokens.
  virtual Result<std::unique_ptr<SequenceState>> fork(const SequenceState& from, uint64_t position);

  // Processes the tokens of all seats, any number of them; their states are distinct, and seats that decode come last.
  // `out`, [sum of rows_out][output width] in the order of the seats, receives their rows. Whether seats share passes
  // over the weights is the unit's affair (caps().prefill_seats_shared, decode_seats_max, mixes); a seat that prefills
  // gets the bits that it would get alone where caps().shared_prefills_exact, else is within logit_tolerance of them:
  // docs/cpu.md. A seat that cannot run is found before any has: the message names it.
  virtual Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) = 0;

  // Steps of the same seats, one after the other: the first as step; then, where all of them draw, each seat is fed
  // what it drew. Ends with the step in which one of them draws a stop id or cannot draw, with the last that `limits`
  // allows, or with an error, which is the last step's: what was drawn before it holds. `out`: rows of the first step.
  // Here: step, and the samplers one by one; a unit may have its own way to the same ids.
  virtual Status step_on(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                         const StepContext& context);

  // Steps of one seat. `out`: whole rows, those of the last tokens; empty: none wanted.
  Status prefill(SequenceState& state, std::span<const int32_t> tokens, std::span<float> out);
  Status decode(SequenceState& state, int32_t token, std::span<float> out);

  // Takes a state back to `position`, at most its own, as if no token behind it had come. kUnsupported says from where
  // to where it could go, and leaves it as it is: caps().rewind_tokens_max. Here: nowhere. For drafts, as Seat::keeps.
  virtual Status rewind(SequenceState& state, uint64_t position);

  // Finishes what load left for later, so that the next calls run at full speed: for measurements, and for idle time.
  virtual Status settle() { return {}; }

  virtual Placement placement() const = 0;

  // Of all steps so far, by layer; empty for models without experts, and for units that do not count. Any thread.
  virtual std::vector<ExpertLoad> expert_loads() const { return {}; }

  // Names what decides the bits of its results: unit, kernels, options, build. Two executors with equal names on models
  // with equal fingerprints give the same bits for the same steps from the same state: prefill calls of the same
  // tokens in the same pieces, decodes token by token; prefills alone, or together with others where
  // caps().shared_prefills_exact.
  // Threads, room in the state, memory and time do not matter. Equal is a promise, unequal is none: other names may
  // give the same bits. Constant for the executor's life, printable ASCII without spaces, from arithmetic_name().
  // is_emulated() of it is placement().emulated.
  virtual std::string arithmetic() const = 0;

 protected:
  // step_on for units whose outputs come to the host. draw_all(n, draw) calls draw(i) for each i below n, as many at
  // once as it likes.
  using DrawAll = std::function<void(size_t, const std::function<void(size_t)>&)>;
  Status step_and_draw(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                       const StepContext& context, const DrawAll& draw_all);

  LiveStates live_;  // its states: they die before it

 private:
  std::vector<float> drawn_from_;  // rows of a step of step_on
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

// Of a model's weights, as a unit that has loaded it keeps them.
struct KeptBytes {
  uint64_t all = 0;
  uint64_t experts = 0;  // of these: what may stay in the file instead, where memory is short
  uint64_t token = 0;    // and what a decode step of one token reads: matrices, of experts those that it chose
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string_view name() const = 0;
  virtual const Caps& caps() const = 0;
  // Of the host, that its threads are kept on; empty: on any.
  virtual std::span<const uint32_t> cores() const { return {}; }
  // kUnsupported: this unit makes no programs of its own.
  virtual Result<LoadPlan> plan(const Model& model) const;
  // From shapes and types; quick. Here: native formats as they are stored, others as f32.
  virtual KeptBytes kept_bytes(const Model& model) const;
  // What its device can do at most, measured at the first call (some 0.1 s, up to 1 GiB of its memory for that time),
  // then known; no model is needed, and no executor may be in a step. kUnsupported: it has no device of its own but
  // the host, whose limits others measure, or one that is emulated and has no speed. Here: that.
  virtual Result<Rate> limit(DeviceLimit which);
  // Of its device (Caps::device) now; that is opened for it, which takes some of it. kUnsupported: weights and states
  // lie in the host's memory. Here: that.
  virtual Result<DeviceRoom> device_room();
  // Slow (may convert or repack weights); never inside a request. `threads` 0: the unit's own choice. kUnsupported: a
  // Program that the unit cannot run (check_program), or what it says itself.
  Result<std::unique_ptr<Executor>> load(std::shared_ptr<const Model> model, uint32_t threads);
  // Is told while load() brings weights to a device, on its thread: bytes done, and all. Null: nobody.
  using LoadProgress = std::function<void(uint64_t done, uint64_t all)>;
  void tell_progress(LoadProgress progress) { load_progress_ = std::move(progress); }

 protected:
  const LoadProgress& load_progress() const { return load_progress_; }
  // As load(), with ops that are among caps().ops.
  virtual Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model> model, uint32_t threads) = 0;

 private:
  LoadProgress load_progress_;
};

// Shared by executors, for a LayerWatch: of each op, in the order they run, the layer whose slots no later one touches,
// or -1.
std::vector<int32_t> layers_done_behind(const Program& program, std::span<const Op* const> ops);

// Shared by executors, of each seat: token ids in range, room in the state, positions that the model knows, all of a
// text where it is seen as a whole. The message says which token or how many
// tokens, and begins with "sequence N: " when there are several. Bugs: states given twice, rows of no token, decodes of
// several tokens or before prefills, `out` of another size.
Status check_seats(const Model& model, std::span<const Seat> seats, std::span<const float> out);

}  // namespace baton
