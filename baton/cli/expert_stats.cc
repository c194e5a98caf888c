// Loads of experts, by layer.
#include "baton/cli/expert_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton::cli {
namespace {

uint64_t sum_of(const std::vector<uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

std::string layer_text(const ExpertLoad& load) {
  const uint64_t all = std::max<uint64_t>(sum_of(load.rows), 1), reads = std::max<uint64_t>(sum_of(load.steps), 1);
  const auto busiest = std::max_element(load.rows.begin(), load.rows.end());
  const auto idle = std::count(load.rows.begin(), load.rows.end(), uint64_t{0});
  return fmt::format("  layer {:>3}: as even as {:.1f} of {}, busiest {} ({:.1f} %), {} idle, {:.1f} rows a read\n",
                     load.layer, busy_experts(load), load.rows.size(), busiest - load.rows.begin(),
                     100.0 * static_cast<double>(*busiest) / static_cast<double>(all), idle,
                     static_cast<double>(all) / static_cast<double>(reads));
}

}  // namespace

double busy_experts(const ExpertLoad& load) {
  const auto all = static_cast<double>(sum_of(load.rows));
  double entropy = 0;
  for (const uint64_t rows : load.rows) {
    if (rows == 0) continue;
    const double share = static_cast<double>(rows) / all;
    entropy -= share * std::log2(share);
  }
  return all == 0 ? 0 : std::exp2(entropy);
}

OrderedJson expert_stats_json(std::span<const UnitExpertLoads> loads) {
  OrderedJson json = OrderedJson::array();
  for (const UnitExpertLoads& unit : loads) {
    OrderedJson layers = OrderedJson::array();
    for (const ExpertLoad& load : unit.layers) {
      OrderedJson layer;
      layer["layer"] = load.layer;
      layer["tokens"] = load.tokens;
      layer["rows"] = load.rows;
      layer["steps"] = load.steps;
      layer["busy"] = busy_experts(load);
      layers.push_back(std::move(layer));
    }
    OrderedJson one;
    one["unit"] = unit.name;
    one["layers"] = std::move(layers);
    json.push_back(std::move(one));
  }
  return json;
}

std::string expert_stats_text(std::span<const UnitExpertLoads> loads) {
  std::string text;
  for (const UnitExpertLoads& unit : loads) {
    // The last layer sees fewer: of a prompt it computes what is asked for.
    uint64_t tokens = 0;
    for (const ExpertLoad& load : unit.layers) tokens = std::max(tokens, load.tokens);
    text += fmt::format("experts on {}, {} tokens:\n", unit.name, tokens);
    for (const ExpertLoad& load : unit.layers) {
      if (sum_of(load.rows) != 0) text += layer_text(load);
    }
  }
  return text;
}

}  // namespace baton::cli
