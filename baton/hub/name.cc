// The rules are those of the hub, and a little narrower.
#include "baton/hub/name.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::hub {
namespace {

constexpr size_t kPartMax = 96, kFileMax = 512, kRevisionMax = 200, kEtagMax = 128;
constexpr std::string_view kSchemes[] = {"https://", "http://", "hf://"};
constexpr std::string_view kHosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}
bool all_plain(std::string_view text) { return std::all_of(text.begin(), text.end(), is_plain); }
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool good_part(std::string_view part) {
  if (part.empty() || part.size() > kPartMax || !all_plain(part) || has(part, "--") || has(part, "..")) return false;
  const auto ends_badly = [](char c) { return c == '.' || c == '-'; };
  return !ends_badly(part.front()) && !ends_badly(part.back()) && !part.ends_with(".git");
}
bool good_type(std::string_view type) {
  return !type.empty() && type.size() <= kPartMax && all_plain(type) && !has(type, "..");
}

std::string_view without_host(std::string_view text) {
  bool scheme = false;
  for (const std::string_view each : kSchemes) {
    if (!text.starts_with(each)) continue;
    text.remove_prefix(each.size());
    if (each == "hf://") return text;
    scheme = true;
    break;
  }
  for (const std::string_view host : kHosts) {
    if (text.starts_with(host)) return text.substr(host.size());
  }
  return scheme ? std::string_view() : text;
}

// "O/N/resolve/main/x-Q8_0.gguf", also blob, as a browser shows a file: its repository and the file's name as a type.
struct FileOf {
  std::string_view repo, stem;
};
FileOf file_of(std::string_view text) {
  for (const std::string_view middle : {"/resolve/main/", "/blob/main/"}) {
    const size_t at = text.find(middle);
    if (at == std::string_view::npos) continue;
    std::string_view file = text.substr(at + middle.size());
    file = file.substr(0, file.find('?'));
    file = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
    constexpr std::string_view kEnd = ".gguf";
    if (file.ends_with(kEnd)) return {text.substr(0, at), file.substr(0, file.size() - kEnd.size())};
    if (file.ends_with(".safetensors")) return {text.substr(0, at), "safetensors"};
  }
  return {};
}

bool good_parts(std::string_view path, bool (*good)(std::string_view part)) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (!good(path.substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::string RepoName::folder() const { return owner.empty() ? "models--" + name : "models--" + owner + "--" + name; }

Result<RepoName> parse_repo(std::string_view text) {
  const std::string_view given = text;
  text = without_host(text);
  RepoName made;
  if (const FileOf file = file_of(text); !file.repo.empty()) {
    made.type = file.stem;
    text = file.repo;
    if (!good_type(made.type))
      return fail(Code::kInvalidInput, fmt::format("'{}': names no file that is fetched alone; write {}", given, text));
  }
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    made.type = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!good_type(made.type))
      return fail(Code::kInvalidInput,
                  fmt::format("'{}': what stands behind the colon is no type, as in OWNER/NAME:Q4_K_M", given));
  }
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    made.owner = text.substr(0, slash);
    text = text.substr(slash + 1);
    if (!good_part(made.owner))
      return fail(Code::kInvalidInput, fmt::format("'{}' is no name of a model: OWNER/NAME or OWNER/NAME:TYPE, each of "
                                                   "letters, digits, '.', '_' and '-'",
                                                   given));
  }
  made.name = text;
  if (!good_part(made.name))
    return fail(Code::kInvalidInput, fmt::format("'{}' is no name of a model: OWNER/NAME or OWNER/NAME:TYPE, each of "
                                                 "letters, digits, '.', '_' and '-'",
                                                 given));
  return made;
}

bool like_repo(std::string_view text) {
  const auto parsed = parse_repo(text);
  return parsed && !parsed->owner.empty();
}

Result<RepoName> repo_of_folder(std::string_view folder) {
  constexpr std::string_view kModels = "models--";
  RepoName made;
  if (folder.starts_with(kModels)) {
    folder.remove_prefix(kModels.size());
    if (const size_t at = folder.find("--"); at != std::string_view::npos) {
      made.owner = folder.substr(0, at);
      folder.remove_prefix(at + 2);
      if (!good_part(made.owner)) folder = {};
    }
    made.name = folder;
  }
  if (!good_part(made.name)) return fail(Code::kNotFound, "no folder of a model");
  return made;
}

bool good_file(std::string_view path) {
  const auto good = [](std::string_view part) {
    const auto bad = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\'; };
    return !part.empty() && part != "." && part != ".." && std::none_of(part.begin(), part.end(), bad);
  };
  return !path.empty() && path.size() <= kFileMax && std::count(path.begin(), path.end(), '/') < 16 &&
         good_parts(path, good);
}

bool good_revision(std::string_view revision) {
  const auto good = [](std::string_view part) {
    return !part.empty() && all_plain(part) && part.front() != '.' && part.front() != '-' && !has(part, "..");
  };
  return !revision.empty() && revision.size() <= kRevisionMax && good_parts(revision, good);
}

bool good_commit(std::string_view commit) {
  return commit.size() == 40 && std::all_of(commit.begin(), commit.end(), is_hex);
}

bool good_etag(std::string_view etag) {
  return !etag.empty() && etag.size() <= kEtagMax && all_plain(etag) && etag.front() != '.' && !etag.ends_with('.') &&
         !etag.ends_with(".incomplete") && !etag.ends_with(".lock");
}

std::string url_path(std::string_view path) {
  std::string made;
  for (const char c : path) {
    if (is_plain(c) || c == '/' || c == '~') {
      made += c;
    } else {
      made += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return made;
}

std::string lower_case(std::string_view text) {
  std::string made(text);
  for (char& c : made) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return made;
}

}  // namespace baton::hub
