// Where a hub is, and its cache on this machine: the variables that huggingface_hub reads, so that both share one.
#pragma once

#include <filesystem>
#include <string>

#include "baton/base/status.h"

namespace baton::hub {

struct Settings {
  std::filesystem::path cache;  // HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT, without '/' at its end
  std::string token;     // HF_TOKEN, else the file of HF_TOKEN_PATH or HF_HOME/token; empty: none. Never shown
  bool offline = false;  // HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
};

// kInvalidInput: an endpoint that is none, a token with characters that no header holds, no home folder.
Result<Settings> read_settings();
// `cache` of these alone; empty: no variable says where it is.
std::filesystem::path cache_place();

}  // namespace baton::hub
