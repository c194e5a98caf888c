// A folder of sealed states.
#include "baton/state/state_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "baton/state/checksum.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 16;

// "0123456789abcdef-512t-830ms.state": what it is (identity, tokens, makers, key), and what weighs it.
std::string name_of(const StateCacheOptions& options, std::span<const int32_t> tokens, const Provenance& provenance,
                    double ms) {
  Checksum sum;
  if (options.key != nullptr) {
    MacSum mac(*options.key);
    mac.update(std::as_bytes(std::span("state cache")));
    sum.update(std::move(mac).value());
  }
  sum.update(std::as_bytes(std::span(&options.identity, 1)));
  sum.update(std::as_bytes(tokens));
  for (const std::string& line : to_lines(provenance)) sum.update(std::as_bytes(std::span(line)));
  return fmt::format("{:016x}-{}t-{:.0f}ms.state", sum.value(), tokens.size(), std::max(ms, 1.0));
}

bool same_state(const fs::path& file, const std::string& name) {
  return file.filename().string().compare(0, kDigits, name, 0, kDigits) == 0;
}

// A number that `unit` follows; both are taken off the text.
std::optional<uint64_t> take_number(std::string_view& text, std::string_view unit) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (error != std::errc() || text.substr(0, unit.size()) != unit) return std::nullopt;
  text.remove_prefix(unit.size());
  return number;
}

std::optional<CacheFile> parse_name(const fs::path& path) {
  const std::string name = path.filename().string();
  std::string_view text = name;
  if (text.find_first_not_of("0123456789abcdef") != kDigits || text[kDigits] != '-') return std::nullopt;
  text.remove_prefix(kDigits + 1);
  const auto tokens = take_number(text, "t-");
  const auto ms = tokens ? take_number(text, "ms.state") : std::nullopt;
  if (!ms || !text.empty()) return std::nullopt;
  return CacheFile{path, *tokens, static_cast<double>(*ms), 0, {}};
}

// Header and tokens, and no more.
class Head final : public SealedValues {
 public:
  Status begin(const SealedView& head) override {
    view = head;
    return {};
  }
  Status rows(size_t, uint64_t, std::span<const std::byte>) override { return {}; }

  std::optional<SealedView> view;
};

Error io_error(const fs::path& path, const std::error_code& error) {
  const bool missing = error == std::errc::no_such_file_or_directory;
  return {missing ? Code::kNotFound : Code::kInvalidInput, path.string() + ": " + error.message()};
}

double seconds_since(fs::file_time_type then) {
  return std::max(1.0, std::chrono::duration<double>(fs::file_time_type::clock::now() - then).count());
}

}  // namespace

Result<std::vector<CacheFile>> list_cache(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator at(folder, error);
  std::vector<CacheFile> files;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::optional<CacheFile> file = parse_name(at->path());
    std::error_code gone;  // removed by another process meanwhile
    if (!file || !fs::is_regular_file(at->symlink_status(gone))) continue;
    file->bytes = fs::file_size(file->path, gone);
    if (!gone) file->used = fs::last_write_time(file->path, gone);
    if (!gone) files.push_back(*std::move(file));
  }
  if (error) return fail(io_error(folder, error));
  std::sort(files.begin(), files.end(), [](const CacheFile& a, const CacheFile& b) {
    return a.used != b.used ? a.used < b.used : a.path < b.path;
  });
  return files;
}

Result<std::unique_ptr<StateCache>> StateCache::open(StateCacheOptions options) try {
  const fs::path& folder = options.folder;
  std::error_code error;
  if (fs::create_directory(folder, error)) {
    fs::permissions(folder, fs::perms::owner_all, error);
  } else if (!error && !fs::is_directory(folder, error)) {
    return fail(Code::kInvalidInput, folder.string() + ": a state cache is a folder, and this is none");
  }
  if (error) return fail(io_error(folder, error));
  BATON_TRY(const std::vector<CacheFile> files, list_cache(folder));
  std::unique_ptr<StateCache> cache(new StateCache(std::move(options)));
  for (const CacheFile& file : files) cache->read_head(file.path);
  cache->removed_at_open_ = cache->make_room(0, {});
  return cache;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for the list of a state cache");
}

void StateCache::read_head(const fs::path& file) {
  auto source = seal_file_source(file, options_.key);
  if (!source) return;
  const SealExpectation expected{options_.identity, &options_.shape, nullptr, options_.position_max, options_.vocab};
  Head head;
  SealReader reader(expected, &head, source->size());
  static_cast<void>(source->give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    BATON_OK(reader.take(offset, bytes));
    return head.view ? fail(Code::kCancelled, "enough was read") : Status();
  }));
  if (!head.view || head.view->tokens.empty()) return;
  // One that another key made, or somebody named.
  if (!same_state(file, name_of(options_, head.view->tokens, head.view->provenance, 0))) return;
  entries_.push_back({file, std::move(head.view->tokens), std::move(head.view->provenance)});
}

std::optional<CachedState> StateCache::find(std::span<const int32_t> tokens, uint64_t above,
                                            const std::function<bool(const Provenance&)>& accepts) {
  const std::lock_guard lock(mutex_);
  while (true) {
    const Entry* best = nullptr;
    for (const Entry& entry : entries_) {
      const size_t count = entry.tokens.size();
      if (count <= above || count > tokens.size() || (best != nullptr && count <= best->tokens.size())) continue;
      if (std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin()) && accepts(entry.provenance))
        best = &entry;
    }
    if (best == nullptr) return std::nullopt;
    auto source = seal_file_source(best->file, options_.key);
    if (source) {
      std::error_code ignored;
      fs::last_write_time(best->file, fs::file_time_type::clock::now(), ignored);
      return CachedState{best->tokens, best->provenance, best->file, *std::move(source)};
    }
    forget(fs::path(best->file));
  }
}

bool StateCache::contains(std::span<const int32_t> tokens, const std::function<bool(const Provenance&)>& like) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return std::equal(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end()) && like(entry.provenance);
  });
}

Result<bool> StateCache::keep(const SealSource& state, std::span<const int32_t> tokens, const Provenance& provenance,
                              double ms) {
  const uint64_t bytes = state.size() + (options_.key != nullptr ? kMacBytes : 0);
  if (bytes > options_.bytes_max) return false;
  const fs::path file = options_.folder / name_of(options_, tokens, provenance, ms);
  {
    const std::lock_guard lock(mutex_);
    make_room(bytes, file);
  }
  BATON_OK(write_seal_file(file, state, options_.key));
  const std::lock_guard lock(mutex_);
  forget(file);
  entries_.push_back({file, {tokens.begin(), tokens.end()}, provenance});
  return true;
}

StateCache::Removed StateCache::make_room(uint64_t bytes, const fs::path& coming) {
  auto listed = list_cache(options_.folder);
  Removed removed;
  if (!listed) return removed;  // what is to be written says it
  const auto drop = [&](const fs::path& file) {
    std::error_code ignored;
    fs::remove(file, ignored);
    forget(file);
  };
  uint64_t total = bytes;
  const auto same = [&](const CacheFile& file) { return same_state(file.path, coming.filename().string()); };
  for (const CacheFile& file : *listed) same(file) ? drop(file.path) : static_cast<void>(total += file.bytes);
  std::erase_if(*listed, same);
  const auto cost = [](const CacheFile& file) {
    return seconds_since(file.used) * static_cast<double>(file.bytes) / std::max(file.ms, 1.0);
  };
  std::stable_sort(listed->begin(), listed->end(),
                   [&](const CacheFile& a, const CacheFile& b) { return cost(a) > cost(b); });
  for (const CacheFile& file : *listed) {
    if (total <= options_.bytes_max) break;
    drop(file.path);
    total -= file.bytes;
    removed.bytes += file.bytes;
    ++removed.files;
  }
  return removed;
}

void StateCache::forget(const fs::path& file) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.file == file; });
}

void StateCache::refuse(const fs::path& file, bool damaged) {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;
  if (damaged) fs::remove(file, ignored);
  forget(file);
}

size_t StateCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace baton
