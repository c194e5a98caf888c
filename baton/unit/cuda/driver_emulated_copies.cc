// The emulated driver: copies and fills.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "baton/unit/cuda/emulated_state.h"

namespace baton::cuda::emulated {
namespace {

// Whether bytes lie in one allocation of a card. The lock is held.
DriverCode in_memory(Address at, uint64_t bytes, std::string_view what) {
  State& all = state();
  auto block = all.memory.upper_bound(at);
  if (block != all.memory.begin() && bytes <= (--block)->second.bytes &&
      at - block->first <= block->second.bytes - bytes)
    return kDone;
  return all.misused(kInvalidValue,
                     fmt::format("{} of {} bytes at {:#x} is not in the card's memory", what, bytes, at));
}
// Whether they lie in one allocation of pinned memory, or in none at all. The lock is held.
DriverCode in_pinned(const void* at, uint64_t bytes, std::string_view what) {
  State& all = state();
  const auto* from = static_cast<const std::byte*>(at);
  auto block = all.pinned.upper_bound(const_cast<std::byte*>(from));
  if (at == nullptr) return all.misused(kInvalidValue, fmt::format("{}: no memory of the host", what));
  if (block == all.pinned.begin()) return kDone;
  --block;
  const auto offset = static_cast<uint64_t>(from - block->first);
  if (offset >= block->second || bytes <= block->second - offset) return kDone;
  return all.misused(kInvalidValue,
                     fmt::format("{} of {} bytes leaves its {} bytes of pinned memory", what, bytes, block->second));
}
// A copy of bytes as one of rows.
RowsCopy one_row(int32_t from_kind, const void* from, int32_t to_kind, void* to, size_t bytes) {
  RowsCopy copy;
  copy.from_kind = from_kind, copy.to_kind = to_kind;
  copy.from_host = from, copy.from = reinterpret_cast<Address>(from);
  copy.to_host = to, copy.to = reinterpret_cast<Address>(to);
  copy.from_pitch = copy.to_pitch = copy.row_bytes = bytes;
  copy.rows = 1;
  return copy;
}
// Whether both sides have so many bytes. The lock is held.
DriverCode check_copy(const RowsCopy& copy) {
  const uint64_t from = (copy.rows - 1) * copy.from_pitch + copy.row_bytes;
  const uint64_t to = (copy.rows - 1) * copy.to_pitch + copy.row_bytes;
  const DriverCode code = copy.from_kind == kOfHost ? in_pinned(copy.from_host, from, "a copy to the card")
                                                    : in_memory(copy.from, from, "a copy from the card");
  if (code != kDone) return code;
  return copy.to_kind == kOfHost ? in_pinned(copy.to_host, to, "a copy from the card")
                                 : in_memory(copy.to, to, "a copy to the card");
}
void read_rows(const RowsCopy& copy, std::vector<std::byte>& bytes) {
  const void* from = copy.from_kind == kOfHost ? copy.from_host : pointer(copy.from);
  bytes.resize(copy.rows * copy.row_bytes);
  for (size_t i = 0; i < copy.rows; ++i) {
    std::memcpy(bytes.data() + i * copy.row_bytes, static_cast<const std::byte*>(from) + i * copy.from_pitch,
                copy.row_bytes);
  }
}
void write_rows(const RowsCopy& copy, const std::vector<std::byte>& bytes) {
  void* to = copy.to_kind == kOfHost ? copy.to_host : pointer(copy.to);
  for (size_t i = 0; i < copy.rows; ++i) {
    std::memcpy(static_cast<std::byte*>(to) + i * copy.to_pitch, bytes.data() + i * copy.row_bytes, copy.row_bytes);
  }
}
// Whoever reads too early gets what was there: from the card, a copy that its stream could begin with has its bytes
// from when it was asked for, and brings them as late as all work does. `leaves`: for another card.
DriverCode submit_copy(const RowsCopy& copy, Handle stream, bool leaves = false) {
  const bool damages = std::exchange(t_damages, false);
  if (copy.rows == 0 || copy.row_bytes == 0) return kDone;
  if (copy.from_pitch < copy.row_bytes || copy.to_pitch < copy.row_bytes) return kInvalidValue;
  std::optional<std::vector<std::byte>> early;
  // A graph may outlive what it names: its copies are checked when it is launched.
  if (const Pace pace = pace_of(stream); pace != Pace::kRecorded) {
    const std::lock_guard lock(state().mutex);
    if (const DriverCode code = check_copy(copy); code != kDone) return code;
    if (pace == Pace::kIdle && copy.from_kind == kOfCard && (leaves || copy.to_kind == kOfHost))
      read_rows(copy, early.emplace());
  }
  return submit(stream, [copy, damages, early = std::move(early)] {
    const std::lock_guard lock(state().mutex);
    if (const DriverCode code = check_copy(copy); code != kDone) return code;
    std::vector<std::byte> bytes;
    early ? static_cast<void>(bytes = *early) : read_rows(copy, bytes);
    if (damages) bytes.back() ^= std::byte{1};
    write_rows(copy, bytes);
    return DriverCode{kDone};
  });
}
DriverCode copy_in(Address to, const void* from, size_t bytes, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("copy_in");
  return submit_copy(one_row(kOfHost, from, kOfCard, pointer(to), bytes), stream);
}
DriverCode copy_out(void* to, Address from, size_t bytes, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("copy_out");
  return submit_copy(one_row(kOfCard, pointer(from), kOfHost, to, bytes), stream);
}
DriverCode copy(Address to, Address from, size_t bytes, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("copy");
  return submit_copy(one_row(kOfCard, pointer(from), kOfCard, pointer(to), bytes), stream);
}
// Memory of the card that it is said to be of. The lock is held.
DriverCode check_peer(Address at, Handle context) {
  State& all = state();
  const auto* const device = static_cast<const Device*>(context);
  if (device == nullptr) return all.misused(kInvalidContext, "a copy between cards without a context");
  if (device->lost != kDone) return device->lost;
  auto block = all.memory.upper_bound(at);
  if (block != all.memory.begin() && (--block)->second.device == device) return kDone;
  return all.misused(kInvalidValue, fmt::format("a copy between cards: {:#x} is not of card {}", at, device->number));
}
DriverCode submit_peer(const RowsCopy& copy, Handle to_context, Handle from_context, Handle stream) {
  {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    for (const auto& [at, context] : {std::pair(copy.from, from_context), std::pair(copy.to, to_context)}) {
      if (const DriverCode code = check_peer(at, context); code != kDone) return code;
    }
    const Handle other = from_context == t_device ? to_context : from_context;
    if (t_device->reaches[static_cast<size_t>(static_cast<const Device*>(other)->number)])
      all.peer_bytes += copy.row_bytes * copy.rows;
  }
  return submit_copy(copy, stream, true);
}
DriverCode copy_peer(Address to, Handle to_context, Address from, Handle from_context, size_t bytes, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("copy_peer");
  return submit_peer(one_row(kOfCard, pointer(from), kOfCard, pointer(to), bytes), to_context, from_context, stream);
}
DriverCode copy_rows_peer(const PeerCopy* copy, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("copy_rows_peer");
  if (copy->planes != 1 || copy->from_height < copy->rows || copy->to_height < copy->rows) return kInvalidValue;
  RowsCopy rows = one_row(kOfCard, pointer(copy->from), kOfCard, pointer(copy->to), copy->row_bytes);
  rows.from_pitch = copy->from_pitch, rows.to_pitch = copy->to_pitch, rows.rows = copy->rows;
  return submit_peer(rows, copy->to_context, copy->from_context, stream);
}
DriverCode copy_rows(const RowsCopy* copy, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("copy_rows");
  return submit_copy(*copy, stream);
}
DriverCode set_bytes(Address at, unsigned char value, size_t bytes, Handle stream) {
  BATON_BEGIN_IN_CONTEXT("set_bytes");
  return submit(stream, [=] {
    const std::lock_guard lock(state().mutex);
    if (const DriverCode code = in_memory(at, bytes, "a fill"); code != kDone) return code;
    std::memset(pointer(at), value, bytes);
    return DriverCode{kDone};
  });
}

}  // namespace

void fill_copies(Driver& driver) {
  driver.copy_in = copy_in;
  driver.copy_out = copy_out;
  driver.copy = copy;
  driver.copy_rows = copy_rows;
  driver.copy_peer = copy_peer;
  driver.copy_rows_peer = copy_rows_peer;
  driver.set_bytes = set_bytes;
}

}  // namespace baton::cuda::emulated
