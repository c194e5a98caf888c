// Sizes in human units, and whether they fit.
#include "baton/cli/inspect_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "baton/api/units.h"
#include "baton/base/machine.h"
#include "baton/bench/human.h"
#include "baton/model/container.h"
#include "baton/state/shape.h"

namespace baton::cli {
namespace {

// Beside weights and state: program, tokenizer, registers and scratch of a pass. Short runs of the models of 3 and 28
// million parameters peaked 14 and 16 MB above the other two; long prompts and larger vocabularies take more.
constexpr uint64_t kOtherBytes = 32'000'000;

uint64_t file_bytes(const Model& model) {
  uint64_t bytes = 0;
  for (const MappedFile& file : model.container->files) bytes += file.bytes().size();
  return bytes;
}

// The type most values are stored in, and the others.
std::string types_text(const Model& model) {
  std::map<std::string, uint64_t> values;
  for (const Weight& weight : model.weights)
    values[std::string(to_string(weight.dtype))] += static_cast<uint64_t>(weight.rows * weight.columns);
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const auto& [type, count] : values) order.emplace_back(count, type);
  std::sort(order.rbegin(), order.rend());
  std::string text;
  for (const auto& [count, type] : order) text += (text.empty() ? "" : ", ") + type;
  return text;
}

std::string layers_text(const ModelSpec& spec) {
  const auto count = [&](LayerKind kind) { return std::count(spec.layer_kinds.begin(), spec.layer_kinds.end(), kind); };
  const auto linear = count(LayerKind::kLinearAttention), short_ones = count(LayerKind::kShortConvolution);
  const std::string experts =
      spec.experts == 0 ? "" : fmt::format(", {} of {} experts a token", spec.experts_used, spec.experts);
  const std::string layers = fmt::format("{} layer{}", spec.layers, spec.layers == 1 ? "" : "s");
  if (linear + short_ones == 0) return fmt::format("{} of attention{}", layers, experts);
  return fmt::format("{}: {}{}{} attention{}", layers, linear != 0 ? fmt::format("{} gated DeltaNet, ", linear) : "",
                     short_ones != 0 ? fmt::format("{} short convolution, ", short_ones) : "",
                     spec.layers - linear - short_ones, experts);
}

std::string_view pooling_text(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return "the mean of all tokens' states";
    case Pooling::kFirst:
      return "the first token's state";
    case Pooling::kLast:
      break;
  }
  return "the last token's state";
}

// Of an encoder what a text may have, which its files may say to be less than there are positions.
std::string context_text(const ModelSpec& spec, const EmbedSpec* embed) {
  if (spec.context_max <= 0) return "unknown";
  if (embed == nullptr || embed->tokens_max == static_cast<uint64_t>(spec.context_max))
    return fmt::format("up to {} tokens", spec.context_max);
  return fmt::format("texts of up to {} tokens, as its files say (the model: {})", embed->tokens_max, spec.context_max);
}

}  // namespace

MemoryNeed memory_need(const Model& model, const Unit& unit, const StateShape& shape, uint64_t context) {
  MemoryNeed need;
  const KeptBytes kept = unit.kept_bytes(model);
  need.weights = kept.all;
  need.experts = kept.experts;
  for (const Op& op : model.program.ops) {
    if (op.kind != OpKind::kExperts) continue;
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
      need.experts_stored +=
          static_cast<uint64_t>(op.experts) * model.weights[static_cast<size_t>(op.weights[part])].bytes;
  }
  if (model.spec.context_max > 0) context = std::min<uint64_t>(context, static_cast<uint64_t>(model.spec.context_max));
  need.context = context;
  need.state = section_bytes(shape, context);
  need.other = kOtherBytes;
  return need;
}

Result<MemoryRoom> memory_room(Unit& unit) {
  if (!unit.caps().device) {
    const Machine machine = this_machine();
    return MemoryRoom{machine.memory_bytes, machine.memory_available_bytes, {}};
  }
  BATON_TRY(const DeviceRoom room, unit.device_room());
  return MemoryRoom{room.bytes, room.free_bytes, unit.caps().device->name};
}

std::string fit_text(const MemoryNeed& need, const MemoryRoom& room) {
  const uint64_t most = room.free_bytes > 0 ? room.free_bytes : room.bytes;
  if (most == 0) return "unknown: this machine does not say how much memory it has";
  const std::string whose = room.of.empty() ? std::string() : fmt::format(" on {}", room.of);
  const std::string of = room.free_bytes > 0
                             ? fmt::format("{} of {} are free now{}", bytes_text(most), bytes_text(room.bytes), whose)
                             : fmt::format("this machine has {}", bytes_text(most));
  if (need.total() <= most) return "yes: " + of;
  if (need.total() - std::min(need.experts, need.total()) <= most)
    return fmt::format("yes, with experts ({}) in the file's pages as there is room: {}",
                       bytes_text(need.experts_stored), of);
  return fmt::format("no: {}; take a smaller type (baton quantize) or a smaller context (-c)", of);
}

std::string kv_bytes_text(const Model& model, std::string_view unit) {
  std::string text;
  for (const KvType& type : kKvTypes) {
    if (!parse_unit(fmt::format("{}:{}={}", unit.substr(0, unit.find(':')), kKvOption, type.word))) continue;
    const uint64_t bytes = bytes_per_token(state_shape(model.program, type.dtype));
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", type.word, bytes);
  }
  return text;
}

std::string summary_text(const Model& model, std::string_view unit, const StateShape& shape, const MemoryNeed& need,
                         const MemoryRoom& room, const EmbedSpec* embed) {
  const ModelSpec& spec = model.spec;
  const double bits = 8 * static_cast<double>(model.weight_bytes()) /
                      static_cast<double>(std::max<uint64_t>(model.parameter_count(), 1));
  const uint64_t per_token = bytes_per_token(shape);
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<13} {}\n", name, value);
  };
  line("model", fmt::format("{} ({})", spec.name, model.container->path.filename().string()));
  line("architecture", fmt::format("{}, {}, {} wide", spec.architecture, layers_text(spec), spec.hidden));
  line("vocabulary", fmt::format("{} tokens{}", spec.vocab, spec.tied_head ? ", head and embedding shared" : ""));
  line("parameters", count_text(model.parameter_count()));
  line("quantization", fmt::format("{}; {:.2f} bits per parameter", types_text(model), bits));
  line("file", bytes_text(file_bytes(model)));
  line("context", context_text(spec, embed));
  if (embed != nullptr) {
    line("vectors", fmt::format("an encoder, for `baton embed`: {}, {}", pooling_text(embed->pooling),
                                embed->normalized ? "of length 1" : "as they come, not of length 1"));
  } else {
    line("state", fmt::format("{} fixed and {} per token on {}", bytes_text(section_bytes(shape, 0)),
                              bytes_text(per_token), unit));
  }
  const std::string kv = kv_bytes_text(model, unit);
  if (per_token > 0 && !kv.empty()) line("by --kv", fmt::format("{} bytes per token", kv));
  line("memory", fmt::format("about {} with -c {} (estimated: weights {}, {}other {})", bytes_text(need.total()),
                             need.context, bytes_text(need.weights),
                             embed != nullptr ? std::string() : fmt::format("state {}, ", bytes_text(need.state)),
                             bytes_text(need.other)));
  line("fits", fit_text(need, room));
  return text;
}

OrderedJson summary_json(const Model& model, std::string_view unit, const MemoryNeed& need, const MemoryRoom& room) {
  const uint64_t most = room.free_bytes > 0 ? room.free_bytes : room.bytes;
  OrderedJson kv = OrderedJson::object();
  for (const KvType& type : kKvTypes) kv[type.word] = bytes_per_token(state_shape(model.program, type.dtype));
  return {{"unit", unit},
          {"kv_bytes_per_token", kv},
          {"file_bytes", file_bytes(model)},
          {"context", need.context},
          {"memory_bytes_estimated", need.total()},
          {"memory_available_bytes", most > 0 ? OrderedJson(most) : OrderedJson(nullptr)},
          {"fits", most > 0 ? OrderedJson(need.total() <= most + need.experts) : OrderedJson(nullptr)}};
}

}  // namespace baton::cli
