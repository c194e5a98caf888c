// A model ready to answer: text side, loaded units and a running engine, behind one call that streams text.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/calibration.h"
#include "baton/api/text_model.h"
#include "baton/api/units.h"
#include "baton/engine/engine.h"
#include "baton/state/seal.h"
#include "baton/state/state_cache.h"
#include "baton/text/detokenizer.h"
#include "baton/unit/entry.h"

namespace baton {

struct RuntimeOptions {
  std::filesystem::path model;
  std::vector<AdapterChoice> adapters = {};  // applied to it
  // To load, each as parse_unit() reads it, distinct: see make_request. Each is called what names_of() calls it.
  std::vector<std::string> units;
  uint32_t threads = 0;  // of a unit whose options say nothing; 0: the unit's choice
  EngineLimits limits;
  std::vector<const UnitEntry*> own_units = {};  // found by name before those that are built in; borrowed during open
  // A folder of states that outlive the runtime, for requests that reuse checkpoints (StateCache); empty: none.
  std::filesystem::path state_cache = {};
  uint64_t state_cache_bytes = 0;
  const StateKey* state_key = nullptr;  // of them; borrowed for the runtime's life
  FingerprintOptions fingerprint = {};  // their identity's: reading it may take as long as reading all weights
};

// CompletionRequest::on_answer's: what of the answer was shown.
struct AnswerSoFar {
  const std::string& text;
  const std::vector<int32_t>& ids;        // of the text, and of what is held back: half a character or a stop string
  const std::vector<Logprobs>& logprobs;  // one for each of `ids`; empty: not asked for
};

struct CompletionRequest {
  Request request;                 // stop_ids, sampler.banned_ids and unit names are used as given
  std::vector<std::string> stops;  // stop strings; the answer ends before the first that appears
  // Asked to show how far the prompt is, at most every 20 ms and until the first token; `total` counts the proof's own
  // prefill too. May be empty.
  std::function<void(uint64_t done, uint64_t total)> on_prefill = {};
  uint64_t start_tokens = 0;  // of request.start_state: for on_prefill
  // Behind each text that is shown, on the thread of `complete`; may start other requests. May be empty. `start`: not
  // asked.
  std::function<void(const AnswerSoFar&)> on_answer = {};
};

// Why an answer ended, finer than FinishReason.
enum class Ended : uint8_t {
  kEndToken,     // the model's own end
  kStopString,   // one of CompletionRequest::stops
  kTokenLimit,   // Request::max_new_tokens
  kContextFull,  // nothing more fits behind the prompt and the answer
  kCancelled,    // by the caller
};
std::string_view to_string(Ended ended);

struct Completion {
  std::string text;                // empty without a tokenizer
  std::vector<int32_t> ids;        // generated, the stop token not included
  std::vector<Logprobs> logprobs;  // one for each of `ids`; empty: SamplerParams::logprobs does not ask for them
  FinishReason reason = FinishReason::kStop;
  Ended ended = Ended::kEndToken;
  std::optional<size_t> stop_string = {};  // of kStopString: which of CompletionRequest::stops
  RequestStats stats;
  double load_ms = 0;           // of the runtime
  uint64_t context_tokens = 0;  // what the context holds, prompt and answer together
  // What was asked for, final since the prompt was processed, and given whatever ended the answer. Empty only when a
  // cancel came before it was made.
  std::vector<std::byte> sealed_state;
  std::vector<std::byte> answer_state;  // FinishedEvent's: after a stop string it holds more than `ids` shows
  uint64_t answer_state_tokens = 0;
  std::vector<float> logits;
  std::vector<Logprobs> prompt_logprobs;  // FinishedEvent's

  // Of the prompt what was processed: a cancel may have come before its end.
  uint64_t context_used() const {
    const bool stopped = reason == FinishReason::kCancelled && stats.generated_tokens == 0;
    return stopped ? stats.reused_tokens + stats.prefill_tokens : stats.prompt_tokens + stats.generated_tokens;
  }
};

// An answer under way, among others of one engine. Move-only; used from one thread at a time. Destroyed before its end
// it is cancelled. Must not outlive the runtime, nor be there while `prepare_proof` measures.
class Answer {
 public:
  // Waits for what comes next, at most so long, and takes all that came: `on_text` (may be empty) gets whole
  // characters. At the end, once, the completion; an engine error is the Error of the result, and the end too.
  Result<std::optional<Completion>> next(std::chrono::nanoseconds timeout,
                                         const std::function<void(std::string_view)>& on_text);
  bool begun() const { return !completion_.ids.empty(); }
  AnswerSoFar so_far() const { return {completion_.text, completion_.ids, completion_.logprobs}; }
  // The end is still to be read, as a Completion with kCancelled. Any number of times.
  void cancel() { ticket_.cancel(); }
  // The same for who goes on from what was said: what the step under way draws still comes, and a checkpoint behind it
  // is kept where the request reuses any.
  void stop();

 private:
  friend class Runtime;
  Answer(Ticket ticket, StopStrings stops) : ticket_(std::move(ticket)), stops_(std::move(stops)) {}
  Status take(TokenEvent&& token, const std::function<void(std::string_view)>& on_text);
  void show(const std::string& text, const std::function<void(std::string_view)>& on_text);
  Completion end(FinishedEvent finished, const std::function<void(std::string_view)>& on_text);

  Ticket ticket_;
  StopStrings stops_;
  bool stopped_ = false;                    // by the caller
  std::optional<Detokenizer> detokenizer_;  // empty: no text
  uint64_t tokens_max_ = 0;                 // Request::max_new_tokens
  Completion completion_;
};

// Executor::expert_loads of a unit.
struct UnitExpertLoads {
  std::string name;
  std::vector<ExpertLoad> layers;
};

// What is measured for a proof, and how far that is.
struct ProofProgress {
  std::string_view between;  // "ref -> cpu"
  bool kept = true;          // once for a model; false: of the request's own tokens
  double share = 0;          // done
};

// While a proof is prepared. Both may be empty.
struct ProofEvents {
  std::function<bool(const ProofProgress& now)> on_progress;  // false: stop, with kCancelled
  // What cannot be proven and why, and what was found in a file that was not used.
  std::function<void(const std::string& text)> on_note;
};

// Owned and used from one thread; the engine below has its own.
class Runtime {
 public:
  // kOutOfMemory also when the system refuses a thread. Errors of StateCache::open.
  static Result<std::unique_ptr<Runtime>> open(const RuntimeOptions& options);
  // Ends the engine. What a unit that hangs still uses stays in memory until the process ends (Engine::close).
  ~Runtime();

  // Those it was opened with, by the names that requests give them.
  std::vector<NamedUnit> units() const;
  // Names of those that are emulated: times that they give are the emulator's.
  std::vector<std::string> emulated_units() const;
  // Of memory of devices, by all its units now: Executor::device_bytes.
  uint64_t device_bytes() const;
  // Of its units together: notes_of().
  const std::vector<std::string>& unit_notes() const { return unit_notes_; }
  // Of all that ran so far, by units that count; empty for models without experts.
  std::vector<UnitExpertLoads> expert_loads() const;
  const TextModel& text() const { return text_; }
  const Model& model() const { return *text_.model; }
  Engine& engine() { return *engine_; }
  const StateCache* state_cache() const { return state_cache_.get(); }
  // Engine::save_checkpoints: nothing more can be asked then.
  Status save_checkpoints(const std::function<bool(uint64_t done, uint64_t total)>& on_progress = {});
  // Of the states it seals and opens. The first call may read all weights: Model::fingerprints().
  Result<StateIdentity> identity(const FingerprintOptions& options = {}) const;
  double load_ms() const { return load_ms_; }  // files and units
  // Prompt and answer together: the model's, or less when RuntimeOptions::limits says so.
  uint64_t context_tokens() const;
  // Those that were given, states held to the memory of the units' devices (state_room).
  const EngineLimits& limits() const { return engine_options_.limits; }

  // A request with everything filled in that has a default: this model's stop and padding ids, and the units: the last
  // of RuntimeOptions::units that decodes, after a prefill on the first, by hand-over when these are two.
  Request make_request(std::vector<int32_t> tokens) const;
  // As encode_text.
  Result<std::vector<int32_t>> encode(std::string_view text, bool parse_special, TextPlace place) const;
  // Messages through the chat template; nothing in their contents becomes a control token.
  Result<std::vector<int32_t>> encode_chat(const ChatInput& input) const;

  // For a request that asks for the proof: gives it the bounds it needs, from the model's file of bounds or measured
  // now and kept there. What cannot be had stays empty, and is noted: the request
  // runs and its stats say what could not be proven. Measuring stops the engine and starts it again: no ticket may be
  // out, and references to the engine end. An error: the measuring itself failed.
  Status prepare_proof(Request& request, const ProofEvents& events = {});

  // Engine::goes_on.
  bool goes_on() const { return engine_->goes_on(); }

  // Submits a request and returns at once; its `on_prefill` is not asked. Errors are those of Engine::submit and of the
  // stop strings. An engine that ended for want of memory is begun anew once all its answers are gone, without what it
  // kept: references to it end, and its usage counts from zero. Throws std::bad_alloc.
  Result<Answer> start(CompletionRequest request);
  // Runs to the end. `on_text` gets whole characters as they come; `cancelled` is asked at least every 20 ms, and a
  // cancelled answer is a Completion with kCancelled. An engine error is the Error of the result.
  Result<Completion> complete(CompletionRequest request, const std::function<void(std::string_view)>& on_text,
                              const std::function<bool()>& cancelled);

 private:
  struct Loaded {
    std::unique_ptr<Unit> unit;
    std::unique_ptr<Executor> executor;
    std::string asked;  // UnitChoice::text()
  };
  explicit Runtime(TextModel text) : text_(std::move(text)) {}
  Status open_cache(const RuntimeOptions& options);
  // Ends the engine and lets go of units that hang: false where there were any.
  bool end_engine();
  bool close_engine();  // the same, but that it stays, to be asked
  Status begin_engine_anew();
  Loaded* find_unit(std::string_view name);
  // Gives back what of the bounds is `prefill`'s, when it had a hand in the starting state.
  Result<std::optional<ProofBounds>> prepare_start(Request& request, const StateMaker& prefill,
                                                   const std::function<void(const std::string&)>& note,
                                                   const ProofEvents& events);
  Status prepare_via(Request& request, const StateMaker& prefill, const StateMaker& via, uint64_t held,
                     const std::function<void(const std::string&)>& note, const ProofEvents& events);
  Executor* maker_here(const StateMaker& maker, Loaded& decode, Loaded& fresh,
                       const std::function<void(const std::string&)>& note);
  Status open_store(const std::function<void(const std::string&)>& note);
  // Of a state that holds the first `position` of the tokens: the bounds of the model's file, measured now when it has
  // none; for a short one also what the two units differ by on these tokens. Nothing, with a note, when the maker
  // cannot run here.
  Result<std::optional<ProofBounds>> bounds_of(const StateMaker& maker, const std::string& decode_unit,
                                               std::span<const int32_t> tokens, uint64_t position,
                                               const std::function<void(const std::string&)>& note,
                                               const ProofEvents& events);

  TextModel text_;
  double load_ms_ = 0;
  uint64_t tokens_max_ = 0;
  std::filesystem::path path_;
  uint32_t threads_ = 0;
  std::vector<std::vector<int32_t>> sequences_;  // of the calibration; empty: not made yet
  std::optional<BoundsStore> store_;
  std::unique_ptr<StateCache> state_cache_;
  EngineOptions engine_options_;
  std::vector<std::pair<std::string, Loaded>> units_;
  std::vector<std::string> unit_notes_;
  std::unique_ptr<Engine> engine_;  // last: destroyed first
};

}  // namespace baton
