// Who a model is: digests over everything that decides what it computes, down to the last byte of its weights. A state
// is used only where they are equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/program.h"

namespace baton {

struct Model;

// XXH3, against mix-ups and damage; somebody who works at it can make two models of one fingerprint
// (docs/state_format.md).
struct Fingerprints {
  // Architecture, every field of the Program, and the vectors: norms, decay rates, factors of RoPE. Those are f32
  // whatever the quantization, so they tell a fine-tune from its base.
  uint64_t model = 0;
  // The matrices: names, types, shapes and every byte.
  uint64_t quantization = 0;

  friend bool operator==(const Fingerprints&, const Fingerprints&) = default;
};

struct FingerprintOptions {
  // Asked after each piece, on the caller's thread; false ends the work with kCancelled. May be null.
  std::function<bool(uint64_t done, uint64_t total)> progress;
  uint32_t threads = 0;  // 0: physical cores, at most 8
  // Where digests are remembered: one small file for each model, at most kRememberedMax; empty: nowhere.
  std::optional<std::filesystem::path> folder;  // not given: cache_folder()/fingerprints
};
inline constexpr size_t kRememberedMax = 256;

// What a Model keeps of its fingerprints. Moves as the model does; `mutex` guards the value.
class FingerprintSlot {
 public:
  FingerprintSlot() = default;
  FingerprintSlot(FingerprintSlot&& other) noexcept : value_(other.value_) {}
  FingerprintSlot& operator=(FingerprintSlot&& other) noexcept {
    value_ = other.value_;
    return *this;
  }

 private:
  friend struct Model;
  std::mutex mutex_;
  std::optional<Fingerprints> value_;
};

// The part that is cheap, made at load: `model` in full, `quantization` of names, types and shapes alone. Tells apart
// what one process may mix up; says nothing about the matrices' bytes.
Fingerprints shape_fingerprints(const Model& model);

// Of every byte: all of the files is read, by several threads and beside the mapping, so that no memory
// stays in use. kCorrupt when a file was changed in place since it was mapped.
Result<Fingerprints> compute_fingerprints(const Model& model, const FingerprintOptions& options);
// What an earlier compute_fingerprints remembered of the same files: same path, size, times and inode. A few file
// reads.
std::optional<Fingerprints> remembered_fingerprints(const Model& model, const FingerprintOptions& options);

// Of the Program alone; every field of every op, slot and register (not the registers' names). Public for the tests.
uint64_t program_digest(const Program& program);

}  // namespace baton
