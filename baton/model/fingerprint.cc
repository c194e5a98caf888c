// Digests of programs and weights.
#include "baton/model/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <system_error>
#include <tuple>
#include <type_traits>

#include "baton/base/thread_pool.h"
#include "baton/model/container.h"
#include "baton/model/fingerprint_memory.h"
#include "baton/model/model.h"

namespace baton {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // read, then summed while it is in cache
constexpr uint64_t kThreadsFromBytes = uint64_t{16} << 20;
constexpr uint32_t kThreadsMax = 8;

// A field that came when there were sealed states: it counts only where it says something, so that they still fit.
template <class T>
struct Later {
  T value, nothing;
};
template <class T>
struct Field {
  using Type = T;
};
template <class T>
struct Field<Later<T>> {
  using Type = T;
};

class Digest {
 public:
  void add(const void* data, size_t bytes) { hash_ = XXH3_64bits_withSeed(data, bytes, hash_); }
  void add(std::string_view text) {
    add_value(text.size());
    add(text.data(), text.size());
  }
  template <class T>
  void add_value(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    add(&value, sizeof(value));
  }
  template <class T>
  void add_value(const Later<T>& later) {
    if (later.value != later.nothing) add_value(later.value);
  }
  template <class... T>
  void add_values(const std::tuple<T...>& values) {
    std::apply([&](const auto&... value) { (add_value(value), ...); }, values);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

// Every field by value. A structured binding names all members or does not compile: a field that is added to these
// structs must be added here. What is bound and not passed on is found by the sizes below.
auto fields_of(const Op& op) {
  const auto& [kind, layer, out, out2, x, y, z, weights, slot, slot2, width, heads, kv_heads, rotary, key_dim,
               value_dim, taps, eps, scale, rope_theta, pairing, head_map, rope_magnitude, gelu, window, cap, experts,
               experts_used, routing, alibi, ahead, chunk] = op;
  const auto& [first, second, third, fourth] = static_cast<const std::array<WeightId, 4>&>(weights);
  return std::tuple(kind, layer, out, out2, x, y, z, first, second, slot, slot2, width, heads, kv_heads, rotary,
                    key_dim, value_dim, taps, eps, scale, rope_theta, pairing, head_map, third, rope_magnitude,
                    Later<WeightId>{fourth, -1}, Later<Gelu>{gelu, Gelu::kErf}, Later<int32_t>{window, 0},
                    Later<float>{cap, 0}, Later<int32_t>{experts, 0}, Later<int32_t>{experts_used, 0},
                    Later<Routing>{routing, Routing::kSoftmaxOfAll}, Later<float>{alibi, 0}, Later<int32_t>{ahead, 0},
                    Later<int32_t>{chunk, 0});
}
auto fields_of(const Slot& slot) {
  const auto& [kind, layer, heads, rows, columns] = slot;
  return std::tuple(kind, layer, heads, rows, columns);
}

// A tuple's members in the order and with the padding of a struct: as large as the struct it was made from, unless
// something was left out.
template <class... T>
constexpr size_t size_as_struct(const std::tuple<T...>*) {
  size_t size = 0, alignment = 1;
  const auto place = [&](size_t bytes, size_t align) {
    size = (size + align - 1) / align * align + bytes;
    alignment = std::max(alignment, align);
  };
  (place(sizeof(typename Field<T>::Type), alignof(typename Field<T>::Type)), ...);
  return (size + alignment - 1) / alignment * alignment;
}
template <class Struct>
constexpr bool kComplete =
    size_as_struct(static_cast<const decltype(fields_of(std::declval<const Struct&>()))*>(nullptr)) == sizeof(Struct);
static_assert(kComplete<Op>, "a field of Op is missing in fields_of: add it to the tuple");
static_assert(kComplete<Slot>, "a field of Slot is missing in fields_of: add it to the tuple");

void add_shape(Digest& digest, const Weight& weight) {
  digest.add(weight.name);
  digest.add_value(weight.dtype);
  digest.add_value(weight.rows);
  digest.add_value(weight.columns);
}

bool is_matrix(const Weight& weight) { return weight.rows != 1; }

// A piece of a matrix, in memory and, for mapped weights, in its file.
struct Piece {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  size_t file = kNoFile;  // index in the container's files
  uint64_t offset = 0;
  static constexpr size_t kNoFile = ~size_t{0};
};

std::vector<Piece> pieces_of(const Model& model) {
  std::vector<Piece> pieces;
  for (const Weight& weight : model.weights) {
    if (!is_matrix(weight)) continue;
    Piece piece{weight.data, 0, Piece::kNoFile, 0};
    const size_t files = model.container == nullptr ? 0 : model.container->files.size();
    for (size_t f = 0; f < files; ++f) {
      const auto bytes = model.container->files[f].bytes();
      const std::less_equal<const std::byte*> before;
      if (!before(bytes.data(), weight.data) || !before(weight.data + weight.bytes, bytes.data() + bytes.size()))
        continue;
      piece.file = f;
      piece.offset = static_cast<uint64_t>(weight.data - bytes.data());
    }
    for (size_t done = 0; done < weight.bytes; done += piece.bytes) {
      piece.data = weight.data + done;
      piece.bytes = std::min<size_t>(kPieceBytes, weight.bytes - done);
      pieces.push_back(piece);
      piece.offset += piece.bytes;
    }
  }
  return pieces;
}

// Files that are still what was mapped are read, not touched in memory. The others' mappings hold what was mapped when
// the path was given to another file; a file that was changed in place is not what was loaded.
Result<std::vector<std::optional<FileReader>>> open_files(const Model& model) {
  std::vector<std::optional<FileReader>> readers;
  if (model.container == nullptr) return readers;
  for (const MappedFile& file : model.container->files) {
    const auto now = file_identity(file.path());
    const FileIdentity& then = file.identity();
    const bool same_file = now && now->device == then.device && now->inode == then.inode;
    if (same_file && (now->size != then.size || now->modified_ns != then.modified_ns)) {
      return fail(Code::kCorrupt, fmt::format("{}: changed since it was loaded; start again", file.path().string()));
    }
    auto& reader = readers.emplace_back();
    if (!same_file) continue;
    if (auto opened = FileReader::open(file.path())) reader.emplace(*std::move(opened));
  }
  return readers;
}

using PieceDigest = std::array<uint64_t, 2>;

class PieceReader {
 public:
  PieceReader(const std::vector<Piece>& pieces, const std::vector<std::optional<FileReader>>& files)
      : pieces_(pieces), files_(files), digests_(pieces.size()) {}

  // By one thread, with its own buffer. Returns the bytes of the piece.
  size_t digest(size_t index, std::vector<std::byte>& buffer) {
    const Piece& piece = pieces_[index];
    const std::byte* from = piece.data;
    if (piece.file != Piece::kNoFile && files_[piece.file]) {
      buffer.resize(kPieceBytes);
      // What cannot be read any more is taken from the mapping.
      if (files_[piece.file]->read_at(piece.offset, std::span(buffer).first(piece.bytes))) from = buffer.data();
    }
    const XXH128_hash_t hash = XXH3_128bits(from, piece.bytes);
    digests_[index] = {hash.low64, hash.high64};
    return piece.bytes;
  }
  const std::vector<PieceDigest>& digests() const { return digests_; }

 private:
  const std::vector<Piece>& pieces_;
  const std::vector<std::optional<FileReader>>& files_;
  std::vector<PieceDigest> digests_;
};

// All pieces on up to `threads` threads. False: cancelled.
bool digest_pieces(PieceReader& reader, size_t count, uint64_t bytes, const FingerprintOptions& options) {
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> done{0};
  std::atomic<bool> cancelled{false};
  auto work = [&](uint32_t thread) {
    std::vector<std::byte> buffer;
    for (size_t i = next++; i < count && !cancelled; i = next++) {
      const uint64_t now = done += reader.digest(i, buffer);
      if (thread == 0 && options.progress && !options.progress(now, bytes)) cancelled = true;
    }
  };
  const uint32_t wanted = options.threads != 0 ? options.threads : std::min(physical_cores(), kThreadsMax);
  if (wanted > 1 && bytes >= kThreadsFromBytes) {
    try {
      ThreadPool pool(wanted);
      pool.run(work);
      return !cancelled;
    } catch (const std::system_error&) {
      // No threads to be had: alone, then.
    }
  }
  work(0);
  return !cancelled;
}

// The digests of the pieces, with what they belong to.
uint64_t combine(const Model& model, const std::vector<PieceDigest>& pieces) {
  Digest digest;
  size_t next = 0;
  for (const Weight& weight : model.weights) {
    if (!is_matrix(weight)) continue;
    add_shape(digest, weight);
    const size_t count = (weight.bytes + kPieceBytes - 1) / kPieceBytes;
    digest.add(pieces.data() + next, count * sizeof(PieceDigest));
    next += count;
  }
  return digest.value();
}

}  // namespace

uint64_t program_digest(const Program& program) {
  Digest digest;
  const auto& [registers, slots, ops, vocab, hidden, output_width, whole_sequence] = program;
  digest.add_value(registers.size());
  for (const Register& each : registers) digest.add_value(each.width);
  digest.add_value(slots.size());
  for (const Slot& slot : slots) digest.add_values(fields_of(slot));
  digest.add_value(ops.size());
  for (const Op& op : ops) digest.add_values(fields_of(op));
  digest.add_value(vocab);
  digest.add_value(hidden);
  digest.add_value(Later<int32_t>{output_width, vocab});
  digest.add_value(Later<bool>{whole_sequence, false});
  return digest.value();
}

Fingerprints shape_fingerprints(const Model& model) {
  Digest identity, types;
  identity.add(model.spec.architecture);
  identity.add_value(program_digest(model.program));
  for (const Weight& weight : model.weights) {
    add_shape(is_matrix(weight) ? types : identity, weight);
    if (!is_matrix(weight)) identity.add(weight.data, weight.bytes);
  }
  return {identity.value(), types.value()};
}

Result<Fingerprints> compute_fingerprints(const Model& model, const FingerprintOptions& options) try {
  BATON_TRY(const auto files, open_files(model));
  const std::vector<Piece> pieces = pieces_of(model);
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  PieceReader reader(pieces, files);
  if (!digest_pieces(reader, pieces.size(), bytes, options)) {
    return fail(Code::kCancelled, "the digest of the weights was interrupted");
  }
  if (auto unchanged = open_files(model); !unchanged) return fail(std::move(unchanged).error());
  const Fingerprints prints{model.shape_prints.model, combine(model, reader.digests())};
  remember_fingerprint(model, options, prints.quantization);
  return prints;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for the digest of the weights");
}

std::optional<Fingerprints> remembered_fingerprints(const Model& model, const FingerprintOptions& options) {
  const auto known = remembered_fingerprint(model, options);
  if (!known) return std::nullopt;
  return Fingerprints{model.shape_prints.model, *known};
}

Result<Fingerprints> Model::fingerprints(const FingerprintOptions& options) const {
  const std::scoped_lock lock(fingerprint_slot.mutex_);
  std::optional<Fingerprints>& value = fingerprint_slot.value_;
  if (!value) value = remembered_fingerprints(*this, options);
  if (!value) {
    BATON_TRY(value, compute_fingerprints(*this, options));
  }
  return *value;
}

void Model::set_fingerprints(const Fingerprints& prints) {
  shape_prints = prints;
  fingerprint_slot.value_ = prints;
}

}  // namespace baton
