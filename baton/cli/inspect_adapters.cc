// Adapters as a list, and as lines.
#include "baton/cli/inspect_adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "baton/base/terminal.h"

namespace baton::cli {
namespace {

// Names of the model's matrices that read this pair: of a tensor that is several matrices here, all of them.
std::vector<std::string> matrices_of(const Model& model, const Adapter::Pair& pair, size_t adapter) {
  const std::string end = fmt::format(".lora{}.a", adapter);
  std::vector<std::string> names;
  for (const Weight& weight : model.weights) {
    if (weight.name.ends_with(end) && weight.source == pair.name)
      names.push_back(weight.name.substr(0, weight.name.size() - end.size()));
  }
  return names;
}

}  // namespace

Result<OrderedJson> adapters_json(const Model& model, std::span<const AdapterChoice> choices) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    BATON_TRY(const Adapter adapter, Adapter::open(choices[i]));
    OrderedJson json;
    json["file"] = adapter.file();
    json["strength"] = choices[i].scale;
    uint64_t parameters = 0;
    std::set<int64_t> ranks;
    OrderedJson tensors = OrderedJson::array();
    for (const Adapter::Pair& pair : adapter.pairs()) {
      parameters += pair.a.size() + pair.b.size();
      ranks.insert(pair.rank);
      tensors.push_back({{"name", pair.name},
                         {"rank", pair.rank},
                         {"scale", pair.scale},
                         {"rows", pair.rows},
                         {"columns", pair.columns},
                         {"matrices", matrices_of(model, pair, i)}});
    }
    json["ranks"] = ranks;
    json["parameters"] = parameters;
    json["tensors"] = std::move(tensors);
    list.push_back(std::move(json));
  }
  return list;
}

std::string adapters_text(const OrderedJson& adapters) {
  std::string text;
  for (const OrderedJson& adapter : adapters) {
    text += fmt::format("\nadapter {}: {} matrices, rank {}, {} parameters, strength {}\n",
                        terminal_safe(adapter["file"].get<std::string>(), kNameShownMax), adapter["tensors"].size(),
                        fmt::join(adapter["ranks"].get<std::vector<int64_t>>(), ", "),
                        adapter["parameters"].get<uint64_t>(), adapter["strength"].get<float>());
    text += fmt::format("  {:<24} {:>5} {:>9}  {}\n", "matrix", "rank", "scale", "tensor");
    for (const OrderedJson& tensor : adapter["tensors"]) {
      text += fmt::format("  {:<24} {:>5} {:>9.4g}  {} [{}, {}]\n",
                          fmt::join(tensor["matrices"].get<std::vector<std::string>>(), ", "),
                          tensor["rank"].get<int64_t>(), tensor["scale"].get<float>(),
                          terminal_safe(tensor["name"].get<std::string>(), kNameShownMax),
                          tensor["rows"].get<int64_t>(), tensor["columns"].get<int64_t>());
    }
  }
  return text;
}

}  // namespace baton::cli
