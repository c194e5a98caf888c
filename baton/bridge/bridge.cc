// Seal, verify, fill. Every check comes before the first write to the receiver.
#include "baton/bridge/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "baton/base/clock.h"
#include "baton/bridge/strided.h"
#include "baton/state/seal_file.h"
#include "baton/state/values.h"

namespace baton {
namespace {

// Gathered, searched and summed while in cache.
constexpr uint64_t kPieceBytes = 32 * 1024;

tl::unexpected<Error> broken(std::string what) { return fail(Code::kInternal, "bridge: " + std::move(what)); }

// That the segments are what the layout says and hold `tokens` tokens: the last check before memory is touched.
Status check_segments(const SequenceState& state, uint64_t tokens) {
  const Layout& layout = state.layout();
  BATON_OK(check_layout(layout));
  const auto segments = state.segments();
  if (segments.size() != layout.segments.size()) {
    return broken(fmt::format("state has {} segments, its layout {}", segments.size(), layout.segments.size()));
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    const SegmentLayout& expected = layout.segments[i];
    const std::string name = segment_name(expected.kind, expected.layer);
    if (segments[i].layout == nullptr || *segments[i].layout != expected)
      return broken(name + ": not as in the layout");
    if (segments[i].data == nullptr && expected.elements > 0) return broken(name + ": no memory");
    if (has_tokens_dim(expected.kind) && tokens > expected.dims[1]) {
      return broken(fmt::format("{}: room for {} tokens, the state is at {}", name, expected.dims[1], tokens));
    }
  }
  return {};
}

Status check_tokens_to_seal(const SequenceState& state, std::span<const int32_t> tokens) {
  if (tokens.size() != state.position()) {
    return broken(fmt::format("a state at position {} to be sealed with {} tokens", state.position(), tokens.size()));
  }
  const auto negative = std::find_if(tokens.begin(), tokens.end(), [](int32_t token) { return token < 0; });
  if (negative == tokens.end()) return {};
  return fail(Code::kInvalidInput,
              fmt::format("bridge: token {} is {}: ids are not negative", negative - tokens.begin(), *negative));
}

Status seal_segment(const Segment& segment, size_t index, uint64_t position, SealWriter& writer) {
  const SegmentLayout& layout = *segment.layout;
  const Dims dims = dims_at(layout, position);
  const std::span<std::byte> out = writer.section_data(index);
  const uint64_t row_bytes = dims[2] * value_bytes(layout.dtype);
  const uint64_t rows = dims[0] * dims[1];
  const uint64_t rows_per_piece = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  for (uint64_t row = 0; row < rows; row += rows_per_piece) {
    const uint64_t count = std::min(rows_per_piece, rows - row);
    const auto piece = out.subspan(row * row_bytes, count * row_bytes);
    gather_rows(segment, dims, row, count, piece.data());
    if (const auto bad = first_not_finite(piece, layout.dtype)) {
      return fail(Code::kCorrupt, fmt::format("state: {}: value {} is {}: the unit that made it failed, make it again",
                                              segment_name(layout.kind, layout.layer), row * dims[2] + *bad,
                                              value_at(piece, layout.dtype, *bad)));
    }
    writer.advance(index, (row + count) * row_bytes);
  }
  return {};
}

// All that could go wrong in filling `into`, before it begins.
Status check_fill(const SealedView& view, const SequenceState& into) {
  for (size_t i = 0; i < view.sections.size(); ++i) {
    const SealedSection& section = view.sections[i];
    const DType to = into.segments()[i].layout->dtype;
    const auto over = first_overflow(section.bytes, section.dtype, to);
    if (all_underflow(section.bytes, section.dtype, to)) {
      return fail(Code::kUnsupported,
                  fmt::format("bridge: {}: all values are too small for {}: decode on the unit that prefilled",
                              segment_name(section.kind, section.layer), to_string(to)));
    }
    if (!over) continue;
    return fail(Code::kUnsupported,
                fmt::format("bridge: {}: value {} is {}, more than {} can hold: decode on the unit that prefilled",
                            segment_name(section.kind, section.layer), *over,
                            value_at(section.bytes, section.dtype, *over), to_string(to)));
  }
  return {};
}

Status fill_state(const SealedView& view, SequenceState& into) {
  BATON_OK(check_fill(view, into));
  for (size_t i = 0; i < view.sections.size(); ++i) {
    const SealedSection& section = view.sections[i];
    scatter(section.bytes.data(), section.dtype, section.dims, into.segments()[i]);
  }
  into.set_position(view.position);
  return {};
}

// The receiver's side of an expectation; its own soundness first.
Status expect_into(SealExpectation& expected, const SequenceState& into) {
  BATON_OK(check_segments(into, into.tokens_max()));
  expected.layout = &into.layout();
  expected.position_max = into.tokens_max();
  return {};
}

tl::unexpected<Error> no_memory(std::string_view what) {
  return fail(Code::kOutOfMemory, fmt::format("bridge: no memory for {}: use a shorter context", what));
}

}  // namespace

Result<std::vector<std::byte>> seal_state(const SequenceState& state, const StateIdentity& identity,
                                          std::span<const int32_t> tokens, const Provenance& provenance,
                                          std::vector<std::byte> recycled) try {
  BATON_OK(check_segments(state, state.position()));
  BATON_OK(check_tokens_to_seal(state, tokens));
  if (!provenance.steps.empty()) {
    if (const Status made = check_provenance(provenance, tokens.size()); !made) return broken(made.error().message);
  }
  SealWriter writer(identity, tokens, state.layout(), provenance, std::move(recycled));
  const auto segments = state.segments();
  for (size_t i = 0; i < segments.size(); ++i) BATON_OK(seal_segment(segments[i], i, state.position(), writer));
  return std::move(writer).finish();
} catch (const std::bad_alloc&) {
  return no_memory("a sealed state");
}

Result<std::vector<int32_t>> unseal_state(std::span<const std::byte> block, SealExpectation expected,
                                          SequenceState& into, Provenance* provenance) try {
  BATON_OK(expect_into(expected, into));
  BATON_TRY(SealedView view, open_seal(block, expected));
  BATON_OK(fill_state(view, into));
  if (provenance != nullptr) *provenance = std::move(view.provenance);
  return std::move(view.tokens);
} catch (const std::bad_alloc&) {
  return no_memory("the tokens of a sealed state");
}

Result<MoveReport> move_state(const SequenceState& from, SequenceState& to, const StateIdentity& identity,
                              std::span<const int32_t> tokens, const Provenance& provenance,
                              std::vector<std::byte>* scratch) {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  auto block = seal_state(from, identity, tokens, provenance,
                          scratch == nullptr ? std::vector<std::byte>() : std::move(*scratch));
  if (!block) return fail(std::move(block).error());
  const int64_t sealed_ns = clock.now_ns();
  SealExpectation expected;
  expected.identity = identity;
  const auto filled = unseal_state(*block, expected, to);
  const int64_t end_ns = clock.now_ns();
  const MoveReport report{block->size(), ms_between(start_ns, sealed_ns), ms_between(sealed_ns, end_ns)};
  if (scratch != nullptr) *scratch = std::move(*block);
  if (!filled) return fail(filled.error());
  return report;
}

Status save_state(const std::filesystem::path& path, const SequenceState& state, const StateIdentity& identity,
                  std::span<const int32_t> tokens, const Provenance& provenance) {
  auto block = seal_state(state, identity, tokens, provenance);
  if (!block) return fail(std::move(block).error().in(path.string()));
  return write_seal_file(path, *block);
}

Result<std::vector<int32_t>> load_state(const std::filesystem::path& path, SealExpectation expected,
                                        SequenceState& into, Provenance* provenance) {
  BATON_OK(expect_into(expected, into));
  BATON_TRY(SealedFile file, read_seal_file(path, expected));
  if (auto filled = fill_state(file.view, into); !filled) return fail(std::move(filled).error().in(path.string()));
  if (provenance != nullptr) *provenance = std::move(file.view.provenance);
  return std::move(file.view.tokens);
}

}  // namespace baton
