// What `baton bench -m MODEL` runs: a test's speeds, the shares of this machine's limits, joules, and whether the
// tokens were right.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "baton/api/units.h"
#include "baton/bench/clock_watch.h"
#include "baton/bench/energy_meter.h"
#include "baton/bench/limits.h"
#include "baton/bench/roofline.h"
#include "baton/bench/runner.h"
#include "baton/bench/stats.h"
#include "baton/cli/bench_flags.h"

namespace baton::cli {

// What tokens are checked with.
inline constexpr const char* kSpeedReference = "ref";

struct SpeedCheck {
  std::string status;  // "checked" or "unchecked"
  std::string why;     // of "unchecked"
  TokenCheck tokens;
  double lead_max = 0;  // of the reference's choice over the one checked: more is no near tie
};

struct SpeedRow {
  SpeedTest test;
  SpeedResult result;
  Summary speed;
  // A test of both phases on two units: % bandwidth is that of its decode, % peak that of its prefill, each of its own
  // unit and time; these have both of both.
  LimitShares shares, prefill_shares, decode_shares;
  SpeedCheck check;
  Placement prefill, decode;  // `ran` empty: the test has no such phase
  std::optional<uint64_t> peak_memory_bytes;
  bool emulated = false;
  std::string energy_reason;      // why there are no joules
  std::vector<ClockFall> clocks;  // that fell, of GPUs, where a phase's unit has a device
};

class SpeedRunner {
 public:
  explicit SpeedRunner(const BenchFlags& flags) : flags_(flags) {}

  // An exit code, when it cannot go on.
  std::optional<int> open();

  // Errors of check_test, before anything runs.
  Status check(const std::vector<SpeedTest>& tests);
  Result<SpeedRow> run(SpeedTest test);

  const Model& model() const { return *model_; }
  const std::string& prefill_name() const { return names_[0]; }
  const std::string& decode_name() const { return names_[1]; }
  std::string backend() const { return split() ? prefill_name() + "+" + decode_name() : prefill_name(); }
  uint32_t threads(const SpeedRow& row) const;
  // What the shares are of, once each.
  const std::set<std::string>& limit_texts() const { return limit_texts_; }
  // "prefill on cpu: avx512-vnni kernels; decode on the same"
  std::string placed() const;
  std::string warnings() const;

 private:
  bool split() const { return prefill_name() != decode_name(); }
  SpeedUnits units() { return {*prefill_, decode(), decode_caps().decode_seats_max}; }
  Executor& decode() { return split() ? *decode_ : *prefill_; }
  const Caps& decode_caps() const { return split() ? decode_unit_->caps() : prefill_unit_->caps(); }

  // Whether a phase of the test runs on a device of its unit's own.
  bool on_device(const SpeedTest& test) const;
  Result<std::unique_ptr<Executor>> load(Unit& unit);
  static std::optional<int> create(const UnitChoice& choice, std::unique_ptr<Unit>& unit);

  Result<SpeedCheck> check(const SpeedTest& test, const SpeedResult& result);

  // What a choice may lie below the reference's, from the model's file of bounds or measured now: lead_max_, or why
  // there is none.
  Status measure_lead(Executor& reference);

  // Shares are of what the phase's unit can do: its device, or the host's kernels where these did all of it.
  Status add_shares(SpeedRow& row);
  Result<LimitShares> shares_of(Unit& unit, const Placement& placement, const SpeedTest& test, double seconds,
                                uint32_t threads);
  void note_limits(const LimitShares& shares);

  const BenchFlags& flags_;
  std::vector<std::string> names_;  // of the two units
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Unit> prefill_unit_, decode_unit_;
  std::unique_ptr<Executor> prefill_, decode_;
  EnergyMeter meter_;
  ClockWatch clocks_;
  std::unique_ptr<Limits> limits_;
  std::set<std::string> limit_texts_;
  std::vector<std::vector<int32_t>> sequences_;  // a text, then its pieces
  std::optional<double> lead_max_;
  std::string why_no_lead_;
};

}  // namespace baton::cli
