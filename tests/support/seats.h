// Steps whose rows of outputs lie wherever a test wants them.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "baton/unit/unit.h"

namespace baton::test {

// A seat with a place of its own for its rows: whole rows, those of the last tokens; empty: none wanted.
struct SeatRows {
  SeatRows(SequenceState* at, std::span<const int32_t> ids, std::span<float> out = {})
      : state(at), tokens(ids.begin(), ids.end()), rows(out) {}
  // It decodes.
  SeatRows(SequenceState* at, int32_t id, std::span<float> out = {})
      : state(at), tokens{id}, rows(out), decodes(true) {}
  SequenceState* state;
  std::vector<int32_t> tokens;
  std::span<float> rows;
  bool decodes = false;
};

// One step of all, in the order that Executor::step asks for.
inline Status step_together(Executor& executor, std::vector<SeatRows> all) {
  const auto width = static_cast<size_t>(executor.model().program.output_width);
  std::stable_partition(all.begin(), all.end(), [](const SeatRows& seat) { return !seat.decodes; });
  std::vector<Seat> seats;
  size_t values = 0;
  for (const SeatRows& seat : all) {
    seats.push_back({seat.state, seat.tokens, static_cast<uint32_t>(seat.rows.size() / width), seat.decodes});
    values += seat.rows.size();
  }
  std::vector<float> out(values, std::numeric_limits<float>::quiet_NaN());
  BATON_OK(executor.step(seats, out, {}));
  const float* next = out.data();
  for (const SeatRows& seat : all) {
    std::copy_n(next, seat.rows.size(), seat.rows.begin());
    next += seat.rows.size();
  }
  return {};
}

}  // namespace baton::test
