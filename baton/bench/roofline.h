// The least a processor, or a device, must do for a test: bytes it must read and operations by arithmetic, from the
// Program. Beside the limits of limits.h (Unit::limit) they give "% of bandwidth" and "% of peak".
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "baton/bench/limits.h"
#include "baton/bench/runner.h"
#include "baton/model/model.h"

namespace baton {

// Of one decode step of `sequences` at `depth` tokens each: every matrix once (stored bytes; f32 where the unit has no
// kernels for the type), keys and values of the context (f16 on the host, else the unit's type), recurrent states. What
// is written is not counted.
struct StepBytes {
  uint64_t weights = 0, state = 0;
  uint64_t total() const { return weights + state; }
};
// `caps`: of a unit with a device of its own; null: the host's kernels.
StepBytes decode_step_bytes(const Model& model, uint32_t sequences, uint64_t depth, const Caps* caps = nullptr);

// Multiplies and adds of a whole test: products by packing, attention and delta rule as f32. The output head counts
// for the tokens whose logits are made: the last of a prompt, each decoded one.
std::map<host::Packing, double> test_operations(const Model& model, const SpeedTest& test);

// Percent of a limit that `work` (bytes or operations) in `seconds` is. Empty for a limit that was not measured: one
// below a million a second is none.
std::optional<double> share_of(double work, double seconds, const Rate& limit);

// Shares of the limits in percent; empty: not known, or not applicable (bandwidth of a prefill).
struct LimitShares {
  std::optional<double> bandwidth, peak;
  Rate read;                     // what the share of bandwidth is of
  std::vector<Rate> arithmetic;  // what the share of the peak is of
};
// `seconds` of one run of the test on `kernels`.
Result<LimitShares> limit_shares(const Model& model, const SpeedTest& test, double seconds,
                                 const host::Kernels& kernels, Limits& limits);
// The same on a unit that measures limits of its device: all operations at the peak of its Caps::product_type.
// kUnsupported: it measures none (Unit::limit).
Result<LimitShares> device_shares(const Model& model, const SpeedTest& test, double seconds, Unit& unit);

}  // namespace baton
