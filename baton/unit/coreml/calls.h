// What messages to Core ML are made of: its classes, texts and numbers of its kinds, and objects that it loads on a
// queue of its own.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/apple/objc.h"

namespace baton::coreml {

using ObjcBool = unsigned char;
using Integer = long;            // NSInteger
using Unsigned = unsigned long;  // NSUInteger

// What the messages need, found once.
struct Calls {
  apple::ObjcApi objc;
  apple::ObjcId string_class = nullptr, url_class = nullptr, number_class = nullptr, array_class = nullptr,
                dictionary_class = nullptr, process_class = nullptr, model_class = nullptr,
                configuration_class = nullptr, array_value_class = nullptr, feature_class = nullptr,
                provider_class = nullptr;
  // Null before macOS 14.4.
  apple::ObjcId plan_class = nullptr, ane_class = nullptr, gpu_class = nullptr, cpu_class = nullptr;
  void* block_isa = nullptr;

  Status find(const apple::SymbolLookup& lookup);

  apple::ObjcId string(const std::string& text) const {
    return objc.send<apple::ObjcId>(string_class, "stringWithUTF8String:", text.c_str());
  }
  std::string text_of(apple::ObjcId text) const {
    const char* bytes = objc.send<const char*>(text, "UTF8String");
    return bytes != nullptr ? bytes : "";
  }
  apple::ObjcId url(const std::filesystem::path& path) const {
    return objc.send<apple::ObjcId>(url_class, "fileURLWithPath:isDirectory:", string(path.string()), ObjcBool{1});
  }
  apple::ObjcId number(Integer value) const {
    return objc.send<apple::ObjcId>(number_class, "numberWithInteger:", value);
  }
  apple::ObjcId array(const std::vector<apple::ObjcId>& items) const {
    return objc.send<apple::ObjcId>(array_class,
                                    "arrayWithObjects:count:", static_cast<const apple::ObjcId*>(items.data()),
                                    static_cast<Unsigned>(items.size()));
  }
  apple::ObjcId integers(const std::vector<int64_t>& values) const {
    std::vector<apple::ObjcId> items;
    for (const int64_t value : values) items.push_back(number(static_cast<Integer>(value)));
    return array(items);
  }
  std::vector<int64_t> values_of(apple::ObjcId numbers) const {
    std::vector<int64_t> out;
    const auto count = objc.send<Unsigned>(numbers, "count");
    for (Unsigned i = 0; i < count; ++i) {
      out.push_back(objc.send<Integer>(objc.send<apple::ObjcId>(numbers, "objectAtIndex:", i), "integerValue"));
    }
    return out;
  }
  // Takes over the one retain that alloc and init gave.
  apple::ObjcRef adopt(apple::ObjcId object) const {
    apple::ObjcRef owner(objc, object);
    objc.send<void>(object, "release");
    return owner;
  }
  tl::unexpected<Error> refused(apple::ObjcId error, std::string_view doing) const {
    return fail(Code::kDevice,
                fmt::format("Core ML: {}: {}", doing,
                            error != nullptr ? text_of(objc.send<apple::ObjcId>(error, "localizedDescription"))
                                             : std::string("no error given")));
  }
};

// [type loadContentsOfURL:configuration:completionHandler:]; kDevice with the system's words, or when no answer
// came in time.
Result<apple::ObjcRef> load_contents(const Calls& calls, apple::ObjcId type, const std::string& doing,
                                     apple::ObjcId url, apple::ObjcId configuration, std::chrono::milliseconds timeout);

}  // namespace baton::coreml
