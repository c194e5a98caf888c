// Two programs, op by op, and their vectors.
#include "baton/tools/convert_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "baton/tools/convert_weights.h"

namespace baton {
namespace {

// Keys are f32, and some are made of others: a magnitude by a division, divisors by a power.
constexpr float kRelative = 2e-6f;

constexpr size_t kComparedBytesMax = size_t{1} << 20;  // vectors, taps of convolutions, routers

bool near(float a, float b) { return a == b || std::fabs(a - b) <= kRelative * std::max(std::fabs(a), std::fabs(b)); }

tl::unexpected<Error> differs(std::string_view where, std::string_view what, std::string_view written,
                              std::string_view source) {
  return fail(Code::kInternal, fmt::format("the file would be another model: {}: {} is {} in it and {} in the folder",
                                           where, what, written, source));
}

template <class T>
struct OpField {
  const char* name;
  T Op::*member;
};
constexpr OpField<int32_t> kNumbers[] = {{"layer", &Op::layer},
                                         {"out", &Op::out},
                                         {"out2", &Op::out2},
                                         {"x", &Op::x},
                                         {"y", &Op::y},
                                         {"z", &Op::z},
                                         {"slot", &Op::slot},
                                         {"slot2", &Op::slot2},
                                         {"width", &Op::width},
                                         {"heads", &Op::heads},
                                         {"kv_heads", &Op::kv_heads},
                                         {"rotary", &Op::rotary},
                                         {"key_dim", &Op::key_dim},
                                         {"value_dim", &Op::value_dim},
                                         {"taps", &Op::taps},
                                         {"window", &Op::window},
                                         {"experts", &Op::experts},
                                         {"experts_used", &Op::experts_used}};
constexpr OpField<float> kConstants[] = {
    {"eps", &Op::eps}, {"scale", &Op::scale}, {"rope_theta", &Op::rope_theta}, {"rope_magnitude", &Op::rope_magnitude},
    {"cap", &Op::cap}, {"alibi", &Op::alibi}};

std::string place_of(const Op& op, size_t at) {
  return op.layer < 0 ? fmt::format("op {} ({})", at, to_string(op.kind))
                      : fmt::format("op {} ({}, layer {})", at, to_string(op.kind), op.layer);
}

Status compare_fields(const Op& source, const Op& written, size_t at) {
  const std::string where = place_of(source, at);
  if (source.kind != written.kind) return differs(where, "its kind", to_string(written.kind), to_string(source.kind));
  for (const auto& [name, member] : kNumbers) {
    if (source.*member != written.*member)
      return differs(where, name, std::to_string(written.*member), std::to_string(source.*member));
  }
  for (const auto& [name, member] : kConstants) {
    if (!near(source.*member, written.*member))
      return differs(where, name, fmt::to_string(written.*member), fmt::to_string(source.*member));
  }
  if (source.gelu != written.gelu) {
    const auto name = [](Gelu gelu) { return gelu == Gelu::kErf ? "erf" : "tanh"; };
    return differs(where, "gelu", name(written.gelu), name(source.gelu));
  }
  if (source.routing != written.routing)
    return differs(where, "routing", to_string(written.routing), to_string(source.routing));
  return {};
}

std::string shape_of(const Weight& weight) { return fmt::format("[{}, {}]", weight.rows, weight.columns); }

Status compare_values(const Model& model, const Weight& source, const Weight& written, const std::string& where) {
  BATON_TRY(const std::vector<float> wanted, gguf_values(model, source));
  std::vector<float> got(wanted.size());
  format_of(written.dtype).decode(written.data, got.data(), got.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (near(wanted[i], got[i])) continue;
    return differs(where, fmt::format("{}[{}]", source.source, i), fmt::to_string(got[i]), fmt::to_string(wanted[i]));
  }
  return {};
}

Status compare_weight(const Model& source, const Model& written, const Op& op, const Op& other, size_t which,
                      const std::string& where) {
  const WeightId id = op.weights[which], other_id = other.weights[which];
  const auto name = [](const Model& model, WeightId weight) {
    return weight < 0 ? std::string("none") : model.weights[static_cast<size_t>(weight)].name;
  };
  if ((id < 0) != (other_id < 0)) {
    return differs(where, fmt::format("weight {}", which), name(written, other_id), name(source, id));
  }
  if (id < 0) return {};
  const Weight& mine = source.weights[static_cast<size_t>(id)];
  const Weight& theirs = written.weights[static_cast<size_t>(other_id)];
  if (mine.rows != theirs.rows || mine.columns != theirs.columns)
    return differs(where, fmt::format("the shape of {}", mine.source), shape_of(theirs), shape_of(mine));
  const bool small = theirs.dtype == DType::kF32 && theirs.bytes <= kComparedBytesMax;
  return small ? compare_values(source, mine, theirs, where) : Status();
}

Status compare_slots(const Program& source, const Program& written) {
  if (source.slots.size() != written.slots.size())
    return differs("program", "the number of slots", std::to_string(written.slots.size()),
                   std::to_string(source.slots.size()));
  for (size_t i = 0; i < source.slots.size(); ++i) {
    const Slot &a = source.slots[i], &b = written.slots[i];
    const auto text = [](const Slot& slot) {
      return fmt::format("{} of layer {}: {} x {} x {}", to_string(slot.kind), slot.layer, slot.heads, slot.rows,
                         slot.columns);
    };
    if (text(a) != text(b)) return differs("program", fmt::format("slot {}", i), text(b), text(a));
  }
  return {};
}

Status compare_sizes(const Model& source, const Model& written) {
  const Program &a = source.program, &b = written.program;
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"the number of registers", a.registers.size(), b.registers.size()},
      {"vocab", a.vocab, b.vocab},
      {"hidden", a.hidden, b.hidden},
      {"output_width", a.output_width, b.output_width},
      {"whole_sequence", a.whole_sequence, b.whole_sequence},
      {"context length", source.spec.context_max, written.spec.context_max}};
  for (const auto& [name, mine, theirs] : sizes) {
    if (mine != theirs) return differs("program", name, std::to_string(theirs), std::to_string(mine));
  }
  for (size_t i = 0; i < a.registers.size(); ++i) {
    if (a.registers[i].width == b.registers[i].width) continue;
    return differs("program", fmt::format("the width of register {}", a.registers[i].name),
                   std::to_string(b.registers[i].width), std::to_string(a.registers[i].width));
  }
  return {};
}

}  // namespace

Status check_converted(const Model& source, const Model& written) {
  const std::vector<Op>&mine = source.program.ops, &theirs = written.program.ops;
  // The first op that differs says more than their numbers.
  for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    BATON_OK(compare_fields(mine[i], theirs[i], i));
    const std::string where = place_of(mine[i], i);
    for (size_t which = 0; which < mine[i].weights.size(); ++which) {
      BATON_OK(compare_weight(source, written, mine[i], theirs[i], which, where));
    }
  }
  if (mine.size() != theirs.size())
    return differs("program", "the number of ops", std::to_string(theirs.size()), std::to_string(mine.size()));
  BATON_OK(compare_slots(source.program, written.program));
  return compare_sizes(source, written);
}

}  // namespace baton
