// Text of untrusted files: names that may go into a message, and JSON with bounded depth.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "baton/model/container.h"

namespace baton {

// Not empty, valid UTF-8, no control characters.
bool is_name(std::string_view text);

// For messages: at most 80 bytes, anything but printable ASCII replaced by '?'.
std::string shown(std::string_view text);

// Whole text; at most `depth_max` nested arrays and objects, checked before parsing. NaN and Infinity are refused.
// Errors name `name` and the position.
Result<Json> parse_json(std::string_view text, std::string_view name, int depth_max);

// Whether a file or folder is there. An Error when that cannot be told: no permission, a loop of links.
Result<bool> is_there(const std::filesystem::path& path);

// A JSON file of at most `bytes_max` bytes whose top level is an object.
Result<Json> read_json_object(const std::filesystem::path& path, size_t bytes_max);

}  // namespace baton
