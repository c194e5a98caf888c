// The bridge: carries a sequence state from one unit's memory to another's, and into and out of its sealed form. Knows
// states by their rows only. Everything goes by pieces that stay in cache: a piece is looked at (or read) at the
// source, searched for values that are no numbers, converted, written at the receiver, and looked at there and
// compared.
//
// Threads: a call touches only the states and bytes it is given; calls on distinct states may run side by side. With a
// crew (crew.h), and a receiver whose writes may be shared or go by stages (SequenceState::stages), its threads search,
// convert, write and compare pieces beside the caller's, from 256 KiB on; what comes of it, errors too, is the same.
// When prefill and decode run on the same executor there is nothing to carry: the engine hands the state itself over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baton/bridge/crew.h"
#include "baton/bridge/plan.h"
#include "baton/state/seal_stream.h"
#include "baton/unit/unit.h"

namespace baton {

class Mover;
struct MovePart;

struct MoveReport {
  uint64_t bytes = 0;       // of the values copied, in the sender's types
  uint64_t peer_bytes = 0;  // of these, those that went from card to card and not through the host
  double ms = 0;
  bool adopted = false;  // the memory itself changed hands: none was copied; all were searched, here or by their steps
};

// Between two executors of one model in this process, by plan_bridge. `to` is at position 0; on error it may hold a
// part: drop it.
// kCorrupt, naming the segment, when a value is NaN or infinite, or not zero in a state of no tokens, or does not come
// back from the receiver as it was written; kUnsupported when a finite value would become infinite in the receiver's
// type, or all values of a segment are below its normal numbers; kMismatch when the state is longer than `to`, or their
// shapes are of different Programs: whether two models of one shape are the same is for the caller to know;
// kOutOfMemory.
Result<MoveReport> move_state(const SequenceState& from, SequenceState& to, Crew* crew = nullptr);

// The same for a `from` that nobody needs any more, what the engine's Move work does: where `to` can adopt its memory
// no byte is copied; each is searched all the same, unless it was as it was made (SequenceState::searched). Drop `from`
// behind it.
Result<MoveReport> hand_over_state(SequenceState& from, SequenceState& to, Crew* crew = nullptr);

// What happens to the source of a StateStream behind it.
enum class StreamSource : uint8_t {
  kStays,  // it is as it was
  kGoes,   // as of hand_over_state
};

// A hand-over of a state that is still being made: rows are moved when they are what they will be, so that little is
// left behind the last step; where the memory will change hands, all is left to finish. The same checks of every piece,
// the same bytes at the receiver. One thread at a time.
class StateStream {
 public:
  // `to`, at position 0 and borrowed, is to be filled with a state of `tokens` tokens, one at least, that `from` will
  // be. Errors of move_state that show before any value. `crew` is borrowed.
  static Result<std::unique_ptr<StateStream>> begin(const SequenceState& from, SequenceState& to, uint64_t tokens,
                                                    StreamSource source = StreamSource::kStays, Crew* crew = nullptr);
  ~StateStream();

  // Of `from`, at `position` or shown there (LayerWatch), what was not moved yet of all segments, or of those of some
  // layers: keys and values of tokens; the rest when this is the last position. After an error drop `to`.
  Status move(const SequenceState& from, uint64_t position, std::span<const int32_t> layers = {});
  // After the last position, `from` at it: `to` is there. kInternal when something was left out; errors of
  // hand_over_state.
  Status finish(SequenceState& from);
  // So far.
  const MoveReport& report() const { return report_; }

 private:
  friend Result<MoveReport> move_state(const SequenceState& from, SequenceState& to, Crew* crew);
  struct Part;
  StateStream(SequenceState& to, uint64_t tokens, bool adopts, Crew* crew);
  // begin, of no tokens too.
  static Result<std::unique_ptr<StateStream>> make(const SequenceState& from, SequenceState& to, uint64_t tokens,
                                                   StreamSource source, Crew* crew);
  Status move_parts(const SequenceState& from, uint64_t position, std::span<const int32_t> layers);
  // What was not moved yet.
  void add_rows(Part& part, uint64_t position, std::vector<MovePart>& moving);

  SequenceState& to_;
  const uint64_t tokens_;
  const bool adopts_;
  Crew* const crew_;
  std::vector<Part> parts_;  // by segment
  std::unique_ptr<Mover> mover_;
  MoveReport report_;
};

// A state as a stream, segment by segment as they are ready: begin, each segment once, in any order, finish. Holds a
// piece. `state` at the position of the tokens when its segments are asked for, and what the other arguments refer to,
// are borrowed; they are such as sealed_source takes. Errors as there, and the sink's. Throws std::bad_alloc.
class StateSealer {
 public:
  StateSealer(const SequenceState& state, const StateIdentity& identity, std::span<const int32_t> tokens,
              const Provenance& provenance, SealSink sink);
  Status begin();
  Status segment(size_t index);
  Status finish();

 private:
  const SequenceState& state_;
  const uint64_t tokens_;
  SealWriter writer_;
  std::vector<std::byte> piece_;
};

// A StateSealer of a seat's state while a step brings it to its position: each layer is sent when the step tells of it,
// and what it did not tell of behind it. The sealer has begun, with the tokens and makers that there will be.
class LayerSealer final : public LayerWatch {
 public:
  LayerSealer(StateSealer& sealer, const StateShape& shape, size_t seat = 0) : sealer_(sealer), seat_(seat) {
    for (size_t i = 0; i < shape.segments.size(); ++i) left_.emplace(shape.segments[i].layer, i);
  }
  void layer_done(size_t seat, int32_t layer) override;
  // After the step: the rest, and the sealer's finish. The first error of all.
  Status finish();

 private:
  StateSealer& sealer_;
  const size_t seat_;
  std::multimap<int32_t, size_t> left_;  // segments by layer
  Status status_;
};

// A stream into a state: what a SealReader does (errors, and when they come), with its values put into `into`, which is
// at position 0 and stays as it was until header and tokens have held. After any later error drop it; it holds the
// tokens when finish has succeeded, not before. Errors of the values as of move_state. Throws std::bad_alloc.
class StateOpener final : private SealedValues {
 public:
  // Shape and position_max are taken from `into`; `bytes` as of a SealReader.
  StateOpener(SealExpectation expected, SequenceState& into, uint64_t bytes = 0);
  ~StateOpener() override;
  Status take(uint64_t offset, std::span<const std::byte> bytes) { return reader_.take(offset, bytes); }
  Result<SealedView> finish();

 private:
  struct Fill;
  Status begin(const SealedView& head) override;
  Status rows(size_t section, uint64_t first, std::span<const std::byte> values) override;

  SequenceState& into_;
  SealReader reader_;
  std::vector<SealedSection> sections_;
  std::unique_ptr<Fill> fill_;  // of the section that comes
};

// The whole state at its position, sealed in the state's own types each time the source is asked. `tokens` are the
// position() tokens it was made from; all arguments are borrowed. kInternal when the state does not keep its contract;
// errors of its values as of move_state, when it is asked. `provenance`: see SealWriter.
Result<SealSource> sealed_source(const SequenceState& state, const StateIdentity& identity,
                                 std::span<const int32_t> tokens, const Provenance& provenance);
// The same as a block in memory. kOutOfMemory.
Result<std::vector<std::byte>> seal_state(const SequenceState& state, const StateIdentity& identity,
                                          std::span<const int32_t> tokens, const Provenance& provenance = {});

// All of a source into a state, by a StateOpener. Returns the tokens the state was made from; `provenance`, where
// given, receives who made it. kOutOfMemory.
Result<std::vector<int32_t>> unseal_state(const SealSource& source, const SealExpectation& expected,
                                          SequenceState& into, Provenance* provenance = nullptr);

}  // namespace baton
