// The bytes of one file, over several connections, into a file that always holds its beginning: what is interrupted
// goes on from there, by us or by huggingface_hub.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "baton/base/status.h"
#include "baton/hub/http.h"
#include "baton/hub/remote.h"
#include "baton/hub/sum.h"

namespace baton::hub {

struct DownloadLimits {
  uint32_t connections = 4;
  uint64_t piece_bytes = uint64_t{8} << 20;  // of a request; at most twice as many as connections are in memory
};

class Download {
 public:
  using Progress = std::function<void(uint64_t done)>;
  // `look`: where the bytes are now, when they are no longer where they were. All outlive it.
  Download(Http& http, const Remote& remote, const Watch& watch, RemoteFile file,
           std::function<Result<RemoteFile>()> look, DownloadLimits limits, Progress progress);
  ~Download();

  // Into `part`, from where it ends. When it returns well, all of it is there, and its sum is the etag's, where that is
  // one. kCorrupt: the sum differs, and `part` is gone. Any other error leaves what came.
  Status fetch_into(const std::filesystem::path& part);
  // Then: the file that was summed, and no other that took its place, gets the name. kMismatch: another did.
  Status move_to(const std::filesystem::path& blob);

 private:
  struct Piece;
  enum class Mode { kPieces, kWhole };

  Status open(const std::filesystem::path& part);
  Status begin_anew();
  Status fetch();
  void add_pieces();
  void start_pieces();
  Status take(Piece& piece);
  Status take_ended(Piece& piece);
  Status take_other_status(Piece& piece);
  Status fail_or_wait(Piece& piece);
  Status write_front();
  Status write(std::string_view bytes);
  Status finish();
  Status check_own(const std::filesystem::path& path) const;
  void drop_pieces();

  Http& http_;
  const Remote& remote_;
  const Watch& watch_;
  RemoteFile file_;
  const std::function<Result<RemoteFile>()> look_;
  const DownloadLimits limits_;
  const Progress progress_;
  Sum sum_;
  Mode mode_ = Mode::kPieces;
  std::filesystem::path part_;
  int fd_ = -1;
  uint64_t written_ = 0, next_ = 0;
  int looks_ = 0, hops_ = 0;
  bool again_ = false;  // pieces are dropped, and asked for in another way
  std::deque<std::unique_ptr<Piece>> pieces_;
};

}  // namespace baton::hub
