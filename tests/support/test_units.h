// The units that tests over all units take: each as it is on this machine, or what stands for it where its device is
// missing and its entry names an emulated one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "baton/api/units.h"
#include "tests/support/card_memory.h"

namespace baton::test {

// `text` as create_unit takes it, with the entry's stand-in where it may have one.
inline std::string on_this_machine(const std::string& text) {
  const auto choice = parse_unit(text);
  if (!choice || choice->entry->stand_in.empty() || choice->create()) return text;
  return text + (text.find(':') == std::string::npos ? ":" : ",") + std::string(choice->entry->stand_in);
}
// Stand-ins are slow: models of the size of the bundled ones are for the device.
inline bool suits_stand_in(const Model& model) { return model.parameter_count() < 2'000'000; }
inline Result<std::unique_ptr<Unit>> create_test_unit(const std::string& text, bool stand_in = true) {
  return create_unit(stand_in ? on_this_machine(text) : text);
}

// Where products are rounded to 16 bits, routers of mixtures now and then choose another expert than `ref`'s.
inline bool may_choose_others(const Unit& unit, const Model& model) {
  const auto chooses = [](const Op& op) { return op.kind == OpKind::kExperts; };
  return unit.caps().product_type != DType::kF32 &&
         std::any_of(model.program.ops.begin(), model.program.ops.end(), chooses);
}
// How far from `ref` a unit's logits may be. Another expert of tiny random mixtures made 0.93 on cpu with AVX512-BF16
// and 0.96 on cuda.
inline float logit_tolerance_of(const Unit& unit, const Model& model) {
  const float stated = unit.caps().logit_tolerance(main_type(model));
  return may_choose_others(unit, model) ? std::max(stated, 1.2f) : stated;
}

}  // namespace baton::test
