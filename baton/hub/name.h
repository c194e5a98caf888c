// Names of models on a hub: OWNER/NAME[:TYPE], and of files and versions there. What these functions let through is
// safe as a part of a path and of a URL.
#pragma once

#include <string>
#include <string_view>

#include "baton/base/status.h"

namespace baton::hub {

struct RepoName {
  std::string owner;  // empty: of the few old repositories without one
  std::string name;
  std::string type;  // of a GGUF file ("Q4_K_M"), or "safetensors"; as it was written; empty: none was given

  std::string id() const { return owner.empty() ? name : owner + "/" + name; }
  std::string text() const { return type.empty() ? id() : id() + ":" + type; }
  // "models--owner--name": its folder in a cache.
  std::string folder() const;
};

// "hf.co/", "huggingface.co/", "hf://" and "https://" of these in front are left out. kInvalidInput says which rule is
// broken: 1 to 96 of A-Z a-z 0-9 . _ - in each part, no "--", "..", no '.' or '-' at an end.
Result<RepoName> parse_repo(std::string_view text);
// Whether it is written like a name with an owner, and so might be meant as one.
bool like_repo(std::string_view text);
// The name of such a folder; an Error for any other.
Result<RepoName> repo_of_folder(std::string_view folder);

// A path below a repository: no "..", no empty part, nothing absolute, no '\\', no control characters.
bool good_file(std::string_view path);
// A branch, a tag or a commit.
bool good_revision(std::string_view revision);
bool good_commit(std::string_view commit);  // 40 hex digits
// What a file's bytes are called, and so a file in `blobs`.
bool good_etag(std::string_view etag);

// Each part of the path with what a URL cannot hold as %XX.
std::string url_path(std::string_view path);

std::string lower_case(std::string_view text);

}  // namespace baton::hub
