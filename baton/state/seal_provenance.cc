// The provenance of a sealed state, from its bytes.
#include <fmt/format.h>

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"

namespace baton::sealed {
namespace {

tl::unexpected<Error> corrupt_provenance(std::string what) {
  return fail(Code::kCorrupt, "provenance: " + std::move(what));
}

// Text, then zeros to the end of the field.
bool take_text(std::span<const std::byte> field, std::string* out) {
  const auto end = std::find(field.begin(), field.end(), std::byte{0});
  out->assign(reinterpret_cast<const char*>(field.data()), static_cast<size_t>(end - field.begin()));
  return end != field.end() && std::all_of(end, field.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Result<Provenance> read_provenance(std::span<const std::byte> bytes) {
  if (bytes.size() < kProvenanceFixed) return corrupt_provenance(fmt::format("{} bytes", bytes.size()));
  const uint64_t makers = load_as<uint32_t>(bytes.data()), steps = load_as<uint32_t>(bytes.data() + 4);
  if (makers > kMakersMax || steps > kStepsMax ||
      bytes.size() != kProvenanceFixed + makers * kMakerBytes + steps * kStepBytes) {
    return corrupt_provenance(fmt::format("{} makers and {} steps in {} bytes; there are at most {} and {}", makers,
                                          steps, bytes.size(), kMakersMax, kStepsMax));
  }
  Provenance provenance;
  for (uint64_t i = 0; i < makers; ++i) {
    const auto field = bytes.subspan(kProvenanceFixed + i * kMakerBytes, kMakerBytes);
    StateMaker& maker = provenance.makers.emplace_back();
    if (!take_text(field.first(kMakerUnitBytes), &maker.unit) ||
        !take_text(field.subspan(kMakerUnitBytes), &maker.arithmetic))
      return corrupt_provenance(fmt::format("maker {}: a name without its end, or with something behind it", i));
  }
  for (uint64_t i = 0; i < steps; ++i) {
    const std::byte* at = bytes.data() + kProvenanceFixed + makers * kMakerBytes + i * kStepBytes;
    const auto kind = load_as<uint16_t>(at + kStepKindAt), shared = load_as<uint16_t>(at + kStepSharedAt);
    if (kind > static_cast<uint16_t>(StepKind::kMixed) || shared > 1)
      return corrupt_provenance(fmt::format("step {}: kind {}, shared {}", i, kind, shared));
    provenance.steps.push_back({load_as<uint32_t>(at), static_cast<StepKind>(kind), shared == 1,
                                load_as<uint32_t>(at + kStepTokensAt), load_as<uint32_t>(at + kStepCountAt)});
  }
  return provenance;
}

}  // namespace baton::sealed
