// Names of the enumerations in a request and its end.
#include "baton/engine/request.h"

namespace baton {

std::string_view to_string(VerifyMode mode) {
  switch (mode) {
    case VerifyMode::kOff:
      return "off";
    case VerifyMode::kSample:
      return "sample";
    case VerifyMode::kAll:
      return "all";
  }
  return "unknown";
}

Result<VerifyMode> parse_verify_mode(std::string_view text) {
  for (const VerifyMode mode : {VerifyMode::kOff, VerifyMode::kSample, VerifyMode::kAll}) {
    if (text == to_string(mode)) return mode;
  }
  return fail(Code::kInvalidInput, "verify mode '" + std::string(text) + "': use off, sample or all");
}

std::string_view to_string(ReuseMode mode) {
  switch (mode) {
    case ReuseMode::kOff:
      return "off";
    case ReuseMode::kExact:
      return "exact";
    case ReuseMode::kAny:
      return "any";
  }
  return "?";
}

std::string_view to_string(BridgeLevel level) {
  switch (level) {
    case BridgeLevel::kNone:
      return "none";
    case BridgeLevel::kSealed:
      return "sealed";
    case BridgeLevel::kProven:
      return "proven";
  }
  return "unknown";
}

std::string_view to_string(BridgeKind kind) {
  switch (kind) {
    case BridgeKind::kNone:
      return "none";
    case BridgeKind::kAlias:
      return "alias";
    case BridgeKind::kMove:
      return "move";
    case BridgeKind::kAdopt:
      return "adopt";
    case BridgeKind::kOpen:
      return "open";
  }
  return "unknown";
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace baton
