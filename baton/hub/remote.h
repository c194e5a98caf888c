// A hub as its interface has it: what a repository holds, and where the bytes of a file are. The token goes to the hub
// itself, to no host that it sends us to.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/hub/http.h"
#include "baton/hub/name.h"
#include "baton/hub/settings.h"

namespace baton::hub {

// What a caller watches and decides while something is fetched. Called on its own thread.
struct Watch {
  std::function<bool()> cancelled;                    // asked some ten times a second; null: never
  std::function<void(const std::string& text)> note;  // "503 of HOST: again in 2 s"; null: nobody reads it
  uint32_t retry_ms = 500;                            // before the first of the further tries; each waits twice as long

  bool stops() const { return cancelled && cancelled(); }
  void say(const std::string& text) const {
    if (note) note(text);
  }
};

inline constexpr int kTriesMax = 6;

// Whether to ask again may help: the network, 408, 429 and most of 5xx.
bool may_pass(const Exchange& exchange);
// Before try `tries` + 1: Retry-After where it came, at most two minutes.
std::chrono::milliseconds wait_before(const Exchange& exchange, int tries, uint32_t retry_ms);
// "500 Internal Server Error", or what the network did; with the host.
std::string what_happened(const Exchange& exchange);

struct RemoteFile {
  std::string path;  // in the repository
  std::string etag;  // good_etag
  uint64_t bytes = 0;
  std::string url;  // where its bytes are now: such places expire
};

struct Listing {
  std::string commit;
  std::vector<std::string> files;  // good_file each; others are left out
};

class Remote {
 public:
  // All outlive it.
  Remote(Http& http, const Settings& settings, const Watch& watch) : http_(http), settings_(settings), watch_(watch) {}

  // kNotFound, kInvalidInput (no access): in words that say what mends it.
  Result<Listing> list(const RepoName& name, const std::string& revision);
  // kMismatch: it is of another commit.
  Result<RemoteFile> look(const RepoName& name, const std::string& commit, const std::string& file);
  // What may be sent there.
  std::string token_for(std::string_view url) const;
  // Where an answer sends us; an Error where that is nowhere, or from https to http.
  static Result<std::string> next_url(const Exchange& exchange);

 private:
  // Follows, and tries again. A HEAD ends at another host: its URL is that, its headers are those on the way there.
  Result<Exchange> ask(std::string url, bool head);
  Status run(Exchange& exchange);
  Error refused(const RepoName& name, const std::string& revision, const Exchange& exchange) const;

  Http& http_;
  const Settings& settings_;
  const Watch& watch_;
};

// Waits, and looks whether it is to stop; kCancelled then.
Status pause(std::chrono::milliseconds time, const Watch& watch);

}  // namespace baton::hub
