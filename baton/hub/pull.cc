// The order of things, and the files of the cache.
#include "baton/hub/pull.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "baton/base/file.h"
#include "baton/hub/choose.h"
#include "baton/hub/lock.h"

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpaceLeft = uint64_t{64} << 20;

bool is_there(const fs::path& blob, uint64_t bytes) {
  std::error_code error;
  return fs::is_regular_file(blob, error) && fs::file_size(blob, error) == bytes;
}

// snapshots/COMMIT/a/b -> ../../../blobs/ETAG; where there are no links, the file itself.
Status link_file(const fs::path& link, const fs::path& blob) {
  std::error_code error;
  if (fs::equivalent(link, blob, error) && !error) return {};
  BATON_OK(make_folders(link.parent_path()));
  const fs::path target = blob.lexically_relative(link.parent_path());
  const fs::path made = link.string() + fmt::format(".link-{}", ::getpid());
  fs::remove(made, error);
  fs::create_symlink(target, made, error);
  if (!error) {
    fs::rename(made, link, error);
    return error ? Status(cache_error(link, error.value())) : Status();
  }
  fs::rename(blob, link, error);
  return error ? Status(cache_error(link, error.value())) : Status();
}

Status write_text(const fs::path& path, std::string_view text) {
  BATON_OK(make_folders(path.parent_path()));
  BATON_TRY(FileWriter writer, FileWriter::create(path));
  BATON_OK(writer.write(std::as_bytes(std::span(text.data(), text.size()))));
  return writer.commit();
}

// So that programs for backups pass it by: https://bford.info/cachedir/
void tag_cache(const fs::path& root) {
  std::error_code error;
  if (fs::exists(root / "CACHEDIR.TAG", error)) return;
  static_cast<void>(write_text(root / "CACHEDIR.TAG",
                               "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of models of a hub.\n"));
}

Status check_space(const fs::path& root, uint64_t needed) {
  std::error_code error;
  fs::path there = root;
  while (!there.empty() && !fs::exists(there, error) && there != there.parent_path()) there = there.parent_path();
  const fs::space_info space = fs::space(there.empty() ? fs::path(".") : there, error);
  const bool fits = space.available >= kSpaceLeft && space.available - kSpaceLeft >= needed;
  if (error || fits || needed == 0) return {};
  return fail(Code::kOutOfMemory,
              fmt::format("{}: {} bytes are needed and {} are free there: make room (`baton ls`, `baton rm`), or set "
                          "HF_HUB_CACHE to a folder of another disk",
                          root.string(), needed, space.available));
}

class Puller {
 public:
  Puller(Http& http, const RepoName& name, const PullOptions& options)
      : http_(http),
        name_(name),
        options_(options),
        remote_(http, options.settings, options.watch),
        cache_(options.settings.cache),
        folder_(cache_.folder(name)) {}

  Result<Pulled> run() {
    BATON_TRY(const Listing listing, remote_.list(name_, options_.revision));
    commit_ = listing.commit;
    BATON_TRY(Variant variant, choose(name_, listing.files));
    if (!variant.whole)
      return fail(Code::kNotFound,
                  fmt::format("{}: {} of it is not whole there: files are missing", name_.id(), variant.type));
    std::vector<RemoteFile> files;
    for (const std::string& file : variant.files) {
      BATON_TRY(files.emplace_back(), remote_.look(name_, commit_, file));
    }
    BATON_OK(make_folders(cache_.root()));
    // Until the end: what is there when it is looked for is there when it is linked.
    BATON_TRY(const auto lock,
              CacheLock::take(CacheLock::of_repo(cache_.root(), name_), CacheLock::Kind::kShared, options_.watch,
                              fmt::format("{} is removed by another program", name_.id())));
    for (const RemoteFile& file : files) {
      const uint64_t missing = is_there(blob(file), file.bytes) ? 0 : file.bytes - begun(file);
      progress_.bytes += std::min(missing, std::numeric_limits<uint64_t>::max() - progress_.bytes);
    }
    BATON_OK(check_space(cache_.root(), progress_.bytes));
    BATON_OK(make_folders(folder_ / "blobs"));
    tag_cache(cache_.root());
    for (const RemoteFile& file : files) BATON_OK(pull_file(file));
    for (const RemoteFile& file : files) BATON_OK(check_there(file));
    if (options_.revision != commit_) BATON_OK(write_text(folder_ / "refs" / options_.revision, commit_));
    return pulled(std::move(variant));
  }

 private:
  fs::path blob(const RemoteFile& file) const { return folder_ / "blobs" / file.etag; }
  fs::path part(const RemoteFile& file) const { return folder_ / "blobs" / (file.etag + ".incomplete"); }
  // What an interrupted pull left of it.
  uint64_t begun(const RemoteFile& file) const {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(part(file), error);
    return error || bytes > file.bytes ? 0 : bytes;
  }

  Status pull_file(const RemoteFile& file) {
    PulledFile told{file.path, file.etag, file.bytes, false, sum_kind(file.etag) != SumKind::kNone};
    const fs::path link = folder_ / "snapshots" / commit_ / file.path;
    if (!is_there(blob(file), file.bytes) && !is_plain_file(link, file.bytes)) {
      BATON_TRY(const auto lock,
                CacheLock::take(CacheLock::of_blob(cache_.root(), name_, file.etag), CacheLock::Kind::kAlone,
                                options_.watch, fmt::format("{} is fetched by another program", file.path)));
      if (!is_there(blob(file), file.bytes)) {
        BATON_OK(fetch(file));
        told.fetched = true;
      }
    }
    if (!is_plain_file(link, file.bytes)) BATON_OK(link_file(link, blob(file)));
    files_.push_back(std::move(told));
    return {};
  }

  // Programs that know no lock of a repository may have removed what was there.
  Status check_there(const RemoteFile& file) const {
    if (is_there(folder_ / "snapshots" / commit_ / file.path, file.bytes)) return {};
    return fail(Code::kMismatch,
                fmt::format("{}: another program removed it while {} was pulled: pull again", file.path, name_.id()));
  }

  // On a file system without links a snapshot holds the files themselves.
  static bool is_plain_file(const fs::path& path, uint64_t bytes) {
    std::error_code error;
    return fs::is_regular_file(fs::symlink_status(path, error)) && fs::file_size(path, error) == bytes;
  }

  Status fetch(const RemoteFile& file) {
    if (sum_kind(file.etag) == SumKind::kNone)
      options_.watch.say(fmt::format("{}: the hub tells no sum of it: only its size is checked", file.path));
    const uint64_t at_start = begun(file), before = progress_.done;
    progress_.file = file.path;
    progress_.etag = file.etag;
    progress_.file_bytes = file.bytes;
    const auto show = [&](uint64_t done) {
      progress_.file_done = done;
      progress_.done = before + (done > at_start ? done - at_start : 0);
      if (options_.progress) options_.progress(progress_);
    };
    show(at_start);
    Download download(
        http_, remote_, options_.watch, file, [&] { return remote_.look(name_, commit_, file.path); }, options_.limits,
        show);
    BATON_OK(download.fetch_into(part(file)));
    show(file.bytes);
    fetched_ += file.bytes - std::min(at_start, file.bytes);
    return download.move_to(blob(file));
  }

  Result<Pulled> pulled(Variant variant) {
    Pulled made;
    made.model.name = name_;
    made.model.name.type = variant.type;
    made.model.commit = commit_;
    const fs::path snapshot = folder_ / "snapshots" / commit_;
    made.model.path = variant.entry.empty() ? snapshot : snapshot / variant.entry;
    made.model.files = std::move(variant.files);
    for (const PulledFile& file : files_) made.model.bytes += file.bytes;
    made.files = std::move(files_);
    made.bytes_fetched = fetched_;
    return made;
  }

  Http& http_;
  const RepoName name_;
  const PullOptions& options_;
  Remote remote_;
  const Cache cache_;
  const fs::path folder_;
  std::string commit_;
  PullProgress progress_;
  std::vector<PulledFile> files_;
  uint64_t fetched_ = 0;
};

}  // namespace

Result<Pulled> pull(const RepoName& name, const PullOptions& options) {
  if (!good_revision(options.revision))
    return fail(Code::kInvalidInput, fmt::format("'{}' is no name of a branch, a tag or a commit", options.revision));
  if (options.settings.offline) {
    auto found = Cache(options.settings.cache).find(name);
    if (!found)
      return fail(Code::kUnavailable,
                  fmt::format("HF_HUB_OFFLINE is set, so nothing is fetched: {}", found.error().message));
    return Pulled{*std::move(found), {}, 0};
  }
  BATON_TRY(const auto http, Http::create());
  return Puller(*http, name, options).run();
}

}  // namespace baton::hub
