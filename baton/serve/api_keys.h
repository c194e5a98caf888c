// Who may ask: keys by their hashes, and what share each has.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::serve {

struct ApiKey {
  std::string name;                   // for metrics and logs; never the key
  std::array<uint8_t, 32> hash{};     // SHA-256 of the key
  uint32_t weight = 1;                // share of the queue and of the lanes, up to kWeightMax
  uint32_t waiting_max = UINT32_MAX;  // its requests that may wait
  uint32_t running_max = UINT32_MAX;  // and run at once
  uint32_t requests_per_minute = 0;   // 0: as many as it likes
  uint32_t tokens_per_minute = 0;     // of prompts and answers
};

class ApiKeys {
 public:
  // A key a line: the key, or "sha256:" and its hash in hex; behind it name=TEXT, weight=N, waiting=N, running=N,
  // requests_per_minute=N and tokens_per_minute=N. '#' begins a comment. Errors name the file and line, and never a
  // key.
  static Result<ApiKeys> read(const std::filesystem::path& file);
  Status add(std::string_view key, std::string name);

  bool empty() const { return keys_.empty(); }
  const std::vector<ApiKey>& all() const { return keys_; }
  // Its number. Takes the same time whichever of them it is, and for one that is none of them.
  std::optional<uint32_t> find(std::string_view key) const;

 private:
  Status add_line(std::string_view line);
  std::vector<ApiKey> keys_;
};

}  // namespace baton::serve
