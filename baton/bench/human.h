// Figures as people read them: three digits and a unit.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

std::string bytes_text(uint64_t bytes);    // "98.1 MB": decimal units
std::string count_text(uint64_t count);    // "135 M"
std::string milliseconds_text(double ms);  // "0.52 ms", "54.5 ms", "24.7 s"
std::string three_digits(double value);    // "0.052", "5.32", "850", "24700": never an exponent

}  // namespace baton
