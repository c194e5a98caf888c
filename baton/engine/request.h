// What a user of the engine gives and gets: a Request of token ids in, Events out. Text does not exist here.
// A request ends exactly once, with one FinishedEvent, whatever happens to units, bridge or caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/base/status.h"
#include "baton/bridge/bridge.h"
#include "baton/bridge/checkpoint.h"
#include "baton/bridge/compare.h"
#include "baton/sample/sampler.h"

namespace baton {

using RequestId = uint64_t;

// The bridge proof: a state that came from elsewhere (another unit, or a sealed starting state) is compared with one
// that the decode unit made wholly by itself from the same tokens: first the states, part by part, where the foreign
// one came in (a starting state at its own position, and at the hand-over), then the logits both lead to
// (bridge/compare.h). All must lie within bounds that were measured for the maker, the decode unit and the model
// beforehand (api/calibration.h) and come with the request. Where they are zero, as where a unit hands over to itself,
// the decode unit repeats the calls that made the state (its provenance), and the bits must be the same.
enum class VerifyMode : uint8_t {
  kOff,     // no proof: a seal is checked, and what is moved is read back, as always
  kSample,  // the states, and the logits after the last prompt token
  kAll,     // the same, and the logits behind each generated token; both states go on in step
};
std::string_view to_string(VerifyMode mode);
// "off", "sample" or "all"; kInvalidInput names the three.
Result<VerifyMode> parse_verify_mode(std::string_view text);

// Whether a request begins from a checkpoint of an earlier one that began with the same tokens, and leaves some itself.
enum class ReuseMode : uint8_t {
  kOff,
  kExact,  // of states that the same unit made by prefills alone, cut at multiples of 64 tokens: no bit of an answer
           // shows it, where the unit's prefills are exact in such pieces (docs/cpu.md)
  kAny,    // the longest there is: also of answers, whose tokens were decoded, and of other units
};
std::string_view to_string(ReuseMode mode);

inline constexpr uint32_t kWeightMax = 1000;

struct Request {
  std::vector<int32_t> tokens;    // the prompt, at least one id
  uint32_t max_new_tokens = 256;  // cut to what the context still holds; 0: only the prompt is processed
  SamplerParams sampler;
  std::vector<int32_t> stop_ids;  // the answer ends when one of these is sampled; it is not part of the answer
  bool ignore_eos = false;        // stop_ids do not stop: they are tokens like others

  std::string prefill_unit;  // empty: the decode unit
  std::string via_unit;      // decodes the first tokens, where the strategy hands over twice; empty elsewhere
  std::string decode_unit;   // a name in EngineOptions::units
  std::string strategy;  // a name in strategy_list.inc; empty: the first that hands over as often as the units ask for
  VerifyMode verify = VerifyMode::kOff;
  // What the proof allows: of states that the prefill unit, and then the via unit, hand to the decode unit; of those
  // that the prefill unit hands to the via unit (neither is needed between a unit and itself); and of `start_state`'s
  // makers; their sum at the hand-over of what began with `start_state`. One that is needed and missing: nothing is
  // proven, and the stats say so.
  std::optional<ProofBounds> move_bounds = {}, via_bounds = {}, start_bounds = {};

  // Checkpoints; off where a proof is asked for: it says what the answer rests on. With a starting state the request
  // begins from that alone, and leaves checkpoints.
  ReuseMode reuse = ReuseMode::kOff;
  uint64_t tenant = 0;  // checkpoints of another's requests are neither used nor seen in times; shares, below
  // Where others may go on: ends of messages, say; positions in `tokens`. Kept there, a little before, and at the end
  // of the prompt, as far as the cache has room.
  std::vector<uint64_t> keep_at = {};
  // Not 0: nobody has said yet that its tokens will be asked for, a question that is still being typed, say. What it
  // leaves is for one that does: of all that requests of one such number left, the last few stay (a turn that begins
  // from one makes it like any other), and none goes into a folder before.
  uint64_t passing = 0;

  // Who is next, of those that wait to be let in and of works that wait for a lane:
  // - a higher priority goes before a lower one;
  // - of one priority, tenants get shares by their weights (engine/fair_shares.h): of a lane's time; of seats and
  // memory
  //   and, where they hold as much, of the tokens let in, prompt and longest answer. A tenant's weight is that of its
  //   latest request. In its share it is served in turn, a prefill step after EngineLimits::decode_steps_per_prefill
  //   decode steps;
  // - of one tenant, the earliest deadline, then the first that came;
  // - but who was passed over EngineLimits::overtaken_max times is next: nothing starves.
  // Where the next one to be let in lacks a seat or memory, running ones of a lower priority, or of a tenant that holds
  // more than its share, are set aside: from a checkpoint within the bounds, or from the tokens where the prompt was
  // not done, they go on later, with the same bits. Not those with a proof, or a seal that is due.
  int32_t priority = 0;
  uint32_t weight = 1;  // up to kWeightMax
  // By the engine's clock. Behind it the request ends with kDeadline, as a cancel would end it.
  int64_t deadline_ns = INT64_MAX;

  // A sealed state to go on from; empty: none. Its tokens must be a proper prefix of `tokens`, else the request ends
  // with kMismatch; one that fails verification ends it with kCorrupt, one that cannot be read with the source's error.
  // It is never worked around. The source is asked on the bridge's thread, piece by piece, once each time the state is
  // opened (again after a proof of it, or a fall-back), and let go of when it is not needed again.
  SealSource start_state;
  // Both are final before the answer goes on, and are given whatever ends it, but for an error. A cancel that comes
  // before they are made leaves them empty; `Ticket::stop` does not once a token has come.
  bool want_sealed_state = false;  // FinishedEvent::sealed_state: the state after the whole prompt (position = prompt)
  // The same state, live: asked once, on the bridge's thread, while the request and what else the bridge has to carry
  // wait; `state` ends with the call. An error of it ends the request. What it uses lives until the FinishedEvent came
  // or, where the ticket goes before, as long as the engine.
  SealTaker seal_to;
  // FinishedEvent::answer_state: the state at the end of the answer. A cancel then ends the answer instead of dropping
  // it: the tokens of the step in flight still come, and the state with them. Empty when it could not be sealed: the
  // answer stands.
  bool want_answer_state = false;
  bool want_logits = false;  // FinishedEvent::logits: the row after the last prompt token, before sampling
  // FinishedEvent::prompt_logprobs, beside so many alternatives (kLogprobsMax): of all tokens of the prompt but the
  // first, as the prefill unit finds them. All of them are prefilled then, alone: no checkpoint is used or left, and
  // neither a starting state nor a proof can be had beside it. Each row of logits is one more run of the output head.
  std::optional<uint32_t> prompt_logprobs = {};
};

// Who was asked to do a phase, who did it, and how that is known.
struct PhaseStats {
  std::string unit;          // by the name that the request gave it
  std::string asked;         // with the options that it was asked for with (EngineUnit::asked)
  std::string ran;           // empty: the phase did not run
  std::string evidence;      // the executor's own words, or why the phase did not run
  std::string warning = {};  // what was asked for and not given, in the executor's words; empty: nothing
  bool emulated = false;     // on another device than the unit stands for

  // The unit that was asked for ran, whatever its options.
  bool ran_as_asked() const { return !ran.empty() && asked.substr(0, asked.find(':')) == ran; }
};

// What is known of the state that the answer was decoded from.
enum class BridgeLevel : uint8_t {
  kNone,    // nothing was carried, or what was carried was not used
  kSealed,  // a saved state: its seal held; a move: every piece was read back from the receiver as it was written; an
            // adoption: every value was searched
  kProven,  // the decode unit recomputed it and found it within the bounds
};
std::string_view to_string(BridgeLevel level);

// How the state came to the decode unit.
enum class BridgeKind : uint8_t {
  kNone,   // it was made there
  kAlias,  // handed over on one unit: nothing moved
  kMove,   // over the bridge, piece by piece
  kAdopt,  // to a unit whose states have memory alike: it changed hands, nothing was copied
  kOpen,   // from a saved state
};
std::string_view to_string(BridgeKind kind);

// Of the carrying of states. `verified`: the state that was decoded from reached the level that was asked for.
struct BridgeStats {
  BridgeKind kind = BridgeKind::kNone;
  uint64_t bytes = 0;       // of the values copied, and of the seal opened
  uint64_t peer_bytes = 0;  // of these, those that went from card to card and not through the host
  double ms = 0;            // of the moves and adoptions, and of checking and opening the seal
  double hidden_ms = 0;     // of it, while the prefill unit computed: nobody waited for that
  BridgeLevel level = BridgeLevel::kNone;
  bool verified = false;
  std::string unproven;  // why nothing could be proven although it was asked for; empty: it was not asked, or tried
  bool proof_failed = false;
  std::string between;     // whose states the proof compared with whose, when it was tried; see ProofBounds
  uint64_t states = 0;     // compared
  WorstPart worst;         // of them
  std::string worst_at;    // its name: "layer 3 keys head 1"
  uint64_t checked = 0;    // logits rows compared by the proof; the rest is over these
  uint64_t agreed = 0;     // rows with the same largest logit
  uint64_t near_ties = 0;  // disagreeing rows that the bounds explain
  double max_rms_dlogit = 0, max_abs_dlogit = 0, max_kl = 0;
  LogitsBounds logits;
  void moved(const MoveReport& report) {
    kind = report.adopted ? BridgeKind::kAdopt : BridgeKind::kMove;
    bytes += report.bytes;
    peer_bytes += report.peer_bytes;
    ms += report.ms;
  }
  double hidden_share() const { return ms > 0 ? hidden_ms / ms : 0; }
  // Share of agreeing rows, 1 when none was checked.
  double agreement() const { return checked == 0 ? 1.0 : static_cast<double>(agreed) / static_cast<double>(checked); }
};

// What the time to the first token went to, in the order of the clock: the parts add up to ttft_ms. Steps that overlap
// (a proof beside the prefill) count for what they add.
struct FirstTokenTimes {
  double queue_ms = 0;         // from submit to the first step planned
  double waiting_ms = 0;       // for lanes that were busy with others, and for threads to take over
  double prefill_ms = 0;       // of the state the answer began with
  double move_ms = 0;          // hand-over, or opening a saved state
  double keep_ms = 0;          // checkpoints that it leaves for others
  double proof_ms = 0;         // the decode unit's own state, for the proof, and comparing the two
  double first_decode_ms = 0;  // the last prompt token; a unit's one-off work at its first steps is inside
  double sum() const { return queue_ms + waiting_ms + prefill_ms + move_ms + keep_ms + proof_ms + first_decode_ms; }
};

struct RequestStats {
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;     // of the prompt, from the starting state or a checkpoint
  uint64_t cached_tokens = 0;     // of these, from a checkpoint
  std::string cached_in = {};     // the file of the state cache that it was in; empty: in memory
  uint64_t kept_checkpoints = 0;  // made by this request
  // What rounding at rest (EngineLimits::checkpoint_bf16) made of the checkpoint that it began from, and the most of
  // those that it left; empty: nothing was rounded, or, of one from a file, it is not known.
  std::optional<RoundingError> cached_rounding = {}, kept_rounding = {};
  double restore_ms = 0;          // of the checkpoint, into the state
  std::string reuse_failed = {};  // why a checkpoint that was found could not be used: all was prefilled
  // How often it began again after a failure, which `fallback` tells; at last from a checkpoint of so many tokens, its
  // own or the one it began from. 0: from the first.
  uint64_t restarts = 0, restarted_at = 0;
  // Tokens of the answer that were there when it did, and were prefilled then: what a prefill makes of them need not
  // have the bits of the decode steps before.
  uint64_t prefilled_answer = 0;
  uint64_t generated_tokens = 0;  // TokenEvents sent
  uint64_t via_tokens = 0;        // of them, by the via unit
  // How often it was set aside for others, how long, and tokens that were prefilled again for want of a checkpoint.
  uint64_t preempted = 0, recomputed_tokens = 0;
  double aside_ms = 0;
  double queue_ms = 0;          // from submit to the first step planned
  double ttft_ms = 0;           // from submit to the first token sampled
  std::vector<float> token_ms;  // of each further token, since the one before it
  FirstTokenTimes first_token;  // of which it consists
  uint64_t prefill_tokens = 0;  // tokens processed by the phase that was used, the last prompt token not included
  double prefill_ms = 0;        // time its steps took, those that other requests shared included
  double prefill_tps = 0;
  // Tokens after the first, over the time from the first to the last; of the decode unit from the via unit's last on,
  // the hand-over included.
  double via_tps = 0, decode_tps = 0;
  double total_ms = 0;
  PhaseStats prefill, via, decode;  // via: `asked` is empty where there is none
  BridgeStats bridge;
  std::string fallback;  // empty: as asked; else why the decode unit had to do more than asked

  // A unit that had a part in it is: its figures are no device's.
  bool emulated() const { return prefill.emulated || via.emulated || decode.emulated; }
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kDeadline, kError };
std::string_view to_string(FinishReason reason);

struct TokenEvent {
  int32_t id = 0;
  uint32_t index = 0;                     // 0 for the first token of the answer
  int64_t time_ns = 0;                    // of the engine's clock
  std::optional<Logprobs> logprobs = {};  // where SamplerParams::logprobs asks for them
};

struct FinishedEvent {
  FinishReason reason = FinishReason::kError;
  Error error;           // when kError or kDeadline
  int32_t stop_id = -1;  // when kStop: the id that stopped it
  RequestStats stats;
  std::vector<std::byte> sealed_state;
  // Of the first `answer_state_tokens` of prompt and answer: all of them, or all but the last when the answer did not
  // end with a stop id (it was sampled, and no step has processed it).
  std::vector<std::byte> answer_state;
  uint64_t answer_state_tokens = 0;
  std::vector<float> logits;
  std::vector<Logprobs> prompt_logprobs = {};  // of tokens 1, 2, ... of the prompt; whole, or empty: it was not done
};

using Event = std::variant<TokenEvent, FinishedEvent>;

}  // namespace baton
