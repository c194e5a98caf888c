// Symbols of an Objective-C runtime.
#include "baton/unit/apple/objc.h"

#include <fmt/format.h>

namespace baton::apple {

Result<ObjcApi> find_objc(const SymbolLookup& lookup) {
  ObjcApi api;
  api.get_class = reinterpret_cast<decltype(api.get_class)>(lookup("objc_getClass"));
  api.register_name = reinterpret_cast<decltype(api.register_name)>(lookup("sel_registerName"));
  api.msg_send = lookup("objc_msgSend");
  api.msg_lookup = reinterpret_cast<decltype(api.msg_lookup)>(lookup("objc_msg_lookup"));
  api.pool_push = reinterpret_cast<decltype(api.pool_push)>(lookup("objc_autoreleasePoolPush"));
  api.pool_pop = reinterpret_cast<decltype(api.pool_pop)>(lookup("objc_autoreleasePoolPop"));
  if (api.pool_push == nullptr || api.pool_pop == nullptr) api.pool_push = nullptr, api.pool_pop = nullptr;
  const char* missing = api.get_class == nullptr                               ? "objc_getClass"
                        : api.register_name == nullptr                         ? "sel_registerName"
                        : api.msg_send == nullptr && api.msg_lookup == nullptr ? "objc_msgSend"
                                                                               : nullptr;
  if (missing != nullptr)
    return fail(Code::kUnsupported, fmt::format("no Objective-C runtime here: '{}' is missing", missing));
  return api;
}

}  // namespace baton::apple
