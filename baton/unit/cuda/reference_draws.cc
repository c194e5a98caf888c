// Bodies of the kinds that draw.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "baton/sample/draw_weight.h"
#include "baton/unit/cuda/reference.h"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {
namespace {

const DrawRule* rule_of(const Pass& pass, int32_t row) {
  return pass.rules == 0 ? nullptr : host_at<const DrawRule>(pass.rules) + row;
}
int32_t& drawn_of(const Pass& pass, int32_t row) {
  return host_at<int32_t>(pass.drawn)[int64_t{pass.step} * pass.rows_out + row];
}

struct Candidates {
  std::vector<uint64_t> keys;  // the likeliest first
  uint64_t sum = 0;            // of the weights of all that may be drawn
  bool whole = false;          // these are all
};

Candidates candidates_of(std::span<const float> x, float top, const DrawRule& rule) {
  Candidates made;
  std::vector<uint64_t> all, largest(kThreads);
  for (size_t i = 0; i < x.size(); ++i) {
    if (is_banned(host_at<const uint32_t>(rule.banned), static_cast<int32_t>(i))) continue;
    all.push_back(draw_key(x[i], static_cast<uint32_t>(i)));
    uint64_t& of_thread = largest[i / 4 % kThreads];
    of_thread = std::max(of_thread, all.back());
    made.sum += draw_weight(top - x[i], draw_scale(1.0f));
  }
  std::sort(largest.begin(), largest.end(), std::greater<>());
  const uint64_t least = largest[static_cast<size_t>(rule.top_k > 0 ? rule.top_k : kDrawTopMax) - 1];
  std::copy_if(all.begin(), all.end(), std::back_inserter(made.keys), [&](uint64_t key) { return key >= least; });
  std::sort(made.keys.begin(), made.keys.end(), std::greater<>());
  made.whole = least == 0;
  return made;
}

// Whether `keys` become what is drawn from, in the order of the draw.
bool keep(std::vector<uint64_t>& keys, const Candidates& of, float top, const DrawRule& rule) {
  const auto weight = [&](uint64_t key) { return draw_weight(top - value_of_draw(key), draw_scale(1.0f)); };
  const bool by_count = rule.top_k > 0;
  if (by_count) keys.resize(std::min(keys.size(), static_cast<size_t>(rule.top_k)));
  if (rule.top_p < 1) {
    uint64_t sum = of.sum, so_far = 0;
    if (by_count) {
      sum = 0;
      for (const uint64_t key : keys) sum += weight(key);
    }
    size_t kept = 0;
    while (kept < keys.size() && (kept == 0 || so_far < least_sum(rule.top_p, sum))) so_far += weight(keys[kept++]);
    if (so_far < least_sum(rule.top_p, sum)) return false;
    keys.resize(kept);
  } else if (!by_count && !of.whole && !is_below(weight(keys.back()), rule.min_weight)) {
    return false;
  }
  std::erase_if(keys, [&](uint64_t key) { return weight(key) < rule.min_weight; });
  if (!by_count && rule.top_p == 1)
    std::sort(keys.begin(), keys.end(), [](uint64_t a, uint64_t b) { return id_of_draw(a) < id_of_draw(b); });
  return true;
}

int32_t draw(std::span<const float> x, float top, const DrawRule& rule, uint64_t number) {
  const Candidates candidates = candidates_of(x, top, rule);
  std::vector<uint64_t> keys = candidates.keys;
  if (keys.size() > static_cast<size_t>(kDrawAmong) || !keep(keys, candidates, top, rule)) return kUndecided;
  const auto weight = [&](uint64_t key) { return draw_weight(top - value_of_draw(key), rule.scale); };
  uint64_t total = 0;
  for (const uint64_t key : keys) total += weight(key);
  auto left = static_cast<uint64_t>(static_cast<unsigned __int128>(number) * total >> 64);
  size_t drawn = 0;
  for (; left >= weight(keys[drawn]); ++drawn) left -= weight(keys[drawn]);
  return id_of_draw(keys[drawn]);
}

float penalised(float logit, int32_t times, const DrawRule& rule) {
  constexpr float kMost = std::numeric_limits<float>::max();
  logit = logit > 0 ? logit / rule.repeat : logit * rule.repeat;
  logit -= static_cast<float>(times) * rule.frequency + rule.presence;
  return std::clamp(logit, -kMost, kMost);
}

}  // namespace

void reference_penalise(const Instruction& instruction, const Pass& pass) {
  for (int32_t r = 0; r < pass.rows_out; ++r) {
    const DrawRule* const rule = rule_of(pass, r);
    if (rule == nullptr || rule->window == 0) continue;
    DrawWindow& window = host_at<DrawWindow>(pass.windows)[r];
    float* const x = host_row(instruction.x, instruction.x_width, r);
    const std::span ids(window.ids, static_cast<size_t>(std::min(window.drawn, rule->window)));
    std::transform(ids.begin(), ids.end(), window.logits, [&](int32_t id) { return x[id]; });
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto times = static_cast<int32_t>(std::count(ids.begin(), ids.end(), ids[i]));
      if (std::isfinite(window.logits[i])) x[ids[i]] = penalised(window.logits[i], times, *rule);
    }
  }
}

void reference_argmax(const Instruction& instruction, const Pass& pass) {
  for (int32_t r = 0; r < pass.rows_out; ++r) {
    const float* const x = host_row(instruction.x, instruction.x_width, r);
    const DrawRule* const rule = rule_of(pass, r);
    const uint32_t* const banned = rule == nullptr ? nullptr : host_at<const uint32_t>(rule->banned);
    int32_t& drawn = drawn_of(pass, r) = -1;
    const bool finite = std::all_of(x, x + instruction.x_width, [](float value) { return std::isfinite(value); });
    for (int32_t id = 0; finite && id < instruction.x_width; ++id) {
      if (!is_banned(banned, id) && (drawn < 0 || x[id] > x[drawn])) drawn = id;  // the first of equals
    }
  }
}

void reference_draw(const Instruction& instruction, const Pass& pass) {
  for (int32_t r = 0; r < pass.rows_out; ++r) {
    const DrawRule* const rule = rule_of(pass, r);
    int32_t& drawn = drawn_of(pass, r);
    if (rule == nullptr) continue;
    const std::span x(host_row(instruction.x, instruction.x_width, r), static_cast<size_t>(instruction.x_width));
    if (rule->scale != 0 && drawn >= 0) {
      const uint64_t number = host_at<const uint64_t>(pass.numbers)[int64_t{pass.step} * pass.rows_out + r];
      drawn = draw(x, x[static_cast<size_t>(drawn)], *rule, number);
    }
    if (rule->window == 0) continue;
    DrawWindow& window = host_at<DrawWindow>(pass.windows)[r];
    for (int32_t i = 0; i < std::min(window.drawn, rule->window); ++i)
      x[static_cast<size_t>(window.ids[i])] = window.logits[i];
    if (drawn >= 0) window.ids[window.drawn++ % rule->window] = drawn;
  }
}

void reference_advance(const Instruction&, const Pass& pass) {
  auto& next = const_cast<Pass&>(pass);  // it lies in the card's memory
  const int32_t* const rows = host_at<const int32_t>(pass.out_rows);
  for (int32_t i = 0; i < pass.rows_out; ++i) {
    const int32_t run = host_at<const int32_t>(pass.run_of_row)[rows[i]], drawn = drawn_of(pass, i);
    if (drawn < 0) next.stopped = 1;
    for (int32_t k = 0; k < pass.stop_count; ++k) {
      if (host_at<const int32_t>(pass.stops)[run * kStopsMax + k] == drawn) next.stopped = 1;
    }
  }
  if (next.stopped != 0) return;
  for (int32_t i = 0; i < pass.rows_out; ++i) host_at<int32_t>(pass.tokens)[rows[i]] = drawn_of(pass, i);
  for (int32_t i = 0; i < pass.runs; ++i) ++next.run[i].start;
  ++next.step;
}

}  // namespace baton::cuda
