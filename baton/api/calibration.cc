// Measuring: two units side by side over the same tokens.
#include "baton/api/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "baton/base/highest.h"
#include "baton/base/random.h"
#include "baton/bridge/bridge.h"

namespace baton {
namespace {

// Prose, figures, code, lists, other scripts and repetition: what prompts are made of. A change of it is a new
// calibration.
constexpr std::string_view kText =
    "The bridge was built in 1874 and rebuilt twice since, after the floods of 1910 and 1955. It carries two lanes, a "
    "tramway and, below the deck, the pipes of the old waterworks. Nobody remembers who laid the first stone.\n\n"
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / "
    "len(values)\n\n"
    "1. Measure twice, cut once.\n2. 3.14159, 2.71828, 1.41421 and -273.15 are numbers.\n3. A, b, C; (d) [e] {f} "
    "<g>!?\n\n"
    "\"What is a compiler?\" she asked. \"A program that reads a program and writes another one,\" he said, \"and "
    "complains.\"\n\n"
    "Die Br\xc3\xbc"
    "cke tr\xc3\xa4gt zwei Gleise. Le pont est ferm\xc3\xa9 l'hiver. "
    "\xd0\x9c\xd0\xbe\xd1\x81\xd1\x82 \xd1\x81\xd1\x82\xd0\xbe\xd0\xb8\xd1\x82. "
    "\xe6\xa9\x8b\xe3\x81\xaf\xe9\x95\xb7\xe3\x81\x84\xe3\x80\x82\n\n"
    "no no no no no no no no yes yes yes yes maybe maybe maybe\n\n"
    "{\"name\": \"bridge\", \"length_m\": 412, \"open\": true, \"lanes\": [1, 2]}\n";

constexpr size_t kTextTokens = 256, kPieces = 16;
constexpr uint64_t kRandomSeed = 20240229;
constexpr size_t kRows = 4;  // decoded behind each length

using Sequences = std::vector<std::vector<int32_t>>;
using State = std::unique_ptr<SequenceState>;

// Lengths at which a sequence of `count` tokens is looked at, with room for the rows behind the last.
std::vector<size_t> lengths_of(size_t count, bool once) {
  std::vector<size_t> lengths;
  if (count <= kRows) return lengths;
  const size_t last = count - kRows;
  for (size_t length = 1; !once && length < last; length = length < 3 ? length + 1 : 2 * length - 1)
    lengths.push_back(length);
  lengths.push_back(last);
  return lengths;
}

uint64_t tokens_of(const Sequences& sequences) {
  uint64_t sum = 0;
  for (const auto& ids : sequences) sum += ids.size();
  return sum;
}

// Counts the tokens done, and asks whether to go on.
Status tell(const CalibrationProgress& progress, double share) {
  if (!progress || progress(share)) return {};
  return fail(Code::kCancelled, "the calibration was interrupted");
}

class Counter {
 public:
  Counter(const CalibrationProgress& progress, const Sequences& sequences)
      : progress_(progress), all_(std::max<uint64_t>(tokens_of(sequences), 1)) {}
  Status done(uint64_t tokens) {
    done_ += tokens;
    return tell(progress_, std::min(1.0, static_cast<double>(done_) / static_cast<double>(all_)));
  }

 private:
  const CalibrationProgress& progress_;
  const uint64_t all_;
  uint64_t done_ = 0;
};

// One sequence through both units.
class Pair {
 public:
  Pair(Executor& maker, Executor& decode)
      : maker_(maker), decode_(decode), width_(static_cast<size_t>(decode.model().program.output_width)) {}

  Status run(std::span<const int32_t> ids, bool once, Counter& counter) {
    BATON_TRY(const State made, maker_.new_state(ids.size()));
    BATON_TRY(const State own, decode_.new_state(ids.size()));
    size_t done = 0;
    for (const size_t length : lengths_of(ids.size(), once)) {
      const auto piece = ids.subspan(done, length - done);
      BATON_OK(make(*made, piece));
      BATON_OK(decode_.prefill(*own, piece, {}));
      BATON_OK(look(*made, *own, ids, length));
      BATON_OK(counter.done(length - done));
      done = length;
    }
    return counter.done(ids.size() - done);  // the rows behind the last length
  }

  Status run_at(std::span<const int32_t> ids, size_t length, const CalibrationProgress& progress) {
    BATON_OK(tell(progress, 0));
    BATON_TRY(const State made, maker_.new_state(length + kRows));
    BATON_TRY(const State own, decode_.new_state(length + kRows));
    BATON_OK(make(*made, ids.first(length)));
    BATON_OK(decode_.prefill(*own, ids.first(length), {}));
    BATON_OK(look(*made, *own, ids, length));
    BATON_OK(tell(progress, 1.0 / 3));
    // The last token may have been decoded, as in a saved prompt: of a few tokens it is much, and its arithmetic may be
    // another one.
    BATON_TRY(const State ended, decode_.new_state(length + kRows));
    BATON_OK(end_with_decode(decode_, *ended, ids.first(length)));
    BATON_OK(look(*made, *ended, ids, length));
    BATON_OK(tell(progress, 2.0 / 3));
    BATON_TRY(const State made_so, maker_.new_state(length + kRows));
    const Status decoded = end_with_decode(maker_, *made_so, ids.first(length));
    if (!decoded && decoded.error().code == Code::kUnsupported) return tell(progress, 1);  // it only prefills
    BATON_OK(decoded);
    BATON_OK(look(*made_so, *ended, ids, length));
    return tell(progress, 1);
  }

  // A unit whose steps all give the same bits has no difference to itself; all else may round a value either way.
  ProofBounds honest() const {
    ProofBounds all = honest_;
    if (&maker_ == &decode_ && all.exact()) return all;
    for (size_t slot = 0; slot < all.segments.size(); ++slot) {
      SegmentBounds& each = all.segments[slot];
      const SegmentBounds step = steps_.of(slot);
      each.rms = std::max(each.rms, step.rms);
      each.head.rms = std::max(each.head.rms, step.head.rms);
      each.head.largest = std::max(each.head.largest, step.head.largest);
    }
    return all;
  }

 private:
  static Status end_with_decode(Executor& unit, SequenceState& state, std::span<const int32_t> ids) {
    if (ids.size() > 1) BATON_OK(unit.prefill(state, ids.first(ids.size() - 1), {}));
    return unit.decode(state, ids.back(), {});
  }

  Status make(SequenceState& state, std::span<const int32_t> piece) {
    if (&maker_ != &decode_) return maker_.prefill(state, piece, {});
    for (const int32_t token : piece) BATON_OK(maker_.decode(state, token, {}));
    return {};
  }

  Status look(const SequenceState& made, const SequenceState& own, std::span<const int32_t> ids, size_t length) {
    BATON_TRY(const State moved, decode_.new_state(length + kRows));
    BATON_OK(move_state(made, *moved));
    BATON_TRY(const State beside, decode_.fork(own, own.position()));
    honest_.cover(compare_states(*moved, *beside));
    steps_.cover(one_step(*beside));
    std::vector<float> theirs(width_), mine(width_);
    int32_t token = ids[length];  // then the unit's own choices, as in an answer
    for (size_t row = 0; row < kRows; ++row) {
      BATON_OK(decode_.decode(*moved, token, theirs));
      BATON_OK(decode_.decode(*beside, token, mine));
      honest_.cover(compare_logits(theirs, mine));
      token = static_cast<int32_t>(index_of_highest(mine));
    }
    honest_.cover(compare_states(*moved, *beside));
    return {};
  }

  Executor& maker_;
  Executor& decode_;
  const size_t width_;  // of a row of logits
  ProofBounds honest_, steps_;
};

Status not_numbers() {
  return fail(Code::kCorrupt,
              "calibration: a unit made values that are not numbers, or zeros where the other did not: this model does "
              "not fit the two units");
}

Status finite(const ProofBounds& honest) {
  bool good =
      std::isfinite(honest.logits.rms) && std::isfinite(honest.logits.largest) && std::isfinite(honest.logits.kl);
  for (const SegmentBounds& each : honest.segments) {
    good = good && std::isfinite(each.rms) && std::isfinite(each.head.rms) && std::isfinite(each.head.largest);
  }
  return good ? Status() : not_numbers();
}

// Rows of one unit's logits beside the reference's.
class Margins {
 public:
  Status add(std::span<const float> row, std::span<const float> wanted) {
    std::vector<size_t> order(wanted.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto higher = [&](size_t a, size_t b) { return wanted[a] > wanted[b]; };
    const size_t ranks = std::min(kWrongRank, order.size());
    for (const size_t i : order) {
      if (!std::isfinite(row[i]) || !std::isfinite(wanted[i])) return not_numbers();
    }
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(ranks), order.end(), higher);
    const auto margin = [&](std::span<const float> of, size_t rank) {
      return static_cast<double>(of[order[0]]) - static_cast<double>(of[order[rank]]);
    };
    for (size_t rank = 1; rank < std::min(kNearRanks, ranks); ++rank) {
      largest_ = std::max(largest_, std::abs(margin(row, rank) - margin(wanted, rank)));
    }
    wrong_.push_back(margin(wanted, ranks - 1));
    return {};
  }

  MarginBounds bounds() {
    if (wrong_.empty()) return {};
    const auto middle = wrong_.begin() + static_cast<ptrdiff_t>(wrong_.size() / 2);
    std::nth_element(wrong_.begin(), middle, wrong_.end());
    return {largest_, *middle};
  }

 private:
  static constexpr size_t kNearRanks = 8, kWrongRank = 31;
  double largest_ = 0;
  std::vector<double> wrong_;
};

}  // namespace

Sequences calibration_sequences(const TextModel& text) {
  const auto context = static_cast<size_t>(std::max(text.model->spec.context_max, 1));
  const auto vocab = static_cast<uint64_t>(text.model->program.vocab);
  Sequences sequences;
  if (text.tokenizer) {
    if (auto ids = encode_text(text, kText, false, TextPlace::kStart)) sequences.push_back(std::move(*ids));
    if (!sequences.empty()) sequences[0].resize(std::min({sequences[0].size(), kTextTokens, context}));
  }
  if (sequences.empty()) {
    Random random(kRandomSeed);
    sequences.emplace_back(std::min(kTextTokens, context));
    for (int32_t& id : sequences[0]) id = static_cast<int32_t>(random.below(vocab));
  }
  const size_t whole = sequences[0].size();
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t count = 16 + 4 * i + kRows;
    if (count > whole) break;
    const auto begin = sequences[0].begin() + static_cast<ptrdiff_t>((whole - count) * i / kPieces);
    sequences.emplace_back(begin, begin + static_cast<ptrdiff_t>(count));
  }
  return sequences;
}

uint64_t digest_sequences(const Sequences& sequences) {
  std::vector<int32_t> all;
  for (const auto& ids : sequences) {
    all.push_back(static_cast<int32_t>(ids.size()));
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return digest_tokens(all);
}

double largest_share(const ProofBounds& honest) {
  double largest = 0;
  for (const SegmentBounds& segment : honest.segments) largest = std::max(largest, segment.rms);
  return largest;
}

Result<ProofBounds> measure_states(Executor& maker, Executor& decode, const Sequences& sequences,
                                   const CalibrationProgress& progress) try {
  Counter counter(progress, sequences);
  BATON_OK(counter.done(0));
  Pair pair(maker, decode);
  for (size_t i = 0; i < sequences.size(); ++i) BATON_OK(pair.run(sequences[i], i > 0, counter));
  const ProofBounds honest = pair.honest();
  BATON_OK(finite(honest));
  if (const double share = largest_share(honest); share >= kNothingInCommon)
    return fail(
        Code::kInternal,
        fmt::format("states of the same text differ by {:.0f} % of their size: one of the two units is at fault "
                    "(`baton bench --unit NAME` holds one to ref)",
                    share * 100));
  return honest;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "calibration: no memory for its states");
}

Result<ProofBounds> measure_states_at(Executor& maker, Executor& decode, std::span<const int32_t> tokens,
                                      size_t position, const CalibrationProgress& progress) try {
  BATON_CHECK(position > 0 && position < tokens.size());
  Pair pair(maker, decode);
  BATON_OK(pair.run_at(tokens, position, progress));
  const ProofBounds honest = pair.honest();
  BATON_OK(finite(honest));
  return honest;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "calibration: no memory for its states");
}

Result<MarginBounds> measure_margins(Executor& prefill, Executor& decode, Executor& reference,
                                     const Sequences& sequences, const CalibrationProgress& progress) try {
  const auto width = static_cast<size_t>(decode.model().program.output_width);
  Margins margins;
  Counter counter(progress, sequences);
  for (const auto& ids : sequences) {
    if (ids.size() < 2) continue;
    const std::span<const int32_t> all(ids.data(), std::min(ids.size(), kAnswerTokensMax));
    const size_t prompt = all.size() / 2;
    BATON_TRY(State state, prefill.new_state(all.size()));
    std::vector<float> logits(all.size() * width), wanted(all.size() * width);
    BATON_OK(prefill.prefill(*state, all.first(prompt), std::span(logits).first(prompt * width)));
    if (&prefill != &decode) {
      BATON_TRY(State moved, decode.new_state(all.size()));
      BATON_OK(move_state(*state, *moved));
      state = std::move(moved);
    }
    for (size_t i = prompt; i < all.size(); ++i) {
      BATON_OK(decode.decode(*state, all[i], std::span(logits).subspan(i * width, width)));
    }
    BATON_TRY(const State beside, reference.new_state(all.size()));
    BATON_OK(reference.prefill(*beside, all, wanted));
    for (size_t i = 0; i < all.size(); ++i) {
      BATON_OK(margins.add(std::span(logits).subspan(i * width, width), std::span(wanted).subspan(i * width, width)));
    }
    BATON_OK(counter.done(ids.size()));
  }
  return margins.bounds();
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "calibration: no memory for its states");
}

}  // namespace baton
