// Stored states without files, for the simulation: a store that is full, loses what it had, and gives back other bytes
// than it was given. What is wrong with one is settled when it is kept, or when the store is opened again.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/state/stored_states.h"

namespace baton::fake {

enum class StoreTrouble : uint8_t {
  kFull,       // keeping one fails
  kDamaged,    // a bit of it is another when it is read
  kBreaksOff,  // reading it fails after a while
  kLost,       // so does opening it
  kGone,       // somebody else removed it: it is not found
};

class FakeStore final : public StoredStates {
 public:
  // `happens` is asked where trouble may be.
  FakeStore(uint64_t bytes_max, std::function<bool(StoreTrouble)> happens)
      : bytes_max_(bytes_max), happens_(std::move(happens)) {}

  std::optional<CachedState> find(std::span<const int32_t> tokens, uint64_t above,
                                  const std::function<bool(const Provenance&)>& accepts) override {
    Entry* best = nullptr;
    for (Entry& entry : entries_) {
      const bool begins =
          entry.tokens.size() <= tokens.size() && std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin());
      if (entry.refused || !begins || entry.tokens.size() <= above || !accepts(entry.provenance)) continue;
      if (best == nullptr || entry.tokens.size() > best->tokens.size()) best = &entry;
    }
    if (best == nullptr) return std::nullopt;
    if (happens_(StoreTrouble::kGone)) {
      best->refused = true;
      return std::nullopt;
    }
    best->used = ++now_;
    const auto give = [block = best->block, bad = best->bad, given = best->given](const SealSink& sink) -> Status {
      *given = true;
      if (bad == StoreTrouble::kLost) return fail(Code::kNotFound, "the file is gone");
      return SealSource::borrowed(*block).give([&](uint64_t offset, std::span<const std::byte> part) -> Status {
        const bool ends = bad == StoreTrouble::kBreaksOff && offset + part.size() > block->size() / 2;
        return ends ? fail(Code::kDevice, "the file cannot be read") : sink(offset, part);
      });
    };
    return CachedState{best->tokens, best->provenance, best->file, SealSource(best->block->size(), give)};
  }

  bool contains(std::span<const int32_t> tokens, const std::function<bool(const Provenance&)>& like) const override {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return !entry.refused && std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end()) &&
             like(entry.provenance);
    });
  }

  Result<bool> keep(const SealSource& state, std::span<const int32_t> tokens, const Provenance& provenance,
                    double) override {
    if (state.size() > bytes_max_) return false;
    if (happens_(StoreTrouble::kFull)) return fail(Code::kDevice, "no space is left");
    BATON_TRY(std::vector<std::byte> block, state.block());
    uint64_t bytes = block.size();
    for (const Entry& entry : entries_) bytes += entry.block->size();
    while (bytes > bytes_max_) {
      const auto least = std::min_element(entries_.begin(), entries_.end(),
                                          [](const Entry& a, const Entry& b) { return a.used < b.used; });
      bytes -= least->block->size();
      entries_.erase(least);
    }
    Entry& entry = entries_.emplace_back();
    entry.file = "state" + std::to_string(++now_);
    entry.tokens.assign(tokens.begin(), tokens.end());
    entry.provenance = provenance;
    entry.used = now_;
    entry.block = std::make_shared<std::vector<std::byte>>(std::move(block));
    sound_[entry.file] = entry.tokens;
    spoil(entry);
    ++kept_;
    return true;
  }

  void refuse(const std::filesystem::path& file, bool damaged) override {
    const auto entry =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) { return each.file == file; });
    ++refused_;
    if (entry == entries_.end()) return;
    entry->refused = true;
    if (damaged) entries_.erase(entry);
  }
  uint64_t bytes_max() const override { return bytes_max_; }

  // By the next process: what was left there is there, if nothing came to it meanwhile.
  void open_again() {
    for (Entry& entry : entries_) {
      entry.refused = false;
      *entry.given = false;
      if (!entry.bad) spoil(entry);
    }
  }
  // Whether a state of these tokens was given under this name, and holds; also of one that made room for others since.
  bool holds(const std::string& file, std::span<const int32_t> tokens) const {
    const auto found = sound_.find(file);
    return found != sound_.end() &&
           std::equal(found->second.begin(), found->second.end(), tokens.begin(), tokens.end());
  }
  // One that was read, does not hold, and would be found again.
  bool believes_a_bad_one() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.bad && *entry.given && !entry.refused; });
  }
  uint64_t kept() const { return kept_; }
  uint64_t refused() const { return refused_; }

 private:
  struct Entry {
    std::string file;
    std::vector<int32_t> tokens;
    Provenance provenance;
    std::shared_ptr<std::vector<std::byte>> block;
    std::shared_ptr<bool> given = std::make_shared<bool>(false);  // read since the store was opened
    std::optional<StoreTrouble> bad;
    uint64_t used = 0;
    bool refused = false;
  };
  void spoil(Entry& entry) {
    for (const StoreTrouble each : {StoreTrouble::kDamaged, StoreTrouble::kBreaksOff, StoreTrouble::kLost}) {
      if (!happens_(each)) continue;
      entry.bad = each;
      sound_.erase(entry.file);
      if (each == StoreTrouble::kDamaged) (*entry.block)[7919 * now_ % entry.block->size()] ^= std::byte{16};
      return;
    }
  }

  const uint64_t bytes_max_;
  const std::function<bool(StoreTrouble)> happens_;
  std::vector<Entry> entries_;
  std::map<std::string, std::vector<int32_t>> sound_;  // by file, of all that hold: the tokens
  uint64_t now_ = 0, kept_ = 0, refused_ = 0;
};

}  // namespace baton::fake
