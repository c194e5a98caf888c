// Names of error codes, and the end of the process on a bug.
#include "baton/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace baton {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kInvalidInput:
      return "invalid input";
    case Code::kNotFound:
      return "not found";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kMismatch:
      return "mismatch";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDevice:
      return "device";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "baton: bug: %s is false (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace baton
