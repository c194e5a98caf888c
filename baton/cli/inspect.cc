// `baton inspect MODEL`: a summary; with --all what a model file holds, what it computes, what state it keeps and how
// that crosses between two units; or what one unit would load. Reads headers; loads the two units; runs nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "baton/api/embed_spec.h"
#include "baton/api/units.h"
#include "baton/bridge/plan.h"
#include "baton/cli/command.h"
#include "baton/cli/fingerprint.h"
#include "baton/cli/inspect_adapters.h"
#include "baton/cli/inspect_summary.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/paths.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

struct InspectFlags {
  std::string model, prefill_unit = "ref", decode_unit = "cpu", unit, kv;
  std::vector<std::string> lora;
  uint64_t context = ModelFlags().context;  // of what is said about memory
  bool json = false, all = false, tensors = false, fingerprint = false;
};

constexpr uint64_t kFingerprintBytesMax = uint64_t{128} << 20;  // of weights that are summed unasked

struct TypeCount {
  uint64_t tensors = 0, values = 0, bytes = 0;
};

std::map<std::string, TypeCount> count_types(const Model& model) {
  std::map<std::string, TypeCount> counts;
  for (const Weight& weight : model.weights) {
    TypeCount& count = counts[std::string(to_string(weight.dtype))];
    ++count.tensors;
    count.values += static_cast<uint64_t>(weight.rows) * static_cast<uint64_t>(weight.columns);
    count.bytes += weight.bytes;
  }
  return counts;
}

// Types of matrices that `unit` does not run as stored.
std::vector<std::string> decoded_at_load(const Model& model, const Caps& caps) {
  std::vector<std::string> names;
  for (const Weight& weight : model.weights) {
    const auto& native = caps.native_formats;
    if (std::find(native.begin(), native.end(), weight.dtype) != native.end()) continue;
    const std::string name(to_string(weight.dtype));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Whether its norms take the mean away, which configurations name by another eps.
bool norms_shift(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::kLayerNorm; });
}

OrderedJson spec_json(const Model& model, const EmbedSpec* vectors) {
  const ModelSpec& spec = model.spec;
  OrderedJson json;
  json["architecture"] = spec.architecture;
  json["name"] = spec.name;
  json["parameters"] = model.parameter_count();
  json["weight_bytes"] = model.weight_bytes();
  json["layers"] = spec.layers;
  json["hidden"] = spec.hidden;
  json["intermediate"] = spec.intermediate;
  json["heads"] = spec.heads;
  json["kv_heads"] = spec.kv_heads;
  json["head_dim"] = spec.head_dim;
  json["vocab"] = spec.vocab;
  json["context"] = spec.context_max;
  json[norms_shift(model.program) ? "layer_norm_eps" : "rms_eps"] = spec.rms_eps;
  json["rope_theta"] = spec.rope_theta;
  json["rope_scaling"] = to_string(spec.rope_scaling.kind);
  json["rotary"] = spec.rotary;
  json["tied_head"] = spec.tied_head;
  std::vector<std::string> kinds;
  for (const LayerKind kind : spec.layer_kinds) kinds.emplace_back(to_string(kind));
  json["layer_types"] = kinds;
  if (spec.linear_value_heads > 0) {
    json["linear"] = {
        {"key_heads", spec.linear_key_heads}, {"value_heads", spec.linear_value_heads},
        {"key_dim", spec.linear_key_dim},     {"value_dim", spec.linear_value_dim},
        {"conv_taps", spec.conv_taps},        {"head_map", spec.head_map == HeadMap::kGrouped ? "grouped" : "tiled"}};
  }
  if (spec.linear_value_heads == 0 && spec.conv_taps > 0) json["conv_taps"] = spec.conv_taps;
  if (spec.experts > 0) {
    json["experts"] = {{"count", spec.experts},
                       {"used", spec.experts_used},
                       {"width", spec.expert_width},
                       {"shared_width", spec.shared_width},
                       {"routing", to_string(spec.routing)}};
  }
  if (vectors != nullptr) {
    json["vectors"] = {{"pooling", to_string(vectors->pooling)},
                       {"normalized", vectors->normalized},
                       {"tokens_max", vectors->tokens_max}};
  }
  json["stop_ids"] = spec.stop_ids;
  json["fingerprint_model"] = fmt::format("{:016x}", model.shape_prints.model);
  return json;
}

// Of every byte of the matrices: computed for small files and on demand, else what is remembered, else null.
Result<OrderedJson> quantization_json(const Model& model, bool wanted) {
  if (!wanted && model.weight_bytes() > kFingerprintBytesMax) {
    const auto known = remembered_fingerprints(model, {});
    return known ? OrderedJson(fmt::format("{:016x}", known->quantization)) : OrderedJson(nullptr);
  }
  BATON_TRY(const Fingerprints prints, model.fingerprints(shown_fingerprint()));
  return OrderedJson(fmt::format("{:016x}", prints.quantization));
}

OrderedJson state_json(const StateShape& shape) {
  const uint64_t per_token = bytes_per_token(shape);
  OrderedJson json;
  json["bytes_fixed"] = section_bytes(shape, 0);
  json["bytes_per_token"] = per_token;
  json["segments"] = OrderedJson::array();
  for (const Segment& segment : shape.segments) {
    json["segments"].push_back({{"kind", to_string(segment.kind)},
                                {"layer", segment.layer},
                                {"dtype", to_string(segment.dtype)},
                                {"dims", segment.dims}});
  }
  return json;
}

// The decode unit and the prefill unit, with the layouts of their states.
struct Pair {
  std::unique_ptr<Unit> from_unit, to_unit;
  StateShape from, to;
};

// The units alone, and what they are called: a wrong name is another error than a model that a unit cannot load.
Result<Pair> create_pair(InspectFlags& flags) {
  Pair pair;
  BATON_TRY(flags.prefill_unit, with_kv(flags.prefill_unit, flags.kv));
  BATON_TRY(flags.decode_unit, with_kv(flags.decode_unit, flags.kv));
  BATON_TRY(const UnitChoice from, parse_unit(flags.prefill_unit));
  BATON_TRY(const UnitChoice to, parse_unit(flags.decode_unit));
  BATON_TRY(pair.from_unit, from.create());
  BATON_TRY(pair.to_unit, to.create());
  const auto names = names_of(std::vector<UnitChoice>{from, to});
  flags.prefill_unit = names[0];
  flags.decode_unit = names[1];
  return pair;
}

// A device's memory takes no weights for that.
Result<StateShape> shape_on(Unit& unit, const std::shared_ptr<const Model>& model) {
  if (!unit.caps().device) {
    BATON_TRY(const auto executor, unit.load(model, 1));
    return executor->shape();
  }
  BATON_OK(check_program(unit.name(), unit.caps(), model->program));
  return state_shape(model->program, unit.caps().kv_type);
}

Status find_shapes(Pair& pair, const std::shared_ptr<const Model>& model) {
  BATON_TRY(pair.from, shape_on(*pair.from_unit, model));
  BATON_TRY(pair.to, shape_on(*pair.to_unit, model));
  return {};
}

std::string spec_text(const OrderedJson& spec) {
  std::string text;
  for (const auto& [key, value] : spec.items()) {
    if (key == "layer_types") continue;
    text += fmt::format("{:<26} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

// What a unit would load, without loading it.
int show_plan(const InspectFlags& flags, const Model& model) {
  const auto named = with_kv(flags.unit, flags.kv);
  if (!named) {
    report(named.error());
    return kUsage;
  }
  const auto unit = create_unit(*named);
  if (!unit) return report_unit(unit.error());
  auto plan = (*unit)->plan(model);
  if (!plan) {
    if (plan.error().code == Code::kUnsupported)
      plan.error().message += fmt::format("; for the memory that it takes: --prefill {0} --decode {0}", *named);
    return report(plan.error());
  }
  if (flags.json) {
    OrderedJson json;
    json["unit"] = (*unit)->name();
    json["features"] = (*unit)->caps().features;
    json["programs"] = OrderedJson::array();
    for (const LoadPlan::Programs& item : plan->programs) {
      json["programs"].push_back({{"shape", item.shape},
                                  {"count", item.count},
                                  {"weight_bytes", item.weight_bytes},
                                  {"all_bytes", item.all_bytes}});
    }
    json["notes"] = plan->notes;
    print_json(json);
    return kOk;
  }
  std::string text = fmt::format("{} on {} ({})\n{:>5}  {:>10}  {:>10}  {}\n", model.spec.name, (*unit)->name(),
                                 fmt::join((*unit)->caps().features, " "), "count", "MB each", "MB all", "program");
  for (const LoadPlan::Programs& item : plan->programs) {
    text += fmt::format("{:>5}  {:>10.2f}  {:>10.2f}  {}\n", item.count, static_cast<double>(item.weight_bytes) / 1e6,
                        static_cast<double>(item.all_bytes) / 1e6, item.shape);
  }
  for (const std::string& note : plan->notes) text += note + "\n";
  print(text);
  return kOk;
}

std::string tensors_text(const Model& model) {
  std::string text = "\ntensors\n";
  for (const Weight& weight : model.weights) {
    text += fmt::format("  {:<28} {:<5} [{}, {}]  {}\n", weight.name, to_string(weight.dtype), weight.rows,
                        weight.columns, weight.source);
  }
  return text;
}

OrderedJson tensors_json(const Model& model) {
  OrderedJson list = OrderedJson::array();
  for (const Weight& weight : model.weights) {
    list.push_back({{"name", weight.name},
                    {"dtype", to_string(weight.dtype)},
                    {"rows", weight.rows},
                    {"columns", weight.columns},
                    {"source", weight.source}});
  }
  return list;
}

OrderedJson bridge_json(const BridgePlan& plan, bool moves) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const SegmentPlan& segment = plan.segments[i];
    list.push_back({{"segment", i},
                    {"kind", moves ? to_string(segment.kind()) : "alias"},
                    {"from", to_string(segment.from.dtype)},
                    {"to", to_string(segment.to)}});
  }
  return list;
}

// What follows the summary: hundreds of lines.
std::string all_text(const InspectFlags& flags, const Model& model, const OrderedJson& spec, const Pair& pair,
                     const BridgePlan& plan) {
  std::string text = "\nall of it\n" + spec_text(spec) + "\ntensor types\n";
  for (const auto& [name, count] : count_types(model)) {
    text += fmt::format("  {:<6} {:>5} tensors {:>14} values {:>14} bytes\n", name, count.tensors, count.values,
                        count.bytes);
  }
  if (const auto decoded = decoded_at_load(model, pair.to_unit->caps()); !decoded.empty())
    text += fmt::format("  {} decoded to F32 at load on {}\n", fmt::join(decoded, ", "), flags.decode_unit);
  text += "\nprogram\n" + to_text(model.program);
  for (const auto& [name, shape] :
       {std::pair{flags.prefill_unit, &pair.from}, std::pair{flags.decode_unit, &pair.to}}) {
    if (model.program.whole_sequence) break;  // keeps none
    text += fmt::format("\nstate on {}: {} bytes and {} bytes per token\n{}", name, section_bytes(*shape, 0),
                        bytes_per_token(*shape), to_text(*shape));
  }
  const bool moves = flags.prefill_unit != flags.decode_unit;
  return text + fmt::format("\nbridge plan {} -> {}\n{}", flags.prefill_unit, flags.decode_unit,
                            moves ? to_text(plan) : "one unit: the state itself is handed over, nothing moves\n");
}

// Of an encoder; of a model that writes, none.
Result<std::optional<EmbedSpec>> embed_spec_of(const Model& model) {
  if (!model.program.whole_sequence) return std::nullopt;
  BATON_TRY(EmbedSpec spec, read_embed_spec(model));
  return std::optional(std::move(spec));
}

// What a model that states no limit is told for is the default of the other commands.
uint64_t told_context(const InspectFlags& flags, const Model& model) {
  if (flags.context > 0) return flags.context;
  return model.spec.context_max > 0 ? static_cast<uint64_t>(model.spec.context_max) : ModelFlags().context;
}

int run_inspect(InspectFlags& flags) {
  std::string path = flags.model;
  if (path.empty()) {
    const auto bundled = bundled_model();
    if (!bundled) return report(bundled.error());
    path = bundled->string();
  }
  if (const Status there = hub::check_model(path); !there) return report(there.error());
  const auto choices = settle_lora(flags.lora);
  if (!choices) return report_usage(choices.error());
  const auto model = load_model(path, 0, ModelUse::kAny, *choices);
  if (!model) return report(model.error());
  if (!flags.unit.empty()) return show_plan(flags, **model);
  auto pair = create_pair(flags);
  if (!pair) return report_unit(pair.error());
  if (const Status found = find_shapes(*pair, *model); !found) return report(found.error());
  const auto plan = plan_bridge(pair->from, pair->to);
  if (!plan) return report(plan.error());

  const auto embed = embed_spec_of(**model);
  if (!embed) return report(embed.error());
  const EmbedSpec* vectors = embed->has_value() ? &**embed : nullptr;
  const StateShape& shape = pair->to;
  const auto room = memory_room(*pair->to_unit);
  if (!room) return report_unit(room.error());
  const MemoryNeed need = memory_need(**model, *pair->to_unit, shape, told_context(flags, **model));
  const auto adapters = adapters_json(**model, *choices);
  if (!adapters) return report(adapters.error());
  OrderedJson json = spec_json(**model, vectors);
  if (flags.json || flags.all || flags.fingerprint) {
    auto quantization = quantization_json(**model, flags.fingerprint);
    if (!quantization) return report(quantization.error());
    json["fingerprint_quantization"] = *std::move(quantization);
  }
  if (flags.json) {
    OrderedJson types = OrderedJson::object();
    for (const auto& [name, count] : count_types(**model))
      types[name] = {{"tensors", count.tensors}, {"values", count.values}, {"bytes", count.bytes}};
    json["summary"] = summary_json(**model, flags.decode_unit, need, *room);
    json["tensor_types"] = types;
    json["decoded_at_load"] = decoded_at_load(**model, pair->to_unit->caps());
    json["notes"] = (*model)->notes;
    if (!adapters->empty()) json["adapters"] = *adapters;
    json["program"] = OrderedJson::array();
    for (const Op& op : (*model)->program.ops)
      json["program"].push_back({{"layer", op.layer}, {"op", to_string(op.kind)}});
    json["state"] = {{flags.prefill_unit, state_json(pair->from)}, {flags.decode_unit, state_json(pair->to)}};
    json["bridge"] = bridge_json(*plan, flags.prefill_unit != flags.decode_unit);
    if (flags.tensors) json["tensor_list"] = tensors_json(**model);
    print_json(json);
    return kOk;
  }
  std::string text = summary_text(**model, flags.decode_unit, shape, need, *room, vectors);
  if (!(*model)->notes.empty()) text += "\n";
  for (const std::string& note : (*model)->notes) text += fmt::format("note: {}\n", note);
  if (flags.fingerprint && !flags.all) {
    for (const char* print : {"fingerprint_model", "fingerprint_quantization"})
      text += fmt::format("\n{:<26} {}", print, json[print].get<std::string>());
    text += "\n";
  }
  text += adapters_text(*adapters);
  if (flags.tensors) text += tensors_text(**model);
  text += flags.all ? all_text(flags, **model, json, *pair, *plan)
                    : "\n--all: every figure, the program, the state and the bridge plan\n";
  print(text);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_inspect(CLI::App& program) {
  CLI::App* app = program.add_subcommand("inspect", "show a model: sizes, types, program, state and bridge plan");
  auto command = std::make_unique<FlagsCommand<InspectFlags, run_inspect>>(app);
  InspectFlags* flags = &command->flags;
  add_model(*app, flags->model,
            fmt::format("a Hugging Face folder, a GGUF file, {} (default: the bundled model)", kOrName));
  app->add_option("--prefill", flags->prefill_unit, "unit the state comes from")->capture_default_str();
  app->add_option("--decode", flags->decode_unit, "unit the state goes to")->capture_default_str();
  add_kv(*app, flags->kv);
  add_lora(*app, flags->lora, " of the model: what is in it, and which matrices it changes");
  app->add_option("-c,--ctx-size", flags->context, "context that the memory is told for, in tokens; 0: the model's")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  app->add_option("--unit", flags->unit, "show what this unit makes of the model instead: its programs and limits")
      ->check(CLI::Validator([](const std::string& name) { return name.empty() ? "names a unit" : ""; }, "", "unit"));
  app->add_flag("--fingerprint", flags->fingerprint,
                "read all weights for the fingerprint, where that takes long (it is remembered)");
  app->add_flag("--all", flags->all, "after the summary: every figure, the program, the state and the bridge plan");
  app->add_flag("--tensors", flags->tensors, "list every tensor");
  app->add_flag("--json", flags->json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
