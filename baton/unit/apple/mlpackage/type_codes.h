// Numbers of types in packages: MIL DataType and ArrayFeatureType.ArrayDataType of the types in use.
#pragma once

#include <array>
#include <cstdint>

#include "baton/unit/apple/mil.h"

namespace baton::apple {

struct TypeCode {
  MilType type;
  uint32_t mil;
  uint32_t feature;  // 0: not of features
};
inline constexpr std::array kTypeCodes = {
    TypeCode{MilType::kBool, 1, 0},      TypeCode{MilType::kString, 2, 0},     TypeCode{MilType::kFp16, 10, 65552},
    TypeCode{MilType::kFp32, 11, 65568}, TypeCode{MilType::kInt8, 21, 131080}, TypeCode{MilType::kInt32, 23, 131104},
    TypeCode{MilType::kUint8, 31, 0},    TypeCode{MilType::kUint64, 34, 0},
};

}  // namespace baton::apple
