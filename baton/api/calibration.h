// The bounds of the bridge proof, by measurement: what honest states of one unit and another differ by on this model,
// over fixed sequences, times kBoundFactor. Measured once for a pair and kept in a small file beside the model. What is
// measured, what it shows and what it does not is in docs/proof.md.
//
// Executors given here are used on the caller's thread: no engine may be running on them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/text_model.h"
#include "baton/bridge/compare.h"
#include "baton/model/model.h"
#include "baton/unit/unit.h"

namespace baton {

// A bound is this times the largest honest difference that was seen of its segment, or of the logits.
inline constexpr double kBoundFactor = 3;

// What the differences are taken over: a text of many kinds (without a tokenizer, pseudo-random ids) as long as the
// context holds, and 16 pieces of it, of 20 to 80 tokens.
std::vector<std::vector<int32_t>> calibration_sequences(const TextModel& text);
// Changes when a sequence does.
uint64_t digest_sequences(const std::vector<std::vector<int32_t>>& sequences);

// The most that a segment of theirs differs by, as a share of its size; and from where on two states have nothing in
// common: zeros differ from a state by all of its size, another's state by more.
double largest_share(const ProofBounds& honest);
inline constexpr double kNothingInCommon = 0.9;

// With the share that is done, 0 to 1 (of states both are told); false: stop, with kCancelled.
using CalibrationProgress = std::function<bool(double)>;

// The largest honest difference (not yet times the factor) between states of `maker`, moved to `decode`, and those that
// `decode` makes itself, at lengths from 1 token to the whole of the first sequence, and at the whole of the others;
// and of the logits and states of rows that are decoded behind. With one executor for both: between a state decoded
// token by token and one prefilled, the widest that its own steps can differ: nothing at all where they give the same
// bits. Otherwise a difference is taken to be at least one step of the type that `decode` keeps. `between` is left
// empty. kInternal: they have nothing in common.
Result<ProofBounds> measure_states(Executor& maker, Executor& decode,
                                   const std::vector<std::vector<int32_t>>& sequences,
                                   const CalibrationProgress& progress = nullptr);

// The same at one length of one sequence: of this prompt, of which the state holds the first `position` tokens, at
// least one and not all. A few tokens that no text begins with can make states differ ten times as much as those of
// text do (SmolLM2-135M: logits by 5.4 after two random ids, by 0.4 in text): bounds from text alone would call honest
// ones wrong, and bounds wide enough for these would pass forged ones of all others.
Result<ProofBounds> measure_states_at(Executor& maker, Executor& decode, std::span<const int32_t> tokens,
                                      size_t position, const CalibrationProgress& progress = nullptr);
// From here on a state is like those of text: more tokens than that need no measurement of their own.
inline constexpr size_t kOwnPositionMax = 64;

// Of a sequence that answers are measured over: all its logits are kept at once.
inline constexpr size_t kAnswerTokensMax = 64;

// How far `decode`, after `prefill`'s prompts (it may be the same), and `reference` are apart in what decides a greedy
// choice, over all rows of the sequences. A margin is what the reference's highest logit has over another; one that
// chooses another id, honestly, has that margin wrong by at least all of it.
struct MarginBounds {
  double largest = 0;       // honest difference of a margin over the 7 next ids (not yet times kBoundFactor)
  double wrong_choice = 0;  // the reference's own median margin over its 31st id: what a bound must not reach
  bool useful() const { return kBoundFactor * largest < wrong_choice; }
};
Result<MarginBounds> measure_margins(Executor& prefill, Executor& decode, Executor& reference,
                                     const std::vector<std::vector<int32_t>>& sequences,
                                     const CalibrationProgress& progress = nullptr);

// The measurements of one model, over sequences of this digest. A file that is damaged, or of another model or format,
// is not used and written anew; `note` says why.
class BoundsStore {
 public:
  // `model`: the file or folder of the weights. The bounds lie beside it, "<file>.bounds.json" or
  // "<folder>/bounds.json", or, where that cannot be written, in the cache folder of the user.
  static BoundsStore open(const std::filesystem::path& model, const Fingerprints& prints, uint64_t sequences);

  // Of the units of these arithmetics (Executor::arithmetic); null when it was not measured. `kind`: kStates, or
  // kMargins: MarginBounds::largest as the logits' largest, nothing else.
  static constexpr std::string_view kStates = "states", kMargins = "margins";
  std::optional<ProofBounds> find(std::string_view kind, const std::string& from, const std::string& to) const;
  // Replaces what is known of the pair, and writes the file. On an error the measurement is kept in memory.
  Status add(std::string_view kind, const std::string& from, const std::string& to, const ProofBounds& honest);

  const std::filesystem::path& file() const { return file_; }  // read from, or last written
  const std::string& note() const { return note_; }            // empty: nothing to say

 private:
  struct Entry {
    std::string kind, from, to, sequences;
    ProofBounds honest;
  };
  Status read(const std::filesystem::path& path);
  std::string text() const;

  std::vector<std::filesystem::path> places_;
  Fingerprints prints_;
  uint64_t sequences_ = 0;
  std::vector<Entry> entries_;
  std::filesystem::path file_;
  std::string note_;
};

}  // namespace baton
