// Names in published files that may go unread, because nothing that a text model computes depends on them. What is not
// here and switches something on is refused by name (ConfigReader::refuse_unread, ModelBuilder::finish).
#pragma once

#include <span>
#include <string_view>

namespace baton {

// Fields of config.json (the text model's object). '*' ends or begins what stands for many.
std::span<const std::string_view> harmless_fields();
// GGUF keys, without "<architecture>.".
std::span<const std::string_view> harmless_keys();

// Fields and keys that are false where nothing is said, so that a false one says nothing.
std::span<const std::string_view> off_by_default();

// Why a tensor needs no reader ("vision tower", "multi-token prediction head", ...), or empty: it needs one.
std::string_view harmless_tensor(std::string_view name);

}  // namespace baton
