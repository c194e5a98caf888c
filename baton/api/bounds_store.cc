// The file of measured bounds: JSON with the identity of the model, the digest of the sequences and a checksum.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "baton/api/calibration.h"
#include "baton/base/cache_folder.h"
#include "baton/base/file.h"
#include "baton/state/checksum.h"

namespace baton {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr size_t kFileBytesMax = size_t{16} << 20;

constexpr double kDifferenceMax = 1e6;  // relative differences, and logits: far above any unit's that works

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

Ordered json_of(const ProofBounds& honest) {
  Ordered segments = Ordered::array();
  for (const SegmentBounds& each : honest.segments) {
    segments.push_back({each.rms, each.head.rms, each.head.largest});
  }
  return {{"segments", segments}, {"logits", {honest.logits.rms, honest.logits.largest, honest.logits.kl}}};
}

// Throws a Ordered exception for what is not of the form; false for a number that cannot be a difference.
bool read_honest(const Ordered& json, ProofBounds& honest) {
  bool good = true;
  const auto number = [&](const Ordered& value) {
    const double read = value.get<double>();
    good = good && read >= 0 && read < kDifferenceMax;
    return read;
  };
  for (const Ordered& each : json.at("segments")) {
    honest.segments.push_back({number(each.at(0)), {number(each.at(1)), number(each.at(2))}});
  }
  const Ordered& logits = json.at("logits");
  honest.logits = {number(logits.at(0)), number(logits.at(1)), number(logits.at(2))};
  return good;
}

uint64_t sum_of(const Ordered& pairs) {
  const std::string text = pairs.dump();
  return checksum(std::as_bytes(std::span(text)));
}

}  // namespace

BoundsStore BoundsStore::open(const std::filesystem::path& model, const Fingerprints& prints, uint64_t sequences) {
  BoundsStore store;
  store.prints_ = prints;
  store.sequences_ = sequences;
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) {
    store.places_.push_back(model / "bounds.json");
  } else {
    store.places_.push_back(model.string() + ".bounds.json");
  }
  if (const auto cache = cache_folder(); !cache.empty()) {
    store.places_.push_back(cache / "bounds" / fmt::format("{}-{}.json", hex(prints.model), hex(prints.quantization)));
  }
  for (const auto& place : store.places_) {
    if (!std::filesystem::exists(place, ignored)) continue;
    if (const Status read = store.read(place)) {
      store.file_ = place;
      store.note_.clear();
      break;
    } else {
      store.entries_.clear();
      store.note_ = read.error().message;
    }
  }
  return store;
}

Status BoundsStore::read(const std::filesystem::path& path) try {
  const auto refuse = [&](const std::string& why) {
    return fail(Code::kCorrupt, fmt::format("{}: {}: the bounds are measured again", path.string(), why));
  };
  BATON_TRY(const std::string bytes, read_file(path, kFileBytesMax));
  const Ordered json = Ordered::parse(bytes);
  if (json.at("format") != kFormat)
    return refuse(fmt::format("format {} is not {}", json.at("format").dump(), kFormat));
  const auto is = [&](const char* field, uint64_t mine) { return json.at(field) == hex(mine); };
  if (!is("model", prints_.model) || !is("quantization", prints_.quantization)) return refuse("of another model");
  if (!is("checksum", sum_of(json.at("pairs")))) return refuse("the checksum does not hold (damaged)");
  for (const Ordered& pair : json.at("pairs")) {
    Entry& entry = entries_.emplace_back();
    entry.kind = pair.at("kind").get<std::string>();
    entry.from = pair.at("from").get<std::string>();
    entry.to = pair.at("to").get<std::string>();
    entry.sequences = pair.at("sequences").get<std::string>();
    if (!read_honest(pair, entry.honest)) return refuse("a number is no difference");
  }
  return {};
} catch (const Ordered::exception& error) {
  return fail(Code::kCorrupt, fmt::format("{}: {}: the bounds are measured again", path.string(), error.what()));
}

std::optional<ProofBounds> BoundsStore::find(std::string_view kind, const std::string& from,
                                             const std::string& to) const {
  for (const Entry& entry : entries_) {
    if (entry.sequences == hex(sequences_) && entry.kind == kind && entry.from == from && entry.to == to) {
      return entry.honest;
    }
  }
  return std::nullopt;
}

std::string BoundsStore::text() const {
  Ordered pairs = Ordered::array();
  for (const Entry& entry : entries_) {
    Ordered pair = {{"kind", entry.kind}, {"from", entry.from}, {"to", entry.to}, {"sequences", entry.sequences}};
    pair.update(json_of(entry.honest));
    pairs.push_back(std::move(pair));
  }
  const Ordered json = {{"format", kFormat},
                        {"about", "largest honest differences between units on this model, for the bridge proof"},
                        {"model", hex(prints_.model)},
                        {"quantization", hex(prints_.quantization)},
                        {"checksum", hex(sum_of(pairs))},
                        {"pairs", pairs}};
  return json.dump(1) + "\n";
}

Status BoundsStore::add(std::string_view kind, const std::string& from, const std::string& to,
                        const ProofBounds& honest) {
  // What another process has measured meanwhile stays.
  BoundsStore now(*this);
  now.entries_.clear();
  if (now.read(file_.empty() ? places_.front() : file_)) entries_ = std::move(now.entries_);
  std::erase_if(entries_,
                [&](const Entry& entry) { return entry.kind == kind && entry.from == from && entry.to == to; });
  entries_.push_back({std::string(kind), from, to, hex(sequences_), honest});
  const std::string written = text();
  Status last;
  for (const auto& place : places_) {
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored) && !std::filesystem::is_regular_file(place, ignored)) {
      last = fail(Code::kInvalidInput, fmt::format("{}: is not a file, and is left as it is", place.string()));
      continue;
    }
    if (&place != &places_.front()) std::filesystem::create_directories(place.parent_path(), ignored);
    auto writer = FileWriter::create(place);
    last = writer ? writer->write(std::as_bytes(std::span(written))) : fail(std::move(writer).error());
    if (last) last = writer->commit();
    if (!last) continue;
    file_ = place;
    return {};
  }
  return last;
}

}  // namespace baton
