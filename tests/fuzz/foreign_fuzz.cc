// parse_foreign and from_foreign on arbitrary bytes: what is accepted lies inside the bytes, has the model's shape and
// survives a round trip.
#include <cstdint>
#include <cstdlib>

#include "baton/base/bytes.h"
#include "baton/state/values.h"
#include "baton/tools/foreign.h"
#include "tests/support/fake_state.h"

namespace baton {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

Model small_model() {
  Model model;
  model.spec.hidden = 8;
  model.spec.layers = 2;
  model.spec.heads = model.spec.kv_heads = 2;
  model.spec.head_dim = model.spec.rotary = 4;
  model.spec.vocab = 6;
  model.spec.context_max = 64;
  model.spec.linear_key_heads = 1;
  model.spec.linear_value_heads = 2;
  model.spec.linear_key_dim = 2;
  model.spec.linear_value_dim = 3;
  model.spec.conv_taps = 4;
  model.program = test::fake_program(2, 2, 2, 4, 2, 3, 3, 10);
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto parsed = parse_foreign(bytes);
  require(parsed.has_value() || !parsed.error().message.empty());
  if (!parsed) return 0;
  for (const ForeignSection& section : parsed->sections) {
    require(section.bytes.data() >= bytes.data() && section.bytes.data() + section.bytes.size() <= bytes.data() + size);
  }
  const Model model = small_model();
  const auto state = from_foreign(*parsed, model);
  if (!state) return 0;
  require(state->position <= 64 && state->sections.size() == 4);
  for (size_t i = 0; i < 4; ++i) require(!first_not_finite(state->sections[i], state->shape.segments[i].dtype));
  if (state->position == 0) return 0;
  const auto written = to_foreign(*state, model, ForeignFormat::kMlx, {});
  require(written.has_value());
  const auto again = from_foreign(*parse_foreign(*written), model);
  require(again.has_value() && again->sections == state->sections);
  return 0;
}

}  // namespace baton
