// The requests of a batch on their way through the engine, many at once.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "baton/api/batch_line.h"
#include "baton/base/clock.h"
#include "baton/base/line_reader.h"
#include "baton/cli/batch_output.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/progress.h"
#include "baton/cli/sampling_flags.h"
#include "baton/cli/thinking.h"

namespace baton::cli {

struct BatchFlags {
  ModelFlags model;
  SamplingFlags sampling;
  ThinkingFlags thinking;
  std::string in, out;
  uint32_t parallel = 8;
  uint32_t step_tokens = 0;
  bool no_reuse = false;
  StateCacheFlags cache;
  std::string state_key;
  std::optional<StateKey> key;  // of state_key
  bool json = false, quiet = false;
};

struct BatchTotals {
  uint64_t requests = 0;                            // lines of IN that are not blank
  uint64_t answered = 0, failed = 0;                // of them, by this run or an earlier one
  uint64_t kept = 0;                                // of both, by an earlier one
  uint64_t prompt_tokens = 0, tokens = 0;           // of this run's answers
  uint64_t cached_tokens = 0;                       // of the prompts', from checkpoints of earlier ones
  std::optional<RoundingError> kept_rounding = {};  // the most of their checkpoints'
  uint64_t fallbacks = 0;                           // answers whose decode unit did more than asked
  double seconds = 0;
  uint64_t set_aside = 0;            // times a request made way for another one
  std::vector<float> token_ms = {};  // from token to token, of the first kGapsMax
  static constexpr size_t kGapsMax = 1'000'000;
  std::optional<RequestStats> first;  // of the first answer: who did it
};

class BatchRun {
 public:
  struct Source {
    LineReader lines;
    std::string name;               // for messages
    std::optional<uint64_t> count;  // of its lines
  };
  // Borrows all but `source`. `fingerprint`: of model and flags, in each answer.
  BatchRun(const BatchFlags& flags, Runtime& runtime, Source source, BatchOutput& output, std::string fingerprint,
           const InterruptScope& interrupts);
  // To the end of the requests. kCancelled after an interrupt; other errors end the batch, not one request. What was
  // answered is in the output, whatever ends it.
  Status run();
  const BatchTotals& totals() const { return totals_; }

 private:
  struct UnderWay {
    uint64_t number = 0;
    openai::BatchRequest request;
    Answer answer;
    bool alone = false;  // nothing else is, while it is
    int whole = 0;       // Asked's
  };
  // To be asked; again, where there was no memory for it.
  struct Asked {
    uint64_t number = 0;
    openai::BatchRequest request;
    int whole = 0;  // times that it was for an answer that began again in its middle
  };
  Status fill();
  Status fill_from_lines();
  bool nothing_left() const { return read_all_ && !line_ && under_way_.empty() && again_.empty(); }
  bool all_done() const { return nothing_left() && starved_.empty(); }
  Status enter(const Line& line);
  // Without memory it comes again.
  Status begin(Asked next);
  // Leaves `next` as it is, where it throws.
  Status submit(Asked& next);
  Status come_again(UnderWay ended, Error why);
  // The error where nothing was answered since too many others.
  Status shortage(Error why);
  // A line that is no request.
  Status report_line(const Line& line, openai::LineError error);
  Status respond_error(uint64_t number, const std::string& custom_id, const openai::ApiError& error);
  Status poll(std::chrono::nanoseconds timeout);
  Status end(const UnderWay& ended, const Completion& completion);
  void count(const RequestStats& stats);
  void show_progress();
  void warn_once(const std::string& text);

  const BatchFlags& flags_;
  Runtime& runtime_;
  Source source_;
  BatchOutput& output_;
  const std::string model_, fingerprint_;
  const InterruptScope& interrupts_;
  const SteadyClock clock_;
  const int64_t start_ns_;
  int64_t shown_ns_;
  Progress meter_;
  bool read_all_ = false;
  std::unordered_set<std::string> seen_;  // custom_ids
  std::set<std::string> warned_;
  uint64_t lines_shown_ = 0;  // errors of lines that were said
  std::vector<UnderWay> under_way_;
  std::vector<Asked> again_;          // beside fewer others
  std::vector<Asked> starved_;        // alone, behind all others
  std::optional<size_t> last_times_;  // how many of those that starved are still asked once more
  int shortages_ = 0;                 // since the last answer
  std::optional<Line> line_;          // read, and not yet entered
  size_t under_way_max_;
  BatchTotals totals_;
};

}  // namespace baton::cli
